"""Every kernel against a float64 brute force, in outputs and gradients."""

import pytest
import torch
from torch.testing import assert_close

from brute_force import attention, rotated
from romae.model.attention import attend, attend_within
from romae.model.rope import AxialRope
from romae.tokens.tokens import Layout

CPU = pytest.param("cpu", torch.float32, 2e-5, id="cpu-float32")
CUDA = [
    pytest.param("cuda", dtype, tolerance, id=f"cuda-{str(dtype)[6:]}", marks=pytest.mark.cuda)
    for dtype, tolerance in ((torch.float32, 1e-4), (torch.bfloat16, 2e-2), (torch.float16, 3e-3))
]
LENGTHS = {
    "one sample": [5],
    "single tokens": [1, 1, 1],
    "equal": [6, 6, 6],
    "ragged": [3, 1, 7, 7, 2],
    "very unequal": [1, 2000, 3],
    "with an empty one": [4, 0, 2],
    "sorted by length": [0, 1, 1, 3, 3, 8],
}


def heads(lengths: list[int], size: int, device: str, dtype: torch.dtype) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(sum(lengths) + size)
    return [torch.randn(sum(lengths), 2, size, generator=generator).to(device, dtype) for _ in range(4)]


def relative(ours: torch.Tensor, truth: torch.Tensor) -> float:
    """The error in units of the truth, or as it is where the truth is zero."""
    size = truth.norm().item()
    return ((ours.cpu().double() - truth).norm() / (size if size > 1e-9 else 1.0)).item()


@pytest.mark.parametrize("size", [60, 64, 72])
@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS.keys())
@pytest.mark.parametrize(("device", "dtype", "tolerance"), [CPU, *CUDA])
def test_attention_equals_the_brute_force(lengths, size, device, dtype, tolerance):
    *qkv, weight = heads(lengths, size, device, dtype)
    inputs = [x.clone().requires_grad_() for x in qkv]
    output = attend(*inputs, Layout.of(lengths, device))
    gradients = torch.autograd.grad((output * weight).sum(), inputs)

    exact = [x.cpu().double().requires_grad_() for x in qkv]
    truth = attention(*exact, lengths)
    true_gradients = torch.autograd.grad((truth * weight.cpu().double()).sum(), exact)
    assert output.dtype == dtype and relative(output, truth.detach()) < tolerance
    for ours, true in zip(gradients, true_gradients, strict=True):
        assert relative(ours, true) < 2 * tolerance


@pytest.mark.parametrize("size", [60, 64])
@pytest.mark.parametrize(
    "lengths",
    [[6, 6, 6], [3, 1, 7, 2], [17, 17], [16, 17, 5], [65, 64, 2], [129, 129], [128, 129, 60, 1], [130, 7]],
    ids=str,
)
@pytest.mark.parametrize(("device", "dtype", "tolerance"), [CPU, *CUDA])
def test_attention_between_turned_tokens_equals_the_brute_force(lengths, size, device, dtype, tolerance):
    """Samples as long as a tile of the fused kernel, and longer by one or two, among them."""
    *qkv, weight = heads(lengths, size, device, dtype)
    positions = torch.rand(sum(lengths), 2, generator=torch.Generator().manual_seed(0)) * 20
    given = torch.stack(qkv, 1).requires_grad_()
    output = attend_within(given, AxialRope(size, 2).to(device)(positions.to(device)), Layout.of(lengths, device))
    (gradient,) = torch.autograd.grad((output * weight).sum(), given)

    exact = torch.stack(qkv, 1).cpu().double().requires_grad_()
    q, k = (rotated(x, positions.double(), keep=0.75) for x in (exact[:, 0], exact[:, 1]))
    truth = attention(q, k, exact[:, 2], lengths)
    (true_gradient,) = torch.autograd.grad((truth * weight.cpu().double()).sum(), exact)
    assert output.dtype == dtype and relative(output, truth.detach()) < tolerance
    with torch.no_grad():
        rotation, layout = AxialRope(size, 2).to(device)(positions.to(device)), Layout.of(lengths, device)
        assert relative(attend_within(given, rotation, layout), truth.detach()) < tolerance
    for part in range(3):
        assert relative(gradient[:, part], true_gradient[:, part]) < 2 * tolerance


@pytest.mark.parametrize(
    ("lengths", "keys"),
    [([3, 3], [5, 5]), ([3, 1, 7], [2, 9, 4]), ([4, 4, 4], [5, 1, 30]), ([300, 0, 2], [7, 3, 1])],
    ids=["equal", "ragged", "equal queries", "without queries"],
)
@pytest.mark.parametrize(("device", "dtype", "tolerance"), [CPU, *CUDA])
def test_queries_attend_to_keys_of_another_layout(lengths, keys, device, dtype, tolerance):
    (q, *_), (k, v, *_) = heads(lengths, 60, device, dtype), heads(keys, 60, device, dtype)
    inputs = [x.clone().requires_grad_() for x in (q, k, v)]
    output = attend(*inputs, Layout.of(lengths, device), context=Layout.of(keys, device))
    gradients = torch.autograd.grad(output.square().sum(), inputs)
    exact = [x.cpu().double().requires_grad_() for x in (q, k, v)]
    truth = attention(*exact, lengths, keys)
    true_gradients = torch.autograd.grad(truth.square().sum(), exact)
    assert relative(output, truth.detach()) < tolerance
    for ours, true in zip(gradients, true_gradients, strict=True):
        assert relative(ours, true) < 3 * tolerance


@pytest.mark.parametrize("lengths", [[40, 40], [50, 30]], ids=["equal", "ragged"])
@pytest.mark.parametrize(("device", "dtype", "tolerance"), [CPU, *CUDA])
def test_dropout_is_right_in_expectation(lengths, device, dtype, tolerance):
    q, k, v, _ = heads(lengths, 8, device, dtype)
    torch.manual_seed(0)
    layout = Layout.of(lengths, device)
    drawn = torch.stack([attend(q, k, v, layout, 0.3).float() for _ in range(400)])
    truth = attention(*(x.cpu().double() for x in (q, k, v)), lengths)
    assert drawn.std(0).mean() > 0.01
    assert relative(drawn.mean(0), truth) < 0.06


def with_dropout(q, k, v, drawn, lengths, keys, rate: float) -> torch.Tensor:
    """Attention written out, without the weights that `drawn` left out, the others raised to make up for them."""
    out = []
    parts = zip(q.split(lengths), k.split(keys), v.split(keys), drawn.split(lengths), strict=True)
    for qs, ks, vs, kept in parts:
        weights = (torch.einsum("qhe,khe->hqk", qs, ks) / q.shape[-1] ** 0.5).softmax(-1)
        weights = weights * kept.transpose(0, 1)[..., : len(ks)] / (1 - rate)
        out.append(torch.einsum("hqk,khe->qhe", weights, vs))
    return torch.cat(out)


@pytest.mark.parametrize(
    ("lengths", "keys"),
    [([16, 16], [16, 16]), ([16, 5, 9], [16, 5, 9]), ([8, 8], [16, 16]), ([30, 4, 7], [9, 16, 2])],
    ids=["equal", "ragged", "equal queries", "ragged queries"],
)
@pytest.mark.parametrize(("device", "dtype", "tolerance"), [CPU, *CUDA])
def test_gradients_under_dropout_are_those_of_the_weights_that_were_kept(lengths, keys, device, dtype, tolerance):
    """Where the values of a sample are the unit vectors, the output shows which weights were left out."""
    rate = 0.3
    (q, *_, weight), (k, *_) = heads(lengths, 16, device, dtype), heads(keys, 16, device, dtype)
    v = torch.cat([torch.eye(n, 16) for n in keys]).unsqueeze(1).repeat(1, 2, 1).to(device, dtype)
    inputs = [x.clone().requires_grad_() for x in (q, k, v)]
    torch.manual_seed(0)
    output = attend(*inputs, Layout.of(lengths, device), rate, context=Layout.of(keys, device))
    gradients = torch.autograd.grad((output * weight).sum(), inputs)

    drawn = (output.detach() != 0).cpu().double()
    n_weights = 2 * sum(n * m for n, m in zip(lengths, keys, strict=True))
    assert abs(drawn.sum() / n_weights - (1 - rate)) < 0.1
    exact = [x.cpu().double().requires_grad_() for x in (q, k, v)]
    truth = with_dropout(*exact, drawn, lengths, keys, rate)
    true_gradients = torch.autograd.grad((truth * weight.cpu().double()).sum(), exact)
    assert relative(output, truth.detach()) < tolerance
    for ours, true in zip(gradients, true_gradients, strict=True):
        assert relative(ours, true) < 3 * tolerance


def test_tokens_of_other_samples_do_not_matter():
    q, k, v, _ = heads([4, 6, 3], 12, "cpu", torch.float32)
    together = attend(q, k, v, Layout.of([4, 6, 3]))
    alone = attend(q[4:10], k[4:10], v[4:10], Layout.of([6]))
    assert_close(together[4:10], alone)


def fixed(lengths: list[int]) -> Layout:
    """The layout of a batch of fixed size, which goes to the padded path on every device."""
    layout = Layout.of(lengths)
    return Layout.fixed(layout.offsets, layout.n_tokens, layout.longest, is_equal=False)


PATHS = {
    "one length, dense": ([6, 6], Layout.of),
    "sorted by length": ([5, 9, 5, 2], Layout.of),
    "padded": ([5, 9, 5, 2], fixed),
}


@pytest.mark.parametrize(("lengths", "layout"), PATHS.values(), ids=PATHS.keys())
def test_every_path_takes_the_scale_that_it_is_given(lengths, layout):
    """Scores that are scaled twice as much are those of twice the queries; 0 gives every key the same weight."""
    q, k, v, _ = heads(lengths, 12, "cpu", torch.float32)
    exact = [x.double() for x in (q, k, v)]
    doubled = attend(q, k, v, layout(lengths), scale=2 * 12**-0.5)
    assert relative(doubled, attention(2 * exact[0], *exact[1:], lengths)) < 2e-5
    alike = attend(q, k, v, layout(lengths), scale=0.0)
    assert relative(alike, attention(0 * exact[0], *exact[1:], lengths)) < 2e-5
    within = attend_within(torch.stack((q, k, v), 1), None, layout(lengths), scale=2 * 12**-0.5)
    assert_close(within, doubled)


@pytest.mark.parametrize(("lengths", "layout"), PATHS.values(), ids=PATHS.keys())
def test_every_path_drops_scores_and_makes_up_for_them(lengths, layout):
    """Where the values of a sample are unit vectors, the output shows which weights were left out, path by path."""
    rate = 0.4
    q, k, *_ = heads(lengths, 16, "cpu", torch.float32)
    v = torch.cat([torch.eye(n, 16) for n in lengths]).unsqueeze(1).repeat(1, 2, 1)
    torch.manual_seed(0)
    output = attend(q, k, v, layout(lengths), rate).double()
    kept = (output != 0).double()
    assert abs(kept.sum() / (2 * sum(n * n for n in lengths)) - (1 - rate)) < 0.15
    assert relative(output, with_dropout(*(x.double() for x in (q, k, v)), kept, lengths, lengths, rate)) < 2e-5
    torch.manual_seed(0)
    assert_close(attend_within(torch.stack((q, k, v), 1), None, layout(lengths), rate).double(), output)

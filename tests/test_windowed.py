"""Windows: a full one leaves nothing out, a narrow one hides what is far, and memory stays linear."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from messages import refused
from romae.model.autoencoder import Encoder
from romae.model.config import ModelConfig, Size
from romae.model.tasks import MaskedReconstruction
from romae.tokens.sample import Sample
from romae.tokens.tokens import Tokens, collate

SIZE = Size(width=16, heads=2, depth=2)
CONFIG = ModelConfig(channels=1, position_dims=2, encoder=SIZE, decoder=SIZE, queries="joint")


def tokens(lengths: list[int], seed: int = 0) -> Tokens:
    random = torch.Generator().manual_seed(seed)
    values = [torch.randn(n, 1, generator=random) for n in lengths]
    return Tokens.pack(values, [torch.rand(n, 2, generator=random) * 20 for n in lengths])


def pair(config: ModelConfig, window: int) -> tuple[Encoder, Encoder]:
    torch.manual_seed(0)
    whole = Encoder(config)
    return whole, whole.rebuilt(window=window)


def answers(encoder: Encoder, batch: Tokens) -> tuple[torch.Tensor, torch.Tensor]:
    """What an encoder gives, and all its gradients end to end."""
    out = encoder(batch).values
    gradients = torch.autograd.grad(out.float().square().sum(), list(encoder.parameters()))
    return out.detach(), torch.cat([gradient.flatten().float() for gradient in gradients])


@pytest.mark.parametrize("cls", [True, False])
@given(st.lists(st.integers(1, 20), min_size=1, max_size=5), st.integers(20, 30))
def test_a_full_window_is_attention_to_all(cls, lengths, window):
    whole, windowed = pair(replace(CONFIG, cls=cls), window)
    batch = tokens(lengths)
    expected, found = whole(batch).values, windowed(batch).values
    assert_close(found, expected, rtol=1e-4, atol=1e-5)
    gradients = [torch.autograd.grad(out.square().sum(), list(encoder.parameters())) for encoder, out in
                 ((whole, expected), (windowed, found))]  # fmt: skip
    for ours, theirs in zip(*gradients, strict=True):
        assert (ours - theirs).norm() <= 1e-4 * theirs.norm() + 1e-4


@pytest.mark.parametrize("window", [1, 2, 3, 7])
def test_a_token_sees_its_neighbours_and_no_more(window):
    """One layer without CLS: a change reaches exactly the tokens up to `window` places away along the first axis."""
    torch.manual_seed(0)
    encoder = Encoder(replace(CONFIG, cls=False, window=window, encoder=replace(SIZE, depth=1)))
    batch = tokens([12, 9])
    rank = torch.cat([batch.positions[a:b, 0].argsort().argsort() for a, b in ((0, 12), (12, 21))])
    before = encoder(batch).values
    changed = batch.values.clone()
    changed[4] += 1
    moved = (encoder(replace(batch, values=changed)).values - before).abs().amax(-1) > 1e-7
    expected = (rank - rank[4]).abs() <= window
    expected[12:] = False
    assert torch.equal(moved, expected)


def test_cls_sees_all_and_is_seen_by_all():
    torch.manual_seed(0)
    encoder = Encoder(replace(CONFIG, window=1, encoder=replace(SIZE, depth=1)))
    batch = tokens([15])
    changed = batch.values.clone()
    changed[3] += 1
    moved = (encoder(replace(batch, values=changed)).values - encoder(batch).values).abs().amax(-1) > 1e-7
    assert moved[0] and int(moved.sum()) == 1 + 3
    before = encoder(batch).values
    with torch.no_grad():
        encoder.cls += 1
    assert bool(((encoder(batch).values - before).abs().amax(-1) > 1e-7).all())


def test_the_order_of_tokens_does_not_matter():
    _, encoder = pair(CONFIG, 2)
    batch = tokens([11])
    order = torch.randperm(11, generator=torch.Generator().manual_seed(3))
    shuffled = Tokens.pack([batch.values[order]], [batch.positions[order]])
    assert_close(encoder(shuffled).values[1:], encoder(batch).values[1:][order])


def test_a_windowed_model_pretrains_and_a_decoder_of_its_own_kind_is_asked_for():
    task = MaskedReconstruction(replace(CONFIG, window=4))
    batch = task.prepare(
        collate([Sample(torch.randn(30, 1), torch.rand(30, 2)), Sample([[1.0]] * 5, [[0.1, 0.2]] * 5)])
    )
    task(batch).mean.backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in task.parameters())
    with refused(ValueError, "use queries='joint'"):
        MaskedReconstruction(replace(CONFIG, window=4, queries="independent"))
    with refused(ValueError, "at least 1", "not 0"):
        replace(CONFIG, window=0)


def test_long_samples_need_no_square_of_memory():
    """At 40 000 tokens all pairs would be 1.6 billion; the largest tensor here has a few million numbers."""
    encoder = Encoder(replace(CONFIG, window=16, encoder=replace(SIZE, depth=1)))
    largest = 0

    class Watch(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            nonlocal largest
            out = function(*args, **(kwargs or {}))
            if isinstance(out, torch.Tensor):
                largest = max(largest, out.numel())
            return out

    with torch.no_grad(), Watch():
        encoder(tokens([40_000]))
    assert largest < 10_000_000


@pytest.mark.cuda
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.bfloat16, 3e-2)])
def test_a_full_window_is_attention_to_all_on_a_gpu(dtype, tolerance):
    """Outputs and gradients, held against attention to all in double precision on the host."""
    whole, windowed = pair(CONFIG, 40)
    batch = tokens([40, 7, 23])
    expected = answers(whole.double(), batch.to("cpu", torch.float64))
    found = answers(windowed.to("cuda", dtype), batch.to("cuda", dtype))
    for ours, truth in zip(found, expected, strict=True):
        assert ((ours.double().cpu() - truth).norm() / truth.norm()).item() < tolerance

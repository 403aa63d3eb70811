"""The two Triton kernels on a CPU, through Triton's interpreter, forward and backward against float64."""

from importlib.util import find_spec

import pytest
import torch

from brute_force import attention, rotated
from romae.model.attention import _angles
from romae.model.rope import AxialRope

if find_spec("triton") is None:
    pytest.skip("Triton cannot be had for this platform, or is not installed", allow_module_level=True)
if torch.cuda.is_available():
    pytest.skip("here the kernels are compiled: test_attention.py runs them on the GPU", allow_module_level=True)

from romae.model.kernels.attention import BACKWARD, FORWARD, LONGEST, attend_short  # noqa: E402
from romae.model.kernels.rotation import N_TOKENS, turn  # noqa: E402

# Rounding of outputs and gradients relative to the truth: float16 keeps 11 bits, bfloat16 8, of the softmax too. In the
# interpreter, matrix products of bfloat16 multiply bit patterns, so attention is not asked for those.
PRECISIONS = {torch.float32: 1e-5, torch.float16: 3e-3, torch.bfloat16: 2e-2}


def drawn(n_tokens: int, n_heads: int, size: int, dims: int, dtype: torch.dtype):
    """Queries, keys and values, their positions, and cosines and sines as the kernels take them."""
    generator = torch.Generator().manual_seed(n_tokens + size)
    qkv = torch.randn(n_tokens, 3, n_heads, size, generator=generator).to(dtype)
    positions = torch.rand(n_tokens, dims, generator=generator) * 20
    return qkv, positions, *_angles(qkv, AxialRope(size, dims)(positions))


def relative(ours: torch.Tensor, truth: torch.Tensor) -> float:
    return ((ours.double() - truth).norm() / truth.norm()).item()


def turned(exact: torch.Tensor, positions: torch.Tensor) -> tuple[torch.Tensor, ...]:
    q, k = (rotated(exact[:, part], positions.double(), keep=0.75) for part in (0, 1))
    return q, k, exact[:, 2]


def weighted(outputs: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """A sum whose gradient differs for each entry of each output."""
    generator = torch.Generator().manual_seed(1)
    return sum((out * torch.randn(out.shape, generator=generator).to(out.dtype)).sum() for out in outputs)


@pytest.mark.parametrize(
    ("lengths", "n_heads", "size", "dims", "dtype"),
    [
        ([3, 1, 7, 0, 2], 2, 12, 2, torch.float32),  # pairs that fill no power of two, samples shorter than any tile
        ([16, 17, 5], 2, 12, 3, torch.float16),  # as long as the smallest tile, and longer by one
        ([3, 5], 1, 40, 1, torch.float32),  # more channels than the smallest tile has rows
        ([65, 2, 64], 1, 4, 1, torch.float32),  # two launches backward, of 64 keys and of 128
        ([LONGEST], 1, 4, 1, torch.float32),  # several strides of queries
    ],
    ids=str,
)
def test_attention_of_short_samples_is_that_of_float64(lengths, n_heads, size, dims, dtype):
    qkv, positions, cos, sin = drawn(sum(lengths), n_heads, size, dims, dtype)
    offsets = torch.tensor([0, *lengths]).cumsum(0).to(torch.int32)
    given = qkv.clone().requires_grad_()
    output = attend_short(given, cos, sin, offsets, max(lengths), size**-0.5)
    (gradient,) = torch.autograd.grad(weighted((output,)), given)

    exact = qkv.double().requires_grad_()
    truth = attention(*turned(exact, positions), lengths)
    (true_gradient,) = torch.autograd.grad(weighted((truth,)), exact)
    assert output.dtype == gradient.dtype == dtype
    assert relative(output, truth.detach()) < PRECISIONS[dtype]
    for part in range(3):
        assert relative(gradient[:, part], true_gradient[:, part]) < 2 * PRECISIONS[dtype]


def test_attention_takes_its_scale_and_angles_that_all_tokens_share():
    """As without a rotation; a scale of twice the usual one is that of twice the queries."""
    lengths, size = [5, 3], 12
    qkv, *_ = drawn(sum(lengths), 2, size, 1, torch.float32)
    offsets = torch.tensor([0, *lengths]).cumsum(0).to(torch.int32)
    cos, sin = _angles(qkv, None)
    given = qkv.clone().requires_grad_()
    output = attend_short(given, cos, sin, offsets, 5, 2 * size**-0.5)
    (gradient,) = torch.autograd.grad(weighted((output,)), given)
    exact = qkv.double().requires_grad_()
    truth = attention(2 * exact[:, 0], exact[:, 1], exact[:, 2], lengths)
    (true_gradient,) = torch.autograd.grad(weighted((truth,)), exact)
    assert relative(output, truth.detach()) < 1e-5 and relative(gradient, true_gradient) < 1e-5


def test_every_tile_has_its_warps_and_stages():
    """What `_launch` looks up for any length up to the longest."""
    for plan in (FORWARD, BACKWARD):
        assert {16, 32, 64, LONGEST} == set(plan.warps) == set(plan.stages) >= set(plan.tiles)


@pytest.mark.parametrize(
    ("n_tokens", "n_heads", "size", "dims", "dtype"),
    [
        (N_TOKENS + 3, 2, 12, 2, torch.float32),  # a program that is full and one that is not
        (5, 1, 8, 1, torch.float16),
        (N_TOKENS, 3, 12, 3, torch.bfloat16),
    ],
    ids=str,
)
def test_rotation_is_that_of_float64(n_tokens, n_heads, size, dims, dtype):
    qkv, positions, cos, sin = drawn(n_tokens, n_heads, size, dims, dtype)
    given = qkv.clone().requires_grad_()
    outputs = turn(given, cos, sin)
    (gradient,) = torch.autograd.grad(weighted(outputs), given)

    exact = qkv.double().requires_grad_()
    truths = turned(exact, positions)
    (true_gradient,) = torch.autograd.grad(weighted(truths), exact)
    for ours, true in zip(outputs, truths, strict=True):
        assert ours.dtype == dtype and relative(ours, true.detach()) < PRECISIONS[dtype]
    assert gradient.dtype == dtype and relative(gradient, true_gradient) < PRECISIONS[dtype]
    assert torch.equal(outputs[2], qkv[:, 2])  # values are moved, not turned

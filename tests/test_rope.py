"""Rotary positions: what the mathematics says they do."""

import math

import pytest
import torch
from torch.testing import assert_close

from brute_force import rotated
from messages import refused
from romae.model.rope import AxialRope, Sinusoid, rotate
from romae.tokens.ladder import Ladder


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(("head", "dims"), [(60, 1), (60, 2), (60, 3), (24, 4), (72, 2), (8, 1)])
@pytest.mark.parametrize("keep", [0.0, 0.75, 1.0])
def test_rotation_equals_the_plain_formula(head, dims, keep):
    x, positions = random(7, 2, head), 5 * random(7, dims, seed=1)
    ours = rotate(x, AxialRope(head, dims, keep=keep)(positions))
    assert_close(ours, rotated(x.double(), positions.double(), keep).float(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("head", "dims"), [(60, 1), (60, 2), (24, 4), (72, 2), (8, 1)])
@pytest.mark.parametrize("heads", [1, 3])
def test_rows_of_heads_turn_as_heads_do(head, dims, heads):
    qkv, rotation = random(7, 3, heads, head), AxialRope(head, dims)(5 * random(7, dims, seed=1))
    for x in qkv.unbind(1):  # parts of a larger tensor, as in attention
        turned = rotation.rows(heads).turn(x)
        assert turned.shape == x.shape
        assert_close(turned, rotate(x, rotation), rtol=1e-6, atol=1e-6)
    assert rotation.rows(heads) is rotation.rows(heads), "made once for all layers"
    assert rotation.rows(heads + 1).turn(random(7, heads + 1, head)).shape == (7, heads + 1, head)


@pytest.mark.parametrize(("dims", "n_kept"), [(1, 22), (2, 11), (3, 7)])
def test_a_head_of_60_keeps_as_many_frequencies_as_the_paper(dims, n_kept):
    frequencies = AxialRope(60, dims).frequencies
    assert (frequencies > 0).sum(1).tolist() == [n_kept] * dims
    assert frequencies[0, 0] == 1  # the highest are kept
    assert torch.all(frequencies.diff(dim=1) <= 0)


def test_unrotated_channels_are_untouched():
    x = random(5, 1, 16)
    turned = rotate(x, AxialRope(16, 1, keep=0.5)(100 * random(5, 1, seed=2)))
    assert torch.equal(turned[..., 4:8], x[..., 4:8]) and torch.equal(turned[..., 12:], x[..., 12:])
    assert not torch.equal(turned[..., :4], x[..., :4])


def test_each_axis_only_sees_its_own_coordinate():
    x, rope = random(4, 2, 24), AxialRope(24, 3)
    positions = random(4, 3, seed=3)
    before = rotate(x, rope(positions)).unflatten(-1, (3, 8))
    for axis in range(3):
        moved = positions.clone()
        moved[:, axis] += 2.5
        changed = (rotate(x, rope(moved)).unflatten(-1, (3, 8)) != before).flatten(0, 1).any(0).any(-1)
        assert changed.tolist() == [i == axis for i in range(3)]


def test_position_zero_is_the_identity():
    x = random(3, 2, 12)
    assert torch.equal(rotate(x, AxialRope(12, 1)(torch.zeros(3, 1))), x)


def test_scores_depend_on_differences_alone():
    q, k, rope = random(1, 1, 24), random(1, 1, 24, seed=1), AxialRope(24, 2)
    at = lambda x, *place: rotate(x, rope(torch.tensor([place])))  # noqa: E731
    there = (at(q, 1.25, 3.0) * at(k, 0.5, 7.0)).sum()
    elsewhere = (at(q, 11.25, -17.0) * at(k, 10.5, -13.0)).sum()
    assert_close(there, elsewhere, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("distance", [0.7, 3.0, 12.5])
def test_a_key_can_ask_for_any_distance(distance):
    """The paper's construction: with key = R^r q the score peaks where the key stands r away from the query."""
    rope, q = AxialRope(64, 1, keep=1.0), random(1, 1, 64)
    key = rotate(q, rope(torch.tensor([[distance]])))
    offsets = torch.linspace(-20, 20, 4001).unsqueeze(-1)
    scores = (rotate(q.expand(len(offsets), -1, -1), rope(offsets)) * key).sum((-1, -2))
    assert abs(offsets[scores.argmax()].item() - distance) < 0.011


def test_angles_stay_in_full_precision():
    rope = AxialRope(12, 1).half().bfloat16()
    assert rope.frequencies.dtype == torch.float32
    positions = torch.tensor([[1234.567]])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rotation = rope(positions)
        assert rotation.cos.dtype == torch.float32
        assert_close(rotation.cos, AxialRope(12, 1)(positions).cos, rtol=0, atol=0)
        assert rotate(random(1, 1, 12).bfloat16(), rotation).dtype == torch.bfloat16


def test_nothing_is_trained_and_nothing_is_saved():
    rope = AxialRope(12, 1)
    assert not list(rope.parameters()) and not rope.state_dict()


def test_a_ladder_can_be_given_in_units_of_the_data():
    assert_close(Ladder(scale=5.0).frequencies(6, 1.0), Ladder().frequencies(6, 1.0) / 5)
    ends = Ladder(shortest=2.0, longest=32.0).frequencies(8, 0.625)
    assert_close(2 * math.pi / ends[:5], torch.tensor([2.0, 4, 8, 16, 32], dtype=torch.float64))
    assert ends[5:].tolist() == [0, 0, 0]
    named = Ladder(wavelengths=(10.0, 5.0)).frequencies(3, 0.1)
    assert_close(named, torch.tensor([2 * math.pi / 5, 2 * math.pi / 10, 0], dtype=torch.float64))


def test_the_sinusoid_reads_real_valued_positions():
    sinusoid = Sinusoid(10, 2)  # two pairs on each axis, and two channels left over
    assert_close(
        sinusoid(torch.tensor([[0.5, 200.0]]))[0],
        torch.tensor(
            [math.sin(0.5), math.sin(0.005), math.cos(0.5), math.cos(0.005)]
            + [math.sin(200), math.sin(2), math.cos(200), math.cos(2), 0, 0]
        ),
    )


@pytest.mark.parametrize(
    ("make", "parts"),
    [
        (
            lambda: AxialRope(60, 4),
            ["head size 60", "2 x 4", "56 and 64"],
        ),
        (lambda: AxialRope(60, 1, keep=1.5), ["between 0 and 1"]),
        (lambda: AxialRope(60, 2, ladders=[Ladder()]), ["1 ladders", "2 position dimensions"]),
        (lambda: AxialRope(60, 0), ["one position dimension"]),
        (lambda: Ladder(scale=0.0), ["must be positive"]),
        (lambda: Ladder(base=1.0), ["above 1"]),
        (lambda: Ladder(shortest=1.0), ["both"]),
        (lambda: Ladder(shortest=2.0, longest=1.0), ["must climb"]),
        (lambda: Ladder(shortest=1.0, longest=2.0, wavelengths=(1.0,)), ["not both"]),
        (lambda: Ladder(wavelengths=(-1.0,)), ["above 0"]),
        (lambda: Ladder(wavelengths=(1.0, 2.0)).frequencies(1, 1.0), ["2 wavelengths", "into 1"]),
        (lambda: Sinusoid(2, 2), ["too small"]),
    ],
)
def test_what_does_not_fit_gets_a_sentence(make, parts):
    with refused(ValueError, *parts):
        make()

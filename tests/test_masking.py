"""Masks: exact counts, never everything, the same from the same seed."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from messages import refused
from romae.data.schema import Schema
from romae.tokens.masking import (
    Channels,
    Future,
    Rows,
    SampleKeys,
    Spans,
    UniformTokens,
    hide,
    hide_at_random,
    hide_highest,
    visible_and_hidden,
)
from romae.tokens.sample import Sample
from romae.tokens.tokens import Layout, Tokens

LENGTHS = st.lists(st.integers(1, 30), min_size=1, max_size=6)
RATIOS = st.sampled_from([0.01, 0.25, 0.5, 0.75, 0.99])


def made(lengths: list[int], seed: int = 0, n_rows: int = 5, dims: int = 2) -> Tokens:
    """Tokens whose first coordinate takes few values, so that rows have several."""
    generator = torch.Generator().manual_seed(seed)
    positions = [
        torch.cat([torch.randint(n_rows, (n, 1), generator=generator), torch.rand(n, dims - 1, generator=generator)], 1)
        for n in lengths
    ]
    return Tokens.pack([torch.randn(n, 1, generator=generator) for n in lengths], positions)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def expected_count(n: int, ratio: float) -> int:
    return 0 if n == 1 else min(max(round(n * ratio), 1), n - 1)


@given(LENGTHS, RATIOS, st.integers(0, 99))
def test_shares_of_tokens_are_exact(lengths, ratio, seed):
    tokens = made(lengths, seed)
    for masking in (UniformTokens(ratio=ratio), Spans(ratio=ratio, n_spans=2), Future(ratio=ratio)):
        hidden = masking.hidden(tokens, seeded(seed))
        counts = [int(part.sum()) for part in hidden.split(lengths)]
        assert counts == [expected_count(n, ratio) for n in lengths]
        visible, masked = visible_and_hidden(tokens, masking, seeded(seed))
        assert torch.equal(visible.values, tokens.values[~hidden])
        assert torch.equal(masked.values, tokens.values[hidden])
        assert masked.layout.lengths.tolist() == counts


@given(LENGTHS, RATIOS, st.integers(0, 99))
def test_rows_are_hidden_whole(lengths, ratio, seed):
    tokens = made(lengths, seed)
    hidden = Rows(ratio=ratio).hidden(tokens, seeded(seed))
    for part, positions in zip(hidden.split(lengths), tokens.positions.split(lengths), strict=True):
        rows = {row: set(part[positions[:, 0] == row].tolist()) for row in positions[:, 0].unique().tolist()}
        assert all(len(states) == 1 for states in rows.values())
        assert sum(states == {True} for states in rows.values()) == expected_count(len(rows), ratio)
    visible, masked = visible_and_hidden(tokens, Rows(ratio=ratio), seeded(seed))
    assert torch.equal(masked.values, tokens.values[hidden]) and torch.equal(visible.values, tokens.values[~hidden])


def test_the_last_row_of_a_sample_is_none_of_the_next_one():
    """Neighbours that meet in one coordinate keep rows of their own: each has two, and hides one of them."""
    places = [[0.0, 5.0], [5.0, 9.0], [5.0, 9.0, 9.0]]
    tokens = Tokens.pack([torch.zeros(len(x), 1) for x in places], [torch.tensor(x)[:, None] for x in places])
    for seed in range(8):
        hidden = Rows(ratio=0.5).hidden(tokens, seeded(seed))
        coordinates = tokens.positions[:, 0].split([2, 2, 3])
        counts = [len(x[part].unique()) for x, part in zip(coordinates, hidden.split([2, 2, 3]), strict=True)]
        assert counts == [1, 1, 1]


def test_what_is_hidden_keeps_its_names():
    schema = Schema(values=("flux",))
    samples = [Sample(torch.ones(4, 1), torch.arange(4.0)[:, None], schema=schema) for _ in range(2)]
    assert [sample.schema for sample in hide(samples, UniformTokens(ratio=0.5))] == [schema, schema]


def test_channels_are_rows_of_the_last_axis():
    tokens = Tokens.pack([torch.zeros(6, 1)], [torch.tensor([[t, c] for t in range(2) for c in range(3)]).float()])
    hidden = Channels(ratio=0.34).hidden(tokens, seeded(1)).reshape(2, 3)
    assert torch.equal(hidden[0], hidden[1]) and hidden[0].sum() == 1


@given(st.integers(2, 40), RATIOS, st.integers(0, 99))
def test_a_span_is_contiguous(n, ratio, seed):
    positions = torch.rand(n, 1, generator=seeded(seed))
    hidden = Spans(ratio=ratio).hidden(Tokens.pack([torch.zeros(n, 1)], [positions]), seeded(seed))
    in_order = hidden[positions.flatten().argsort()].long()
    assert in_order.diff().abs().sum() <= 2 and (in_order.diff() == 1).sum() <= 1


@pytest.mark.parametrize("n_spans", [1, 2, 3])
def test_there_are_as_many_spans_as_asked_for_unless_some_meet(n_spans):
    tokens, found = Tokens.pack([torch.zeros(100, 1)], [torch.arange(100.0).unsqueeze(-1)]), []
    for seed in range(30):
        hidden = Spans(ratio=0.15, n_spans=n_spans).hidden(tokens, seeded(seed)).long()
        found.append(int(hidden[0] + (hidden.diff() == 1).sum()))
    assert max(found) == n_spans and sum(found) > 0.7 * 30 * n_spans


@pytest.mark.parametrize("seed", range(8))
def test_a_span_is_a_box_in_units_of_the_extent(seed):
    """Some token is nearer to all hidden ones than to any visible one, by the largest of the scaled differences."""
    positions = torch.rand(60, 2, generator=seeded(seed)) * torch.tensor([1.0, 50.0])
    hidden = Spans(ratio=0.4).hidden(Tokens.pack([torch.zeros(60, 1)], [positions]), seeded(seed))
    scaled = positions / (positions.amax(0) - positions.amin(0))
    distance = (scaled.unsqueeze(1) - scaled).abs().amax(-1)
    assert (distance[:, hidden].amax(1) < distance[:, ~hidden].amin(1)).any()


def test_the_unit_of_an_axis_changes_no_span():
    positions = [torch.rand(30, 2, generator=seeded(i)) for i in range(2)]
    other_unit = [positions[0] * torch.tensor([1.0, 1024.0]), positions[1]]
    one, other = (Tokens.pack([torch.zeros(30, 1)] * 2, where) for where in (positions, other_unit))
    for seed in range(5):
        assert torch.equal(Spans().hidden(one, seeded(seed)), Spans().hidden(other, seeded(seed)))


@pytest.mark.parametrize("seed", range(5))
def test_a_tube_runs_along_the_axes_left_out(seed):
    """Twelve columns at places of their own, each at four times: three of them are hidden, at every time."""
    columns = torch.rand(12, 2, generator=seeded(seed)).repeat(4, 1)
    times = torch.arange(4.0).repeat_interleave(12).unsqueeze(-1)
    tokens = Tokens.pack([torch.zeros(48, 1)], [torch.cat([times, columns], 1)])
    hidden = Spans(ratio=3 / 12, axes=(1, 2)).hidden(tokens, seeded(seed)).reshape(4, 12)
    assert hidden[0].sum() == 3 and (hidden == hidden[0]).all()


def test_the_future_is_what_comes_last():
    tokens = Tokens.pack([torch.zeros(4, 1)], [torch.tensor([[3.0], [0.0], [2.0], [1.0]])])
    assert Future(ratio=0.5).hidden(tokens).tolist() == [True, False, True, False]


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_the_future_lies_along_its_axis(axis):
    positions = torch.stack([torch.randperm(10, generator=seeded(i)) for i in range(3)], 1).float()
    hidden = Future(ratio=0.3, axis=axis).hidden(Tokens.pack([torch.zeros(10, 1)], [positions]))
    assert torch.equal(hidden, positions[:, axis] >= 7)


def test_every_token_is_as_likely_to_be_hidden():
    """In 4000 draws, of many samples at a time and many times."""
    tokens, generator = made([8] * 100), seeded(0)
    hidden = torch.cat([UniformTokens(ratio=0.5).hidden(tokens, generator).view(100, 8) for _ in range(40)])
    assert (hidden.float().mean(0) - 0.5).abs().max() < 0.04


@pytest.mark.parametrize("masking", [UniformTokens(), Rows(), Channels(), Spans()])
def test_the_seed_alone_decides(masking):
    tokens = made([20, 13, 4], dims=3)
    first = masking.hidden(tokens, seeded(3))
    assert torch.equal(first, masking.hidden(tokens, seeded(3)))
    assert any(not torch.equal(first, masking.hidden(tokens, seeded(seed))) for seed in range(4, 8))


@pytest.mark.parametrize("masking", [UniformTokens(), Rows(), Channels(), Spans()])
def test_without_a_source_every_call_draws_anew(masking):
    torch.manual_seed(0)
    tokens = made([20, 13, 4], dims=3)
    drawn = {tuple(masking.hidden(tokens).tolist()) for _ in range(8)}
    assert len(drawn) > 4


@pytest.mark.parametrize("source", [lambda: seeded(0), lambda: None], ids=["generator", "none"])
def test_every_row_is_as_likely_to_be_hidden(source):
    torch.manual_seed(0)
    tokens = Tokens.pack([torch.zeros(8, 1)] * 2000, [torch.arange(8.0).unsqueeze(-1)] * 2000)
    share = Rows(ratio=0.25).hidden(tokens, source()).reshape(2000, 8).float().mean(0)
    assert (share - 0.25).abs().max() < 0.05


def keys(*indices: int, seed: int = 0, epoch: int = 0) -> SampleKeys:
    return SampleKeys(seed, epoch, torch.tensor(indices))


@pytest.mark.parametrize("masking", [UniformTokens(), Rows(), Channels(), Spans(n_spans=2)])
def test_with_keys_a_samples_mask_does_not_depend_on_its_batch(masking):
    tokens = made([20, 13, 14], dims=3)
    together = masking.hidden(tokens, keys(5, 6, 7)).split([20, 13, 14])
    for i, sample in enumerate(tokens.unpack()):
        alone = masking.hidden(Tokens.pack([sample.values], [sample.positions]), keys(5 + i))
        assert torch.equal(alone, together[i])
    assert not torch.equal(masking.hidden(tokens, keys(5, 6, 7, epoch=1)), torch.cat(together))


def test_keys_draw_uniformly_and_independently():
    layout = Layout.of([50_000, 1, 50_000])
    source = keys(0, 1, 2)
    first, second = source.draw(layout), source.draw(layout)
    assert 0 <= first.min() and first.max() < 1
    for drawn in (first, second):
        counts = torch.histc(drawn, bins=50, min=0, max=1) / len(drawn)
        assert (counts - 0.02).abs().max() < 0.003
    pairs = [(first, second), (first[:-1], first[1:]), (first[:50_000], first[50_001:])]
    pairs.append((first, keys(0, 1, 2, seed=1).draw(layout)))
    for one, other in pairs:
        assert abs(torch.corrcoef(torch.stack([one, other]))[0, 1]) < 0.02


@pytest.mark.cuda
@pytest.mark.parametrize("masking", [UniformTokens(), Rows(), Spans(n_spans=2), Future()])
@pytest.mark.parametrize("source", [lambda: seeded(3), lambda: keys(1, 2, 3)], ids=["generator", "keys"])
def test_one_seed_hides_the_same_tokens_on_every_device(masking, source):
    tokens = made([20, 13, 4])
    assert torch.equal(masking.hidden(tokens, source()), masking.hidden(tokens.to("cuda"), source()).cpu())


@pytest.mark.parametrize("make", [UniformTokens, Rows, Spans, Future])
@pytest.mark.parametrize("ratio", [0.0, 1.0, -0.5, 75.0])
def test_ratios_outside_0_and_1_are_refused(make, ratio):
    with refused(ValueError, "between 0 and 1"):
        make(ratio=ratio)


def test_an_axis_that_is_not_there_is_refused():
    with refused(ValueError, "axis 2", "2 position dimensions"):
        Rows(axis=2).hidden(made([3]))
    with refused(ValueError, "n_spans", "at least 1"):
        Spans(n_spans=0)


@given(LENGTHS, st.integers(0, 2**31), st.sampled_from([2, 2**24]))
def test_one_sort_hides_what_two_would(lengths, seed, n_levels):
    """Ties included, which few levels make frequent."""
    layout = Layout.of(lengths)
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randint(n_levels, (layout.n_tokens,), generator=generator) / n_levels
    n_hidden = (torch.rand(len(lengths), generator=generator) * layout.lengths).long()
    assert torch.equal(hide_at_random(drawn, layout, n_hidden), hide_highest(drawn, layout, n_hidden))


def test_what_a_test_hides_follows_from_the_seed_and_the_number_of_a_sample():
    samples = [Sample(torch.rand(n, 1), torch.rand(n, 1)) for n in (8, 5, 12)]
    masking = UniformTokens(ratio=0.5)
    first = hide(samples, masking, 3)
    assert [int(one.hidden.sum()) for one in first] == [4, 2, 6]
    assert all(torch.equal(a.hidden, b.hidden) for a, b in zip(first, hide(samples, masking, 3), strict=True))
    assert not all(torch.equal(a.hidden, b.hidden) for a, b in zip(first, hide(samples, masking, 4), strict=True))
    assert all(torch.equal(a.hidden, b.hidden) for a, b in zip(first, hide(samples, masking, np.int64(3)), strict=True))
    (alone,) = hide(samples[2:], masking, 3, numbers=[2])
    assert torch.equal(alone.hidden, first[2].hidden)


@pytest.mark.parametrize("masking", [UniformTokens(ratio=0.5), Rows(ratio=0.5), Future(ratio=0.3)])
def test_what_is_hidden_of_julian_dates_is_what_is_hidden_of_days(masking):
    days = torch.tensor([[0.0, 1.0], [0.25, 0.0], [0.5, 1.0], [0.5, 0.0], [2.0, 1.0]], dtype=torch.float64)
    julian = days + torch.tensor([2459000.5, 0.0], dtype=torch.float64)
    samples = [[Sample(torch.ones(5, 1), where) for _ in range(3)] for where in (days, julian)]
    plain, moved = ([one.hidden.tolist() for one in hide(part, masking)] for part in samples)
    assert plain == moved and any(map(any, plain))


def test_samples_are_hidden_anew_and_what_cannot_be_is_said():
    samples = [Sample(torch.ones(6, 1), torch.arange(6.0)[:, None]) for _ in range(3)]
    once, again = hide(samples, Rows(ratio=0.5), 1), hide(hide(samples, Rows(ratio=0.2)), Rows(ratio=0.5), 1)
    assert [one.hidden.tolist() for one in once] == [one.hidden.tolist() for one in again]
    for arguments, parts in (
        (([], Rows()), ["give samples"]),
        ((samples, Rows(), 0, [1, 2]), ["numbers", "3 and 2"]),
        ((samples, Rows(), 2**64), ["seed", "whole number"]),
    ):
        with refused(ValueError, *parts):
            hide(*arguments)


@pytest.mark.parametrize(
    ("samples", "numbers", "parts"),
    [
        ([1, 2], None, ["hide takes samples"]),
        (None, ["a", "b"], ["numbers of samples", "whole numbers"]),
        (None, [0.5, 1.5], ["numbers of samples", "whole numbers"]),
        (None, np.arange(3), ["numbers", "2 and 3"]),
    ],
)
def test_what_cannot_be_hidden_is_named(samples, numbers, parts, without_shape_checks):
    whole = [Sample(torch.zeros(4, 1), torch.arange(4.0)[:, None]) for _ in range(2)]
    with refused((TypeError, ValueError), *parts):
        hide(samples or whole, UniformTokens(ratio=0.5), 0, numbers)

"""Packed tokens: what goes in comes out, whatever the lengths."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from messages import refused
from romae.tokens.arrays import as_real
from romae.tokens.ladder import nearest_multiples
from romae.tokens.packed import sample_mean, second_part
from romae.tokens.sample import Sample, _shown
from romae.tokens.tokens import Layout, PackedSamples, Tokens, collate, concat, require_kinds

LENGTHS = st.lists(st.integers(1, 9), min_size=1, max_size=6)


MASKED = np.ma.array([[1.0], [1e20]], mask=[[False], [True]])


def made(lengths: list[int], channels: int = 2, dims: int = 1, seed: int = 0) -> Tokens:
    generator = torch.Generator().manual_seed(seed)
    values = [torch.randn(n, channels, generator=generator) for n in lengths]
    return Tokens.pack(values, [torch.rand(n, dims, generator=generator) for n in lengths])


@given(LENGTHS)
def test_unpack_undoes_pack(lengths):
    tokens = made(lengths)
    again = collate(tokens.unpack()).tokens
    assert torch.equal(again.values, tokens.values) and torch.equal(again.positions, tokens.positions)
    assert again.layout.lengths.tolist() == lengths


@given(LENGTHS)
def test_the_layout_knows_its_lengths(lengths):
    layout = made(lengths).layout
    assert layout.offsets.dtype == torch.int32
    assert layout.offsets.tolist() == np.cumsum([0, *lengths]).tolist() == layout.host_offsets.tolist()
    assert layout.longest == max(lengths)
    assert layout.n_tokens == sum(lengths)
    assert layout.is_equal == (len(set(lengths)) == 1)
    assert layout.sample_of_token.tolist() == [i for i, n in enumerate(lengths) for _ in range(n)]


@given(LENGTHS, st.integers(0, 3))
def test_padded_and_packed_are_each_others_inverse(lengths, seed):
    tokens = made(lengths, seed=seed)
    values, positions, valid = tokens.to_padded()
    assert valid.sum(1).tolist() == lengths
    assert not values[~valid].any() and not positions[~valid].any()
    again = Tokens.from_padded(values, positions, valid)
    assert torch.equal(again.values, tokens.values) and torch.equal(again.positions, tokens.positions)


def test_padding_may_stand_anywhere():
    valid = torch.tensor([[False, True, True], [True, False, False]])
    values = torch.arange(6.0).reshape(2, 3, 1)
    tokens = Tokens.from_padded(values, values.clone(), valid)
    assert tokens.values.flatten().tolist() == [1, 2, 3]
    assert tokens.layout.lengths.tolist() == [2, 1]


@given(LENGTHS, st.randoms(use_true_random=False))
def test_select_keeps_what_it_is_told_in_order(lengths, random):
    tokens = made(lengths)
    keep = torch.tensor([random.random() < 0.5 for _ in range(sum(lengths))])
    kept = tokens.select(keep)
    assert torch.equal(kept.values, tokens.values[keep])
    assert kept.layout.lengths.tolist() == [int(part.sum()) for part in keep.split(lengths)]
    told = tokens.select(keep, kept.layout.lengths)
    assert torch.equal(told.values, kept.values) and torch.equal(told.layout.offsets, kept.layout.offsets)


@given(LENGTHS, st.data())
def test_concat_joins_sample_by_sample_and_second_part_takes_it_back(lengths, data):
    more = data.draw(st.lists(st.integers(0, 4), min_size=len(lengths), max_size=len(lengths)))
    first = made(lengths)
    second = Tokens(torch.randn(sum(more), 2), torch.rand(sum(more), 1), Layout.of(more))
    joined = concat(first, second)
    parts = zip(first.values.split(lengths), second.values.split(more), strict=True)
    assert torch.equal(joined.values, torch.cat([part for pair in parts for part in pair]))
    assert joined.layout.longest == max(a + b for a, b in zip(lengths, more, strict=True))
    assert torch.equal(second_part(joined.values, first.layout, second.layout), second.values)


@given(LENGTHS)
def test_the_mean_is_over_each_samples_own_tokens(lengths):
    tokens = made(lengths)
    expected = torch.stack([part.mean(0) for part in tokens.values.split(lengths)])
    assert_close(tokens.mean(), expected)
    assert_close(tokens.first(), torch.stack([part[0] for part in tokens.values.split(lengths)]))


def test_a_mean_in_half_precision_is_summed_in_full():
    x = torch.full((4096, 1), 0.1, dtype=torch.bfloat16)
    mean = sample_mean(x, Layout.of([4095, 1]))
    assert mean.dtype == torch.bfloat16 and abs(mean[0].item() - 0.1) < 1e-3
    large = torch.full((4096, 1), 60.0, dtype=torch.float16)  # their sum is beyond 65504, where half precision ends
    assert sample_mean(large, Layout.of([4095, 1])).tolist() == [[60.0], [60.0]]


def test_equal_lengths_take_the_same_road_to_the_same_place():
    first, second = made([3, 3]), made([2, 2], seed=1)
    ragged_layouts = [replace(t.layout, is_equal=False) for t in (first, second)]
    ragged = concat(*(replace(t, layout=layout) for t, layout in zip((first, second), ragged_layouts, strict=True)))
    assert torch.equal(concat(first, second).values, ragged.values)
    assert torch.equal(second_part(ragged.values, *ragged_layouts), second.values)
    assert_close(sample_mean(first.values, ragged_layouts[0]), first.mean())


def test_to_casts_values_and_leaves_positions_alone():
    tokens = made([2, 3]).to(dtype=torch.float16)
    assert tokens.values.dtype == torch.float16 and tokens.positions.dtype == torch.float32
    assert tokens.to("meta").device.type == "meta"


def test_a_repr_tells_what_is_inside():
    assert (
        repr(made([2, 5]))
        == "Tokens(2 samples of 2 to 5 tokens, 7 in all; 2 channels, 1 position dims, float32 on cpu)"
    )
    assert "of 4 tokens" in repr(made([4, 4]))
    assert (
        repr(Sample([[1.0]], [[2.0]], target=3, id="a"))
        == "Sample('a': 1 tokens, 1 channels, 1 position dims, target 3)"
    )
    masked = Sample([[1.0]] * 3, [[0.0], [1.0], [2.0]], hidden=[True, False, True])
    assert repr(masked) == "Sample(3 tokens (2 hidden), 1 channels, 1 position dims)"


def test_collate_keeps_targets_ids_and_masks():
    samples = [
        Sample([[1.0], [2.0], [3.0]], [[0], [1], [2]], target=[0.5, 1.5], id="a", hidden=[False, True, False]),
        Sample([[4.0], [5.0]], [[0], [1]], target=[2.5, 3.5], id="b", hidden=[True, False]),
    ]
    batch = collate(samples)
    assert batch.ids == ("a", "b")
    assert batch.target.tolist() == [[0.5, 1.5], [2.5, 3.5]]
    assert batch.tokens.values.flatten().tolist() == [1, 3, 5]
    assert batch.hidden.values.flatten().tolist() == [2, 4]
    per_token = collate(
        [Sample([[1.0]], [[0]], target=[[7.0]]), Sample([[1.0], [2.0]], [[0], [1]], target=[[8.0], [9.0]])]
    )
    assert per_token.target.flatten().tolist() == [7, 8, 9]


def test_positions_stay_in_double_precision_until_a_batch_is_made():
    for positions in (np.array([[59000.000123]]), [[59000.000123]]):
        sample = Sample([[1.0]], positions)
        assert sample.positions.dtype == torch.float64 and sample.positions.item() == 59000.000123
    assert collate([sample]).tokens.positions.dtype == torch.float32


@pytest.mark.parametrize(
    ("positions", "parts"),
    [
        (1.7e9 + 10 * np.arange(5.0), ["sample 'a'", "axis 0", "subtract an origin"]),
        (np.array([1e300, 1e300]), ["single precision", "subtract an origin"]),
        (np.array([0.0, 1e300]), ["axis 0", "1e+300", "larger units"]),
        (np.array([-1.7e308, 1.7e308]), ["single precision", "by inf"]),
    ],
)
def test_positions_that_would_collapse_are_refused(positions, parts):
    sample = Sample(np.ones((len(positions), 1)), positions[:, None], id="a")
    with refused(ValueError, *parts):
        collate([sample])
    with refused(ValueError, "for single precision"):
        Tokens.from_padded(sample.values[None], sample.positions[None], torch.ones(1, len(positions), dtype=torch.bool))


def test_positions_that_rounding_hardly_moves_are_taken():
    days = 59000 + np.arange(50.0)[:, None] * 1.37
    assert collate([Sample(np.ones((50, 1)), days)]).tokens.positions.diff(dim=0).min() > 1.3
    assert collate([Sample([[1.0]], [[1.7e9 + 0.3]])]).tokens.layout.n_tokens == 1  # one token has no gap to lose


def test_the_mean_gap_is_that_between_neighbours():
    """Of two positions it is their distance, of which rounding may take a twentieth; 2**24 + 10.4 moves by 0.4."""
    for end, is_kept in ((10.4, True), (6.4, False)):
        sample = Sample(np.zeros((2, 1)), [[2.0**24], [2.0**24 + end]])
        if is_kept:
            assert collate([sample]).tokens.positions[1, 0] == 2**24 + 10
        else:
            with refused(ValueError, "mean gap of 6.4"):
                collate([sample])


def test_whole_numbers_that_double_precision_makes_one_of_are_no_positions():
    times = 1_700_000_000_000_000_000 + np.arange(5)[:, None]
    for form in (times, torch.from_numpy(times), times.tolist(), times.astype(np.uint64)):
        with refused(ValueError, "positions", "1.7e+18", "subtract an offset"):
            Sample(np.ones((5, 1)), form)
    apart = Sample(np.ones((5, 1)), times[:1] + 256 * np.arange(5)[:, None])
    assert apart.positions.diff(dim=0).flatten().tolist() == [256.0] * 4


def test_gradients_do_not_enter_a_sample():
    x = torch.ones(2, 1, requires_grad=True)
    for sample in (Sample(x, x, target=x), *Tokens.pack([x], [x]).unpack(), replace(Sample(x, x), values=2 * x)):
        parts = (sample.values, sample.positions, sample.target)
        assert not any(part.requires_grad for part in parts if part is not None)
    values, positions, valid = x[None], x.detach()[None], torch.ones(1, 2, dtype=torch.bool)
    assert Tokens.from_padded(values, positions, valid).values.requires_grad


def test_a_sample_keeps_its_values_when_the_array_changes():
    values = np.ones((2, 1), np.float32)
    sample = Sample(values, [[0.0], [1.0]])
    values[0] = np.nan
    assert torch.isfinite(sample.values).all()


@pytest.mark.parametrize("kind", [">f4", ">f8", ">i2", "longdouble"])
def test_arrays_of_any_byte_order_and_direction_are_read(kind):
    values, positions = np.array([[1], [2]], dtype=kind), np.array([[3], [4]], dtype=kind)
    plain = Sample([[1.0], [2.0]], [[3.0], [4.0]])
    for read in (Sample(values, positions), Sample(list(values), list(positions))):
        assert_close(read.values, plain.values)
        assert read.positions.tolist() == plain.positions.tolist()
    turned = Sample(values[::-1], positions[::-1], target=values[::-1, 0], hidden=np.array([False, True])[::-1])
    assert turned.values.tolist() == [[2], [1]] and turned.positions.tolist() == [[4], [3]]
    assert turned.target.tolist() == [2, 1] and turned.hidden.tolist() == [True, False]
    assert Sample([[1.0]], [[0.0]], target=values[0, 0]).target.shape == ()


def test_an_array_whose_mask_covers_nothing_is_an_array():
    array = np.ma.array([[1.0], [2.0]], mask=False)
    assert Sample(array, array).positions.tolist() == [[1], [2]]


def test_samples_that_lost_their_tokens_have_no_mean():
    kept = made([2, 3]).select(torch.tensor([False, False, True, True, False]))
    for ask in (kept.mean, kept.first):
        with refused(ValueError, "sample 0", "no token"):
            ask()


@settings(max_examples=20)
@given(st.sampled_from([float("nan"), float("inf"), -float("inf")]), st.booleans())
def test_numbers_that_are_none_are_refused(number, in_values):
    values, positions = [[1.0], [number]], [[0.0], [1.0]]
    if not in_values:
        values, positions = positions, values
    with refused(ValueError, "finite", "token 1"):
        Sample(values, positions)
    with refused(ValueError, "must be finite"):
        Tokens.from_padded(torch.tensor([values]), torch.tensor([positions]), torch.ones(1, 2, dtype=torch.bool))


def test_padding_is_not_looked_at():
    values = torch.tensor([[[1.0], [float("nan")]]])
    tokens = Tokens.from_padded(values, torch.zeros(1, 2, 1), torch.tensor([[True, False]]))
    assert tokens.layout.n_tokens == 1


@pytest.mark.parametrize(
    ("make", "parts"),
    [
        (lambda: Sample([[1.0]], [[0.0], [1.0]]), ["1 values", "2 positions"]),
        (lambda: Sample(np.zeros((0, 1)), np.zeros((0, 1))), ["at least one token"]),
        (lambda: Sample(np.zeros((1, 0)), np.zeros((1, 1))), ["at least one channel"]),
        (lambda: Sample([1.0, 2.0], [[0.0], [1.0]]), ["[n, c]", "[2]", "values[:, None]"]),
        (lambda: Sample([[1.0]], [[0.0]], hidden=[True]), ["all or none"]),
        (lambda: Sample([[1.0], [2.0]], [[0.0], [1.0]], hidden=[True, True]), ["all or none"]),
        (lambda: Sample([[1.0], [2.0]], [[0.0], [1.0]], hidden=[False, False]), ["all or none"]),
        (lambda: Sample([[1.0]], [[0.0]], hidden=[1, 0]), ["1 booleans"]),
        (lambda: Sample([[1.0]], [[0.0]], target=[[1.0], [2.0]]), ["row per token", "[1, k]"]),
        (lambda: Sample([[1.0]], [[0.0]], target=float("nan")), ["target", "finite"]),
        (lambda: Sample([[1.0]], [[0.0]], target=np.array([1e300])), ["target", "finite", "single precision"]),
        (lambda: Sample([[1.0]], [[0.0]], target=[]), ["target", "number"]),
        (lambda: Sample(MASKED, [[0.0], [1.0]]), ["values", "masked", "missing"]),
        (lambda: Sample(list(MASKED), [[0.0], [1.0]]), ["values", "masked"]),
        (lambda: Sample([[0.0], [1.0]], MASKED), ["positions", "masked"]),
        (lambda: Sample([[0.0], [1.0]], [[0.0], [1.0]], target=MASKED), ["target", "masked"]),
        (lambda: Sample([[0.0], [1.0]], [[0.0], [1.0]], hidden=MASKED[:, 0] > 1), ["hidden", "masked"]),
        (
            lambda: Sample(np.array([[0.0], [1e39]]), [[0.0], [1.0]]),
            ["token 1 has 1e+39", "column 0", "larger units"],
        ),
        (lambda: Sample([[0.0], [1e39]], [[0.0], [1.0]]), ["values", "single precision", "token 1"]),
        (
            lambda: Tokens.from_padded(
                torch.full((1, 2, 1), -1e39, dtype=torch.float64),
                torch.zeros(1, 2, 1),
                torch.ones(1, 2, dtype=torch.bool),
            ),
            ["values", "single precision", "token 0 has -1e+39"],
        ),
        (lambda: Layout.of([2**62, 2**62]), ["32-bit offsets"]),
        (lambda: concat(made([1]), made([1], channels=3)), ["cannot join", "different kinds"]),
        (lambda: Tokens.pack([torch.ones(1, 1)], []), ["1 samples of values", "0 of positions"]),
        (lambda: collate([]), ["at least one sample"]),
        (
            lambda: collate([Sample([[1.0]], [[0.0]]), Sample([[1.0, 2.0]], [[0.0]])]),
            ["channels", "sample 1 has 2"],
        ),
        (lambda: collate([Sample([[1.0]], [[0.0]]), Sample([[1.0]], [[0.0, 1.0]])]), ["position dimensions"]),
        (lambda: collate([Sample([[1.0]], [[0.0]]), Sample([[1.0]], [[0.0]], target=1)]), ["targets"]),
        (lambda: Layout.of([]), ["at least one sample"]),
        (lambda: Layout.of([2**31]), ["32-bit offsets"]),
        (lambda: Layout.of([1, -1]), ["sample 1 has -1"]),
        (lambda: made([2]).select(torch.ones(3, dtype=torch.bool)), ["2 tokens"]),
        (lambda: concat(made([1]), made([1, 1])), ["cannot join", "1 samples with 2"]),
        (lambda: Tokens(torch.zeros(2, 1), torch.zeros(3, 1), Layout.of([2])), ["must agree"]),
        (
            lambda: Tokens.from_padded(torch.zeros(1, 2, 1), torch.zeros(1, 2, 1), torch.zeros(1, 2, dtype=torch.bool)),
            ["sample 0", "no valid token"],
        ),
        (
            lambda: Tokens.from_padded(torch.zeros(1, 2, 1), torch.zeros(1, 3, 1), torch.ones(1, 2, dtype=torch.bool)),
            ["agree", "samples and tokens"],
        ),
    ],
)
@pytest.mark.usefixtures("without_shape_checks")
def test_bad_input_gets_a_sentence(make, parts):
    with refused(ValueError, *parts):
        make()


@pytest.mark.parametrize(
    ("make", "parts"),
    [
        (lambda: Sample([[1.0]], torch.zeros(1, 1, dtype=torch.float16)), ["float32 or float64"]),
        (lambda: Sample([["a"]], [[0.0]]), ["values", "numbers"]),
        (lambda: Sample(np.array([[1.0]], object), [[0.0]]), ["values", "holds object", "x.astype(float)"]),
        (lambda: Sample(np.array([["1"]]), [[0.0]]), ["values", "holds str", "x.astype(float)"]),
        (lambda: Sample(list(np.array([["1"]])), [[0.0]]), ["values", "holds str"]),
        (lambda: Sample(pd.DataFrame([[1.0]]), [[0.0]]), ["values", "pandas DataFrame", "x.to_numpy()"]),
        (lambda: Sample([pd.Series([1.0])], [[0.0]]), ["values", "pandas Series"]),
        (lambda: Sample([[1.0]], [[0.0]], target=pd.Series([1.0])), ["target", "pandas Series"]),
        (
            lambda: Sample([[1.0]], np.array([["2024"]], "M8[D]")),
            ["positions", "not dates", "turn them"],
        ),
        (lambda: Sample([[1.0]], np.array([[3]], "m8[D]")), ["positions", "not dates"]),
        (lambda: Sample([[1.0]], [[pd.Timestamp(0)]]), ["positions", "not dates"]),
        (lambda: Sample([[1.0]], [[np.datetime64(0, "D")]]), ["positions", "not dates"]),
        (lambda: collate([1]), ["number 0 is int", "romae.Sample(…)"]),
        (lambda: collate(Sample([[1.0]], [[0.0]])), ["single sample", "[sample]"]),
        (lambda: collate(1), ["list of samples", "not int"]),
        (lambda: Sample([[1j]], [[0.0]]), ["complex"]),
        (lambda: Sample([[1.0]], [[0.0]], target="cat"), ["target 'cat'", "number"]),
        (lambda: Sample([[1.0]], [[0.0]], target=1j), ["targets are complex"]),
        (lambda: Sample([[1.0]], [[0.0]], target=np.array([2**63 + 5], np.uint64)), ["64 unsigned bits"]),
        (lambda: Sample([[1.0]], [[0.0]], hidden="yes"), ["hidden", "1 booleans"]),
        (lambda: Layout.of([1.7, 2.2]), ["lengths", "whole numbers"]),
        (lambda: Layout.of([[1, 2]]), ["lengths", "whole numbers"]),
        (
            lambda: Tokens(torch.zeros(1, 1), torch.zeros(1, 1, dtype=torch.float64), Layout.of([1])),
            ["need torch.float32"],
        ),
        (
            lambda: Tokens.from_padded(torch.zeros(1, 2, 1), torch.zeros(1, 2, 1), torch.ones(1, 2)),
            ["valid", "boolean"],
        ),
    ],
)
@pytest.mark.usefixtures("without_shape_checks")
def test_wrong_types_get_a_sentence(make, parts):
    with refused(TypeError, *parts):
        make()


# Bounds, shapes, and what travels along


def test_rounding_is_held_against_the_mean_gap():
    """Above 2**24 odd numbers round by 1, a twentieth of a gap of 20; two tokens have one gap, three have two."""
    for n, gap, is_lost in ((2, 30, False), (2, 18, True), (3, 24, False), (3, 16, True)):
        sample = Sample(np.ones((n, 1)), (2.0**24 + 1 + gap * np.arange(n))[:, None])
        if is_lost:
            with refused(ValueError, "mean gap", "subtract an origin"):
                collate([sample])
        else:
            assert collate([sample]).tokens.layout.n_tokens == n


def test_one_sample_without_a_valid_token_is_enough():
    valid = torch.tensor([[True, True], [False, False]])
    with refused(ValueError, "sample 1", "no valid token"):
        Tokens.from_padded(torch.zeros(2, 2, 1), torch.zeros(2, 2, 1), valid)


@pytest.mark.parametrize(
    ("targets", "part"),
    [(([1.0, 2.0], [1.0, 2.0, 3.0]), "target columns"), ((1.0, [1.0]), "target dimensions")],
)
def test_targets_of_a_batch_agree_in_shape(targets, part):
    with refused(ValueError, "must agree", part, "sample 1"):
        collate([Sample([[1.0]], [[0.0]], target=target) for target in targets])


def test_a_batch_moves_with_all_that_it_has():
    samples = [Sample([[1.0], [2.0]], [[0.0], [1.0]], target=i, hidden=[False, True]) for i in range(2)]
    batch = replace(collate(samples), real=torch.tensor([True, False]))
    moved = batch.to("cpu")
    assert moved.real.tolist() == [True, False] and moved.target.tolist() == [0, 1]
    assert torch.equal(moved.hidden.values, batch.hidden.values) and torch.equal(
        moved.tokens.values, batch.tokens.values
    )


def test_what_is_visible_has_its_targets_and_hides_nothing():
    samples = [
        Sample([[1.0], [2.0], [3.0]], [[0.0], [1.0], [2.0]], target=[[7.0], [8.0], [9.0]], hidden=[False, True, False]),
        Sample([[4.0]], [[3.0]], target=[[6.0]]),
    ]
    visible = PackedSamples.of(samples).visible()
    assert visible.hidden is None and visible.layout.lengths.tolist() == [2, 1]
    assert visible.values.flatten().tolist() == [1, 3, 4] and visible.positions.flatten().tolist() == [0, 2, 3]
    assert visible.target.flatten().tolist() == [7, 9, 6]
    one_each = [replace(sample, target=torch.tensor(i)) for i, sample in enumerate(samples)]
    assert PackedSamples.of(one_each).visible().target.tolist() == [0, 1]


def test_arrays_of_positions_keep_their_precision_and_lists_have_the_higher():
    for positions, dtype in (
        (np.zeros((1, 1), np.float32), torch.float32),
        ([[1]], torch.int64),
        ([[1.0]], torch.float64),
    ):
        assert as_real(positions, "positions").dtype == dtype
    assert as_real([[1, 0.1]], "positions")[0, 1].item() == 0.1  # an integer before floats


def test_tokens_on_other_axes_are_not_joined():
    with refused(ValueError, "cannot join", "different kinds"):
        concat(made([2, 2], dims=1), made([1, 1], dims=2))


def test_a_kind_that_a_model_lacks_is_named_with_its_sample():
    tokens = Tokens.pack([torch.zeros(1, 1)] * 2, [torch.zeros(1, 1), torch.full((1, 1), 3.0)])
    require_kinds(tokens, 4)
    for ids, name in (((), "sample 1"), (("a", None), "sample 1"), (("a", "b"), "sample 'b'")):
        with refused(ValueError, name, "kind 3", "0 to 2"):
            require_kinds(tokens, 3, ids)


def test_the_multiples_around_a_size_leave_out_zero():
    assert nearest_multiples(7, 3) == "6 and 9" and nearest_multiples(2, 3) == "3"


@pytest.mark.parametrize("n", [80, 81])
def test_messages_show_arguments_of_up_to_80_characters_whole(n):
    text = repr("x" * (n - 2))
    assert _shown("x" * (n - 2)) == (text if n == 80 else f"{text[:80]}…")

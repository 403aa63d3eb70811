"""Scaling: exact inverses, known answers and bad input."""

import math
import time
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from torch.testing import assert_close

from messages import refused
from romae.config import from_dict, to_dict
from romae.data.ladders import fit_ladders
from romae.data.scaling import Scaling, fit_scaling, scaled, seen_also
from romae.data.schema import SampleSet
from romae.data.series import from_arrays
from romae.data.tables import from_table
from romae.tokens.ladder import Ladder
from romae.tokens.sample import Sample
from romae.tokens.tokens import collate

METHODS = ["standard", "robust", "asinh", "robust-asinh"]


def series(*values: float, channel: int = 0) -> Sample:
    n = len(values)
    return Sample(np.array(values)[:, None], np.stack([np.arange(n), np.full(n, channel)], 1).astype(float))


def random_samples(n_samples: int = 30, columns: int = 2) -> list[Sample]:
    generator = np.random.default_rng(0)
    samples = []
    for i in range(n_samples):
        n = int(generator.integers(1, 40))
        values = generator.normal(size=(n, columns)) * [3.0, 500.0] + [7.0, -2e4]
        positions = np.stack([59000 + generator.uniform(0, 90, n), generator.integers(0, 3, n)], 1)
        samples.append(Sample(values, positions, target=float(generator.normal(100, 9)), id=f"s{i}"))
    return samples


numbers = arrays.arrays(
    np.float32, st.tuples(st.integers(1, 20), st.integers(1, 3)), elements=st.floats(-1e6, 1e6, width=32)
)


@pytest.mark.parametrize("per", ["all", "column", "channel"])
@pytest.mark.parametrize("method", METHODS)
@settings(deadline=None)
@given(values=numbers)
def test_the_inverse_of_scaling_is_exact(method, per, values):
    positions = np.stack([np.arange(len(values)), np.arange(len(values)) % 3], 1).astype(np.float64)
    sample = Sample(values, positions)
    scaling = fit_scaling([sample], values=method, per=per)
    seen = scaling.scale_values(sample.values, sample.positions)
    assert torch.isfinite(seen).all()
    back = scaling.invert_values(seen, sample.positions)
    size = float(np.abs(values).max())
    assert_close(back, sample.values.double(), rtol=1e-13, atol=1e-13 * size)
    # A sample keeps its values in float32. Half a unit in the last place of y is 6e-8 |y|, and it comes back as an
    # error of 6e-8 |x - centre|, or of 6e-8 |y| relative to x where x is a hyperbolic sine of y.
    kept = scaling.apply(sample).values
    rounding = 1.2e-7 * (1 + float(seen.abs().max())) if method.endswith("asinh") else 1.2e-7
    back = scaling.invert_values(kept, sample.positions)
    assert_close(back, sample.values.double(), rtol=rounding, atol=1.2e-7 * size)


@settings(deadline=None)
@given(
    st.lists(st.floats(-1e5, 1e5), min_size=1, max_size=20),
    st.sampled_from(["none", "first", "min", -3, 58000.5]),
    st.floats(1e-3, 1e3),
)
def test_the_inverse_of_positions_is_exact(times, origin, unit):
    sample = Sample(np.ones((len(times), 1)), np.array(times)[:, None])
    scaling = fit_scaling([sample], origin=origin, unit=unit)
    start = scaling.origin(sample.positions)
    back = scaling.invert_positions(scaling.apply(sample).positions, start)
    assert_close(back, sample.positions, rtol=1e-14, atol=1e-10)


def test_standard_scaling_gives_mean_0_and_deviation_1_for_each_channel_and_column():
    samples = random_samples()
    scaling = fit_scaling(samples, per="channel")
    tokens = collate([scaling.apply(sample) for sample in samples]).tokens
    for channel in range(3):
        values = tokens.values[tokens.positions[:, 1] == channel].double()
        assert_close(values.mean(0), torch.zeros(2, dtype=torch.float64), atol=1e-4, rtol=0)
        assert_close(values.std(0, correction=0), torch.ones(2, dtype=torch.float64), atol=1e-4, rtol=0)


def test_known_answers():
    samples = [series(0, 2, 4), series(6, 8)]
    assert fit_scaling(samples).centre == ((4.0,),)
    assert fit_scaling(samples).scale == ((math.sqrt(8),),)
    robust = fit_scaling(samples, values="robust")
    assert robust.centre == ((4.0,),) and robust.scale[0][0] == pytest.approx(4 / 1.34898, rel=1e-5)
    asinh = fit_scaling(samples, values="asinh")
    assert asinh.centre == ((0.0,),) and asinh.scale == ((4.0,),)
    assert float(asinh.apply(series(-40)).values) == pytest.approx(math.asinh(-10))
    assert fit_scaling([series(-1, 2, 900)], values="asinh").scale == (
        (2.0,),
    )  # the median size, whatever outliers are


def test_asinh_hardly_bends_what_lies_within_the_noise():
    values, channel = np.array([[[-4.0], [2.0], [3.0], [5e4]]]), ["faint", "bright"]
    noisy = from_arrays(values, errors=np.array([[[3.0], [5.0], [0.0], [np.nan]]]))
    assert fit_scaling(noisy, values="asinh").scale == ((6 * 4.0,),), "errors that are not known do not count"
    precise = from_arrays(values, errors=np.full((1, 4, 1), 1e-3))
    assert fit_scaling(precise, values="asinh").scale == fit_scaling(from_arrays(values), values="asinh").scale
    unknown = from_arrays(values, errors=np.zeros((1, 4, 1)))
    assert fit_scaling(unknown, values="asinh").scale == fit_scaling(from_arrays(values), values="asinh").scale
    table = pd.DataFrame({"id": 0, "t": range(4), "band": channel * 2, "x": 1.0, "e": [2.0, 0.01, 4.0, 0.03]})
    by_band = from_table(table, id="id", time="t", channel="band", values="x", error="e")
    assert fit_scaling(by_band, values="asinh").scale == ((1.0,), (18.0,)), "sorted by name"
    assert fit_scaling(noisy, values="robust-asinh").scale == fit_scaling(from_arrays(values), values="robust").scale


@pytest.mark.parametrize("values", [*METHODS, "none"])
def test_a_scaling_keeps_between_which_numbers_the_data_lay(values):
    samples = from_arrays(
        [np.array([[1.0, np.nan], [3.0, 50.0], [2.0, np.nan]]), np.array([[7.0, np.nan]])],
        times=[[10.0, 14.0, 11.0], [20.0]],
        tokens="scalars",
        channels=["a", "b"],
    )
    scaling = fit_scaling(samples, values=values, origin="min")
    assert scaling.seen.lowest == ((1.0,), (50.0,)) and scaling.seen.highest == ((7.0,), (50.0,))
    assert scaling.seen.earliest[0] == 0.0 and scaling.seen.latest[0] == 4.0
    assert scaling.seen.shortest_gap == 2.0 and scaling.seen.shortest_span == 4.0  # 10, 11, 14
    assert from_dict(Scaling, to_dict(scaling)) == scaling
    other = samples.map(lambda sample: replace(sample, values=10 * sample.values))
    wider = seen_also(scaling, other[:1])
    assert wider.seen.highest == ((30.0,), (500.0,)) and wider.seen.lowest == scaling.seen.lowest
    assert replace(wider, seen=scaling.seen) == scaling
    older = {name: part for name, part in to_dict(scaling).items() if name != "seen"}
    assert from_dict(Scaling, older).seen is None and seen_also(from_dict(Scaling, older), other).seen is None


def test_a_channel_that_data_lack_has_an_empty_range_until_others_bring_it():
    one, two = (from_arrays(np.full((2, 3, 2), x), tokens="scalars") for x in (1.0, 2.0))
    lacking = one.map(lambda sample: replace(sample, values=sample.values[::2], positions=sample.positions[::2]))
    scaling = fit_scaling(lacking)
    assert scaling.seen.lowest == ((1.0,), ())
    assert seen_also(scaling, two).seen.highest == ((2.0,), (2.0,))


def test_robust_scaling_of_normal_numbers_is_near_their_deviation():
    x = np.random.default_rng(0).normal(3, 5, size=(20000, 1))
    x[:100] = 1e6
    scaling = fit_scaling([Sample(x, np.arange(20000.0)[:, None])], values="robust")
    assert scaling.centre[0][0] == pytest.approx(3, abs=0.2) and scaling.scale[0][0] == pytest.approx(5, rel=0.03)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("constant", [0.0, 0.1, -3e7])
def test_a_constant_channel_is_not_divided_by_zero(method, constant):
    samples = [series(*[constant] * 7), series(1.0, 2.0, channel=1)]
    scaling = fit_scaling(samples, values=method, per="channel")
    values = scaling.apply(samples[0]).values
    assert torch.isfinite(values).all()
    if method != "asinh":
        assert scaling.scale[0] == (1.0,) and not values.any()


def test_robust_asinh_bends_what_robust_gives_beyond_three_deviations():
    sample = series(300.0, 301.0, 302.0, 303.0, 304.0, 1e6)
    straight, bent = (
        fit_scaling([sample], values=values).apply(sample).values for values in ("robust", "robust-asinh")
    )
    assert_close(bent, (3 * (straight.double() / 3).asinh()).float())
    assert_close(bent[:-1], straight[:-1], rtol=0.05, atol=0)
    assert straight[-1] > 1e5 and bent[-1] < 50


def test_auto_is_straight_for_samples_that_are_centred_by_themselves_and_bent_for_others():
    random = np.random.default_rng(0)
    alike = [series(*random.normal(size=9)) for _ in range(20)]
    apart = [series(*(level + random.normal(size=9))) for level in 100 * random.normal(size=20)]
    assert fit_scaling(alike, values="auto", center="auto").method == "robust-asinh"
    fitted = fit_scaling(apart, values="auto", center="auto")
    assert (fitted.method, fitted.center) == ("standard", "sample")
    assert fitted == fit_scaling(apart, values="standard", center="auto")


def test_a_channel_that_is_mostly_one_number_still_has_a_robust_scale():
    scaling = fit_scaling([series(*[0.0] * 20, 5.0)], values="robust")
    assert scaling.scale[0][0] == pytest.approx(np.std([0.0] * 20 + [5.0]))


def test_outliers_of_a_robust_scale_do_not_overflow():
    sample = series(0.0, 0.0, 4.2e-44, 4.2e-44, 1.0)
    assert torch.isfinite(fit_scaling([sample], values="robust").apply(sample).values).all()


def test_all_values_share_one_scale_when_asked():
    sample = Sample([[0.0, 10.0], [0.0, 10.0]], [[0.0], [1.0]])
    assert fit_scaling([sample], per="all").centre == ((5.0, 5.0),)
    assert fit_scaling([sample], per="column").centre == ((0.0, 10.0),)


def test_samples_that_name_a_channel_are_scaled_by_it():
    x = np.array([[[1.0, 100.0], [3.0, 300.0]]])
    by_scalar = fit_scaling(from_arrays(x, tokens="scalars"))
    assert by_scalar.by_channel and by_scalar.centre == ((2.0,), (200.0,))
    by_step = fit_scaling(from_arrays(x))
    assert not by_step.by_channel and by_step.centre == ((2.0, 200.0),)


def test_a_channel_that_is_named_but_never_measured_has_no_scale():
    x = np.array([[[1.0, np.nan], [3.0, np.nan]]])
    scaling = fit_scaling(from_arrays(x, tokens="scalars"))
    assert scaling.scale == ((1.0,), (0.0,))
    with refused(ValueError, "sample 0", "channel 1", "training data"):
        scaling.apply(from_arrays(np.array([[[1.0, 5.0]]]), tokens="scalars")[0])


def test_origins_are_subtracted_in_float64_before_anything_is_rounded():
    times = 2459000.5 + np.array([1e-6, 0.0, 2e-6])
    sample = Sample(np.ones((3, 1)), times[:, None])
    scaling = fit_scaling([sample], values="none", origin="min", unit=1e-6)
    positions = scaling.apply(sample).positions
    assert_close(positions.flatten(), torch.tensor([1.0, 0.0, 2.0], dtype=torch.float64), atol=1e-2, rtol=0)
    first = fit_scaling([sample], values="none", origin="first", unit=1e-6)
    assert first.apply(sample).positions.flatten().tolist()[0] == 0
    assert float(first.apply(sample).positions[1]) < 0


def test_a_single_origin_and_unit_are_for_the_first_axis():
    samples = random_samples()
    scaling = fit_scaling(samples, origin="min", unit=2.0)
    assert scaling.origins == ("min", "none") and scaling.units == (2.0, 1.0)
    moved = scaling.apply(samples[0])
    assert torch.equal(moved.positions[:, 1], samples[0].positions[:, 1])


def test_the_gap_is_that_between_distinct_coordinates_of_one_sample():
    sample = Sample(np.ones((5, 1)), [[10.0], [4.0], [4.0], [6.0], [0.0]])  # gaps 4, 2, 4
    other = Sample(np.ones((2, 1)), [[100.0], [103.0]])  # gap 3; not the 90 between the samples
    assert fit_scaling([sample, other], values="none", unit="gap").units == (3.5,)


def test_ladders_climb_from_the_gap_to_the_span():
    samples = [
        Sample(np.ones((3, 1)), [[0.0, 5.0], [3.0, 5.0], [6.0, 5.0]]),
        Sample(np.ones((2, 1)), [[100.0, 5.0], [130.0, 5.0]]),
    ]
    time, constant = fit_ladders(samples)
    assert time == Ladder(scale=3.0, shortest=2 * math.pi, longest=2 * math.pi * 10)
    assert constant == Ladder()
    frequencies = time.frequencies(8, 1.0)
    assert float(frequencies[0]) == pytest.approx(1 / 3) and float(frequencies[-1]) == pytest.approx(1 / 30)


def test_targets_are_standardised_and_brought_back():
    samples = random_samples()
    scaling = fit_scaling(samples, target=True)
    seen = torch.stack([scaling.apply(sample).target for sample in samples])
    assert float(seen.mean()) == pytest.approx(0, abs=1e-5)
    assert float(seen.std(correction=0)) == pytest.approx(1, abs=1e-5)
    truth = torch.stack([sample.target for sample in samples])
    assert_close(scaling.invert_target(seen).float(), truth)
    assert_close(scaling.invert_target(seen[:, None]).float(), truth[:, None])


def test_targets_of_tokens_have_a_scale_for_each_column():
    sample = Sample(np.ones((2, 1)), [[0.0], [1.0]], target=[[1.0, 10.0], [3.0, 30.0]])
    scaling = fit_scaling([sample], target=True)
    assert scaling.target_mean == (2.0, 20.0) and scaling.target_scale == (1.0, 10.0)
    assert scaling.apply(sample).target.tolist() == [[-1, -1], [1, 1]]


def test_without_target_scaling_targets_stay():
    sample = random_samples()[0]
    assert fit_scaling([sample]).apply(sample).target == sample.target
    assert Scaling().invert_target(torch.tensor([1.5])).tolist() == [1.5]


def test_the_empty_scaling_changes_nothing():
    sample = replace(random_samples()[1], hidden=[True] + [False] * (len(random_samples()[1]) - 1))
    same = Scaling().apply(sample)
    assert torch.equal(same.values, sample.values) and torch.equal(same.positions, sample.positions)
    assert same.id == sample.id and torch.equal(same.hidden, sample.hidden)


def test_a_scaling_survives_json():
    for scaling in (
        Scaling(),
        fit_scaling(random_samples(), per="channel", origin=["first", 0], unit=["gap"], target=True),
    ):
        assert from_dict(Scaling, to_dict(scaling)) == scaling


def test_fitting_a_million_tokens_is_quick():
    generator = np.random.default_rng(0)
    samples = [
        Sample(generator.normal(size=(1000, 1)), np.stack([np.arange(1000.0), np.arange(1000) % 41], 1))
        for _ in range(1000)
    ]
    start = time.process_time()
    fit_scaling(samples, values="robust", per="channel", unit="gap")
    assert time.process_time() - start < 3  # under one second on a machine that is not busy


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (dict(origin=["min", "min", "min"]), ["3 origins", "2 position axes"]),
        (dict(unit=0.0), ["unit", "positive"]),
        (dict(origin=math.inf), ["origin", "not inf"]),
        (dict(origin=None), ["origins", "not None"]),
        (dict(unit=[1.0, None]), ["units", "not [1.0, None]"]),
    ],
)
def test_settings_that_do_not_fit_are_named(arguments, parts, without_shape_checks):
    with refused((ValueError, TypeError), *parts):
        fit_scaling(random_samples(), **arguments)


def test_what_is_no_sample_and_no_scaling_is_named(without_shape_checks):
    with refused(TypeError, "single sample", "list"):
        fit_scaling(series(1.0))
    with refused(TypeError, "number 1 is int"):
        fit_scaling([series(1.0), 1])
    with refused(TypeError, "fit_scaling", "None", "not 'standard'"):
        scaled([series(1.0)], "standard")


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_values_of_half_precision_are_scaled_to_single(kind):
    small, large = (Sample(torch.tensor([[1.0], [2.0]], dtype=kind) * size, [[0.0], [1.0]]) for size in (1e-4, 100.0))
    values = fit_scaling([small]).apply(large).values
    assert values.dtype == torch.float32 and torch.isfinite(values).all() and values.max() > 1e6
    assert Scaling().apply(small).values.dtype == kind


def test_samples_with_gradients_have_a_scaling():
    x = torch.tensor([[1.0], [3.0]], requires_grad=True)
    scaling = fit_scaling([Sample(x, x, target=x)], target=True)
    assert scaling.centre == ((2.0,),) and scaling.target_mean == (2.0,)


def test_bad_input_is_named():
    with refused(ValueError, "no samples"):
        fit_scaling([])
    with refused(ValueError, "sample 1 has 2"):
        fit_scaling([series(1.0), Sample([[1.0, 2.0]], [[0.0, 0.0]])])
    with refused(ValueError, "two different coordinates", "axis 0"):
        fit_scaling([series(1.0)], unit="gap")
    with refused(ValueError, "token 0 has 0.5", "channel"):
        fit_scaling([Sample([[1.0]], [[0.0, 0.5]])], per="channel")
    with refused(ValueError, "targets", "numbers", "have none"):
        fit_scaling([series(1.0)], target=True)
    with refused(ValueError, "targets", "classes"):
        fit_scaling([replace(series(1.0), target=3)], target=True)
    with refused(ValueError, "standard", "centre"):
        Scaling(method="standard")


def test_samples_unlike_the_training_data_are_named():
    scaling = fit_scaling([series(1.0, 2.0), series(4.0, channel=2)], per="channel")
    with refused(ValueError, "'p1'", "channel 1", "training data"):
        scaling.apply(replace(series(1.0, channel=1), id="p1"))
    with refused(ValueError, "'p2'", "token 0 has 3.0", "0 to 2"):
        scaling.apply(replace(series(1.0, channel=3), id="p2"))
    with refused(ValueError, "2 columns", "fitted on 1"):
        scaling.apply(Sample([[1.0, 2.0]], [[0.0, 0.0]]))
    with refused(ValueError, "3 position axes", "fitted on 2"):
        scaling.apply(Sample([[1.0]], [[0.0, 0.0, 0.0]]))
    with refused(ValueError, "'p3'", "single precision"):
        fit_scaling([series(0.0, 1e-30)]).apply(replace(series(1e30), id="p3"))
    with refused(ValueError, "positions"):
        scaling.invert_values(torch.ones(1, 1))


def test_columns_are_no_axis_of_channels():
    with refused(ValueError, "axis of channels", "per='column'"):
        fit_scaling(from_arrays(np.arange(60.0).reshape(3, 10, 2)), per="channel")


def stars(n_stars: int = 20, n: int = 12, levels: float = 2.0) -> list[Sample]:
    """Series with a spread of 0.1 around levels that lie apart."""
    generator = np.random.default_rng(0)
    return [
        Sample(generator.normal(14, levels) + generator.normal(0, 0.1, (n, 1)), np.arange(n)[:, None].astype(float))
        for _ in range(n_stars)
    ]


def test_samples_are_centred_by_themselves_where_their_levels_lie_far_apart():
    assert fit_scaling(stars(levels=2.0), center="auto").center == "sample"
    assert fit_scaling(stars(levels=0.1), center="auto").center == "global"
    assert fit_scaling(stars(levels=2.0)).center == "global"
    assert fit_scaling(stars(levels=2.0), values="asinh", center="auto").center == "global"
    assert fit_scaling(stars(1), center="auto").center == "global"
    # What a single value says is a level alone.
    assert fit_scaling(stars(n=1), center="auto").center == "global"


def test_what_is_neither_varied_nor_measured_twice_does_not_decide():
    generator = np.random.default_rng(0)
    constant = [replace(sample, values=torch.ones_like(sample.values)) for sample in stars()]
    assert fit_scaling(constant, center="auto").center == "global"
    # One star in twenty that varies a thousand times as much changes nothing.
    wild = [Sample(generator.normal(0, 100, (12, 1)), np.arange(12.0)[:, None]), *stars()]
    assert fit_scaling(wild, center="auto").center == "sample"


def test_a_centred_scaling_says_how_values_spread_within_samples():
    samples = [Sample([[1.0], [3.0]], [[0.0], [1.0]]), Sample([[11.0], [13.0]], [[0.0], [1.0]])]
    scaling = fit_scaling(samples, center="sample")
    assert scaling.within == ((1.0,),)
    assert float(scaling.gain) == pytest.approx(math.sqrt(26))
    # `apply` does what it did: which values are visible is known later.
    assert_close(scaling.apply(samples[0]).values, fit_scaling(samples).apply(samples[0]).values)
    by_channel = fit_scaling(random_samples(), per="channel", center="sample")
    assert by_channel.n_channels == 3 and np.shape(by_channel.within) == np.shape(by_channel.scale)
    assert float(fit_scaling(samples, values="none", center="sample").gain) == 1.0
    assert fit_scaling(samples, values="robust", center="sample").within[0][0] > 0
    single = fit_scaling(stars(n=1), center="sample")
    assert float(single.gain) == 1.0
    assert from_dict(Scaling, to_dict(by_channel)) == by_channel


def test_a_scaling_that_cannot_centre_is_refused():
    with refused(ValueError, "asinh", "center='global'"):
        fit_scaling(stars(), values="asinh", center="sample")
    with refused(ValueError, "last position axis", "center='global'"):
        fit_scaling(random_samples(), per="channel", unit=[1.0, 2.0], center="sample")
    with refused(ValueError, "within", "center='sample'"):
        Scaling(within=((1.0,),))
    with refused(ValueError, "spread within samples"):
        Scaling(method="standard", centre=((0.0,),), scale=((1.0,),), center="sample")
    with refused(ValueError, "n_channels"):
        Scaling(center="sample", n_channels=0)
    with refused(ValueError, "2 channels", "scales for 1"):
        Scaling(
            method="standard",
            by_channel=True,
            centre=((0.0,),),
            scale=((1.0,),),
            within=((1.0,),),
            center="sample",
            n_channels=2,
        )


def test_ladders_look_at_the_gaps_of_each_channel():
    """Three filters 72 s apart, a visit every two days: the gap is that between visits."""
    visits, readout = np.arange(0, 20, 2.0), 72 / 86400
    times = np.stack([visits + band * readout for band in range(3)], 1).ravel()
    table = {"id": np.zeros(30), "time": times, "band": ["g", "r", "i"] * 10, "value": np.ones(30)}
    samples = from_table(pd.DataFrame(table), id="id", time="time", channel="band", values="value")
    time, band = fit_ladders(samples)
    assert time.scale == pytest.approx(2.0) and time.longest == pytest.approx(2 * math.pi * (18 + 2 * readout) / 2)
    assert band == fit_ladders(samples, per="sample")[1]
    assert fit_ladders(samples, per="sample")[0].scale == pytest.approx(readout)
    # A channel that is read once in each sample has no gap of its own.
    once = SampleSet([replace(samples[0], values=np.ones((3, 1)), positions=samples[0].positions[:3])], samples.schema)
    assert fit_ladders(once)[0].scale == pytest.approx(readout)
    # Without names, the last axis may be anything, and gaps are those of samples.
    assert fit_ladders([Sample(sample.values, sample.positions) for sample in once]) == fit_ladders(once)
    with refused(ValueError, "axis of channels", "per='sample'"):
        fit_ladders([series(1.0, 2.0)], per="channel")

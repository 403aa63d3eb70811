"""Interpolation with 30 % of the times hidden, on small files."""

import numpy as np
import pytest
from quick import check_quick
from test_physionet import files  # noqa: F401

from messages import refused
from romae.experiments.datasets.human_activity import FILE, VARIABLES
from romae.experiments.recipe import find
from romae.experiments.recipes.interpolation import ActivityTimes, StayTimes

N_RECORDINGS = 25


@pytest.fixture
def recordings(tmp_path, monkeypatch):
    """Smooth movements, each tag read by itself at times of its own."""
    random = np.random.default_rng(0)
    lengths, times, values, masks = [], [], [], []
    for _ in range(N_RECORDINGS):
        time = np.sort(random.choice(9_000, 240, replace=False)).astype(float)
        tag, phase = random.integers(4, size=len(time)), random.uniform(0, 6, 12)
        row = np.sin(time[:, None] / 700 + phase) + 2
        lengths.append(len(time))
        times.append(time)
        values.append(row)
        masks.append(np.repeat(np.eye(4, dtype=bool), 3, axis=1)[tag])
    (tmp_path / "human_activity").mkdir()
    np.savez(
        tmp_path / "human_activity" / FILE,
        id=np.arange(N_RECORDINGS),
        length=np.array(lengths),
        time=np.concatenate(times),
        value=np.concatenate(values),
        mask=np.concatenate(masks),
    )
    monkeypatch.setenv("ROMAE_DATA", str(tmp_path))
    return tmp_path


def test_windows_on_small_files(recordings, without_shape_checks):
    result = check_quick(find("interpolation/activity-30"), recordings / "results", learns=False)
    assert set(result.baselines) == {"mean", "linear", "last value", "constant"}
    assert result.baselines["linear"] < result.baselines["last value"] < result.baselines["constant"]
    assert {"mae", "mae_linear", "mae_last_value"} <= set(result.metrics)


def test_stays_on_small_files(files, without_shape_checks):  # noqa: F811
    result = check_quick(find("interpolation/physionet-30"), files / "results", learns=False)
    assert set(result.baselines) == {"mean", "linear", "last value", "constant"}


def test_whole_times_are_hidden_always_the_same_ones_and_training_draws_its_own(recordings):
    splits, again = ActivityTimes().splits(0), ActivityTimes().splits(1)
    assert all(window.hidden is None for window in splits.train)
    for window, other in zip(splits.test, again.test, strict=True):
        times = window.positions[:, 0]
        hidden = set(times[window.hidden].tolist())
        assert not hidden & set(times[~window.hidden].tolist())
        assert len(hidden) == pytest.approx(0.3 * len(set(times.tolist())), abs=1)
        assert bool((window.hidden == other.hidden).all())
    recordings_of = [{str(one.id).partition("@")[0] for one in part} for part in (splits.train, splits.test)]
    assert recordings_of[0].isdisjoint(recordings_of[1])
    chosen = ActivityTimes(tested_on="validation").splits(0)
    assert [one.id for one in chosen.test] == [one.id for one in splits.validation]
    assert len(splits.schema.channels) == len(VARIABLES)


def test_stays_hide_30_percent_of_their_times(files):  # noqa: F811
    for stay in StayTimes().splits(0).test:
        times = stay.positions[:, 0]
        hidden = set(times[stay.hidden].tolist())
        assert len(hidden) == pytest.approx(0.3 * len(set(times.tolist())), abs=1)
        assert not hidden & set(times[~stay.hidden].tolist())


@pytest.mark.parametrize("setting", [{"hide": 0.0}, {"n_windows": 0}])
def test_settings_that_cannot_be_used_are_refused(setting):
    with refused(ValueError, f"data.{next(iter(setting))}"):
        ActivityTimes(**setting).splits(0)

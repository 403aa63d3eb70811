"""Trials of settings for forecasts: judged on validation windows, kept, and not run twice."""

import json

import pytest

from romae.experiments import forecast_choices
from romae.experiments.forecast_choices import CUTS, VARIANTS, main
from romae.experiments.recipe import find


@pytest.mark.parametrize("data", sorted(CUTS))
def test_each_trial_changes_something_and_is_a_recipe(data):
    plain = find(f"forecasting/{data}")
    for name, variant in VARIANTS.items():
        if name == "denser" and CUTS[data].stride is None:
            continue
        changed = variant(plain, CUTS[data])
        is_the_recipe = name == "recipe" or (name == "mixed" and data in ("activity", "ushcn"))  # chosen since
        assert (changed.config == plain.config) == is_the_recipe, name
    assert VARIANTS["pretrained"](plain, CUTS[data]).stages[-1].train == plain.stages[-1].train


def test_trials_are_judged_on_validation_windows_and_what_is_there_is_kept(tmp_path, monkeypatch, capsys):
    seen = []

    def trial(data, name, seed, *, quick, settings):
        seen.append((data, name, seed))
        return {"metrics": {"mse": 1.0}, "seconds": 0.0}

    monkeypatch.setattr(forecast_choices, "trial", trial)
    for _ in range(2):
        main(["activity", "--only", "recipe", "--only", "cuts", "--seed", "3", "--out", str(tmp_path)])
    assert seen == [("activity", "recipe", 3), ("activity", "cuts", 3)]
    assert json.loads((tmp_path / "activity" / "cuts-3.json").read_text())["metrics"] == {"mse": 1.0}
    assert "is there already" in capsys.readouterr().out


def test_a_setting_that_there_is_not_is_said_and_nothing_written(tmp_path, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["activity", "--only", "recipe", "--out", str(tmp_path), "--set", "train.epoch=3", "--quick"])
    assert stopped.value.code == 2 and "epoch" in capsys.readouterr().err
    assert not list(tmp_path.rglob("*.json"))

"""The trained models of the repository: small, with a card, and as good as it says."""

import json
import re
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import romae
from romae.data.scaling import scaled
from romae.experiments import baselines
from romae.experiments.recipe import find

ROOT = Path(__file__).resolve().parents[1]
MODELS = ROOT / "models"
FOLDERS = sorted(path.parent for path in MODELS.glob("*/config.json"))
MOST = 20_000_000  # bytes, of all models together


def test_the_models_are_small_and_listed():
    assert FOLDERS and sum(path.stat().st_size for path in MODELS.rglob("*") if path.is_file()) < MOST
    listed = (MODELS / "README.md").read_text(encoding="utf-8")
    assert all(f"[{folder.name}]({folder.name}/README.md)" in listed for folder in FOLDERS)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_model_loads_and_its_card_says_what_it_is(folder):
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # such as of digests that are not there
        task = romae.load(folder)
    assert task.scaling is not None and task.schema is not None
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert all(f"\n## {part}\n" in card for part in ("Data", "Protocol", "Numbers", "Limits")) and "Licence" in card


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_the_code_on_a_card_runs_on_a_table_of_its_columns(folder, tmp_path, monkeypatch, capsys):
    schema, card = romae.load(folder).schema, (folder / "README.md").read_text(encoding="utf-8")
    table = pd.DataFrame({schema.id: ["a"] * 6 + ["b"] * 6, schema.time: [*range(6)] * 2})
    table[schema.channel] = [*schema.channels[:3]] * 4
    for name in schema.values:
        table[name] = np.linspace(1, 2, 12)
    table.to_csv(tmp_path / "measurements.csv", index=False)
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
    exec(code.replace("path/to/this/folder", str(folder)), {})
    assert len(capsys.readouterr().out) > 10
    assert all(f"| `{name}` |" in card for name in (schema.id, schema.time, schema.channel, *schema.values))


def test_the_model_of_light_curves_is_as_good_as_its_result(real_data, monkeypatch, without_shape_checks):
    monkeypatch.setenv("ROMAE_DATA", str(real_data))
    recipe = find("lightcurves/plasticc-tuned")
    result = json.loads((ROOT / "results" / recipe.name / "0.json").read_text())
    test = recipe.data.splits(0).test[::24]
    task, truth = romae.load(MODELS / "light-curves"), baselines.classes(test)
    chances = romae.predict_proba(task, test)
    assert np.mean(chances.argmax(1) == truth) > result["metrics"]["accuracy"] - 0.06
    assert list(romae.predict(task, test[:5])) == [task.schema.classes[i] for i in chances[:5].argmax(1)]
    assert np.isfinite(romae.embed(task, test[:5])).all()
    seen = scaled(test, task.scaling)
    task.scaling = None
    for precision, same in ((torch.float16, 0.995), (torch.bfloat16, 0.98)):  # what 16 bits take from values
        rounded = [replace(one, values=one.values.to(precision).float()) for one in seen]
        assert (romae.predict_proba(task, rounded).argmax(1) == chances.argmax(1)).mean() >= same


def test_the_model_of_intensive_care_is_as_good_as_its_result(real_data, monkeypatch, without_shape_checks):
    monkeypatch.setenv("ROMAE_DATA", str(real_data))
    recipe = find("physionet/rows-tuned")
    result = json.loads((ROOT / "results" / recipe.name / "0.json").read_text())
    splits = recipe.data.splits(0)
    measured = recipe.data.measure(romae.load(MODELS / "icu"), replace(splits, test=splits.test[::20], seed=1))
    seen, plausible = measured.metrics["mse_plausible_linear"], measured.metrics["mse_plausible_RoMAE"]
    all_seen, all_plausible = (result["metrics"][f"mse_plausible_{name}"] for name in ("linear", "RoMAE"))
    assert plausible / seen == pytest.approx(all_plausible / all_seen, abs=0.05)

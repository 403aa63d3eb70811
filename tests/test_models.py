"""The trained models of the repository: small, with a card, and as good as it says."""

import json
from pathlib import Path

import numpy as np
import pytest

import romae
from romae import baselines, metrics
from romae.recipe import find

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
    task = romae.load(folder)
    assert task.scaling is not None and task.schema is not None
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert all(f"\n## {part}\n" in card for part in ("Data", "Protocol", "Numbers", "Limits")) and "Licence" in card


def test_the_model_of_light_curves_is_as_good_as_its_result(real_data, monkeypatch, without_shape_checks):
    monkeypatch.setenv("ROMAE_DATA", str(real_data))
    recipe = find("lightcurves/plasticc-house")
    result = json.loads((ROOT / "results" / recipe.name / "0.json").read_text())
    test = recipe.data.splits(0).test[::4]
    task, truth = romae.load(MODELS / "light-curves"), baselines.classes(test)
    assert metrics.accuracy(romae.predict_proba(task, test).argmax(1), truth) > result["metrics"]["accuracy"] - 0.03
    names = romae.predict(task, test[:5])
    assert list(names) == [task.schema.classes[i] for i in romae.predict_proba(task, test[:5]).argmax(1)]
    assert np.isfinite(romae.embed(task, test[:5])).all()

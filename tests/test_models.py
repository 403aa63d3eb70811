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
import yaml

import romae
from romae.data.scaling import scaled
from romae.experiments import baselines
from romae.experiments.card import HUB_LICENCES
from romae.experiments.datasets import physionet2012
from romae.experiments.icu_models import errors_of
from romae.experiments.recipe import find
from romae.experiments.stays import MASKING, divided, masked

ROOT = Path(__file__).resolve().parents[1]
MODELS = ROOT / "models"
FOLDERS = sorted(path.parent for path in MODELS.glob("*/config.json"))
ZERO = MODELS / "zero"  # which knows the names of no data
MOST = 30_000_000  # bytes, of all models together


def test_the_models_are_small_and_listed():
    assert FOLDERS and sum(path.stat().st_size for path in MODELS.rglob("*") if path.is_file()) < MOST
    listed = (MODELS / "README.md").read_text(encoding="utf-8")
    assert all(f"[{folder.name}]({folder.name}/README.md)" in listed for folder in FOLDERS)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_model_loads_and_its_card_says_what_it_is(folder):
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # such as of digests that are not there
        task = romae.load(folder)
    assert task.scaling is not None and (task.schema is not None or folder == ZERO)
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert all(f"\n## {part}\n" in card for part in ("Data", "Protocol", "Numbers", "Limits")) and "Licence" in card
    header = yaml.safe_load(card.split("---")[1])
    assert header["library_name"] == "romae" and header["license"] in HUB_LICENCES.values()
    assert "irregular-time-series" in header["tags"]


@pytest.mark.parametrize("folder", [x for x in FOLDERS if x != ZERO], ids=lambda folder: folder.name)
def test_the_code_on_a_card_runs_on_a_table_of_its_columns(folder, tmp_path, monkeypatch, capsys):
    schema, card = romae.load(folder).schema, (folder / "README.md").read_text(encoding="utf-8")
    table = pd.DataFrame({schema.id: ["a"] * 6 + ["b"] * 6, schema.time: [*range(6)] * 2})
    table[schema.channel] = [*schema.channels[:3]] * 4
    for name in schema.values:
        table[name] = np.linspace(1, 2, 12)
    table.to_csv(tmp_path / "measurements.csv", index=False)
    monkeypatch.chdir(tmp_path)
    code, *others = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
    exec(code.replace("path/to/this/folder", str(folder)), {})
    assert len(capsys.readouterr().out) > 10
    for other in others:  # from magnitudes
        before = (schema.id, schema.time, schema.channel, *schema.values)
        renamed = dict(zip(before, ("star", "mjd", "filter", "mag", "mag_err"), strict=True))
        names: dict = {"magnitudes": table.rename(columns=renamed), "romae": romae, "task": romae.load(folder)}
        exec(other, names)
        assert np.isfinite(romae.predict_proba(names["task"], names["samples"])).all()
    assert all(f"| `{name}` |" in card for name in (schema.id, schema.time, schema.channel, *schema.values))


def test_the_model_of_light_curves_is_as_good_as_its_result(real_data, monkeypatch, without_shape_checks):
    monkeypatch.setenv("ROMAE_DATA", str(real_data))
    recipe = find("lightcurves/plasticc-tuned")
    result = json.loads((ROOT / "results" / recipe.name / "0.json").read_text())
    test = recipe.data.splits(0).test[::40]
    task, truth = romae.load(MODELS / "light-curves"), baselines.classes(test)
    chances = romae.predict_proba(task, test)
    assert np.mean(chances.argmax(1) == truth) > result["metrics"]["accuracy"] - 0.06
    assert list(romae.predict(task, test[:5])) == [task.schema.classes[i] for i in chances[:5].argmax(1)]
    assert np.isfinite(romae.embed(task, test[:5])).all()
    seen = scaled(test, task.scaling)
    task.scaling = None
    for precision, same in ((torch.float16, 0.995), (torch.bfloat16, 0.98)):  # what 16 bits take from values
        rounded = [replace(one, values=one.values.to(precision).float()) for one in seen[::2]]
        assert (romae.predict_proba(task, rounded).argmax(1) == chances.argmax(1)[::2]).mean() >= same


def test_the_code_on_the_card_of_the_model_that_needs_no_training_runs(capsys):
    (code,) = re.findall(r"```python\n(.*?)```", (ZERO / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    exec(code, {})
    ours, lines = map(float, re.findall(r"(0\.\d+)", capsys.readouterr().out))
    assert ours < lines


def on_card(folder, row, column):
    """A number of a table on a card, by the words that its row begins with."""
    card = (MODELS / folder / "README.md").read_text(encoding="utf-8")
    (line,) = re.findall(rf"^\| {re.escape(row)} \|(.*)\|$", card, re.MULTILINE)
    return float(line.split("|")[column])


def test_the_model_of_intensive_care_is_as_good_as_its_card(
    real_data, monkeypatch, stays_read_once, without_shape_checks
):
    monkeypatch.setenv("ROMAE_DATA", str(real_data))
    test, _, _ = divided(physionet2012.load("ab").samples())
    task = romae.load(MODELS / "icu")
    assert task.config.kinds == len(physionet2012.VARIABLES)
    _, plausible = errors_of(task, masked(test[::20], MASKING["rows"]))
    ours, means = on_card("icu", "this model", 1), on_card("icu", "mean", 1)
    assert plausible["this model"] / plausible["mean"] == pytest.approx(ours / means, abs=0.05)
    assert plausible["this model"] < 0.85 * plausible["linear"]
    assert on_card("icu", "this model", 0) < 0.36, "no worse than the model without kinds that it replaced, 0.349"


def test_the_cards_of_both_models_and_the_stays_of_the_tutorial_agree():
    """The tutorial asks both models about these stays, and is held to their order of risks and to beating lines."""
    assert on_card("icu-mortality", "set c: this model", 0) > 0.84
    assert on_card("icu-mortality", "set c: this model", 3) < on_card("icu-mortality", "set c: constant", 3)
    task = romae.load(MODELS / "icu-mortality")
    stays = romae.from_table_like(MODELS / "stays" / "stays.csv.gz", task.schema)
    outcomes = pd.read_csv(MODELS / "stays" / "outcomes.csv", index_col="record")["outcome"]
    assert len(stays) == len(outcomes) == 122 and (outcomes == "died").sum() == 13
    tutorial = (ROOT / "docs" / "tutorials" / "icu.md").read_text(encoding="utf-8")
    (auroc, risk, rate) = map(
        float,
        re.search(r"^AUROC ([\d.]+); mean risk ([\d.]+), rate of deaths ([\d.]+)$", tutorial, re.MULTILINE).groups(),
    )
    assert auroc == pytest.approx(on_card("icu-mortality", "set c: this model", 0), abs=0.08)
    assert risk == pytest.approx(on_card("icu-mortality", "set c: this model", 4), abs=0.03)
    assert abs(risk - rate) < 0.05 and rate == pytest.approx(13 / 122, abs=5e-4)

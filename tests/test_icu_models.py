"""The command that makes the models of intensive care: what it trains on, how it judges, and what it writes."""

import csv
import gzip
import re

import numpy as np
import pandas as pd
import pytest

import romae
from messages import assert_says
from romae.experiments import icu_models
from romae.experiments.datasets import physionet2012
from romae.experiments.datasets.physionet2012 import OUTCOME_COLUMNS
from romae.experiments.icu_models import Making, calibration_rows, errors_of, scores_of
from romae.experiments.stays import MASKING, divided, masked, stay_scaling

N_RECORDS = 70
MEASURED = {"HR": (80, 15), "Temp": (37, 0.8), "MAP": (75, 10)}


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Small sets a, b and c in the challenge's format: those with the highest levels die."""
    monkeypatch.setenv("ROMAE_DATA", str(tmp_path))
    for first, letter in ((1000, "a"), (2000, "b"), (3000, "c")):
        random, folder = np.random.default_rng(first), tmp_path / "physionet2012" / f"set-{letter}"
        folder.mkdir(parents=True)
        outcomes = [",".join(OUTCOME_COLUMNS)]
        for record, level in enumerate(random.normal(size=N_RECORDS), start=first):
            lines = ["Time,Parameter,Value", f"00:00,RecordID,{record}", "00:00,Age,60", "00:00,Height,-1"]
            for hour in np.sort(random.permutation(48)[:6]):
                for name, (mean, deviation) in MEASURED.items():
                    lines.append(f"{hour:02d}:30,{name},{mean + deviation * (level + 0.2 * random.normal()):.3f}")
            (folder / f"{record}.txt").write_text("\n".join(lines) + "\n")
            outcomes.append(f"{record},1,1,1,1,{int(level > 0.7)}")
        (folder.parent / f"Outcomes-{letter}.txt").write_text("\n".join(outcomes) + "\n")
    return tmp_path


def test_one_command_makes_both_models_with_cards_and_the_stays(files, capsys, without_shape_checks):
    icu_models.main(["--out", str(files / "models"), "--quick", "--device", "cpu"])
    assert_says(capsys.readouterr().out, "icu: mse", "set c: AUROC", "3 stays")
    for name, kind in (("icu", romae.MaskedReconstruction), ("icu-mortality", romae.Classification)):
        task = romae.load(files / "models" / name)
        assert isinstance(task, kind) and task.config.kinds == 41 and task.schema.channels == physionet2012.VARIABLES
        card = (files / "models" / name / "README.md").read_text()
        assert all(f"\n## {part}\n" in card for part in ("Data", "Protocol", "Numbers", "Limits"))
        assert_says(card, "Open Data Commons Attribution", "quick trial", "never for the care")
    mortality = romae.load(files / "models" / "icu-mortality")
    assert mortality.schema.classes == ("survived", "died") and mortality.calibration is not None
    stays = romae.from_table_like(files / "models" / "stays" / "stays.csv.gz", mortality.schema)
    outcomes = pd.read_csv(files / "models" / "stays" / "outcomes.csv")
    assert [sample.id for sample in stays] == outcomes["record"].tolist() == [3000, 3033, 3066]
    assert set(outcomes["outcome"]) <= {"survived", "died"}
    (code,) = re.findall(r"```python\n(.*?)```", (files / "models" / "icu-mortality" / "README.md").read_text(), re.S)
    assert "predict_proba" in code and ((romae.predict_proba(mortality, stays)[:, 1] > 0).all())


def test_the_table_of_stays_holds_the_very_measurements(files):
    icu_models.write_stays(files / "stays", Making())
    with gzip.open(files / "stays" / "stays.csv.gz", "rt") as file:
        rows = list(csv.DictReader(file))
    stays = physionet2012.load("c")
    first = [row for row in rows if row["record"] == "3000"]
    assert len(first) == stays.offsets[1] and [row["variable"] for row in first[:1]] == ["Age"]
    np.testing.assert_allclose([float(row["value"]) for row in first], stays.values[: stays.offsets[1]], rtol=1e-5)
    np.testing.assert_array_equal([float(row["minutes"]) for row in first], stays.minutes[: stays.offsets[1]])
    before = (files / "stays" / "stays.csv.gz").read_bytes()
    icu_models.write_stays(files / "stays", Making())
    assert (files / "stays" / "stays.csv.gz").read_bytes() == before, "the same bytes every time"
    assert "ODC Attribution License" in (files / "stays" / "README.md").read_text()


def test_errors_are_in_variances_and_those_of_the_truth_are_none(files, monkeypatch):
    test, _, train = divided(physionet2012.load("ab").samples())
    test = masked(test, MASKING["rows"])
    making = Making(quick=True, device="cpu")
    task = romae.MaskedReconstruction(making.model(train, scaling := stay_scaling(train, 5.0)))
    task.scaling = scaling
    truth = [sample.values[sample.hidden].double().numpy() for sample in test]
    monkeypatch.setattr(icu_models, "predict", lambda task, samples: truth)
    errors, plausible = errors_of(task, test)
    assert errors["this model"] == pytest.approx(0, abs=1e-9) and 0.5 < errors["constant"] < 2
    assert errors["linear"] < errors["constant"] and plausible["constant"] <= errors["constant"]


def test_scores_know_the_order_and_the_size_of_risks():
    died = np.array([0, 0, 0, 1])
    good, high = scores_of(np.array([0.1, 0.1, 0.2, 0.6]), died), scores_of(np.array([0.8, 0.8, 0.9, 0.99]), died)
    assert good["AUROC"] == high["AUROC"] == good["AUPRC"] == 1
    assert good["Brier score"] == pytest.approx((0.01 + 0.01 + 0.04 + 0.16) / 4) and good["log loss"] < high["log loss"]
    assert good["mean risk"] == pytest.approx(0.25) == good["rate of deaths"]


def test_groups_of_like_risks_hold_every_stay_once():
    random = np.random.default_rng(0)
    risk = random.permutation(np.linspace(0, 1, 103))
    died = (random.random(103) < risk).astype(int)
    rows = calibration_rows(risk, died)
    assert len(rows) == 5 and sum(int(row[-1]) for row in rows) == 103
    lowest, highest, mean, rate = (np.array([float(row[i]) for row in rows]) for i in range(4))
    assert (highest[:-1] <= lowest[1:]).all() and (lowest <= mean).all() and (mean <= highest).all()
    assert np.abs(mean - rate).max() < 0.3 and rate[-1] > rate[0]


def test_bad_input_is_one_sentence_and_exit_code_2(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("ROMAE_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(SystemExit) as ended:
        icu_models.main(["--out", str(tmp_path / "models"), "--quick", "--only", "stays"])
    assert ended.value.code == 2
    assert_says(capsys.readouterr().err, "cannot find", "set-c.tar.gz")

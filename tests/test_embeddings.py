"""The comparison of embeddings with summary features: what it reads, how it judges, and what it writes."""

import json

import numpy as np
import pytest

import romae
from messages import assert_says, refused
from romae.experiments import embeddings
from romae.experiments.datasets import asas
from romae.experiments.embeddings import Division, compare, regression, run


def stars(n=30):
    """Stars of three classes, of which one has two stars."""
    random = np.random.default_rng(0)
    length = random.integers(4, 9, n)
    label = np.array(["Mira", "Detached", "Detached"] * (n // 3), dtype="<U9")
    label[:2] = "rare"
    return {
        "id": np.arange(n).astype(str),
        "label": label,
        "length": length,
        "time": 2450000 + np.sort(random.uniform(0, 900, length.sum())),
        "mag": random.normal(12, 1, length.sum()).astype(np.float32),
        "err": np.full(length.sum(), 0.05, dtype=np.float32),
    }


def test_stars_are_read_with_days_from_their_first_point(tmp_path):
    arrays = stars()
    np.savez(tmp_path / "asas.npz", **arrays)
    samples, names = asas.load(folder=tmp_path)
    assert names == ("Detached", "Mira", "rare") and [len(sample) for sample in samples] == arrays["length"].tolist()
    second = slice(arrays["length"][0], arrays["length"][:2].sum())
    assert samples[1].positions[0] == 0
    np.testing.assert_allclose(np.diff(samples[1].positions[:, 0]), np.diff(arrays["time"][second]))
    np.testing.assert_array_equal(samples[1].values[:, 0], arrays["mag"][second])
    assert [names[int(sample.target)] for sample in samples] == arrays["label"].tolist()
    samples, names = asas.load(fewest=3, folder=tmp_path)
    assert names == ("Detached", "Mira") and len(samples) == 28
    assert {int(sample.target) for sample in samples} == {0, 1}


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        ({"mag": None}, ("cannot read", "mag")),
        ({"mag": np.zeros(3)}, ("mag", "shape [3]")),
        ({"label": np.array(["a"])}, ("label", "shape [1]")),
        ({"length": np.zeros(30, dtype=int)}, ("length", "at least 1")),
        ({"err": lambda x: np.full_like(x, np.nan)}, ("err", "finite")),
    ],
    ids=["missing", "points", "stars", "lengths", "numbers"],
)
def test_a_file_of_stars_that_does_not_fit_together_is_refused(tmp_path, change, parts):
    arrays = stars()
    for name, value in change.items():
        arrays[name] = value(arrays[name]) if callable(value) else value
    np.savez(tmp_path / "asas.npz", **{name: array for name, array in arrays.items() if array is not None})
    with refused(ValueError, *parts):
        asas.load(folder=tmp_path)
    with pytest.raises(FileNotFoundError):
        asas.load(folder=tmp_path / "elsewhere")


def test_the_regression_learns_what_is_linear_and_is_told_nothing_by_noise(monkeypatch):
    monkeypatch.setattr(embeddings, "N_JOBS", 1)
    random = np.random.default_rng(0)
    x, y = random.normal(size=(200, 3)), np.arange(200) % 2
    noise = regression(x[:120], y[:120], x[120:], y[120:], "roc_auc")
    x[:, 1] = np.where(random.random(200) < 0.05, np.nan, 5 * y + x[:, 1])  # a missing one takes the mean
    clear = regression(x[:120], y[:120], x[120:], y[120:], "roc_auc")
    assert clear.score > 0.95 and abs(noise.score - 0.5) < 0.2 and clear.strength in embeddings.STRENGTHS


def waves(n, seed):
    """Series that are slow or fast, with the same mean and deviation."""
    random = np.random.default_rng(seed)
    steps = np.arange(24)
    values = [np.sin((0.3 + 0.9 * (i % 2)) * steps + random.uniform(0, 6)) for i in range(n)]
    return list(romae.from_arrays(np.stack(values)[:, :, None], y=np.arange(n) % 2))


@pytest.fixture
def small(monkeypatch):
    division = Division(train=waves(40, 0), test=waves(20, 1), metric="accuracy")
    monkeypatch.setattr(embeddings, "SETS", {"waves": lambda fold: division})
    monkeypatch.setattr(embeddings, "HAVE_FOLDS", ())
    monkeypatch.setattr(embeddings, "N_JOBS", 1)
    monkeypatch.setattr(embeddings, "STRENGTHS", np.array([0.1]))
    return division


def test_all_rows_are_judged_on_the_same_samples(small):
    comparison = compare(small, quick=True, device="cpu")
    assert set(comparison["scores"]) == set(comparison["n_features"]) == set(comparison["C"])
    assert comparison["scores"]["embeddings"] > 0.9 and comparison["n_features"]["embeddings"] == 240
    assert comparison["n_samples"] == {"train": 40, "test": 20, "unlabelled": 40} and comparison["quick"]


def test_a_comparison_is_added_to_what_was_measured_before(small, tmp_path, capsys):
    path = run(["waves"], tmp_path, quick=True, device="cpu")
    before = json.loads(path.read_text())
    assert path.name == "cpu.json" and before["waves"]["0"]["versions"]["romae"] == romae.__version__
    before["waves"]["7"] = before["waves"]["0"]
    path.write_text(json.dumps(before))
    embeddings.main(["--out", str(tmp_path), "--quick", "--device", "cpu", "--sets", "waves"])
    assert set(json.loads(path.read_text())["waves"]) == {"0", "7"}
    assert_says(capsys.readouterr().out, "summary features", "written to")


def test_bad_input_is_one_sentence_and_exit_code_2(small, tmp_path, capsys):
    (tmp_path / "cpu.json").write_text('{"mine": 1}')
    for given, parts in (
        (["--sets", "wave"], ("no data set 'wave'", "waves")),
        (["--folds", "5"], ("0 to 4", "not 5")),
        ([], ("cpu.json", "remove it")),
    ):
        with pytest.raises(SystemExit) as ended:
            embeddings.main(["--out", str(tmp_path), "--quick", "--device", "cpu", *given])
        assert ended.value.code == 2
        assert_says(capsys.readouterr().err, *parts)
    assert (tmp_path / "cpu.json").read_text() == '{"mine": 1}'


@pytest.mark.parametrize("name", ["uea/Epilepsy-30", "uea/Epilepsy"])
def test_a_division_of_the_archive_is_its_own(name, real_data, monkeypatch):
    monkeypatch.setenv("ROMAE_DATA", str(real_data))
    division = embeddings.SETS[name](0)
    assert (len(division.train), len(division.test)) == (137, 138)
    assert {len(sample) for sample in division.test} == {206 if name == "uea/Epilepsy" else 144}
    assert str(division.train[0].id).startswith("train/") and str(division.test[0].id).startswith("test/")

"""ASAS: one file of stars to light curves, periods that are found and kept, and damaged files."""

import numpy as np
import pytest

from messages import refused
from romae.experiments.datasets import asas, find
from romae.experiments.datasets.files import MissingFile


def write(folder, **changes):
    """Two stars: a sine of 2.5 days, and three points of another class."""
    random = np.random.default_rng(0)
    days = np.sort(random.uniform(0, 200, 120))
    columns = {
        "id": np.array(["b7", "a1"]),
        "label": np.array(["RR Lyrae", "Mira"]),
        "length": np.array([120, 3]),
        "time": np.concatenate([2_451_869.5 + days, [2_451_900.25, 2_451_901.25, 2_451_903.0]]),
        "mag": np.concatenate([11 + np.sin(2 * np.pi * days / 2.5), [9.0, 9.5, 9.25]]).astype(np.float32),
        "err": np.full(123, 0.02, dtype=np.float32),
    }
    np.savez(folder / "asas.npz", **columns | changes)
    return folder


def test_a_star_is_a_light_curve_from_its_first_point(tmp_path):
    samples, names = asas.load(folder=write(tmp_path))
    assert names == ("Mira", "RR Lyrae")
    assert [(sample.id, int(sample.target), len(sample)) for sample in samples] == [("b7", 1, 120), ("a1", 0, 3)]
    assert samples[1].positions.tolist() == [[0.0], [1.0], [2.75]]
    assert samples[1].values.tolist() == pytest.approx(np.array([[9.0, 0.02], [9.5, 0.02], [9.25, 0.02]]))


def test_periods_are_found_and_taken_from_the_file_where_they_are_kept(tmp_path):
    pytest.importorskip("astropy")
    samples = asas.load(folder=write(tmp_path)).samples[:1]
    assert asas.periods(samples, folder=tmp_path) == pytest.approx([2.5], rel=1e-3)
    asas.save_periods(samples, tmp_path)
    kept = dict(np.load(tmp_path / "periods.npz"))
    np.savez(tmp_path / "periods.npz", id=kept["id"], period=kept["period"] + 1)
    assert asas.periods(samples, folder=tmp_path) == pytest.approx([3.5], rel=1e-3)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"length": np.array([119, 3])}, ("time", "122")),
        ({"length": np.array([123, 0])}, ("a1", "no point")),
        ({"mag": np.full(123, np.nan)}, ("mag", "finite")),
        ({"label": np.array(["Mira"])}, ("label", "2 of them")),
    ],
)
def test_a_damaged_file_is_refused(tmp_path, changes, said):
    with refused(ValueError, *said):
        asas.load(folder=write(tmp_path, **changes))


def test_a_file_that_is_not_there_or_no_archive_is_named(tmp_path):
    with refused(MissingFile, "asas.npz"):
        asas.load(folder=tmp_path)
    (tmp_path / "asas.npz").write_bytes(b"PK no archive")
    with refused(ValueError, "cannot read", "asas.npz"):
        asas.load(folder=tmp_path)


def test_the_data_at_hand_are_complete(real_data):
    assert find("asas").verify(real_data / "asas") == "13909 stars, 6334240 points, 10 classes"

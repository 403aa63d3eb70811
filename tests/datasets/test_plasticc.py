"""PLAsTiCC: tables to light curves, relative in time, with objects and classes that agree."""

import gzip

import numpy as np
import pytest

from messages import refused
from romae.experiments.datasets import files, find
from romae.experiments.datasets.files import MissingFile
from romae.experiments.datasets.plasticc import CLASSES, load

POINTS = """object_id,mjd,passband,flux,flux_err,detected_bool
713,59800.5,5,4.0,0.4,0
615,59750.4306,1,-816.434326,5.55337,1
615,59750.4229,2,-544.810303,3.622952,1
713,59798.25,0,3.0,0.3,0
"""
ABOUT = """object_id,ra,target
       713, 53.1,90
       615,349.0, 92
"""


def write(folder, points=POINTS, about=ABOUT, is_packed=True):
    for name, text in (("lightcurves", points), ("metadata", about)):
        path = folder / f"plasticc_train_{name}.csv"
        if is_packed:
            path.with_suffix(".csv.gz").write_bytes(gzip.compress(text.encode()))
        else:
            path.write_text(text)
    return folder


@pytest.mark.parametrize("is_packed", [True, False])
def test_an_object_is_a_light_curve_from_its_first_point(tmp_path, is_packed):
    samples, class_names = load(folder=write(tmp_path, is_packed=is_packed))
    assert [sample.id for sample in samples] == [615, 713]
    assert [class_names[int(sample.target)] for sample in samples] == ["RR Lyrae", "supernova Ia"]
    assert samples[1].values.tolist() == pytest.approx(np.array([[3.0, 0.3], [4.0, 0.4]]))
    assert samples[1].positions.tolist() == [[0, 0], [2.25, 5]]
    assert samples[0].positions[:, 0].tolist() == pytest.approx([0, 0.0077], abs=1e-9), "subtracted in float64"
    assert len(class_names) == 14 and list(CLASSES) == sorted(CLASSES)


@pytest.mark.parametrize(
    "points, about, parts",
    [
        (POINTS.replace("flux_err", "error"), ABOUT, ["lightcurves.csv.gz", "['flux_err']"]),
        (POINTS.replace("3.0,0.3", "x,0.3"), ABOUT, ["row 4", "flux is x", "finite"]),
        (POINTS.replace("3.0,0.3", ",0.3"), ABOUT, ["row 4", "flux is nan", "finite"]),
        (POINTS.replace("59800.5,5", "59800.5,6"), ABOUT, ["row 1", "band 6"]),
        (POINTS.replace("59800.5,5", "59800.5,1.5"), ABOUT, ["row 1", "passband is 1.5", "whole number"]),
        (POINTS + "9,1,1,1,1,1\n", ABOUT, ["object 9", "no row", "metadata"]),
        (POINTS, ABOUT + "9,1,90\n", ["object 9", "no point", "lightcurves"]),
        (POINTS, ABOUT + "615,1,90\n", ["object 615", "more than once"]),
        (POINTS, ABOUT.replace(",90", ",91"), ["class 91"]),
        ("", ABOUT, ["cannot read", "lightcurves"]),
    ],
)
def test_bad_tables_are_refused_with_their_place(tmp_path, points, about, parts):
    with refused(ValueError, *parts):
        load(folder=write(tmp_path, points, about))


def test_absent_and_damaged_files_give_a_sentence(tmp_path):
    with refused(MissingFile, "lightcurves.csv.gz", "download https://zenodo.org/", "put it"):
        load(folder=tmp_path)
    path = write(tmp_path) / "plasticc_train_lightcurves.csv.gz"
    whole = path.read_bytes()
    for damaged in (whole[: len(whole) // 2], b"no gzip", whole[:20] + b"\xff" + whole[21:]):
        path.write_bytes(damaged)
        with refused(ValueError, "lightcurves"):
            load(folder=tmp_path)


def test_check_compares_with_the_published_counts(tmp_path):
    with refused(ValueError, "2 objects, 4 points", "2 classes", "7848, 1421705 and 14"):
        find("plasticc").verify(write(tmp_path))


@pytest.mark.slow
def test_the_real_training_set_has_the_published_counts(real_data):
    report = find("plasticc").verify(real_data / "plasticc")
    assert report == "7848 objects, 1421705 points, 14 classes, 6 bands"


def test_a_table_that_unpacks_to_far_more_than_data_do_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "SMALL", 10_000)
    folder = write(tmp_path, points=POINTS + "\n" * 200_000)
    with refused(ValueError, "plasticc_train_lightcurves.csv.gz", "30 times"):
        load(folder=folder)

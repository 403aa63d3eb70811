"""ELAsTiCC: SNANA tables in FITS and Parquet of the published schema, and the alert mask. The test writes the FITS."""

import gzip

import numpy as np
import pytest

from fits_files import fits, write_pair
from messages import refused, warned
from romae.experiments.datasets import find
from romae.experiments.datasets.elasticc import CLASS_OF_MODEL, CLASSES, alert_mask, load, read_table, stream
from romae.experiments.datasets.files import MissingFile

MJD = np.array([100.0, 160.25, 180, 185, 200, 220, 90, 95, -777.0])
BAND = np.array(["u", "LSST-g", "r", "y", "z", "i", "g", "r", "-"])
FLAG = np.array([0, 0, 6144, 1024, 4096, 0, 0, 6144, 0])
FLUX = np.arange(9) * 1.5
COLUMNS = {
    "MJD": (MJD, "1D"),
    "BAND": (BAND, "12A"),
    "CCDNUM": (np.zeros(9), "1I"),
    "PHOTFLAG": (FLAG, "1J"),
    "FLUXCAL": (FLUX, "1E"),
    "FLUXCALERR": (FLUX / 10, "1E"),
}
HEAD = {
    "SNID": (np.array(["4100", "4200"]), "16A"),
    "NOBS": (np.array([6, 2]), "1J"),
    "PTROBS_MIN": (np.array([1, 7]), "1J"),
    "PTROBS_MAX": (np.array([6, 8]), "1J"),
}


def write(folder, model="SNIa-SALT2", head=HEAD, phot=COLUMNS, is_packed=True):
    return write_pair(folder, model, head, phot, is_packed=is_packed)


def write_parquet(folder, **changes):
    import pyarrow as pa
    from pyarrow import parquet

    snid = np.array([4100] * 6 + [4200] * 2)
    columns = {"SNID": snid, **{name: values[:8] for name, (values, _) in COLUMNS.items()}, **changes}
    parquet.write_table(pa.table(columns), folder / "TDE.parquet")
    return folder


def test_the_32_models_fall_into_20_classes():
    assert (len(CLASSES), len(CLASS_OF_MODEL)) == (20, 32)
    assert CLASS_OF_MODEL["SNIIn-MOSFIT"] == CLASS_OF_MODEL["SNII-NMF"] != CLASS_OF_MODEL["SNIIb+HostXT_V19"]


@pytest.mark.parametrize("is_packed", [True, False])
def test_fits_columns_come_back_as_written(tmp_path, is_packed):
    (tmp_path / "x.FITS").write_bytes(gzip.compress(fits(COLUMNS)) if is_packed else fits(COLUMNS))
    found = read_table(tmp_path / "x.FITS", ("PHOTFLAG", "MJD", "BAND", "FLUXCAL"))
    assert found["MJD"].dtype == np.float64 and found["MJD"].tolist() == MJD.tolist()
    assert found["PHOTFLAG"].tolist() == FLAG.tolist() and found["FLUXCAL"].tolist() == FLUX.tolist()
    assert np.strings.rstrip(found["BAND"].astype("U")).tolist() == BAND.tolist()


def test_a_column_of_several_values_in_a_row_is_refused(tmp_path):
    from astropy.table import Table

    Table({"MJD": np.zeros((9, 2)), "PHOTFLAG": FLAG}).write(tmp_path / "x.FITS", format="fits")
    with refused(ValueError, "x.FITS", "column MJD", "more than one"):
        read_table(tmp_path / "x.FITS", ("MJD", "PHOTFLAG"))


def test_without_the_mask_every_point_is_there(tmp_path):
    samples, class_names = load(alerts_only=False, folder=write(tmp_path))
    assert [sample.id for sample in samples] == ["SNIa-SALT2/4100", "SNIa-SALT2/4200"]
    assert {class_names[int(sample.target)] for sample in samples} == {"SN Ia"}
    assert samples[0].positions.tolist() == [[0, 0], [60.25, 1], [80, 2], [85, 5], [100, 4], [120, 3]]
    assert samples[0].values[:, 0].tolist() == FLUX[:6].tolist()
    assert samples[1].positions.tolist() == [[0, 1], [5, 2]] and samples[1].values[:, 0].tolist() == FLUX[6:8].tolist()


def test_the_alert_mask_keeps_30_days_before_the_first_alert_to_the_last_detection(tmp_path):
    samples = load(folder=write(tmp_path)).samples
    assert samples[0].positions.tolist() == [[0, 1], [19.75, 2], [39.75, 4]], "the saturated point is gone too"
    assert samples[1].positions.tolist() == [[0, 1], [5, 2]]


def test_the_alert_mask_at_its_edges():
    mjd = np.array([69.9, 70.0, 100.0, 120.0, 120.1, 500.0])
    flags = np.array([4096, 0, 6144, 4096, 0, 1024 + 4096])
    assert alert_mask(np.zeros(6, np.int64), mjd, flags).tolist() == [False, True, True, True, True, False]
    flags[5] = 0
    assert alert_mask(np.zeros(6, np.int64), mjd, flags).tolist() == [False, True, True, True, False, False]


def test_objects_without_an_alert_are_left_out_and_counted(tmp_path):
    quiet = {**COLUMNS, "PHOTFLAG": (np.where(MJD == 95, 4096, FLAG), "1J")}
    with warned(UserWarning, "1 of 2 objects", "an alert"):
        assert [sample.id for sample in stream(folder=write(tmp_path, phot=quiet))] == ["SNIa-SALT2/4100"]


def test_parquet_gives_the_same_light_curves(tmp_path):
    write(tmp_path, model="TDE")
    (tmp_path / "other").mkdir()
    expected, found = load(folder=tmp_path).samples, load(folder=write_parquet(tmp_path / "other")).samples
    assert [sample.id for sample in found] == [sample.id for sample in expected] == ["TDE/4100", "TDE/4200"]
    for a, b in zip(expected, found, strict=True):
        assert a.values.tolist() == b.values.tolist() and a.positions.tolist() == b.positions.tolist()


def test_several_models_are_read_and_checked(tmp_path):
    write(tmp_path)
    write(tmp_path, model="SNIc-Templates", is_packed=False)
    write_parquet(tmp_path)
    assert find("elasticc").verify(tmp_path) == "6 objects, 24 points, 3 of 32 models in 3 of 20 classes"


def test_absent_files_and_unknown_models_give_a_sentence(tmp_path):
    with refused(MissingFile, "no light curve", "ELASTICC_TRAIN_<model>", "http"):
        load(folder=tmp_path)
    write(tmp_path)
    next(tmp_path.rglob("*PHOT*")).unlink()
    with refused(MissingFile, "_PHOT.FITS.gz", "_HEAD.FITS.gz"):
        load(folder=tmp_path)
    with refused(ValueError, "'Unicorn'"):
        load(folder=write(tmp_path, model="Unicorn"))


@pytest.mark.parametrize(
    "head, phot, parts",
    [
        ({"PTROBS_MAX": (np.array([6, 80]), "1J")}, {}, ["row 2", "PHOT"]),
        ({"PTROBS_MIN": (np.array([0, 7]), "1J")}, {}, ["row 1", "PHOT"]),
        ({}, {"FLUXCAL": (np.where(MJD == 95, np.nan, FLUX), "1E")}, ["FLUXCAL", "object 4200", "nan"]),
        ({}, {"BAND": (np.where(MJD == 95, "J", BAND), "12A")}, ["BAND is 'J'", "u, g, r, i"]),
        ({}, {"PHOTFLAG": (FLAG, "1E")}, ["PHOTFLAG", "whole numbers"]),
    ],
)
def test_bad_tables_are_refused(tmp_path, head, phot, parts):
    with refused(ValueError, *parts):
        load(folder=write(tmp_path, head={**HEAD, **head}, phot={**COLUMNS, **phot}))


@pytest.mark.parametrize(
    "damage, parts",
    [
        (lambda content: content[: 2 * 2880], ["cannot read", "x.FITS"]),
        (lambda content: content[:2000], ["cannot read", "x.FITS"]),
        (lambda content: content[:2880], ["x.FITS", "no binary table"]),
        (lambda content: b"hello" + content, ["cannot read", "x.FITS"]),
        (lambda content: gzip.compress(content)[:300], ["x.FITS", "cut off"]),
        (lambda content: content.replace(b"'1D      '", b"'2D      '"), ["x.FITS", "damaged"]),
        (lambda content: content.replace(b"'1I      '", b"'1Z      '"), ["cannot read", "x.FITS", "'1Z'"]),
        (lambda content: content.replace(b"'1I      '", b"'1J      '"), ["x.FITS", "damaged"]),
        (lambda content: content.replace(b"'MJD     '", b"'MJT     '"), ["lacks the columns", "['MJD']", "MJT"]),
    ],
)
def test_damaged_fits_files_are_refused(tmp_path, damage, parts):
    (tmp_path / "x.FITS").write_bytes(damage(fits(COLUMNS)))
    with refused(ValueError, *parts):
        read_table(tmp_path / "x.FITS", ("MJD", "PHOTFLAG"))


def test_bad_parquet_files_are_refused(tmp_path):
    import pyarrow as pa

    write_parquet(tmp_path, MJD=pa.array([1.0, None] * 4))
    with refused(ValueError, "TDE.parquet", "MJD", "4 empty cells"):
        load(folder=tmp_path)
    write_parquet(tmp_path, FLUXCAL=pa.array(["x"] * 8))
    with refused(ValueError, "FLUXCAL", "numbers"):
        load(folder=tmp_path)
    (tmp_path / "TDE.parquet").write_bytes((tmp_path / "TDE.parquet").read_bytes()[:100])
    with refused(ValueError, "cannot read", "TDE.parquet"):
        load(folder=tmp_path)

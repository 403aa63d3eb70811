"""Photometry: conversions and their inverses, zero points by name, and the warning about fluxes of another kind."""

import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import romae
from romae.data.photometry import (
    ZERO_POINTS,
    difference_flux,
    looks_undifferenced,
    table_like,
    to_flux,
    to_magnitude,
)
from romae.inference.outside import Outside
from romae.tokens.tokens import PackedSamples

MODELS = Path(__file__).resolve().parents[1] / "models"


@pytest.mark.parametrize("name", ZERO_POINTS)
def test_fluxes_come_back_from_magnitudes_with_their_errors(name):
    flux, error = np.array([[0.3, 1.0], [250.0, np.nan]]), np.array([[0.1, 0.2], [3.0, 1.0]])
    magnitude = to_magnitude(flux, error, zero_point=name)
    back = to_flux(magnitude.values, magnitude.errors, zero_point=name)
    np.testing.assert_allclose(back.values, flux)
    np.testing.assert_allclose(back.errors[~np.isnan(flux)], error[~np.isnan(flux)])


def test_known_magnitudes():
    assert to_magnitude([3630.78], zero_point="AB") == pytest.approx(0, abs=1e-4)
    jansky = to_magnitude([3.0], zero_point="AB Jy")
    for name, factor in (("AB mJy", 1e3), ("AB µJy", 1e6), ("LSST nJy", 1e9), ("ab njy", 1e9)):
        assert to_magnitude([3.0 * factor], zero_point=name) == pytest.approx(jansky)
    assert to_magnitude([1.0, 100.0], zero_point="PLAsTiCC").tolist() == [27.5, 22.5]
    assert to_magnitude([1.0, 1.0], zero_point=[25.0, 26.0]).tolist() == [25.0, 26.0]
    assert to_magnitude([10.0], [0.1], zero_point=0.0).errors[0] == pytest.approx(0.010857, rel=1e-3)
    assert np.isnan(to_magnitude([-1.0, 1.0], zero_point=0.0, not_positive="nan")).tolist() == [True, False]


def test_differences_have_the_median_0_in_each_band_of_each_object():
    random = np.random.default_rng(0)
    ids, bands = np.repeat(["a", "b"], 30), np.tile(["g", "r", "i"], 20)
    flux = random.normal(size=60) + np.where(bands == "g", 50, 500) + np.where(ids == "a", 0, 1000)
    table = pd.DataFrame({"id": ids, "band": bands, "f": flux, "e": 1.0}, index=range(100, 160))
    result = difference_flux("f", "e", id="id", band="band", table=table)
    medians = result.groupby(["id", "band"])["difference_flux"].median()
    np.testing.assert_allclose(medians, 0, atol=1e-12)
    assert (result["difference_flux_error"] == 1.0).all() and "difference_flux" not in table
    by_band = difference_flux(
        flux, np.ones(60), band=bands, reference={"g": 1.0, "r": 2.0, "i": 3.0}, reference_error=2.0
    )
    np.testing.assert_allclose(flux - by_band.values, np.tile([1.0, 2.0, 3.0], 20))
    np.testing.assert_allclose(by_band.errors, np.sqrt(5.0))


@pytest.mark.parametrize(
    ("convert", "words"),
    [
        (lambda: to_magnitude([1.0, -2.0], zero_point="AB"), ["1 of 2", "-2"]),
        (lambda: to_magnitude([1.0], [-0.1], zero_point="AB"), ["-0.1", "below 0"]),
        (lambda: to_magnitude([1.0], zero_point="Vega"), ["'Vega'", "LSST nJy"]),
        (lambda: to_magnitude([1.0], zero_point="ZTF"), ["each image", "magzpsci"]),
        (lambda: to_magnitude([1.0, 2.0], zero_point=[1.0, 2.0, 3.0]), ["zero_point", "[3]"]),
        (lambda: to_magnitude("flux", zero_point="AB"), ["'flux'", "table="]),
        (lambda: to_flux([1e6], zero_point="AB"), ["1e+06", "no magnitude"]),
        (lambda: to_flux("mag", zero_point="AB", table=pd.DataFrame({"m": [1.0]})), ["'mag'", "['m']"]),
        (lambda: to_flux("m", zero_point="AB", table=pd.DataFrame({"m": [1.0], "flux": 0})), ["'flux'", "already"]),
        (lambda: difference_flux([1.0], band=["g"], reference={"r": 1.0}), ["'g'"]),
        (lambda: difference_flux([1.0], reference=[0.5], reference_error=1.0), ["error="]),
        (lambda: difference_flux([1.0], reference_error=1.0), ["median"]),
        (lambda: difference_flux([1.0, 2.0], band=["g"]), ["one band", "2 fluxes"]),
        (lambda: to_flux([np.inf], zero_point="AB"), ["infinite"]),
    ],
)
def test_nonsense_is_refused(convert, words):
    with pytest.raises(ValueError) as caught:
        convert()
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_text_is_no_flux():
    with pytest.raises(TypeError, match="no number"):
        to_magnitude(["bright"], zero_point="AB")


def magnitudes() -> pd.DataFrame:
    random = np.random.default_rng(0)
    rows = {"star": np.repeat(["a", "b"], 20), "mjd": np.tile(np.arange(20.0), 2), "filter": np.tile(["g", "r"], 20)}
    return pd.DataFrame(rows | {"mag": random.normal(19, 0.3, 40), "mag_err": 0.02, "kind": "RR Lyrae"})


def test_the_bundled_model_takes_magnitudes_in_one_call():
    task, table = romae.load(MODELS / "light-curves"), magnitudes()
    columns = {"id": "star", "time": "mjd", "band": "filter", "magnitude": "mag", "error": "mag_err"}
    result = table_like(table, task.schema, **columns)
    flux, error = to_flux(table["mag"], table["mag_err"], zero_point=27.5)
    expected = difference_flux(flux, error, id=table["star"], band=table["filter"])
    np.testing.assert_allclose(result[["flux", "flux error"]].to_numpy(), np.stack(expected, axis=1))
    samples = romae.from_table_like(result, task.schema)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert romae.predict_proba(task, samples).shape == (2, 14)
    assert not [one for one in caught if "difference_flux" in str(one.message)]
    labelled = table_like(table, task.schema, **columns, label="kind")
    assert (labelled[task.schema.label or "kind"] == "RR Lyrae").all() and list(table) == list(magnitudes())
    fluxes = romae.Schema(id="id", time="t", channel="b", values=("f",), errors=("e",), channels=("g", "r"))
    total = table_like(table, fluxes, **columns, zero_point="AB")
    np.testing.assert_allclose(to_magnitude(total["f"], zero_point="AB"), table["mag"])
    for schema, changes, words in (
        (fluxes, {"label": "type"}, "'type'"),
        (fluxes, {"band": "passband"}, "'passband'"),
        (romae.Schema(), {}, "one flux and its"),
    ):
        with pytest.raises(ValueError, match=words):
            table_like(table, schema, **columns | changes)


def test_fluxes_far_above_0_in_most_bands_look_undifferenced():
    random = np.random.default_rng(0)
    star = 100 + 20 * random.normal(size=10)
    values = np.concatenate([star, star - 100, star[:3]])
    cell = np.repeat([0, 1, 2], [10, 10, 3])
    is_far, is_judged = looks_undifferenced(values, cell, np.arange(3))
    assert is_far.tolist() == [True, False, False] and is_judged.tolist() == [True, True, False]


@pytest.mark.parametrize("level", [0.0, 400.0])
def test_the_bundled_model_warns_of_total_fluxes(level):
    schema = romae.load(MODELS / "light-curves").schema
    random = np.random.default_rng(0)
    samples = []
    for _ in range(6):
        flux = level + 30 * random.normal(size=40)
        positions = np.column_stack([np.arange(40.0), np.tile([1.0, 2.0], 20)])
        samples.append(romae.Sample(np.column_stack([flux, np.full(40, 3.0)]), positions))
    outside = Outside(None, schema)
    outside.add(PackedSamples.of(samples))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        outside.warn()
    told = [str(one.message) for one in caught]
    assert len(told) == (level > 0)
    assert not told or ("6 of 6" in told[0] and "difference_flux" in told[0])

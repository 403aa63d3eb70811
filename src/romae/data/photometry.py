"""Photometry: magnitudes, fluxes and difference fluxes, with their errors and with zero points by name.

A flux f has the magnitude zero_point - 2.5 log10(f). Shapes: arrays of any shape; n measurements.
"""

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float64, Int64

from romae.data.columns import to_numpy

ZERO_POINTS: Mapping[str, float] = MappingProxyType(
    {
        "AB": 8.9,
        "AB Jy": 8.9,
        "AB mJy": 16.4,
        "AB uJy": 23.9,
        "AB nJy": 31.4,
        "LSST nJy": 31.4,
        "SDSS nanomaggies": 22.5,
        "FLUXCAL": 27.5,
        "SNANA FLUXCAL": 27.5,
        "PLAsTiCC": 27.5,
    }
)
"""Zero points by name: the magnitude of a source whose flux is 1.

AB magnitudes of fluxes in jansky ("AB", "AB Jy"), millijansky, microjansky and nanojansky; nanojansky of Rubin (LSST);
nanomaggies of SDSS; and FLUXCAL of SNANA, in which PLAsTiCC and ELAsTiCC come.
"""

PER_IMAGE = {"ZTF": "magzpsci in alerts, zpdiff in forced photometry"}  # zero points that each measurement has
MAGNITUDES_PER_LOG = 2.5 / math.log(10)
MOST_MAGNITUDE = 100.0  # nothing in the sky is fainter, and a flux of 1e6 would be taken for a magnitude
# Fluxes of a band are far from 0 where all lie above it and their mean is twice their scatter: so are 98 % of 200 RR
# Lyrae stars (ASAS), and 0.4 % of the 7 848 objects of PLAsTiCC, whose fluxes are differences.
FEWEST, TIMES_SCATTER = 5, 2.0


class Measured(NamedTuple):
    """Numbers with their errors."""

    values: Float64[np.ndarray, "..."]
    errors: Float64[np.ndarray, "..."]


def to_magnitude(
    flux: Any,
    error: Any = None,
    *,
    zero_point: Any,
    table: Any = None,
    not_positive: Literal["raise", "nan"] = "raise",
) -> Any:
    """Magnitudes of fluxes.

    Parameters
    ----------
    flux : array or str
        Fluxes, or the name of their column in `table`.
    error : array or str, optional
        Their errors, or the name of their column.
    zero_point : float, array or str
        The magnitude of a flux of 1: a number, one for each flux, a name in `ZERO_POINTS`, such as "AB uJy", "LSST nJy"
        or "SNANA FLUXCAL", or a column of `table`.
    table : DataFrame, optional
        A table with these columns.
    not_positive : {"raise", "nan"}, default "raise"
        What to do with fluxes that are not above 0, which have no magnitude: refuse them, or give NaN.

    Returns
    -------
    Float64 array, Measured or DataFrame
        Magnitudes; with errors a pair (values, errors); of a table a copy with the columns magnitude and, with errors,
        magnitude_error.

    Raises
    ------
    ValueError
        If a flux is not above 0, an error is negative, shapes differ, or there is no such zero point or column.
    TypeError
        If something is no number.

    Notes
    -----
    The error of a magnitude is 2.5 / ln 10 times the relative error of the flux, to first order. NaN stays NaN.

    Examples
    --------
    >>> from romae.data.photometry import to_magnitude
    >>> to_magnitude([363.1, 36.31], zero_point="AB").round(2).tolist()
    [2.5, 5.0]
    >>> magnitude, error = to_magnitude([100.0], [1.0], zero_point="SNANA FLUXCAL")
    >>> magnitude.round(3).tolist(), error.round(4).tolist()
    ([22.5], [0.0109])
    """
    if not_positive not in ("raise", "nan"):
        raise ValueError(f"not_positive must be 'raise' or 'nan', not {not_positive!r}")
    values, errors = _read(flux, error, table, "flux")
    zero = _zero_point(zero_point, values.shape, table)
    is_bad = values <= 0
    if is_bad.any() and not_positive == "raise":
        raise ValueError(
            f"{int(is_bad.sum())} of {values.size} fluxes are not above 0 (the lowest is {np.nanmin(values):.4g}) and "
            "have no magnitude; differences stay fluxes, or not_positive='nan' leaves them out"
        )
    values = np.where(is_bad, np.nan, values)
    magnitude = zero - 2.5 * np.log10(values)
    return _given_back(magnitude, None if errors is None else MAGNITUDES_PER_LOG * errors / values, table, "magnitude")


def to_flux(magnitude: Any, error: Any = None, *, zero_point: Any, table: Any = None) -> Any:
    """Fluxes of magnitudes: the inverse of `to_magnitude`.

    Parameters
    ----------
    magnitude : array or str
        Magnitudes, or the name of their column in `table`.
    error : array or str, optional
        Their errors, or the name of their column.
    zero_point : float, array or str
        The magnitude of a flux of 1: a number, one for each magnitude, a name in `ZERO_POINTS`, or a column of `table`.
    table : DataFrame, optional
        A table with these columns.

    Returns
    -------
    Float64 array, Measured or DataFrame
        Fluxes; with errors a pair (values, errors); of a table a copy with the columns flux and, with errors,
        flux_error.

    Raises
    ------
    ValueError
        If numbers cannot be magnitudes, an error is negative, shapes differ, or there is no such zero point or column.
    TypeError
        If something is no number.

    Examples
    --------
    >>> from romae.data.photometry import to_flux
    >>> to_flux([22.5, 25.0], zero_point="PLAsTiCC").round(3).tolist()
    [100.0, 10.0]
    """
    values, errors = _read(magnitude, error, table, "magnitude")
    if (np.abs(values) > MOST_MAGNITUDE).any():
        extreme = values.ravel()[np.nanargmax(np.abs(values))]
        raise ValueError(f"{extreme:.4g} is no magnitude of anything; if these are fluxes, they need no conversion")
    zero = _zero_point(zero_point, values.shape, table)
    flux = 10.0 ** ((zero - values) / 2.5)
    return _given_back(flux, None if errors is None else flux * errors / MAGNITUDES_PER_LOG, table, "flux")


def difference_flux(
    flux: Any,
    error: Any = None,
    *,
    reference: Any = None,
    reference_error: Any = None,
    id: Any = None,
    band: Any = None,
    table: Any = None,
) -> Any:
    """Fluxes relative to a reference, or to their median in each band of each object.

    Parameters
    ----------
    flux : array [n] or str
        Fluxes, or the name of their column in `table`.
    error : array [n] or str, optional
        Their errors, or the name of their column.
    reference : float, array [n], dict or str, optional
        The flux of the reference: one for all, one for each flux, a dictionary from bands to numbers, or a column of
        `table`. By default the median of the fluxes of an object in a band.
    reference_error : float, array [n] or str, optional
        The error of the reference, which is added in quadrature.
    id : array [n] or str, optional
        Which object each flux belongs to, or that column; all are one object by default.
    band : array [n] or str, optional
        Which band each flux is of, or that column; all are one band by default.
    table : DataFrame, optional
        A table with these columns.

    Returns
    -------
    Float64 array, Measured or DataFrame
        Difference fluxes; with errors a pair (values, errors); of a table a copy with the columns difference_flux and,
        with errors, difference_flux_error.

    Raises
    ------
    ValueError
        If shapes differ, a band has no reference, an error is negative, or there is no such column.
    TypeError
        If something is no number.

    Notes
    -----
    Errors are those of the fluxes where the reference is their median, whose own error is smaller by the square root of
    their number. NaN stays NaN.

    Examples
    --------
    >>> from romae.data.photometry import difference_flux
    >>> difference_flux([10.0, 12.0, 14.0, 100.0, 103.0], band=["g", "g", "g", "r", "r"]).tolist()
    [-2.0, 0.0, 2.0, -1.5, 1.5]
    """
    values, errors = _read(flux, error, table, "flux")
    if values.ndim != 1:
        raise ValueError(f"fluxes in bands are [n], not {list(values.shape)}")
    object_of, _ = _groups(id, table, len(values), "id")
    band_of, bands = _groups(band, table, len(values), "band")
    if reference is None:
        if reference_error is not None:
            raise ValueError("a reference_error belongs to a reference, and the median of the fluxes is none")
        subtracted = _medians(values, object_of * len(bands) + band_of)
    elif isinstance(reference, Mapping):
        missing = [name for name in bands.tolist() if name not in reference]
        if missing:
            raise ValueError(f"there is no reference for band {missing[0]!r}; there are {sorted(map(str, reference))}")
        subtracted = np.array([float(reference[name]) for name in bands.tolist()])[band_of]
    else:
        subtracted = _broadcast(_numbers(reference, table, "reference"), values.shape, "reference")
    if reference_error is not None:
        if errors is None:
            raise ValueError("a reference_error needs the errors of the fluxes: hand over error=")
        errors = np.hypot(errors, _errors(reference_error, values.shape, table, "reference_error"))
    return _given_back(values - subtracted, errors, table, "difference_flux")


def table_like(
    table: Any,
    schema: Any,
    *,
    id: str,
    time: str,
    band: str,
    magnitude: str,
    error: str,
    label: str | None = None,
    zero_point: Any = "PLAsTiCC",
) -> Any:
    """A table of magnitudes as a model of fluxes takes it, such as `romae.load("romae/light-curves")`, in one call.

    Parameters
    ----------
    table : DataFrame
        A row for each measurement.
    schema : Schema
        The names of the model's training data (`task.schema`). Where it says that fluxes are differences, the median of
        each band of each object is subtracted.
    id : str
        The column of objects.
    time : str
        The column of times, in the unit of the model's: days for the light-curve model.
    band : str
        The column of bands, which are called as the model calls them.
    magnitude : str
        The column of magnitudes.
    error : str
        The column of their errors.
    label : str, optional
        A column of targets to keep, under the name that the model has for it, if it has one.
    zero_point : float, str or column, default "PLAsTiCC"
        The magnitude of a flux of 1 in the model's unit, as in `to_flux`; that of the light-curve model by default.

    Returns
    -------
    DataFrame
        The columns that the model expects, and no others but targets, for `romae.from_table_like(table, task.schema)`.

    Raises
    ------
    ValueError
        If there is no such column, a magnitude is none, or the model takes other values than a flux and its error.
    TypeError
        If something is no number.

    Examples
    --------
    >>> import pandas as pd
    >>> import romae
    >>> from romae.data.photometry import table_like
    >>> columns = {"star": ["V1"] * 3, "mjd": [0.0, 2.0, 5.0], "filter": "g", "mag": [20.0, 20.5, 20.2], "e": 0.02}
    >>> schema, table = romae.load("romae/light-curves").schema, pd.DataFrame(columns)
    >>> result = table_like(table, schema, id="star", time="mjd", band="filter", magnitude="mag", error="e")
    >>> result["flux"].round(1).tolist()
    [168.2, -200.8, 0.0]
    """
    names = (*schema.values, *schema.error_names)
    if len(names) != 2 or schema.channel is None or schema.positions:
        raise ValueError(
            f"this model takes {', '.join(map(repr, schema.columns))}, and a table of magnitudes has one flux and its "
            "error in each band"
        )
    sources = {schema.id: id, schema.time: time, schema.channel: band}
    if label is not None:
        sources[schema.label or label] = label
    columns = {name: to_numpy(_column(column, table, name)) for name, column in sources.items()}
    values, errors = _read(magnitude, error, table, "magnitude")
    zero = _broadcast(_zero_point(zero_point, values.shape, table), values.shape, "zero_point")
    flux, errors = to_flux(values, errors, zero_point=zero)
    if schema.fluxes == "difference":
        flux, errors = difference_flux(flux, errors, id=columns[schema.id], band=columns[schema.channel])
    return table[[]].assign(**columns, **dict(zip(names, (flux, errors), strict=True)))


def looks_undifferenced(
    values: Float64[np.ndarray, "n"], cell: Int64[np.ndarray, "n"], sample_of_cell: Int64[np.ndarray, "m"]
) -> tuple[Bool[np.ndarray, "b"], Bool[np.ndarray, "b"]]:
    """Which samples have fluxes far above 0 relative to their scatter in most bands, and which can be judged.

    A band of a sample is a cell, cells are numbered, and bands of fewer than 5 fluxes say nothing.
    """
    m, n_samples = len(sample_of_cell), int(sample_of_cell.max(initial=-1)) + 1
    count = np.bincount(cell, minlength=m)
    n = np.maximum(count, 1)
    mean = np.bincount(cell, values, minlength=m) / n
    scatter = np.sqrt(np.bincount(cell, (values - mean[cell]) ** 2, minlength=m) / n)
    lowest = np.full(m, np.inf)
    np.minimum.at(lowest, cell, values)
    is_judged = count >= FEWEST
    is_far = is_judged & (lowest > 0) & (mean > TIMES_SCATTER * scatter)
    n_judged = np.bincount(sample_of_cell, is_judged, minlength=n_samples)
    n_far = np.bincount(sample_of_cell, is_far, minlength=n_samples)
    return n_far > 0.5 * n_judged, n_judged > 0


def _read(values: Any, error: Any, table: Any, role: str) -> tuple[np.ndarray, np.ndarray | None]:
    numbers = _numbers(values, table, role)
    return numbers, None if error is None else _errors(error, numbers.shape, table, "error")


def _errors(error: Any, shape: tuple[int, ...], table: Any, role: str) -> np.ndarray:
    errors = _broadcast(_numbers(error, table, role), shape, role)
    if (errors < 0).any():
        raise ValueError(f"the {role} is {np.nanmin(errors):.4g} somewhere, and errors are not below 0")
    return errors


def _numbers(values: Any, table: Any, role: str) -> np.ndarray:
    """Numbers as they are handed over, or the column of a table."""
    if isinstance(values, str):
        values = _column(values, table, role)
    try:
        numbers = to_numpy(values).astype(np.float64)
    except (TypeError, ValueError):
        raise TypeError(f"the {role} holds what is no number") from None
    if np.isinf(numbers).any():
        raise ValueError(f"the {role} is infinite somewhere; leave such measurements out")
    return numbers


def _column(name: str, table: Any, role: str) -> Any:
    if table is None:
        raise ValueError(f"the {role} is the column {name!r} of no table; hand over table=, or an array")
    if name not in list(table.columns):
        raise ValueError(f"there is no column {name!r} for the {role}; the table has {[*table.columns]}")
    return table[name]


def _broadcast(numbers: np.ndarray, shape: tuple[int, ...], role: str) -> np.ndarray:
    if numbers.ndim > 0 and numbers.shape != shape:
        raise ValueError(f"the {role} has the shape {list(numbers.shape)}, and the numbers {list(shape)}")
    return np.broadcast_to(numbers, shape)


def _zero_point(zero_point: Any, shape: tuple[int, ...], table: Any) -> np.ndarray:
    """The zero point of each measurement, by its name in `ZERO_POINTS` or as numbers."""
    if isinstance(zero_point, str):
        by_name = {name.lower(): value for name, value in ZERO_POINTS.items()}
        plain = zero_point.lower().replace("µ", "u").replace("μ", "u")
        if plain in by_name:
            return np.broadcast_to(by_name[plain], shape)
        if zero_point.upper() in PER_IMAGE:
            raise ValueError(
                f"{zero_point} has a zero point for each image, and no common one; hand over the column that holds it "
                f"({PER_IMAGE[zero_point.upper()]})"
            )
        if table is None or zero_point not in list(table.columns):
            raise ValueError(
                f"there is no zero point {zero_point!r}; there are {', '.join(ZERO_POINTS)}, or give a number"
            )
    return _broadcast(_numbers(zero_point, table, "zero_point"), shape, "zero_point")


def _groups(names: Any, table: Any, n: int, role: str) -> tuple[np.ndarray, np.ndarray]:
    """The number of the group that each measurement belongs to, and the names of groups."""
    if names is None:
        return np.zeros(n, dtype=np.int64), np.array([""])
    names = _column(names, table, role) if isinstance(names, str) else names
    array = to_numpy(names)
    if array.shape != (n,):
        raise ValueError(f"give one {role} for each of {n} fluxes, not an array of shape {list(array.shape)}")
    import pandas as pd

    number, unique = pd.factorize(array)
    if (number < 0).any():
        raise ValueError(f"the {role} is missing somewhere; leave such measurements out")
    return number.astype(np.int64), np.asarray(unique)


def _medians(values: np.ndarray, group: np.ndarray) -> np.ndarray:
    """The median of the group of each value."""
    import pandas as pd

    return pd.Series(values).groupby(group).transform("median").to_numpy()


def _given_back(values: np.ndarray, errors: np.ndarray | None, table: Any, name: str) -> Any:
    """Numbers as they came: arrays, pairs with errors, or a table with further columns."""
    if table is None:
        return values if errors is None else Measured(values, errors)
    columns = {name: values} | ({} if errors is None else {f"{name}_error": errors})
    if taken := [column for column in columns if column in list(table.columns)]:
        raise ValueError(f"the table has a column {taken[0]!r} already, which would be lost; rename it first")
    return table.assign(**columns)

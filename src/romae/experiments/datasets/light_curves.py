"""Light curves as samples: a token is (flux, error of the flux) at (days since the first point, index of the band).

Shapes: p points of all objects, o objects.
"""

import numpy as np
from jaxtyping import Float, Float64, Int64

from romae.data.schema import Schema
from romae.tokens.sample import Sample

BANDS = "ugrizY"
SCHEMA = Schema(time="days", channel="band", values=("flux", "flux error"), channels=tuple(BANDS), fluxes="difference")


def light_curves(
    objects: Int64[np.ndarray, "p"],
    mjd: Float64[np.ndarray, "p"],
    bands: Int64[np.ndarray, "p"],
    flux: Float[np.ndarray, "p"],
    flux_error: Float[np.ndarray, "p"],
    targets: list[int],
    ids: list[int] | list[str],
) -> list[Sample]:
    """One sample per object that has points, which may come in any order.

    `objects` says which object a point belongs to, as an index into targets and ids. Days are taken relative to the
    object's first point in float64, before anything is rounded.
    """
    order = np.lexsort((bands, mjd, objects))
    objects, mjd = objects[order], mjd[order]
    present, starts, lengths = np.unique(objects, return_index=True, return_counts=True)
    days = mjd - np.repeat(mjd[starts], lengths)
    values = np.split(np.stack([flux[order], flux_error[order]], axis=1).astype(np.float32), starts[1:])
    positions = np.split(np.stack([days, bands[order].astype(np.float64)], axis=1), starts[1:])
    return [
        Sample(values[i], positions[i], target=targets[index], id=ids[index])
        for i, index in enumerate(present.tolist())
    ]

"""`interpolate`: values at any positions, by a model that was trained on such data or by the one that needs none.

Shapes: q queries, d position dimensions, c channels.
"""

from typing import Any, Literal, overload

import numpy as np
from jaxtyping import Float64

from romae.data.sources import SampleSource
from romae.inference import predictions
from romae.inference.distributions import Distribution, medians
from romae.inference.predictions import TOKENS_PER_BATCH, Precision, Returns
from romae.inference.zero import answers, is_in_own_units, zero_model
from romae.model.tasks import MaskedReconstruction, Task


@overload
def interpolate(
    task: Any = ...,
    samples: Any = ...,
    positions: Any = ...,
    *,
    channels: Any = ...,
    grouped: bool = ...,
    returns: Literal["mean"] = ...,
    calibrated: bool = ...,
    tokens_per_batch: int = ...,
    precision: Precision = ...,
) -> list[Float64[np.ndarray, "_ *_"]]: ...
@overload
def interpolate(
    task: Any = ...,
    samples: Any = ...,
    positions: Any = ...,
    *,
    channels: Any = ...,
    grouped: bool = ...,
    returns: Literal["distribution"],
    calibrated: bool = ...,
    tokens_per_batch: int = ...,
    precision: Precision = ...,
) -> list[Distribution]: ...
def interpolate(
    task: Any = None,
    samples: Any = None,
    positions: Any = None,
    *,
    channels: Any = None,
    grouped: bool = False,
    returns: Returns = "mean",
    calibrated: bool = True,
    tokens_per_batch: int = TOKENS_PER_BATCH,
    precision: Precision = "auto",
) -> list[Float64[np.ndarray, "_ *_"]] | list[Distribution]:
    """Predict values at any positions: interpolation, imputation, forecasts, super-resolution.

    `interpolate(samples, positions)` needs no training: it asks the bundled model `romae.load("romae/zero")`.

    Parameters
    ----------
    task : MaskedReconstruction, optional
        A trained task, such as `romae.load` gives; it answers on the device that it is on, without dropout. It may be
        left out for series with one time axis.
    samples : sequence of Sample
        The samples, as they were read: they are scaled as the training data were. Tokens that a sample hides are not
        shown to the model.
    positions : list of arrays [q, d] or [q]
        One array for each sample, in the data's own units; [q] where time is the only axis. Times may be dates if those
        of the data were. Where each scalar is a token of its own, the index of its channel is the last coordinate,
        unless `channels` are given. The phase of a periodic signal may be left out. A sample may have no query or a
        million: it is encoded once. Without a task, times [q] ask for every channel.
    channels : sequence of str or int, optional
        Which channels to ask for, by name or by number from 0 on; a name goes before a number. Where channels are an
        axis, positions are then given without it, [q, d - 1], and each is asked of every channel. All by default.
    grouped : bool, default False
        Whether to decode all queries of a sample together, in models with queries="joint" (the paper's decoder), where
        queries see each other. By default each is decoded as if it were alone, so that a result does not depend on what
        else is asked; but such models were trained with many queries at a time and may do worse with one. For models
        with independent queries it makes no difference.
    returns : {"mean", "distribution"}, default "mean"
        "distribution" gives a `Distribution` for each sample, with quantiles, intervals and densities; the model must
        have learned one (`MaskedReconstruction(likelihood="mixture")`), as the one that needs no training has.
    calibrated : bool, default True
        Whether a calibration of the task is applied to distributions, where it has one (`romae.calibrate`).
    tokens_per_batch : int, default 32768
        The most tokens at once; lower it if memory is short. It does not change the results.
    precision : {"auto", "float32", "tf32", "bf16"}, default "auto"
        What products are computed in. "auto" is bfloat16 on GPUs that have it, several times as fast, and on others and
        on CPUs what the weights are in. A model whose weights are in half precision keeps to it.

    Returns
    -------
    list of Float64 arrays [q, c], or of Distribution
        One array per sample, in the order of its positions, in the data's own units. With `channels` there is a column
        for each of them, in their order; where channels are an axis and a measurement has several values, these are
        the last axis, [q, c, k]. Of a model that needs no training the numbers are medians: where tails are heavy, as
        they are where little is seen, a mean rests on what hardly ever happens.

    Raises
    ------
    ValueError
        If samples, positions or channels do not fit the model, it was trained with normalise=True, or a distribution is
        asked of a model without a likelihood.
    TypeError
        If the task is no MaskedReconstruction, or positions are no numbers.

    Examples
    --------
    >>> import numpy as np
    >>> import romae
    >>> random = np.random.default_rng(0)
    >>> samples = romae.from_arrays(random.normal(size=(16, 8, 1)), y=[0, 1] * 8)
    >>> size = romae.Size(width=16, heads=2, depth=1)
    >>> model = romae.ModelConfig(channels=1, position_dims=1, encoder=size, decoder=size)
    >>> config = romae.TrainConfig(epochs=2, batch_size=8, device="cpu")
    >>> task = romae.MaskedReconstruction(model)
    >>> _ = romae.train(task, samples, config, quiet=True)
    >>> values = romae.interpolate(task, samples[:2], positions=[[0.5, 1.5, 2.5], [3.25]])
    >>> [array.shape for array in values]
    [(3, 1), (1, 1)]
    """
    task, samples, positions = with_task(task, samples, positions)
    if is_in_own_units(task) and isinstance(task, MaskedReconstruction):
        as_distribution = predictions.wants_distribution(task, returns)
        parts = answers(
            task,
            samples,
            positions,
            channels=channels,
            calibrated=calibrated,
            tokens_per_batch=tokens_per_batch,
            precision=precision,
        )
        return parts if as_distribution else medians(parts)
    return predictions.interpolate(
        task,
        samples,
        positions,
        channels=channels,
        grouped=grouped,
        returns=returns,
        calibrated=calibrated,
        tokens_per_batch=tokens_per_batch,
        precision=precision,
    )


def with_task(task: Any, samples: SampleSource | None, positions: Any = None) -> tuple[Any, Any, Any]:
    """A task, samples and positions, where the task may have been left out, so that samples came first."""
    if task is None:
        return zero_model(), samples, positions
    if isinstance(task, Task) or isinstance(task, type) or not hasattr(task, "__len__"):
        return task, samples, positions
    return zero_model(), task, samples if positions is None else positions

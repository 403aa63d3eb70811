"""Inference: predictions and embeddings of samples, in the data's own units.

Samples are handed over as they were read. They are scaled as the training data were, batched by a budget of tokens,
and outputs are scaled back and put in the order of the samples. The result for a sample does not depend on
the others. Tokens that a sample hides are not shown to the model. Everything runs on the task's device, without
dropout.

Shapes: b samples, n tokens of one sample, q queries, c channels, d position dimensions, k outputs, w width.
"""

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any, Literal, NamedTuple, get_args, overload

import numpy as np
import torch
from jaxtyping import Float32, Float64, Int64, Shaped
from torch import Tensor

from romae.data.bends import straightened
from romae.data.columns import to_numpy
from romae.data.dates import positions_as_numbers
from romae.data.own_units import METHOD, OwnUnits, lines_at
from romae.data.periods import Phased, phase_at
from romae.data.phase import PHASE_AXIS
from romae.data.queries import channel_numbers
from romae.data.scalars import Scalars
from romae.data.scaling import Scaling
from romae.data.schema import Schema, require_same_names
from romae.data.skipping import refused_parts
from romae.data.sources import SampleSource, Source, as_source
from romae.inference.distributions import Distribution, Units
from romae.inference.joint import coarse_to_fine, drawn
from romae.inference.long_jobs import Job, is_long, runs, tokens_per_slab
from romae.inference.outside import Outside
from romae.inference.recordings import Asked, Question
from romae.inference.slabs import Aside, Leaving, Places, Slab, here, in_advance, on_device, slab_of, sorted_by_length
from romae.model.conformal import By, Conformal
from romae.model.gate import Gate
from romae.model.kernels.onednn import without_onednn
from romae.model.pooling import pool_layers
from romae.model.tasks import Classification, MaskedReconstruction, MultiLabel, Regression, Task
from romae.processes.mixing import mixed_with_processes
from romae.tokens.layout import Layout
from romae.tokens.levels import Levels
from romae.tokens.masking import Future
from romae.tokens.sample import Sample
from romae.tokens.tokens import Batch, PackedSamples, Tokens, channel_index

Pooling = Literal["model", "layers"]
Precision = Literal["auto", "float32", "tf32", "bf16"]
Returns = Literal["mean", "distribution"]
PRECISIONS: tuple[str, ...] = get_args(Precision)

TOKENS_PER_BATCH = 32_768
# Of 2 781 stars under a trained classifier bfloat16 changed 12 classes, whose probabilities were up to 0.009 apart.
CLOSE = 0.01
N_AHEAD = 3  # batches
SECONDS_BEFORE_BAR = 3.0

_LARGEST_POSITION = np.finfo(np.float32).max
# Tasks in use: by how many threads, and the modes (training or not) that their modules go back to.
_IN_USE: dict[int, tuple[int, list[tuple[torch.nn.Module, bool]]]] = {}
_LOCK = threading.Lock()


Predicted = Shaped[np.ndarray, "b *k"] | list[Float64[np.ndarray, "_ _"]]


@overload
def predict(
    task: Task,
    samples: SampleSource,
    *,
    returns: Literal["mean"] = ...,
    calibrated: bool = ...,
    tokens_per_batch: int = ...,
    precision: Precision = ...,
) -> Predicted: ...
@overload
def predict(
    task: Task,
    samples: SampleSource,
    *,
    returns: Literal["distribution"],
    noise: bool = ...,
    calibrated: bool = ...,
    tokens_per_batch: int = ...,
    precision: Precision = ...,
) -> Distribution | list[Distribution]: ...
def predict(
    task: Task,
    samples: SampleSource,
    *,
    returns: Returns = "mean",
    noise: bool = False,
    calibrated: bool = True,
    tokens_per_batch: int = TOKENS_PER_BATCH,
    precision: Precision = "auto",
) -> Predicted | Distribution | list[Distribution]:
    """Predict classes, numbers or hidden values of samples, in the data's own units.

    Parameters
    ----------
    task : Task
        A trained task, such as `romae.load` gives; it answers on the device that it is on, without dropout.
    samples : sequence of Sample
        The samples, as they were read: they are scaled as the training data were. Tokens that a sample hides are not
        shown to the model.
    returns : {"mean", "distribution"}, default "mean"
        "distribution" gives a `Distribution` in place of each array of numbers; the model must have learned one
        (`likelihood=`).
    noise : bool, default False
        Whether distributions of hidden values are those of their measurements: with the noise of their errors, where
        these are known, as `Distribution.with_noise` adds it. By default they are those of what was measured. It needs
        a model of measurement errors and returns="distribution".
    calibrated : bool, default True
        Whether a calibration of the task is applied, where it has one (`romae.calibrate`). Means of numbers are the
        same either way.
    tokens_per_batch : int, default 32768
        The most tokens at once; lower it if memory is short. It does not change the results.
    precision : {"auto", "float32", "tf32", "bf16"}, default "auto"
        What products are computed in. "auto" is bfloat16 on GPUs that have it, several times as fast, and on others and
        on CPUs what the weights are in. A model whose weights are in half precision keeps to it.

    Returns
    -------
    array or list of arrays, Distribution or list of them
        Classification: the most probable class [b], by name where the task's schema names its classes, else by index.
        MultiLabel: booleans [b, k], True on labels with a probability of at least one half. Regression: numbers [b], or
        [b, k] for several targets, or a list of arrays [n, k] for targets per token. Masked reconstruction: a list of
        arrays [n, c] with the values of the tokens that each sample hides; those of one sample are decoded together.

    Raises
    ------
    ValueError
        If samples do not fit the model; the message names the sample. If a distribution is asked of a model without a
        likelihood, or noise of one without measurement errors.
    TypeError
        If the task is none of this library, or something else than samples is given.

    Examples
    --------
    >>> import numpy as np
    >>> import romae
    >>> random = np.random.default_rng(0)
    >>> samples = romae.from_arrays(random.normal(size=(16, 8, 1)), y=[0, 1] * 8)
    >>> size = romae.Size(width=16, heads=2, depth=1)
    >>> model = romae.ModelConfig(channels=1, position_dims=1, encoder=size, decoder=size)
    >>> config = romae.TrainConfig(epochs=2, batch_size=8, device="cpu")
    >>> task = romae.Classification(model, n_classes=2)
    >>> _ = romae.train(task, samples, config, quiet=True)
    >>> romae.predict(task, samples).shape
    (16,)
    """
    as_distribution = wants_distribution(task, returns)
    if noise and not (as_distribution and isinstance(task, MaskedReconstruction) and task.config.errors):
        raise ValueError(
            "noise=True adds the known errors of hidden measurements to their distributions; it needs a masked "
            "reconstruction that was trained with measurement errors, and returns='distribution'"
        )
    if isinstance(task, Classification):
        names = _class_names(task)
        probabilities = predict_proba(
            task, samples, calibrated=calibrated, tokens_per_batch=tokens_per_batch, precision=precision
        )
        return names[probabilities.argmax(1)]
    if isinstance(task, MultiLabel):
        chances = predict_proba(
            task, samples, calibrated=calibrated, tokens_per_batch=tokens_per_batch, precision=precision
        )
        return chances >= 0.5
    if not isinstance(task, MaskedReconstruction | Regression):
        raise TypeError(f"predict needs a task of this library, not {type(task).__name__}")
    if as_distribution:
        calibration = task.calibration if calibrated else None
        return predicted_distributions(
            task, samples, calibration, noise=noise, tokens_per_batch=tokens_per_batch, precision=precision
        )
    how = _How("predicting", tokens_per_batch, precision)
    if isinstance(task, MaskedReconstruction):
        return _for_each(task, samples, lambda work: _hidden_values(task, work), how)
    if task.per == "token":
        return _for_each(task, samples, lambda work: _targets(task, work), how)
    scaling = _scaling(task)
    needs_batches = not _is_own(task, Regression, "predict")
    question = _Question("numbers", task.predict, scaling.invert_target, needs_batches=needs_batches)
    numbers = _rows(task, samples, question, how)
    return numbers.squeeze(1) if task.n_targets == 1 else numbers


def predict_proba(
    task: Task,
    samples: SampleSource,
    *,
    calibrated: bool = True,
    tokens_per_batch: int = TOKENS_PER_BATCH,
    precision: Precision = "auto",
) -> Float64[np.ndarray, "b k"]:
    """Predict the probability of each class, or of each of several labels.

    Parameters
    ----------
    task : Classification or MultiLabel
        A trained task, such as `romae.load` gives; it answers on the device that it is on, without dropout.
    samples : sequence of Sample
        The samples, as they were read: they are scaled as the training data were. Tokens that a sample hides are not
        shown to the model.
    calibrated : bool, default True
        Whether a calibration of the task is applied, where it has one (`romae.calibrate`).
    tokens_per_batch : int, default 32768
        The most tokens at once; lower it if memory is short. It does not change the results.
    precision : {"auto", "float32", "tf32", "bf16"}, default "auto"
        What products are computed in. "auto" is bfloat16 on GPUs that have it, several times as fast, and on others and
        on CPUs what the weights are in. A model whose weights are in half precision keeps to it. Samples whose two
        likeliest classes are within 0.01 of each other are asked again in "float32", so that it decides them.

    Returns
    -------
    Float64 array [b, k]
        One row per sample, which sums to 1, in the order of the class indices (`task.schema.classes`). Of several
        labels each has a probability of its own.

    Raises
    ------
    ValueError
        If samples do not fit the model; the message names the sample.
    TypeError
        If the task is no Classification and no MultiLabel, or something else than samples is given.

    Examples
    --------
    >>> import numpy as np
    >>> import romae
    >>> random = np.random.default_rng(0)
    >>> samples = romae.from_arrays(random.normal(size=(16, 8, 1)), y=[0, 1] * 8)
    >>> size = romae.Size(width=16, heads=2, depth=1)
    >>> model = romae.ModelConfig(channels=1, position_dims=1, encoder=size, decoder=size)
    >>> config = romae.TrainConfig(epochs=2, batch_size=8, device="cpu")
    >>> task = romae.Classification(model, n_classes=2)
    >>> _ = romae.train(task, samples, config, quiet=True)
    >>> np.allclose(romae.predict_proba(task, samples).sum(1), 1.0)
    True
    """
    how = _How("predicting", tokens_per_batch, precision)
    if isinstance(task, MultiLabel):
        return _rows(task, samples, _logits(task, MultiLabel, lambda x: x.double().sigmoid(), calibrated), how)
    if not isinstance(task, Classification):
        raise TypeError(f"probabilities need a Classification task, not {type(task).__name__}")
    question = _logits(task, Classification, lambda x: x.double().softmax(-1), calibrated)
    source = source_for(task, samples)
    result = _rows(task, source, question, how)
    if _resolved(task, precision) != "float32" and result.shape[1] > 1:
        best = np.partition(result, -2, axis=1)[:, -2:]
        close = np.flatnonzero(best[:, 1] - best[:, 0] < CLOSE)
        if len(close) > 0:
            _rows(task, source, question, how._replace(precision="float32"), _Again(result, close))
    return result


def _logits(
    task: Classification | MultiLabel,
    kind: type[Task],
    probabilities: Callable[[Tensor], Tensor],
    calibrated: bool,
) -> "_Question":
    """The logits of a classifier, as probabilities once they are on the host; a `predict` of a user's own is asked."""
    if calibrated and not _is_own(task, kind, "predict"):
        return _Question("predict", task.predict, probabilities, needs_batches=True)
    calibration = task.calibration if calibrated else None
    if calibration is None:
        return _Question("output", task.output, probabilities)
    confidence = task.confidence if isinstance(task, Classification) else 1.0
    return _Question("output", task.output, lambda x: probabilities(calibration.apply(x, confidence).float()))


def _is_own(task: Task, kind: type[Task], method: str) -> bool:
    """Whether a method is that of this library, which looks at the batch alone."""
    return getattr(type(task), method) is getattr(kind, method)


def embed(
    task: Task,
    samples: SampleSource,
    *,
    per: Literal["sample", "token"] = "sample",
    pooling: Pooling = "model",
    tokens_per_batch: int = TOKENS_PER_BATCH,
    precision: Precision = "auto",
) -> Float32[np.ndarray, "b k"] | list[Float32[np.ndarray, "_ _"]]:
    """Embeddings of samples or tokens, for clustering, search, plots or another model.

    Parameters
    ----------
    task : Task
        A trained task, such as `romae.load` gives; it answers on the device that it is on, without dropout.
    samples : sequence of Sample
        The samples, as they were read: they are scaled as the training data were. Tokens that a sample hides are not
        shown to the model.
    per : {"sample", "token"}, default "sample"
        What has an embedding: samples, or tokens, CLS left out.
    pooling : {"model", "layers"}, default "model"
        What becomes the vector of a sample. "model" is what the model itself would classify from, as wide as the
        encoder: CLS, or the mean of all tokens or kinds. "layers" is longer and says more to a linear model or trees
        behind it: in what enters the encoder, in its middle layer and in its last, the mean over tokens, their
        deviation, extremes and change from one time to the next, and for data with channels the same over the means of
        channels (`romae.model.pooling`).
    tokens_per_batch : int, default 32768
        The most tokens at once; lower it if memory is short. It does not change the results.
    precision : {"auto", "float32", "tf32", "bf16"}, default "auto"
        What products are computed in. "auto" is bfloat16 on GPUs that have it, several times as fast, and on others and
        on CPUs what the weights are in. A model whose weights are in half precision keeps to it.

    Returns
    -------
    Float32 array [b, k] or list of arrays [n, w]
        One row per sample; or for each sample one row per token.

    Raises
    ------
    ValueError
        If samples do not fit the model; the message names the sample. If tokens are to be pooled.
    TypeError
        If the task is none, or something else than samples is given.

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
    >>> romae.embed(task, samples).shape
    (16, 16)
    >>> romae.embed(task, samples, pooling="layers").shape  # 5 statistics before and after the only layer, and CLS
    (16, 176)
    >>> len(romae.embed(task, samples, per="token")[0])
    8
    """
    if per not in ("sample", "token"):
        raise ValueError(f"per must be 'sample' or 'token', not {per!r}")
    require_pooling(pooling)
    if per == "token" and pooling != "model":
        raise ValueError("pooling makes one vector of each sample, and per='token' asks for tokens; leave one out")

    def vectors(batch: Batch) -> Tensor:
        if pooling == "layers":
            return pool_layers(task.encode_layers(batch.tokens), task.config)
        return task.pooled(task.encode(batch.tokens)).float()

    def vectors_of_tokens(work: _Work) -> Sequence[Tensor]:
        tokens = work.batch.tokens
        rows = task.per_token(task.encode(tokens), tokens.layout).float().cpu()
        return rows.split(tokens.layout.lengths.tolist())

    if per == "token":
        return _for_each(task, samples, vectors_of_tokens, _How("embedding", tokens_per_batch, precision))
    question = _Question("vectors", vectors, may_be_recorded=pooling == "model")
    return _rows(task, samples, question, _How("embedding", tokens_per_batch, precision))


def require_pooling(pooling: str) -> None:
    """Refuse a pooling that there is not."""
    if pooling not in ("model", "layers"):
        raise ValueError(f"pooling must be 'model' or 'layers', not {pooling!r}")


def interpolate(
    task: Task,
    samples: SampleSource,
    positions: Any,
    *,
    channels: Any = None,
    grouped: bool = False,
    returns: Returns = "mean",
    calibrated: bool = True,
    tokens_per_batch: int = TOKENS_PER_BATCH,
    precision: Precision = "auto",
) -> list[Any]:
    """What `romae.interpolate` does with a task that has the units of its training data.

    Parameters
    ----------
    task, samples, positions, channels, grouped, returns, calibrated, tokens_per_batch, precision
        As there.

    Returns
    -------
    list of Float64 arrays [q, c], or of Distribution
        As there.

    Raises
    ------
    ValueError
        If samples, positions or channels do not fit the model, it was trained with normalise=True, or a distribution is
        asked of a model without a likelihood.
    TypeError
        If the task is no MaskedReconstruction, or positions are no numbers.
    """
    if not isinstance(task, MaskedReconstruction):
        raise TypeError(f"only a MaskedReconstruction task can interpolate, not {type(task).__name__}")
    if task.normalise:
        raise ValueError(
            "this model was trained with normalise=True: it predicts values relative to each token's own mean and "
            "spread, which are unknown at new positions; train with normalise=False to interpolate"
        )
    as_distribution = wants_distribution(task, returns)
    calibration = task.calibration if calibrated else None
    source = source_for(task, samples)
    numbers, is_axis = _chosen_channels(task, channels)
    scaling = _scaling(task)
    queries = _read_queries(task, source, positions, numbers if is_axis else None)
    outside = Outside(task.scaling, task.schema)

    def values(work: _Work) -> Sequence[Any]:
        counts = [len(queries[i]) for i in work.indices]
        raw_positions = torch.cat([queries[i] for i in work.indices])
        raw_positions = _with_phases(task, raw_positions, counts, work.samples)
        origin = scaling.origins_of(work.samples).repeat_interleave(torch.tensor(counts), 0)
        outside.add_positions(raw_positions - origin, "queries")
        scaled = scaling.scale_positions(raw_positions, origin).float().split(counts)
        for name, places in zip(work.samples.ids, scaled, strict=True):
            if not bool(torch.isfinite(places).all()):
                raise ValueError(f"the positions for sample {name!r} lie too far from it for single precision")
        levels = task.levels(work.batch.tokens)
        encoded = task.encoder(task.centred(work.batch.tokens, levels))
        raw = torch.cat(_decoded(task, encoded, list(scaled), grouped, tokens_per_batch, work.advance))
        where = torch.cat(scaled), Layout.of(counts)
        if as_distribution:
            whole = _distribution(task, raw, raw_positions, where, work.batch.tokens, levels, calibration, task.gate)
            return _parts(whole, where[1])
        rows = task.point(raw)
        if levels is not None:
            rows = levels.cpu().absolute(rows, *where)
        return scaling.invert_values(rows, raw_positions).split(counts)

    n_queries = np.array([len(places) for places in queries], dtype=np.int64)
    how = _How("interpolating", tokens_per_batch, precision)
    is_plain = not as_distribution and not _has_phase(task) and task.config.queries == "independent"
    if is_plain and _is_long(task, source, how, source.lengths + n_queries):
        answers = _values_in_slabs(task, source, queries, n_queries, how, outside)
    else:
        answers = _for_each(task, source, values, how, n_queries, outside)
    if as_distribution:
        answers = [x if isinstance(x, Distribution) else _no_distribution(task) for x in answers]
        how = _How("drawing", tokens_per_batch, precision)
        for i, answer in enumerate(answers):
            curves = _Curves(task, source, i, queries[i], how, calibration)
            answer.drawn_by(_no_curves(task, grouped) or curves)
    if numbers is None:
        return answers
    return [_by_channel(x, len(numbers)) if is_axis else x[:, numbers] for x in answers]


def _has_phase(task: Task) -> bool:
    return task.schema is not None and task.schema.phase is not None


def _values_in_slabs(
    task: MaskedReconstruction,
    source: Source,
    queries: list[Float64[Tensor, "_ d"]],
    n_queries: Int64[np.ndarray, "b"],
    how: "_How",
    outside: Outside,
) -> list[Any]:
    """Values at queries that see nothing of each other, in the data's own units."""
    scaling = _scaling(task)
    order = np.flatnonzero(n_queries)
    costs = source.lengths[order] + n_queries[order]
    results: list[Any] = [np.zeros((0, task.config.n_values)) for _ in range(len(source))]

    def values(tokens: Tokens, asked: Asked | None) -> Tensor:
        assert asked is not None
        levels = task.levels(tokens)
        rows = task.point(task.output(tokens, asked.positions, asked.layout, levels).float())
        return rows if levels is None else levels.absolute(rows, asked.positions, asked.layout)

    def asked_of(slab: Slab) -> Slab:
        counts = n_queries[slab.indices]
        device = slab.tokens.device
        raw = torch.cat([queries[i] for i in slab.indices]).to(device)
        layout = Layout.of(torch.from_numpy(counts), device)
        origin = torch.zeros_like(raw) if slab.origins is None else slab.origins[layout.sample_of_token]
        outside.add_positions(raw - origin, "queries")
        places = scaling.scale_positions(raw, origin).float()
        if not bool(torch.isfinite(places).all()):
            wrong = int((~torch.isfinite(places)).any(1).nonzero()[0])
            number = int(slab.indices[int(layout.sample_of_token[wrong])])
            name = _packed(task, source, np.array([number])).ids[0]
            raise ValueError(f"the positions for sample {name!r} lie too far from it for single precision")
        return slab._replace(places=Places(places, counts, *scaling.tables_at(raw, task.config.n_values)))

    def in_own_units(slab: Slab, rows: Tensor) -> Tensor:
        assert slab.places is not None
        return straightened(rows.double(), scaling.method) * slab.places.scale + slab.places.centre

    question = Question("values", values, _is_own(task, MaskedReconstruction, "output"))
    with _working(task, how) as progress:
        progress.total = int(costs.sum())
        pieces = (order[run] for run in runs(costs.tolist(), tokens_per_slab(task, how.budget)))
        slabs = (asked_of(_slab(task, source, piece, outside)) for piece in pieces)
        sizes, counts = source.lengths[order], n_queries[order]
        with Job.of(task, question, sizes, counts, how.budget, _resolved(task, how.precision)) as job:
            for indices, rows in _left(job, slabs, progress, in_own_units):
                numbers = rows.numpy().copy()  # since rows lie where the device can reach them, which is scarce
                ends = np.cumsum(n_queries[indices]).tolist()
                for i, start, end in zip(indices.tolist(), [0, *ends[:-1]], ends, strict=True):
                    results[i] = numbers[start:end]
    outside.warn(stacklevel=4)
    return results


def _with_phases(
    task: Task, positions: Float64[Tensor, "t d"], counts: Sequence[int], samples: PackedSamples
) -> Float64[Tensor, "t d"]:
    """Queries, of which so many belong to each sample, with the phases that they lack."""
    if task.schema is None or task.schema.phase is None:
        return positions
    positions, lacks = positions.clone(), torch.isnan(positions[:, PHASE_AXIS])
    positions[lacks, PHASE_AXIS] = phase_at(positions, counts, samples)[lacks]
    return positions


def _chosen_channels(task: Task, channels: Any) -> tuple[list[int] | None, bool]:
    """The numbers of the channels that are asked for, if they are given, and whether channels are a position axis."""
    schema = task.schema
    is_axis = schema is not None and schema.channel is not None
    if channels is None:
        return None, is_axis
    if schema is None:
        return channel_numbers(channels, range(task.config.n_values)), False
    return channel_numbers(channels, schema.channels if is_axis else schema.values), is_axis


def _by_channel(rows: Any, n_channels: int) -> Any:
    """Rows of which so many in turn belong to one position; a single value has no axis."""
    table = rows.reshape((len(rows) // n_channels, n_channels, rows.shape[1]))
    return table[..., 0] if rows.shape[1] == 1 else table


def _hidden_values(task: MaskedReconstruction, work: "_Work") -> Sequence[Tensor]:
    """The values of hidden tokens in the data's own units."""
    _require_hidden(work)
    samples, hidden = work.samples, work.batch.hidden
    assert hidden is not None and samples.hidden is not None
    if _scaling(task).own_units and task.likelihood is not None:  # as romae.interpolate answers for such a model
        medians = torch.from_numpy(hidden_distribution(task, work, None, noise=False).median())
        return medians.split(hidden.layout.lengths.tolist())
    rows, places = task.predict(work.batch).cpu(), samples.positions[samples.hidden].cpu()
    if _scaling(task).own_units:
        own, cell = _own_units(samples, hidden.layout)
        values = rows[:, 0].double()
        if _scaling(task).from_lines:
            values = values + lines_at(work.batch.tokens, hidden.positions, hidden.layout).cpu()
        return own.original(values, cell).unsqueeze(1).split(hidden.layout.lengths.tolist())
    return _scaling(task).invert_values(rows, places).split(hidden.layout.lengths.tolist())


def _require_hidden(work: "_Work") -> None:
    if work.batch.hidden is None:
        lacking = work.samples.n_hidden.argmin()
        raise ValueError(
            f"masked reconstruction predicts hidden tokens, and sample {work.samples.ids[int(lacking)]!r} hides none: "
            "set Sample(hidden=…), or use interpolate"
        )


def _numbers(task: Regression, work: "_Work") -> Float64[Tensor, "n k"]:
    """Numbers in the data's own units, one row per token."""
    return _scaling(task).invert_target(task.predict(work.batch).cpu())


def _targets(task: Regression, work: "_Work") -> Sequence[Tensor]:
    """The numbers of the tokens of each sample."""
    return _numbers(task, work).split(work.batch.tokens.layout.lengths.tolist())


def require_distribution(task: Task) -> None:
    """Refuse a task that has learned no distribution of numbers."""
    wants_distribution(task, "distribution")


def wants_distribution(task: Task, returns: str) -> bool:
    """Whether a distribution is asked for; refused where the model has learned none."""
    if returns not in get_args(Returns):
        raise ValueError(f"returns must be one of {', '.join(map(repr, get_args(Returns)))}, not {returns!r}")
    if returns == "mean":
        return False
    if isinstance(task, Classification | MultiLabel):
        raise ValueError("a classifier has no distribution of numbers; predict_proba gives probabilities of classes")
    if getattr(task, "likelihood", None) is None:
        raise ValueError(
            f"this {type(task).__name__} has learned no distribution; train it with likelihood='mixture', or ask for "
            "the mean"
        )
    return True


def predicted_distributions(
    task: MaskedReconstruction | Regression,
    samples: SampleSource,
    calibration: Conformal | None,
    *,
    noise: bool = False,
    tokens_per_batch: int = TOKENS_PER_BATCH,
    precision: Precision = "auto",
) -> Distribution | list[Distribution]:
    """The distributions that `predict` gives, with a calibration that need not be that of the task."""
    how = _How("predicting", tokens_per_batch, precision)
    if isinstance(task, MaskedReconstruction):
        return _for_each(task, samples, lambda work: _hidden_distributions(task, work, calibration, noise), how)
    if task.per == "token":
        return _for_each(task, samples, lambda work: _target_distributions(task, work, calibration), how)
    raw = _rows(task, samples, _Question("output", task.output, lambda x: x.double()), how)
    whole = _distribution_of_targets(task, torch.from_numpy(raw), calibration)
    return whole[:, 0] if task.n_targets == 1 else whole


def _distribution_of_targets(
    task: Regression, raw: Float64[Tensor, "n q"], calibration: Conformal | None
) -> Distribution:
    assert task.likelihood is not None
    shaped = raw.unflatten(-1, (task.n_targets, -1)).numpy()
    one, zero = torch.ones(1, task.n_targets), torch.zeros(1, task.n_targets)
    centre = _scaling(task).invert_target(zero)
    scale = _scaling(task).invert_target(one) - centre
    units = Units(np.ones(()), np.zeros(()), scale.numpy(), centre.numpy())
    return Distribution(task.likelihood, shaped, units, calibration=calibration, places=np.arange(task.n_targets))


def _no_curves(task: MaskedReconstruction, grouped: bool) -> str | None:
    """Why whole curves cannot be drawn, if they cannot."""
    if task.config.window is not None:
        return "a model with windows sees neighbours in the order of a sample, where drawn values have no place"
    if grouped and task.config.queries == "joint":
        return "queries that were decoded together (grouped=True) say nothing of one after the other"
    return None


def _no_distribution(task: MaskedReconstruction) -> Distribution:
    """That of a sample that is asked nothing."""
    assert task.likelihood is not None
    nothing = np.zeros((0, task.config.n_values, task.likelihood.n_parameters))
    return Distribution(task.likelihood, nothing, Units(np.ones(()), np.zeros(()), np.ones(()), np.zeros(())))


def _target_distributions(task: Regression, work: "_Work", calibration: Conformal | None) -> list[Distribution]:
    """The distributions of the targets of the tokens of each sample."""
    whole = _distribution_of_targets(task, task.output(work.batch).cpu().double(), calibration)
    return _parts(whole, work.batch.tokens.layout)


def _hidden_distributions(
    task: MaskedReconstruction, work: "_Work", calibration: Conformal | None, noise: bool
) -> list[Distribution]:
    """The distributions of the values of hidden tokens, with the noise of their measurement if that is asked for."""
    _require_hidden(work)
    assert work.batch.hidden is not None
    return _parts(hidden_distribution(task, work, calibration, noise), work.batch.hidden.layout)


def hidden_distribution(
    task: MaskedReconstruction, work: "_Work", calibration: Conformal | None, noise: bool
) -> Distribution:
    """The distributions of the hidden values of a batch, whose samples all hide some, end to end [q, c]."""
    hidden, samples = work.batch.hidden, work.samples
    assert hidden is not None and samples.hidden is not None
    if task.normalise:
        raise ValueError(
            "this model was trained with normalise=True, and tells no distribution in the data's own units"
        )
    levels = task.levels(work.batch.tokens)
    raw = task.output(work.batch.tokens, hidden.positions, hidden.layout, levels).float().cpu()
    places = samples.positions[samples.hidden].cpu()
    where = hidden.positions.float().cpu(), Layout.of(hidden.layout.lengths.tolist())
    whole = _distribution(task, raw, places, where, work.batch.tokens, levels, calibration, task.gate)
    if _scaling(task).own_units:
        own, cell = _own_units(samples, hidden.layout)
        scale, centre = own.spread[cell].numpy()[:, None], own.level[cell].numpy()[:, None]
        whole = whole.in_units(replace(whole.units, scale=scale, centre=centre, method=METHOD))
    if not noise:
        return whole
    return whole.with_noise(samples.values[samples.hidden][:, task.config.n_values :].double().cpu().numpy())


def _own_units(samples: PackedSamples, hidden: Layout) -> tuple[OwnUnits, Int64[Tensor, "q"]]:
    """The units of each series, and the cell of each hidden token."""
    assert samples.hidden is not None
    own = OwnUnits.of(samples)
    return own, own.cells(samples.positions[samples.hidden].double(), hidden.sample_of_token.cpu())


def _distribution(
    task: MaskedReconstruction,
    raw: Float32[Tensor, "q p"],
    places: Tensor,
    where: tuple[Float32[Tensor, "q d"], Layout],
    visible: Tokens,
    levels: Levels | None,
    calibration: Conformal | None,
    gate: Gate | None = None,
) -> Distribution:
    """The distributions at positions, a row of raw parameters for each, in the data's own units.

    `places` are the positions in the data's own units, `where` are those that the model sees, with their layout, and
    `visible` is what it sees of each sample. A gate mixes them with those of Gaussian processes.
    """
    levels = None if levels is None else levels.cpu()
    assert task.likelihood is not None
    scaling, (positions, layout) = _scaling(task), where
    shape = len(raw), task.config.n_values
    gain, level = torch.ones(shape, dtype=torch.float64), torch.zeros(shape, dtype=torch.float64)
    if levels is not None:
        level = levels.absolute(level, positions, layout)
        gain = 1 / (levels.absolute(gain, positions, layout) - level)
    if scaling.from_lines:
        level = lines_at(visible, positions.to(visible.device), layout).cpu().unsqueeze(1)
    numbers, likelihood = raw.double().unflatten(-1, (shape[1], -1)), task.likelihood
    if gate is not None:
        likelihood, numbers = mixed_with_processes(gate, likelihood, numbers, level, visible, positions, layout)
        level = torch.zeros_like(level)
    centre, scale = scaling.tables_at(places, task.config.n_values)
    units = Units(gain.numpy(), level.numpy(), scale.numpy(), centre.numpy(), scaling.method)
    # Channels are known in any case, so that any calibration by channel can be taken afterwards; distances take time.
    by: By = "distance" if calibration is not None and calibration.by == "distance" else "channel"
    groups = places_in(task, by, visible, *where)
    return Distribution(likelihood, numbers.numpy(), units, calibration=calibration, places=groups, by=by)


def _parts(whole: Distribution, layout: Layout) -> list[Distribution]:
    """The distributions that belong to each sample."""
    ends = np.cumsum(layout.lengths.tolist())
    return [whole[start:end] for start, end in zip([0, *ends[:-1]], ends, strict=True)]


@dataclass(frozen=True, eq=False)
class _Curves:
    """Draws curves of one sample at the positions that it was asked for."""

    task: MaskedReconstruction
    source: Source
    place: int
    positions: Float64[Tensor, "q d"]
    how: "_How"
    calibration: Conformal | None

    @property
    def n_columns(self) -> int:
        return self.task.config.n_values

    def __call__(
        self, rows: Int64[np.ndarray, "r"], levels: Float64[np.ndarray, "n r c"]
    ) -> Float64[np.ndarray, "n r c"]:
        task, scaling, raw = self.task, _scaling(self.task), self.positions[torch.from_numpy(rows)]
        packed = _packed(task, self.source, np.array([self.place]))
        raw = _with_phases(task, raw, [len(raw)], packed)
        scaled = scaling.scale_positions(raw, scaling.origins_of(packed).expand(len(raw), -1)).float()
        order = coarse_to_fine(raw.numpy(), in_time=isinstance(task.masking, Future))

        def ask(visible: Tokens, i: int) -> Distribution:
            n, own = visible.layout.n_samples, task.levels(visible)
            layout = Layout.of([1] * n, visible.device)
            output = task.output(visible, scaled[i].expand(n, -1).to(visible.device), layout, own).float().cpu()
            where = scaled[i].expand(n, -1), Layout.of([1] * n)
            return _distribution(task, output, raw[i].expand(n, -1), where, visible, own, self.calibration)

        with _working(task, self.how):
            visible = _batch(task, packed).tokens
            at_once = max(self.how.budget // (len(visible.values) + task.config.cls + len(raw)), 1)
            parts = [
                drawn(ask, visible, scaled, levels[start : start + at_once], order)
                for start in range(0, len(levels), at_once)
            ]
            curves = np.concatenate(parts)
            return curves if task.gate is None else self._with_processes(curves, visible, raw, scaled)

    def _with_processes(
        self,
        curves: Float64[np.ndarray, "n r c"],
        visible: Tokens,
        raw: Float64[Tensor, "r d"],
        scaled: Float32[Tensor, "r d"],
    ) -> Float64[np.ndarray, "n r c"]:
        """Curves of the network with the distributions of the mixture at each position: how values hang together stays.

        Each value goes to the level that it has under the network, and from there to the quantile of the mixture.
        """
        task, layout, levels = self.task, Layout.of([len(raw)]), self.task.levels(visible)
        output = task.output(visible, scaled.to(visible.device), layout.to(visible.device), levels).float().cpu()
        given = output, raw, (scaled, layout), visible, levels, self.calibration
        own, mixed = _distribution(task, *given), _distribution(task, *given, task.gate)
        rows = np.broadcast_to(np.arange(len(raw)), curves.shape[:2])
        return mixed[rows].at_levels(own[rows].cdf(curves))


def places_in(
    task: MaskedReconstruction, by: By, visible: Tokens, positions: Float32[Tensor, "q d"], layout: Layout
) -> Float64[np.ndarray, "q c"]:
    """What a calibration asks of each prediction: the number of its channel, or the distance to its observations.

    The distance is to the nearest token that is seen of the same sample and channel, as the model sees positions, and
    infinite where there is none.
    """
    n_columns, at = task.config.n_values, positions.double().numpy()
    schema = task.schema
    has_channels = task.n_channels() > 1 or (schema is not None and schema.channel is not None)
    if by != "distance":
        index = at[:, -1:].round() if has_channels else np.zeros((len(at), 1))
        return index * n_columns + np.arange(n_columns)
    seen = visible.positions.double().cpu().numpy()
    sample, seen_sample = layout.sample_of_token.cpu().numpy(), visible.layout.sample_of_token.cpu().numpy()
    # Samples, and channels with them, are laid so far apart on an axis of their own that no neighbour is in another.
    span = 1 + np.ptp(np.concatenate([at, seen]), axis=0).sum()
    apart = [(2 * span * number)[:, None] for number in (sample, seen_sample)]
    if has_channels:
        n = 1 + seen[:, -1].max() + at[:, -1].max(initial=0)
        apart = [part * n + 2 * span * x[:, -1:].round() for part, x in zip(apart, (at, seen), strict=True)]
        at, seen = at[:, :-1], seen[:, :-1]
    from scipy.spatial import KDTree

    distance, _ = KDTree(np.hstack([seen, apart[1]])).query(np.hstack([at, apart[0]]), distance_upper_bound=span)
    return np.repeat(distance[:, None], n_columns, axis=1)


def _decoded(
    task: MaskedReconstruction,
    encoded: Tokens,
    queries: list[Float32[Tensor, "_ d"]],
    grouped: bool,
    budget: int,
    advance: Callable[[int], None],
) -> list[Float32[Tensor, "_ c"]]:
    """The head's output at the queries of all samples, end to end but in parts, on the host.

    A call of the decoder holds as many pieces as fit into the budget, each with its sample's encoded tokens.
    """
    lengths = encoded.layout.lengths.tolist()
    pieces: list[tuple[int, int, int]] = []  # a sample, and from where to where its queries are decoded together
    for sample, n in enumerate(lengths):
        n_queries = len(queries[sample])
        size = max(budget - n, budget // 2, 1)  # a sample that fills the budget is not decoded one query at a time
        if task.config.queries == "joint":
            size = n_queries if grouped else 1
        pieces += [(sample, start, min(start + size, n_queries)) for start in range(0, n_queries, size)]
    values, places = encoded.values.split(lengths), encoded.positions.split(lengths)
    outputs = []
    for run in runs([lengths[sample] + stop - start for sample, start, stop in pieces], budget):
        part = pieces[run]
        context = Tokens(
            torch.cat([values[sample] for sample, _, _ in part]),
            torch.cat([places[sample] for sample, _, _ in part]),
            Layout.of([lengths[sample] for sample, _, _ in part], encoded.device),
        )
        positions = torch.cat([queries[sample][start:stop] for sample, start, stop in part])
        layout = Layout.of([stop - start for _, start, stop in part], encoded.device)
        outputs.append(task.head(task.decoder(context, positions.to(encoded.device), layout)).float().cpu())
        advance(len(positions))
    return outputs


class _How(NamedTuple):
    """How samples are answered for: under which title, how many tokens at once, and in which precision."""

    title: str
    budget: int
    precision: str


class _Work(NamedTuple):
    """Samples as they were handed over, packed, the batch made of them, their places, and what reports progress.

    `cost` are their tokens, which count as done after the work.
    """

    indices: Int64[np.ndarray, "b"]
    samples: PackedSamples
    batch: Batch
    advance: Callable[[int], None]
    cost: int


class _Again(NamedTuple):
    """Answers that there are, and those of them that are to be replaced."""

    rows: np.ndarray
    indices: Int64[np.ndarray, "i"]


class _Question(NamedTuple):
    """What is asked of each sample: a row on the device, and what is made of it on the host."""

    name: str
    of_batch: Callable[[Batch], Tensor]
    on_host: Callable[[Tensor], Tensor] = lambda rows: rows
    may_be_recorded: bool = True
    needs_batches: bool = False  # where a method of a user's own is called

    def of_tokens(self, tokens: Tokens, asked: Asked | None) -> Tensor:
        """The same of tokens alone."""
        return self.of_batch(Batch(tokens))


def _rows(
    task: Task,
    samples: SampleSource,
    question: _Question,
    how: _How,
    again: _Again | None = None,
) -> np.ndarray:
    """The answer to a question for each sample, a row for each, in the order of the samples."""
    source = source_for(task, samples)
    outside = Outside(task.scaling, task.schema)
    result, chosen = (None, None) if again is None else again
    with _working(task, how) as progress:
        if not question.needs_batches and _is_long(
            task, source, how, None if chosen is None else source.lengths[chosen]
        ):
            found = _rows_in_slabs(task, source, question, how, outside, progress, chosen)
        else:
            found = (
                (work.indices, question.of_batch(work.batch).cpu())
                for work in _in_time(task, _works(task, source, how.budget, outside, progress, chosen=chosen))
            )
        for indices, answered in found:
            rows = question.on_host(answered).numpy()
            if result is None:
                result = np.empty((len(source), *rows.shape[1:]), dtype=rows.dtype)
            result[indices] = rows
    if again is None:
        outside.warn(stacklevel=3)
    assert result is not None  # no source is empty
    return result


def _is_long(task: Task, source: Source, how: _How, lengths: Int64[np.ndarray, "b"] | None = None) -> bool:
    """Whether a job is answered in slabs; series in units of their own are scaled on the host."""
    _require_budget(how.budget)
    if _scaling(task).own_units:
        return False
    n_tokens = int((source.lengths if lengths is None else lengths).sum())
    return is_long(next(task.parameters()).device, n_tokens, how.budget, _resolved(task, how.precision))


def _rows_in_slabs(
    task: Task,
    source: Source,
    question: _Question,
    how: _How,
    outside: Outside,
    progress: "_Progress",
    chosen: Int64[np.ndarray, "i"] | None,
) -> Iterator[tuple[Int64[np.ndarray, "b"], Tensor]]:
    """The answers on the host, some thousand at a time."""
    order = np.arange(len(source)) if chosen is None else chosen
    lengths = source.lengths[order]
    progress.total = int(lengths.sum())
    asked = Question(question.name, question.of_tokens, question.may_be_recorded)
    slabs = (
        _slab(task, source, order[run], outside) for run in runs(lengths.tolist(), tokens_per_slab(task, how.budget))
    )
    with Job.of(task, asked, lengths, None, how.budget, _resolved(task, how.precision)) as job:
        yield from _left(job, slabs, progress)


def _left(
    job: Job, slabs: Iterator[Slab], progress: "_Progress", last: Callable[[Slab, Tensor], Tensor] | None = None
) -> Iterator[tuple[Int64[np.ndarray, "b"], Tensor]]:
    """The rows of slabs on the host, those of one while the device answers for the next; `last` is done there first."""
    waiting: tuple[Slab, Leaving] | None = None
    for slab, arrived in in_advance(Aside(job.device).slabs(slabs), 1):
        rows = job.answers(here(slab, arrived), progress.advance)
        leaving = Leaving(rows if last is None else last(slab, rows))
        if waiting is not None:
            yield waiting[0].indices, waiting[1].get()
        waiting = slab, leaving
    if waiting is not None:
        yield waiting[0].indices, waiting[1].get()


def _slab(task: Task, source: Source, indices: Int64[np.ndarray, "b"], outside: Outside) -> Slab:
    """Samples without what they hide, scaled on the device of the task."""
    packed = _packed(task, source, indices).visible()

    def prepare(there: PackedSamples) -> Batch:
        batch = _batch(task, there)  # whose messages name the sample
        outside.add(there)
        return batch

    return slab_of(packed, indices, next(task.parameters()).device, prepare)


def answers_for_each(
    task: Task,
    source: Source,
    function: Callable[["_Work"], Sequence[Any]],
    title: str,
    *,
    tokens_per_batch: int = TOKENS_PER_BATCH,
    precision: Precision = "auto",
) -> list[Any]:
    """What a function makes of each sample of a batch, for questions of other files.

    What lies outside the training data is not counted: the same sample may be among the samples many times over.
    """
    uncounted = Outside(None, None)
    return _for_each(task, source, function, _How(title, tokens_per_batch, precision), outside=uncounted)


def checked_source(task: Task, samples: SampleSource, *, stacklevel: int = 2) -> Source:
    """The samples as a source, if they may be handed to the task; one warning tells what lies outside the training.

    They have no phase that the task finds itself: what is left out of a sample has no part in its period.
    """
    source, outside = source_for(task, samples), Outside(task.scaling, task.schema)
    for run in runs(source.lengths.tolist(), TOKENS_PER_BATCH):
        outside.add(_packed(task, source, np.arange(len(source))[run]))
    outside.warn(stacklevel=stacklevel + 1)
    return source


def _for_each(
    task: Task,
    samples: SampleSource,
    function: Callable[[_Work], Sequence[Any]],
    how: _How,
    n_queries: Int64[np.ndarray, "b"] | None = None,
    outside: Outside | None = None,
) -> list[Any]:
    """What a function makes of each sample of a batch, in the order of the samples.

    With `n_queries`, samples are batched with their queries, and those without any are left out. What lies far outside
    the training data is counted over all batches, and told in one warning.
    """
    source = source_for(task, samples)
    outside = Outside(task.scaling, task.schema) if outside is None else outside
    results: list[Any] = [np.zeros((0, task.config.n_values)) for _ in range(len(source))]
    with _working(task, how) as progress:
        for work in _in_time(task, _works(task, source, how.budget, outside, progress, n_queries)):
            for i, row in zip(work.indices, function(work), strict=True):
                results[i] = row.numpy() if isinstance(row, Tensor) else row
    outside.warn(stacklevel=3)
    return results


def _works(
    task: Task,
    source: Source,
    budget: int,
    outside: Outside,
    progress: "_Progress",
    n_queries: Int64[np.ndarray, "b"] | None = None,
    chosen: Int64[np.ndarray, "i"] | None = None,
) -> Iterator[_Work]:
    """The samples in batches, those of one length together.

    With `n_queries` they are those that are asked anything, with `chosen` those at these places.
    """
    _require_budget(budget)
    lengths = source.lengths + task.config.cls
    costs = lengths if n_queries is None else np.where(n_queries > 0, lengths + n_queries, 0)
    order = np.flatnonzero(costs > 0) if chosen is None else chosen
    order = order[np.argsort(costs[order], kind="stable")]
    progress.total = int(costs[order].sum())
    for run in runs(costs[order].tolist(), budget):
        indices = order[run]
        packed = _packed(task, source, indices)
        batch = _batch(task, packed)  # whose messages name the sample
        outside.add(packed)
        yield _Work(indices, packed, batch, progress.advance, int(lengths[indices].sum()))


def _require_budget(budget: Any) -> None:
    if isinstance(budget, bool) or not isinstance(budget, Integral) or budget < 1:
        raise ValueError(f"tokens_per_batch must be a whole number of at least 1, not {budget!r}")


def _in_time(task: Task, works: Iterator[_Work]) -> Iterator[_Work]:
    """The same works; for a GPU a thread prepares the next ones while the card computes."""
    on_gpu = next(task.parameters()).device.type != "cpu"
    for work in in_advance(works, N_AHEAD) if on_gpu else works:
        yield work
        work.advance(work.cost)


def seconds_by_stage(
    task: Classification, samples: SampleSource, *, tokens_per_batch: int = TOKENS_PER_BATCH, precision: Precision
) -> dict[str, float]:
    """How long each stage of `predict_proba` takes where samples come in slabs, one after the other, to its end.

    In a job, all but the first slab are packed, copied and scaled while the device computes.
    """
    source, device = source_for(task, samples), next(task.parameters()).device
    lengths, outside = source.lengths, Outside(task.scaling, task.schema)
    question = _logits(task, Classification, lambda x: x.double().softmax(-1), True)
    result = np.empty((len(source), task.n_classes))
    seconds = dict.fromkeys(("pack", "copy", "scale", "encode", "gather"), 0.0)
    began = time.perf_counter()

    def ends(stage: str) -> None:
        nonlocal began
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        now = time.perf_counter()
        seconds[stage] += now - began
        began = now

    how = _How("measuring", tokens_per_batch, precision)
    asked = Question(question.name, question.of_tokens)
    with (
        _working(task, how),
        Job.of(task, asked, lengths, None, tokens_per_batch, _resolved(task, precision)) as job,
    ):
        began = time.perf_counter()
        for run in runs(lengths.tolist(), tokens_per_slab(task, how.budget)):
            indices = np.arange(len(source))[run]
            packed = _packed(task, source, indices).visible()
            ends("pack")
            there = on_device(packed, device)
            ends("copy")
            batch = _batch(task, there)
            outside.add(there)
            slab = sorted_by_length(batch, packed, indices)
            ends("scale")
            rows = job.answers(slab, lambda n: None)
            ends("encode")
            result[slab.indices] = question.on_host(Leaving(rows).get()).numpy()
            ends("gather")
    return seconds


def prepared(task: Task, samples: SampleSource, tokens_per_batch: int = TOKENS_PER_BATCH) -> Iterator[Batch]:
    """The batches that a task answers for, scaled and on its device, for those who measure or export it."""
    outside, progress = Outside(task.scaling, task.schema), _Progress("preparing")
    return (work.batch for work in _works(task, source_for(task, samples), tokens_per_batch, outside, progress))


def _packed(task: Task, source: Source, indices: Int64[np.ndarray, "b"]) -> PackedSamples:
    """Samples in the data's own units, if they fit the model, with names for messages and without their targets."""
    packed = source.packed(indices)
    names = tuple(int(i) if name is None else name for i, name in zip(indices, packed.ids, strict=True))
    _require_widths(task, packed.values.shape[1], packed.positions.shape[1], names[0])
    return replace(packed, ids=names, target=None)


def _batch(task: Task, packed: PackedSamples) -> Batch:
    """The samples as the task sees them, on its device and in its precision."""
    if task.config.errors and (task.scaling is None or task.scaling.errors != task.config.errors):
        raise ValueError(
            "the model reads measurement errors, and its scaling does not know them; train it with "
            "scaling=romae.fit_scaling(samples), of samples whose schema names the errors"
        )
    scaled = packed if task.scaling is None else task.scaling.apply_packed(packed)
    if scaled.hidden is not None and not bool(scaled.n_hidden.all()):
        scaled = scaled.visible()  # of some samples all is shown
    weight = next(task.encoder.parameters())
    batch = scaled.batch()
    task.require_kinds(batch)
    batch = batch.to(weight.device)
    if task.scaling is not None and task.scaling.centres_samples:
        return batch  # the task centres in full precision, then casts
    return replace(batch, tokens=batch.tokens.to(dtype=weight.dtype))


def refused_by(task: Task, samples: SampleSource) -> dict[int, str]:
    """The samples that a task refuses, each with its reason; if all of them, the error is raised."""
    source = source_for(task, samples)
    return refused_parts(len(source), lambda part: _batch(task, _packed(task, source, part)))


def _scaling(task: Task) -> Scaling:
    return Scaling() if task.scaling is None else task.scaling


@contextmanager
def _working(task: Task, how: _How) -> Iterator["_Progress"]:
    """The task without dropout and gradients, and afterwards as it was; yields what reports progress."""
    progress = _Progress(how.title)
    try:
        with _evaluating(task), torch.no_grad(), without_onednn(), _computing(task, how.precision):
            yield progress
    finally:
        progress.stop()


@contextmanager
def _computing(task: Task, precision: str) -> Iterator[None]:
    """Products in a precision, as the weights of the task and their device allow."""
    precision, device = _resolved(task, precision), next(task.parameters()).device.type
    tf32 = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = tf32 or precision == "tf32"
    try:
        with torch.autocast(device, torch.bfloat16, enabled=precision == "bf16"):
            yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = tf32


def _resolved(task: Task, precision: str) -> Literal["float32", "tf32", "bf16"]:
    """The precision that products of this task have; "float32" is that of the weights, whatever they are in."""
    if precision not in PRECISIONS:
        raise ValueError(f"precision must be one of {', '.join(PRECISIONS)}, not {precision!r}")
    weight = next(task.parameters())
    on_gpu, is_full = weight.device.type == "cuda", weight.dtype == torch.float32
    if precision == "tf32" and on_gpu:
        return "tf32"
    has_bf16 = on_gpu and torch.cuda.is_bf16_supported(including_emulation=False)
    wants_bf16 = precision == "bf16" or (precision == "auto" and has_bf16)
    return "bf16" if wants_bf16 and is_full else "float32"


class _Progress:
    """How far the work is: a bar appears on a terminal once it has taken a while."""

    def __init__(self, title: str) -> None:
        self.title, self.total, self.done = title, 0, 0
        self.began = time.monotonic()
        self.bar: Any = None

    def advance(self, n: int) -> None:
        """So much more is done."""
        self.done += n
        if self.bar is None and time.monotonic() - self.began > SECONDS_BEFORE_BAR and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import Progress

            self.bar = Progress(console=Console(stderr=True), transient=True)
            self.bar.add_task(self.title, total=self.total)
            self.bar.start()
        if self.bar is not None:
            self.bar.update(self.bar.task_ids[0], completed=self.done)

    def stop(self) -> None:
        """Take the bar away."""
        if self.bar is not None:
            self.bar.stop()


@contextmanager
def _evaluating(task: Task) -> Iterator[None]:
    """The task without dropout until the last of the threads that use it at once is done."""
    with _LOCK:
        n, modes = _IN_USE.get(id(task), (0, [(module, module.training) for module in task.modules()]))
        _IN_USE[id(task)] = n + 1, modes
        task.eval()
    try:
        yield
    finally:
        with _LOCK:
            n, modes = _IN_USE.pop(id(task))
            if n > 1:
                _IN_USE[id(task)] = n - 1, modes
            else:
                for module, mode in modes:
                    module.training = mode


def _class_names(task: Classification) -> Shaped[np.ndarray, "k"]:
    """The name of each class, or its index where it has none."""
    names = None if task.schema is None else task.schema.classes
    if names is None:
        return np.arange(task.n_classes)
    if len(names) != task.n_classes:
        raise ValueError(f"the task has {task.n_classes} classes, but its schema names {len(names)}: {list(names)}")
    return np.array(names, dtype=None if len({type(name) for name in names}) == 1 else object)


def source_for(task: Task, samples: SampleSource) -> Source:
    """The samples as a source, if they may be handed to the task."""
    if not isinstance(task, Task):
        raise TypeError(f"expected a task, such as romae.load gives, not {type(task).__name__}")
    if _scaling(task).own_units:
        return Scalars.of(as_source(samples, with_targets=False), with_errors=bool(task.config.errors))
    if isinstance(samples, list | tuple):
        for i, sample in enumerate(samples):
            if isinstance(sample, Sample):
                name = i if sample.id is None else sample.id
                n_axes = sample.positions.shape[1] + _lacks_phase(task, sample.schema, sample.positions.shape[1])
                _require_widths(task, sample.values.shape[1], n_axes, name)
    source = as_source(samples, with_targets=False)
    if source.schema is not None and task.schema is not None:
        require_same_names(source.schema, task.schema, subject="samples", others="the task was trained on")
    phase = None if task.schema is None else task.schema.phase
    if phase is not None and _lacks_phase(task, source.schema, None if source.schema else source[0].positions.shape[1]):
        return Phased(source, phase, schema=replace(task.schema, phase=None))
    return source


def _lacks_phase(task: Task, schema: Schema | None, n_axes: int | None) -> bool:
    """Whether samples of this schema, or else of so many position axes, need a phase for the task."""
    if task.schema is None or task.schema.phase is None:
        return False
    return n_axes == task.config.position_dims - 1 if schema is None else schema.phase is None


def _require_widths(task: Task, channels: int, position_dims: int, name: Any) -> None:
    """Refuse a sample of another width than the model takes."""
    for quantity, actual, expected in (
        ("channels", channels, task.config.channels),
        ("position dimensions", position_dims, task.config.position_dims),
    ):
        if actual != expected:
            raise ValueError(f"the model takes {expected} {quantity}, but sample {name!r} has {actual}")


def _read_queries(
    task: Task, source: Source, positions: Any, channels: Sequence[int] | None = None
) -> list[Float64[Tensor, "_ d"]]:
    """The queries of each sample, [q, d], in the data's own units; what is wrong with them is found before the work.

    With `channels`, positions lack that axis, and each stands for as many queries, one for each channel in turn.
    """
    if not hasattr(positions, "__len__") or isinstance(positions, str | bytes):
        raise TypeError(f"expected a list with one array of positions per sample, not {type(positions).__name__}")
    if len(positions) != len(source):
        raise ValueError(
            f"positions for {len(positions)} samples, but there are {len(source)}; give one array for each, such as "
            "[positions] * len(samples)"
        )
    clock = source.schema or task.schema or Schema()
    given = list(positions)
    if (plain := _plain_queries(task, given, channels)) is not None:
        return plain
    # An array that is given for many samples is read once; `given` keeps it, so that no other has its number.
    known: dict[int, Float64[Tensor, "_ d"]] = {}
    queries = []
    for i, sample_positions in enumerate(given):
        if id(sample_positions) not in known:
            where = f"the positions for sample {i}"
            x = _read_positions(sample_positions, where, task, clock, has_channel=channels is None)
            if channels is not None:
                x = np.column_stack([np.repeat(x, len(channels), axis=0), np.tile(channels, len(x))])
            known[id(sample_positions)] = torch.from_numpy(x)
            try:
                _require_channels_of(task, known[id(sample_positions)])
            except ValueError as error:
                raise ValueError(f"{where}: {error}") from None
        queries.append(known[id(sample_positions)])
    return queries


def _plain_queries(task: Task, given: list[Any], channels: Sequence[int] | None) -> list[Float64[Tensor, "_ d"]] | None:
    """Arrays of numbers with all axes, read and looked at all at once; None where they are something else, or wrong."""
    dims = task.config.position_dims
    is_plain = channels is None and all(
        type(x) is np.ndarray and x.ndim == 2 and x.shape[1] == dims and x.dtype == np.float64 for x in given
    )
    if not is_plain or (task.schema is not None and (task.schema.phase is not None or task.schema.time_unit)):
        return None
    if len({id(x) for x in given}) < len(given):
        return None  # an array for many samples is better read once
    whole = np.concatenate(given)
    if not bool((np.abs(whole) <= _LARGEST_POSITION).all()):
        return None
    together = torch.from_numpy(whole)
    try:
        _require_channels_of(task, together)
    except ValueError:
        return None
    return list(together.split([len(x) for x in given]))


def _require_channels_of(task: Task, queries: Float64[Tensor, "q d"]) -> None:
    """Refuse queries of channels that the model does not know."""
    schema, scaling = task.schema, _scaling(task)
    if scaling.n_channels is not None:
        channel_index(queries, scaling.n_channels)
    if scaling.by_channel:
        scaling.invert_values(torch.zeros(len(queries), task.config.n_values), queries)
    is_index = not scaling.own_units  # there a channel is a coordinate by now
    if is_index and schema is not None and schema.channels and (schema.static or not scaling.by_channel):
        channel_index(queries, len(schema.channels))  # static facts are known, and nobody asks for them
    if task.config.kinds is not None:
        channel_index(queries, task.config.kinds)


def one_query_each(task: Task, source: Source, at: Any) -> list[Float64[Tensor, "1 d"]]:
    """The one query of each sample, in the data's own units."""
    if not hasattr(at, "__len__") or isinstance(at, str | bytes):
        raise TypeError(f"at= is a list with the position for each sample, not {type(at).__name__}")
    if len(at) != len(source):
        raise ValueError(f"at= has {len(at)} positions, but there are {len(source)} samples; give one for each")
    return _read_queries(task, source, [np.asarray(place)[None] for place in at])


def _read_positions(
    array: Any, where: str, task: Task, clock: Schema, *, has_channel: bool
) -> Float64[np.ndarray, "q d"]:
    """Positions as they were given, with or without the axis of channels."""
    dims = task.config.position_dims - (0 if has_channel else 1)
    has_phase = task.schema is not None and task.schema.phase is not None
    try:
        x = to_numpy(array)
    except ValueError as error:
        raise ValueError(f"{where} cannot be read as an array: {error}") from None
    x = positions_as_numbers(x, clock.time_unit, clock.time_zone, where, are_durations=clock.durations)
    if x.size == 0 and len(np.atleast_1d(x)) == 0:
        return np.zeros((0, dims))
    if x.dtype.kind not in "fiu":
        raise TypeError(f"{where} must be numbers, not {x.dtype}")
    x = np.array(x[:, None] if x.ndim == 1 and dims - has_phase == 1 else x, dtype=np.float64)
    if has_phase and x.ndim == 2 and x.shape[1] == dims - 1:
        _require_finite(x, where)
        return np.insert(x, PHASE_AXIS, np.nan, axis=1)  # until the period of the sample is known
    if x.ndim != 2 or x.shape[1] != dims:
        hint = ""
        if task.schema is not None and task.schema.channel is not None:
            hint = "; the last column is the index of the channel" if has_channel else "; channels= says which channels"
        raise ValueError(f"{where} must be [q, {dims}], got shape {list(x.shape)}{hint}")
    _require_finite(x, where)
    return x


def _require_finite(x: Float64[np.ndarray, "q d"], where: str) -> None:
    wrong = ~(np.abs(x) <= _LARGEST_POSITION)
    if wrong.any():
        row, column = np.argwhere(wrong)[0].tolist()
        raise ValueError(f"{where} must be finite, and query {row} has {x[row, column]} in column {column}")

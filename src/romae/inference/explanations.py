"""Explanations: what each measurement contributes to a prediction.

Integrated gradients follow the values of all measurements from a baseline to what they are and share out what happens
on the way, so that contributions add up. Leaving out asks again without a measurement, or without a channel.

Shapes: n tokens of one sample, t of all, b samples, k classes, c columns of values, d position dimensions, s steps.
"""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from romae.data.columns import require_distinct
from romae.data.queries import channel_numbers
from romae.data.scaling import Scaling
from romae.data.sources import SampleSource, Source
from romae.inference.left_out import NO_GROUP, LeftOut, Originals
from romae.inference.predictions import (
    TOKENS_PER_BATCH,
    answers_for_each,
    checked_source,
    interpolate,
    one_query_each,
    predict,
    predict_proba,
)
from romae.model.tasks import Classification, MaskedReconstruction, Regression, Task
from romae.tokens.layout import Layout
from romae.tokens.levels import Levels
from romae.tokens.tokens import Tokens

if TYPE_CHECKING:
    import pandas as pd

Method = Literal["integrated-gradients", "leave-out"]
Per = Literal["measurement", "channel"]
Units = Literal["logit", "probability"]

FEWEST_STEPS, MOST_STEPS = 16, 256
TOLERANCE = 0.01  # of the sum of the sizes of contributions, by which they may miss what they should add up to
TOKENS_PER_STEP = 8_192  # with gradients, which keep what the layers computed

Question = Callable[[Tokens, int], Float64[Tensor, "n"]]


class Explanation(NamedTuple):
    """Contributions, a row for each; predictions, a row for each sample; and channels over all samples."""

    contributions: "pd.DataFrame"
    samples: "pd.DataFrame"
    channels: "pd.DataFrame"


def explain(
    task: Task,
    samples: SampleSource,
    *,
    target: Any = None,
    at: Any = None,
    method: Method = "integrated-gradients",
    per: Per = "measurement",
    units: Units = "logit",
    tolerance: float = TOLERANCE,
    tokens_per_batch: int = TOKENS_PER_BATCH,
) -> Explanation:
    """Explain predictions: what each measurement, or each channel, contributes to the prediction for its sample.

    Parameters
    ----------
    task : Classification, Regression or MaskedReconstruction
        A trained task, such as `romae.load` gives; it answers on the device that it is on, and stays as it is.
    samples : sequence of Sample
        The samples, as they were read. Tokens that a sample hides are not shown to the model and contribute 0; static
        facts contribute like measurements.
    target : str or int, optional
        What is explained: a class, by name or index, by default the most probable one of each sample; one of several
        targets of a regression, by index; one of several columns of values, by name or index.
    at : list of arrays [d] or array [b, d], optional
        For masked reconstruction, the one position of each sample at which a value is predicted, as in `interpolate`,
        the index of a channel last where channels are an axis.
    method : {"integrated-gradients", "leave-out"}, default "integrated-gradients"
        "integrated-gradients" compares the values with a baseline; contributions add up to the difference of the
        predictions. "leave-out" compares the sample with itself without the measurement; sums mean nothing.
    per : {"measurement", "channel"}, default "measurement"
        Whether a row is for a measurement or for all of one channel of a sample. Integrated gradients are added up;
        a channel is left out as a whole.
    units : {"logit", "probability"}, default "logit"
        For classes, whether contributions are to the logarithm of the odds, log(p / (1 - p)), or to the probability p,
        calibrated where the task is. Numbers are explained in the data's own units.
    tolerance : float, default 0.01
        By how much the contributions of integrated gradients may miss what they should add up to, as a share of the sum
        of their sizes. Steps are doubled until they do not, up to 256; one warning tells of samples that still do.
    tokens_per_batch : int, default 32768
        The most tokens at once; lower it if memory is short.

    Returns
    -------
    Explanation
        `contributions` is a table with id, position, channel, `value` and `contribution`. `samples` has for each sample
        the id, the `target`, the `prediction`, and for integrated gradients the prediction for the `baseline` and the
        `total` of contributions. `channels` has for each channel the number `n` of contributions, their mean, that of
        their sizes, and the `share` of it in all sizes.

    Raises
    ------
    ValueError
        If samples, target or positions do not fit the model, or the task predicts something for each token.
    TypeError
        If the task is none of these, or something else than samples is given.

    Notes
    -----
    The baseline of integrated gradients has the same measurements at the same times, with the values that the encoder
    sees as 0: the mean of the channel in the training data. Where the scaling centres samples, their levels are held
    fixed, and 0 is the level for values that are predicted; for labels, to which a quarter of the level is told as
    well, it stays that of the training data. That a measurement was made at all belongs to the baseline; "leave-out"
    counts it. A contribution says what the model does, not what causes what in the world.

    Examples
    --------
    >>> import numpy as np
    >>> import romae
    >>> random = np.random.default_rng(0)
    >>> samples = romae.from_arrays(random.normal(size=(16, 8, 1)), y=["low", "high"] * 8)
    >>> size = romae.Size(width=16, heads=2, depth=1)
    >>> model = romae.ModelConfig(channels=1, position_dims=1, encoder=size)
    >>> task = romae.Classification(model, n_classes=2)
    >>> config = romae.TrainConfig(epochs=2, batch_size=8, device="cpu")
    >>> _ = romae.train(task, samples, config, quiet=True)
    >>> found = romae.explain(task, samples, target="high")
    >>> list(found.contributions.columns)
    ['id', 'time', 'value', 'contribution']
    >>> total = found.contributions.groupby("id")["contribution"].sum()
    >>> bool(np.allclose(total, found.samples["prediction"] - found.samples["baseline"], atol=0.01))
    True
    """
    for name, given, allowed in (("method", method, Method), ("per", per, Per), ("units", units, Units)):
        if given not in get_args(allowed):
            raise ValueError(f"{name} is one of {', '.join(map(repr, get_args(allowed)))}, not {given!r}")
    if not tolerance > 0:
        raise ValueError(f"tolerance is a share above 0, not {tolerance}")
    _require_explicable(task, at)
    source = checked_source(task, samples)
    originals = Originals.of(task, source)
    asked = _asked(task, source, target, at, tokens_per_batch)
    explained = _integrated if method == "integrated-gradients" else _left_out
    found = explained(_How(task, source, originals, asked, units, per, tolerance, tokens_per_batch))
    return _tables(originals, found, asked, per, is_whole=method == "leave-out")


class _Asked(NamedTuple):
    """What is explained of each sample: the number of a class, a target or a column; its name; and where."""

    number: Int64[np.ndarray, "b"]
    names: list[Any]
    at: list[Float64[Tensor, "1 d"]] | None


class _How(NamedTuple):
    task: Task
    source: Source
    originals: Originals
    asked: _Asked
    units: Units
    per: Per
    tolerance: float
    budget: int


class _Found(NamedTuple):
    """Contributions of all tokens end to end, and the predictions for samples and for their baselines."""

    contribution: Float64[np.ndarray, "t c"]
    prediction: Float64[np.ndarray, "b"]
    baseline: Float64[np.ndarray, "b"] | None


def _require_explicable(task: Task, at: Any) -> None:
    if isinstance(task, MaskedReconstruction):
        if at is None:
            raise ValueError("a masked reconstruction predicts a value somewhere: say where in each sample with at=")
        if task.normalise:
            raise ValueError(
                "this model was trained with normalise=True, and predicts no value in the data's own units"
            )
        return
    if not isinstance(task, Classification | Regression):
        raise TypeError(
            f"explain needs a Classification, Regression or MaskedReconstruction task, not {type(task).__name__}"
        )
    if at is not None:
        raise ValueError(
            f"at= is for masked reconstruction; a {type(task).__name__} predicts for the sample as a whole"
        )
    if isinstance(task, Regression) and task.per == "token":
        raise ValueError("this Regression predicts a number for each token; only numbers per sample can be explained")


def _asked(task: Task, source: Source, target: Any, at: Any, budget: int) -> _Asked:
    """What is explained of each sample, checked before any work."""
    n = len(source)
    names: list[Any]
    if isinstance(task, Classification):
        names = list(range(task.n_classes))
        if task.schema is not None and task.schema.classes is not None:
            names = list(task.schema.classes)
        if target is None:
            with _told_already():
                chosen = predict_proba(task, source, tokens_per_batch=budget, precision="float32").argmax(1)
        else:
            chosen = np.full(n, _number(target, names, "class"))
        return _Asked(chosen, [names[i] for i in chosen.tolist()], None)
    if isinstance(task, Regression):
        label = None if task.schema is None else task.schema.label
        names = [label or "label"] if task.n_targets == 1 else list(range(task.n_targets))
        number = _one_of(target, names, "target")
        return _Asked(np.full(n, number), [names[number]] * n, None)
    schema = source.schema or task.schema
    n_columns = task.config.n_values
    names = list(schema.values) if schema is not None and len(schema.values) == n_columns else list(range(n_columns))
    number = _one_of(target, names, "column of values")
    return _Asked(np.full(n, number), [names[number]] * n, one_query_each(task, source, at))


def _one_of(target: Any, names: Sequence[Any], kind: str) -> int:
    """The number of a target, which need not be said where there is one."""
    if target is None:
        if len(names) > 1:
            raise ValueError(f"there are several: name a {kind} with target=, one of {', '.join(map(str, names))}")
        return 0
    return _number(target, names, kind)


def _number(target: Any, names: Sequence[Any], kind: str) -> int:
    """The number of what is named; a name goes before a number."""
    try:
        (number,) = channel_numbers([target], names)
    except (TypeError, ValueError):
        shown = ", ".join(map(str, names[:20]))
        raise ValueError(f"there is no {kind} {target!r}; target is one of {shown}, or a number from 0 on") from None
    return number


# Integrated gradients


def _integrated(how: _How) -> _Found:
    """Contributions by integrated gradients, with more and more steps for the samples where they do not add up."""
    task, originals = how.task, how.originals
    n, parts = len(how.source), originals.parts
    contribution = np.zeros((originals.packed.layout.n_tokens, task.config.channels))
    prediction, baseline, off = np.zeros(n), np.zeros(n), np.full(n, np.inf)
    steps = FEWEST_STEPS
    while True:
        chosen = np.flatnonzero(~(off <= how.tolerance))
        copies = _Chosen(how.source, chosen)
        answers = answers_for_each(
            task,
            copies,
            partial(_work_gradients, how, chosen, steps),
            "explaining",
            tokens_per_batch=min(how.budget, TOKENS_PER_STEP),
            precision="float32",
        )
        for i, (rows, ends) in zip(chosen.tolist(), answers, strict=True):
            prediction[i], baseline[i] = ends
            contribution[parts[i]][~originals.is_hidden[parts[i]]] = rows
            difference = ends[0] - ends[1]
            size = max(float(np.abs(rows).sum()), abs(difference), 1e-6 * max(abs(ends[0]), abs(ends[1])))
            off[i] = abs(rows.sum() - difference) / size if size > 0 else 0.0
        steps *= 2
        if steps > MOST_STEPS or not (off > how.tolerance).any():
            break
    if (n_off := int((off > how.tolerance).sum())) > 0:
        warnings.warn(
            f"the contributions of {n_off} of {n} samples miss what they should add up to by more than "
            f"{how.tolerance:.2g} of their sizes (at most {off.max():.2g}), with {MOST_STEPS} steps; the columns "
            "total, prediction and baseline tell by how much",
            stacklevel=4,
        )
    return _Found(contribution, prediction, baseline)


class _Chosen(Source):
    """Some of the samples, without their targets."""

    is_quick = True

    def __init__(self, source: Source, chosen: Int64[np.ndarray, "i"]) -> None:
        self.source, self.chosen, self.schema = source, chosen, source.schema
        self.lengths = source.lengths[chosen]

    def __len__(self) -> int:
        return len(self.chosen)

    def __getitem__(self, index: Any) -> Any:
        return self.source[int(self.chosen[index])]

    def packed(self, indices: Int64[np.ndarray, "b"]) -> Any:
        return replace(self.source.packed(self.chosen[indices]), target=None)


def _work_gradients(how: _How, chosen: Int64[np.ndarray, "i"], steps: int, work: Any) -> list[Any]:
    """Of each sample of a batch its contributions, and the predictions for it and its baseline."""
    tokens, question = _question(how, work, chosen[work.indices])
    n_samples, layout = len(tokens), tokens.layout
    nodes, weights = np.polynomial.legendre.leggauss(steps)
    # Near the baseline norms turn fastest: nodes are densest there, as squares of evenly distributed ones.
    root = torch.from_numpy((nodes + 1) / 2)
    share, weight = root.square(), torch.from_numpy(weights) * root
    at_once = max(TOKENS_PER_STEP // max(layout.n_tokens, 1), 1)
    mean = torch.zeros(tokens.values.shape, dtype=torch.float64)
    for part in torch.arange(steps).split(at_once):
        values = (share[part].to(tokens.values)[:, None, None] * tokens.values).flatten(0, 1)
        with torch.enable_grad():
            values.requires_grad_()
            answers = question(_repeated(tokens, len(part), values), len(part))
            (gradient,) = torch.autograd.grad(answers.sum(), values)
        rows = gradient.double().cpu().unflatten(0, (len(part), -1))
        mean += (weight[part][:, None, None] * rows).sum(0)
    contribution = tokens.values.double().cpu() * mean
    both = question(_repeated(tokens, 2, torch.cat([tokens.values, torch.zeros_like(tokens.values)])), 2)
    ends = both.detach().double().cpu().reshape(2, n_samples).T.tolist()
    return list(zip((rows.numpy() for rows in contribution.split(layout.lengths.tolist())), ends, strict=True))


def _repeated(tokens: Tokens, n: int, values: Tensor) -> Tokens:
    """The same samples n times over, with other values."""
    layout = Layout.of(tokens.layout.lengths.repeat(n), tokens.device)
    return Tokens(values, tokens.positions.repeat(n, 1), layout)


def _question(how: _How, work: Any, places: Int64[np.ndarray, "b"]) -> tuple[Tokens, Question]:
    """What the encoder sees of samples, and the prediction as a function of it, for so many copies of all of them."""
    task, tokens = how.task, work.batch.tokens
    number = torch.from_numpy(how.asked.number[places]).to(tokens.device)
    levels = task.levels(tokens)
    if isinstance(task, MaskedReconstruction):
        return task.centred(tokens, levels), _value_question(how, work, places, levels)
    seen = tokens if levels is None else levels.enlarged(tokens).to(dtype=next(task.encoder.parameters()).dtype)
    if isinstance(task, Classification):
        return seen, _class_question(task, number, how.units)
    assert isinstance(task, Regression)
    return seen, _number_question(task, number)


def _class_question(task: Classification, number: Int64[Tensor, "b"], units: Units) -> Question:
    """The probability of the class of each sample, or its log odds, calibrated as in `predict_proba`."""

    def of_class(tokens: Tokens, n: int) -> Tensor:
        logits = task.head(task.pooled(task.encoder(tokens))).float()
        if task.calibration is not None:
            logits = task.calibration.apply(logits, task.confidence)
        return _of_class(logits.double().log_softmax(-1), number.repeat(n), units)

    return of_class


def _number_question(task: Regression, number: Int64[Tensor, "b"]) -> Question:
    """One of the targets of each sample."""

    def of_number(tokens: Tokens, n: int) -> Tensor:
        rows = task.point(task.head(task.pooled(task.encoder(tokens))).float())
        inverted = _scaling(task).invert_target(rows)
        return inverted.double().gather(1, number.repeat(n).unsqueeze(1)).squeeze(1)

    return of_number


def _value_question(how: _How, work: Any, places: Int64[np.ndarray, "b"], levels: Levels | None) -> Question:
    """The value at the one position of each sample."""
    task, scaling = how.task, _scaling(how.task)
    assert isinstance(task, MaskedReconstruction) and how.asked.at is not None
    raw = torch.cat([how.asked.at[i] for i in places.tolist()])
    scaled = scaling.scale_positions(raw, scaling.origins_of(work.samples).cpu()).float()
    device, column = work.batch.tokens.device, int(how.asked.number[places[0]])

    def of_value(tokens: Tokens, n: int) -> Tensor:
        layout = Layout.singles(len(tokens), device)
        where = scaled.to(device).repeat(n, 1)
        rows = task.point(task.head(task.decoder(task.encoder(tokens), where, layout)).float())
        if levels is not None:
            many = Levels(levels.level.repeat(n, 1), levels.gain.repeat(n, 1), levels.n_channels)
            rows = many.absolute(rows, where, layout)
        return scaling.invert_values(rows, raw.to(device).repeat(n, 1))[:, column]

    return of_value


def _of_class(log_p: Float[Tensor, "b k"], number: Int64[Tensor, "b"], units: Units) -> Float64[Tensor, "b"]:
    """The probability of one class of each sample, or the logarithm of its odds."""
    chosen = log_p.double().gather(1, number.unsqueeze(1)).squeeze(1)
    if units == "probability":
        return chosen.exp()
    is_other = torch.arange(log_p.shape[1], device=log_p.device) != number.unsqueeze(1)
    return chosen - log_p.double().masked_fill(~is_other, -torch.inf).logsumexp(1)


def _scaling(task: Task) -> Scaling:
    return Scaling() if task.scaling is None else task.scaling


# Leaving out


def _left_out(how: _How) -> _Found:
    """Contributions as what is lost when a measurement, or a channel, is left out."""
    originals, parts = how.originals, how.originals.parts
    groups = [_groups(how, part) for part in parts]
    copies = LeftOut(how.source, originals, groups)
    prediction = _predicted(how, how.source, np.arange(len(how.source)))
    contribution = np.full((originals.packed.layout.n_tokens, 1), np.nan)
    contribution[originals.is_hidden] = 0.0
    without = _predicted(how, copies, copies.sample)
    for sample, group, prediction_without in zip(copies.sample.tolist(), copies.group.tolist(), without, strict=True):
        contribution[parts[sample]][groups[sample] == group] = prediction[sample] - prediction_without
    return _Found(contribution, prediction, None)


def _groups(how: _How, part: slice) -> Int64[np.ndarray, "n"]:
    """What is left out of a sample at once: a token, or all of a channel."""
    is_shown = ~how.originals.is_hidden[part]
    groups = np.full(len(is_shown), NO_GROUP, dtype=np.int64)
    if how.per == "measurement":
        groups[is_shown] = np.arange(int(is_shown.sum()))
        return groups
    if (channel := how.originals.channel) is None:
        raise ValueError(
            "the columns of values share their tokens, so that none can be left out alone; take "
            "method='integrated-gradients'"
        )
    groups[is_shown] = channel[part][is_shown]
    return groups


def _predicted(how: _How, source: Source, sample: Int64[np.ndarray, "k"]) -> Float64[np.ndarray, "k"]:
    """The prediction for each member of a source, which is one of the samples or a part of it."""
    task, number = how.task, how.asked.number[sample]
    if len(source) == 0:
        return np.zeros(0)
    options: dict[str, Any] = {"tokens_per_batch": how.budget, "precision": "float32"}
    with _told_already():
        if isinstance(task, Classification):
            log_p = np.log(np.maximum(predict_proba(task, source, **options), np.finfo(float).tiny))
            return _of_class(torch.from_numpy(log_p), torch.from_numpy(number), how.units).numpy()
        if isinstance(task, Regression):
            rows = np.asarray(predict(task, source, **options)).reshape(len(source), -1)
        else:
            assert how.asked.at is not None
            queries = [how.asked.at[i].numpy() for i in sample.tolist()]
            rows = np.concatenate(interpolate(task, source, queries, **options))
    return np.take_along_axis(rows, number[:, None], axis=1)[:, 0].astype(np.float64)


@contextmanager
def _told_already() -> Iterator[None]:
    """Without the warning of data far outside the training, which was told of the samples themselves."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="data far outside")
        yield


# Tables


def _tables(originals: Originals, found: _Found, asked: _Asked, per: Per, *, is_whole: bool) -> Explanation:
    """The three tables; with `is_whole`, tokens were left out with all their values, and channels with all tokens."""
    import pandas as pd

    n_columns = found.contribution.shape[1]
    everything = np.ones(originals.packed.layout.n_tokens, dtype=bool)
    n_shown = originals.packed.values.shape[1] if is_whole else n_columns
    table = originals.columns(everything, n_shown, by_column=not is_whole)
    require_distinct([*table, "contribution"], "the columns of the table", "rename those of the data")
    sample = np.repeat(np.arange(len(originals.parts)), originals.packed.layout.lengths.numpy() * n_columns)
    flat = found.contribution.reshape(-1)
    heading, names, code = _channels(originals, n_columns)
    if per == "channel":
        rows = pd.DataFrame({"sample": sample, "code": code, "contribution": flat})
        grouped = rows.groupby(["sample", "code"], sort=True)["contribution"]
        merged = (grouped.first() if is_whole else grouped.sum()).reset_index()
        ids, code, flat = originals.ids, merged["code"].to_numpy(), merged["contribution"].to_numpy()
        table = {
            originals.schema.id: [ids[i] for i in merged["sample"].tolist()],
            heading: [names[i] for i in code.tolist()],
        }
    contributions = pd.DataFrame(table | {"contribution": flat})
    samples = {originals.schema.id: originals.ids, "target": asked.names, "prediction": found.prediction}
    if found.baseline is not None:
        totals = np.bincount(sample, found.contribution.reshape(-1), minlength=len(originals.parts))
        samples |= {"baseline": found.baseline, "total": totals}
    return Explanation(contributions, pd.DataFrame(samples), _by_channel(flat, code, names, heading))


def _channels(originals: Originals, n_columns: int) -> tuple[str, list[Any], Int64[np.ndarray, "rows"]]:
    """What channels are called, and the number of that of each row; where nothing tells them apart there is one."""
    schema, n_tokens = originals.schema, originals.packed.layout.n_tokens
    if (channel := originals.channel) is not None:
        return str(schema.channel), list(schema.kind_names), np.repeat(channel, n_columns)
    names: list[Any] = list(originals.value_names)
    names = names if n_columns == len(names) else [", ".join(names)]
    return "channel", names, np.tile(np.arange(n_columns), n_tokens)


def _by_channel(
    contribution: Float64[np.ndarray, "rows"], code: Int64[np.ndarray, "rows"], names: list[Any], heading: str
) -> "pd.DataFrame":
    """How much each channel contributes, over all rows."""
    import pandas as pd

    known = ~np.isnan(contribution)
    rows = pd.DataFrame({"code": code[known], "contribution": contribution[known], "size": abs(contribution[known])})
    grouped = rows.groupby("code", sort=True)
    sizes = grouped["size"].sum()
    whole = float(sizes.sum())
    return pd.DataFrame(
        {
            heading: [names[i] for i in sizes.index.tolist()],
            "n": grouped.size().to_numpy(),
            "mean_contribution": grouped["contribution"].mean().to_numpy(),
            "mean_size": grouped["size"].mean().to_numpy(),
            "share": sizes.to_numpy() / whole if whole > 0 else np.zeros(len(sizes)),
        }
    )

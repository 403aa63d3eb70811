"""What people judge a model by, on samples that it was not trained on: accuracy, F1, AUROC, R² and RMSE.

Each number stands beside a trivial baseline: the majority class, the mean, linear interpolation. scikit-learn computes
them.

Shapes: b samples, k classes or targets, t hidden tokens of all samples, c columns of values.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from jaxtyping import Float64, Int64

from romae.config import from_dict, to_dict
from romae.data.periods import without_phase
from romae.data.schema import SampleSet, Schema
from romae.data.static import n_measured
from romae.files import write_whole_text
from romae.inference import baselines
from romae.inference import predictions as inference
from romae.model.tasks import Classification, MaskedReconstruction, MultiLabel, Regression, Task
from romae.tokens.masking import futures_in, hide
from romae.training.config import chosen_device
from romae.training.run_folder import METRICS
from romae.training.tables import Trained, load_model

NAMES = {
    "accuracy": "accuracy",
    "subset_accuracy": "accuracy of all labels together",
    "macro_f1": "macro F1",
    "auroc": "AUROC",
    "r2": "R²",
    "rmse": "RMSE",
    "skill": "skill over the last value",
}
N_SHOWN = 6  # channels or classes in a line of text; the file has all of them

KEPT_OUT = {
    "test": "kept out of training and of validation",
    "validation": "which also chose the weights that were kept, so that the scores are slightly optimistic; "
    "--test-share 0.2 keeps further ids out for an honest test",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """The scores of a model on ids that it was not trained on, as they stand in metrics.json.

    `split` says which these are, and `n` how many. `baselines` has for some of the `metrics` what simple methods reach,
    `parts` what each class or channel contributes, and `omitted` why a number is not there.
    """

    split: Literal["test", "validation"]
    n: int
    metrics: dict[str, float]
    baselines: dict[str, dict[str, float]] = field(default_factory=dict)
    parts: dict[str, dict[str, float]] = field(default_factory=dict)
    omitted: dict[str, str] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()

    @classmethod
    def read(cls, content: Any) -> "Scores":
        """The scores in a file of a run; anything else is refused."""
        return from_dict(cls, content, where="scores")

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return to_dict(self)

    @property
    def origin(self) -> str:
        """Which ids were scored, in words."""
        return f"{self.n:,} {self.split} ids, {KEPT_OUT[self.split]}"

    def lines(self) -> list[str]:
        """The scores in a few lines of text, the most important first."""
        lines = [f"scores on {self.origin}", *([f"  {self._in_one_line()}"] if self.metrics else [])]
        r2 = {name: part["r2"] for name, part in self.parts.items() if "r2" in part}
        if len(r2) > 1:
            shown = ", ".join(f"{name} {value:.3g}" for name, value in list(r2.items())[:N_SHOWN])
            lines.append(f"  R² of each: {shown}{f', … ({len(r2)} in all)' if len(r2) > N_SHOWN else ''}")
        lines += [f"  {NAMES.get(name, name)} is left out: {reason}" for name, reason in self.omitted.items()]
        return lines + [f"  {remark}" for remark in self.remarks]

    def _in_one_line(self) -> str:
        return ", ".join(f"{NAMES[name]} {value:.4g}{self._beside(name)}" for name, value in self.metrics.items())

    def _beside(self, metric: str) -> str:
        beside = ", ".join(f"{name} {value:.4g}" for name, value in self.baselines.get(metric, {}).items())
        return f" ({beside})" if beside else ""


def score_run(trained: Trained, *, device: str = "auto") -> Scores | None:
    """Score the model of a finished run, as it is on disk, and write metrics.json beside it.

    On the ids of its test where there are some, else on those of its validation; without either there is no score.
    """
    samples = trained.validation if trained.test is None else trained.test
    if samples is None:
        return None
    scores = score(
        load_model(trained.model).to(chosen_device(device)),
        samples,
        split="validation" if trained.test is None else "test",
    )
    write_whole_text(trained.model.parent / METRICS, json.dumps(scores.to_dict(), indent=2) + "\n")
    return scores


def score(task: Task, samples: SampleSet, *, split: Literal["test", "validation"]) -> Scores:
    """The scores of a task on samples with targets, or on samples of which it hides a part as in its training."""
    if isinstance(task, Classification):
        return _score_classes(task, samples, split)
    if isinstance(task, MultiLabel):
        return _score_labels(task, samples, split)
    if isinstance(task, Regression):
        return _score_numbers(task, samples, split)
    if isinstance(task, MaskedReconstruction):
        return _score_hidden(task, samples, split)
    raise TypeError(f"only tasks of this library have scores, not {type(task).__name__}")


def _score_classes(task: Classification, samples: SampleSet, split: Literal["test", "validation"]) -> Scores:
    from sklearn.metrics import accuracy_score, f1_score, precision_recall_fscore_support

    classes = samples.schema.classes or tuple(range(task.n_classes))
    truth = np.array([int(sample.target) for sample in samples])
    probabilities = inference.predict_proba(task, samples)
    predicted = probabilities.argmax(1)
    counts = np.bincount(truth, minlength=len(classes))
    metrics = {
        "accuracy": float(accuracy_score(truth, predicted)),
        "macro_f1": float(f1_score(truth, predicted, average="macro", zero_division=0)),
    }
    omitted = {}
    if missing := [classes[i] for i in np.flatnonzero(counts == 0)]:
        named = _few([repr(name) for name in missing])
        one = len(missing) == 1
        omitted["auroc"] = (
            f"it needs ids of every class, and {'class' if one else 'classes'} {named} {'has' if one else 'have'} none "
            f"among the {len(truth)} {split} ids"
        )
    else:
        metrics["auroc"] = _auroc(truth, probabilities)
    precision, recall, f1, _ = precision_recall_fscore_support(
        truth, predicted, labels=np.arange(len(classes)), zero_division=0
    )
    parts = {
        str(name): {"n": int(counts[i]), "precision": precision[i], "recall": recall[i], "f1": f1[i]}
        for i, name in enumerate(classes)
    }
    return Scores(
        split=split,
        n=len(truth),
        metrics=metrics,
        baselines={"accuracy": {"majority class": counts.max() / counts.sum()}},
        parts=to_dict(parts),
        omitted=omitted,
        remarks=_never_predicted(classes, counts, np.bincount(predicted, minlength=len(classes)), split),
    )


def _score_labels(task: MultiLabel, samples: SampleSet, split: Literal["test", "validation"]) -> Scores:
    """How often all labels of an id are right, beside its commonest set of labels, and how each label does."""
    from sklearn.metrics import f1_score, precision_recall_fscore_support, roc_auc_score

    labels = samples.schema.labels or tuple(range(task.n_labels))
    truth = np.stack([np.asarray(sample.target, dtype=np.int64) for sample in samples])
    probabilities = inference.predict_proba(task, samples)
    predicted = (probabilities >= 0.5).astype(np.int64)
    counts = truth.sum(0)
    metrics = {
        "subset_accuracy": float((truth == predicted).all(1).mean()),
        "macro_f1": float(f1_score(truth, predicted, average="macro", zero_division=0)),
    }
    omitted, both = {}, (counts > 0) & (counts < len(truth))
    if both.all():
        metrics["auroc"] = float(np.mean([roc_auc_score(truth[:, k], probabilities[:, k]) for k in range(len(labels))]))
    else:
        named = _few([repr(labels[k]) for k in np.flatnonzero(~both)])
        omitted["auroc"] = (
            f"it needs ids with each label and ids without it, and {named} is not so among the {split} ids"
        )
    precision, recall, f1, _ = precision_recall_fscore_support(truth, predicted, average=None, zero_division=0)
    parts = {
        str(name): {"n": int(counts[k]), "precision": precision[k], "recall": recall[k], "f1": f1[k]}
        for k, name in enumerate(labels)
    }
    commonest = np.unique(truth, axis=0, return_counts=True)[1].max()
    return Scores(
        split=split,
        n=len(truth),
        metrics=metrics,
        baselines={"subset_accuracy": {"commonest set of labels": commonest / len(truth)}},
        parts=to_dict(parts),
        omitted=omitted,
    )


def _auroc(truth: Int64[np.ndarray, "b"], probabilities: Float64[np.ndarray, "b k"]) -> float:
    """The area under the ROC curve: of the second of two classes, or the mean over classes, each against the rest."""
    from sklearn.metrics import roc_auc_score

    if probabilities.shape[1] == 2:
        return float(roc_auc_score(truth, probabilities[:, 1]))
    return float(roc_auc_score(truth, probabilities, multi_class="ovr", average="macro"))


def _never_predicted(
    classes: tuple[Any, ...], counts: Int64[np.ndarray, "k"], n_predicted: Int64[np.ndarray, "k"], split: str
) -> tuple[str, ...]:
    """One sentence on the classes that are there and that the model never predicts."""
    names = [
        f"{classes[i]!r} ({counts[i]} of {counts.sum()} {split} series)"
        for i in np.flatnonzero((counts > 0) & (n_predicted == 0))
    ]
    if not names:
        return ()
    who, verb = ("class", "is") if len(names) == 1 else ("classes", "are")
    return (f"{who} {_few(names)} {verb} never predicted",)


def _score_numbers(task: Regression, samples: SampleSet, split: Literal["test", "validation"]) -> Scores:
    from sklearn.metrics import root_mean_squared_error

    truth = np.stack([np.asarray(sample.target, dtype=np.float64).reshape(-1) for sample in samples])
    predicted = np.asarray(inference.predict(task, samples), dtype=np.float64).reshape(truth.shape)
    metrics, omitted = {}, {}
    r2, reason = _r2(truth, predicted)
    if r2 is None:
        omitted["r2"] = f"{reason} among the {len(truth)} {split} ids"
    else:
        metrics["r2"] = r2
    metrics["rmse"] = float(root_mean_squared_error(truth, predicted))
    mean = np.broadcast_to(truth.mean(0), truth.shape)
    return Scores(
        split=split,
        n=len(truth),
        metrics=metrics,
        baselines={"rmse": {f"mean of the {split} ids": float(root_mean_squared_error(truth, mean))}},
        omitted=omitted,
    )


def _score_hidden(task: MaskedReconstruction, samples: SampleSet, split: Literal["test", "validation"]) -> Scores:
    """R² of values that are hidden as in training, in each channel, beside that of simple methods.

    These are linear interpolation or, where the future is hidden, the last value and the linear trend.
    """
    several = [sample for sample in samples if n_measured(sample) > 1]
    futures = futures_in(task.masking)
    masking = futures[0] if futures else task.masking
    several = list(without_phase(several))  # what is hidden must have no part in it, so the task adds it
    schema = several[0].schema if several else samples.schema
    masked = SampleSet(hide(several, masking) if several else [], schema)  # type: ignore[arg-type]
    if len(masked) == 0:
        return Scores(
            split=split, n=len(samples), metrics={}, omitted={"r2": "no id has a value to hide and another to see"}
        )
    others = {"linear interpolation": baselines.linear}
    if futures:
        others = {"last value": baselines.last_value, "linear trend": baselines.trend}
    truth = np.concatenate([baselines.truth(sample) for sample in masked])
    predictions = {"RoMAE": np.concatenate(inference.predict(task, masked))}
    predictions |= {
        # Among further axes, linear interpolation uses them too.
        name: baselines.filled_along_axes(masked)
        if method is baselines.linear
        else baselines.filled_along_time(method, masked)
        for name, method in others.items()
    }
    channel = np.concatenate([baselines.channels_of(sample, schema)[sample.hidden.numpy()] for sample in masked])
    parts: dict[str, dict[str, float]] = {}
    omitted: dict[str, str] = {}
    for name, row, column in _columns(schema, truth.shape[1]):
        here = channel == row
        if futures and not here.any():
            continue  # it is known ahead, or nothing of it lies there
        scores = {method: _r2(truth[here, column], x[here, column]) for method, x in predictions.items()}
        r2, reason = scores["RoMAE"]
        if r2 is None:
            omitted[f"R² of {name}"] = f"{reason} among its {int(here.sum())} hidden values"
            continue
        beside = {method.replace(" ", "_"): scores[method][0] for method in others}
        parts[name] = {"n": int(here.sum()), "r2": r2} | {key: x for key, x in beside.items() if x is not None}
        if futures:
            squared = {
                method: ((x[here, column] - truth[here, column]) ** 2).mean() for method, x in predictions.items()
            }
            if squared["last value"] > 0:
                parts[name]["skill"] = float(1 - squared["RoMAE"] / squared["last value"])
    if not parts:
        return Scores(split=split, n=len(masked), metrics={}, omitted={"r2": "no channel's hidden values differ"})
    share = len(truth) / sum(map(n_measured, masked))
    metrics = {"r2": _mean(parts, "r2")}
    skills = [part["skill"] for part in parts.values() if "skill" in part]
    if skills:
        metrics["skill"] = float(np.mean(skills))
    where = "of what lies after a cut" if futures else "of hidden values"
    return Scores(
        split=split,
        n=len(masked),
        metrics=metrics,
        baselines={"r2": {method: _mean(parts, method.replace(" ", "_")) for method in others}},
        parts=parts,
        omitted=omitted,
        remarks=(f"R² is that {where}, {share:.0%} of all as in training, and the mean over the channels",),
    )


def _columns(schema: Schema, n_values: int) -> list[tuple[str, int, int]]:
    """The name, the channel and the column of everything that is measured."""
    channels = [str(name) for name in schema.channels] if schema.channel is not None else [""]
    values = list(schema.values) if len(schema.values) == n_values else [str(i) for i in range(n_values)]
    if schema.channel is not None and n_values == 1:
        return [(name, row, 0) for row, name in enumerate(channels)]
    return [
        (f"{name} {value}".strip(), row, column)
        for row, name in enumerate(channels)
        for column, value in enumerate(values)
    ]


def _r2(truth: Float64[np.ndarray, "n *k"], predicted: Float64[np.ndarray, "n *k"]) -> tuple[float | None, str]:
    """R², or None and the reason: of numbers that do not differ it has no value."""
    from sklearn.metrics import r2_score

    if len(truth) < 2 or not np.ptp(truth, axis=0).all():
        return None, "it needs two numbers that differ, and there are none"
    return float(r2_score(truth, predicted)), ""


def _mean(parts: Mapping[str, Mapping[str, float]], name: str) -> float:
    return float(np.mean([part[name] for part in parts.values()]))


def _few(names: list[str]) -> str:
    """The first of many names."""
    return ", ".join(names[:N_SHOWN]) + (f" and {len(names) - N_SHOWN} more" if len(names) > N_SHOWN else "")

"""Forecasts as experiments judge them: windows that hide their future, and errors beside simple methods.

Numbers are in the units of the benchmark that the data come from, times `SCALES`, so that they can be read beside its
tables. `ratio` is the mean squared error over that of the last value carried forward, on the same windows.

Metrics `…_with_boosting` are those of a mean of RoMAE and boosted trees, whose weight (`weight_of_boosting`) has the
least squared error on the validation windows. Both have learned from the training windows alone. It is no baseline,
since RoMAE has a part in it, and no target counts it.

Shapes: q hidden numbers of all test samples.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
from jaxtyping import Float64

from romae.data.scaling import fit_scaling
from romae.data.schema import Schema
from romae.experiments import metrics
from romae.experiments.forecast_baselines import METHODS, N_TREES, Boosting, Observed, weight_of_second
from romae.experiments.recipe import Measured, Recipe, Source, Splits
from romae.inference.predictions import predict
from romae.model.config import ModelConfig
from romae.model.likelihoods import Likelihood, Mixture
from romae.model.tasks import MaskedReconstruction, Task
from romae.pages.charts import Line, bands, paired
from romae.tokens.masking import Future, Mixed, UniformTokens
from romae.tokens.sample import Sample
from romae.training.config import TrainConfig
from romae.training.stages import Pretrain

COMBINED = "RoMAE with boosting"
SHOWN = ("RoMAE", "last value", "boosting", COMBINED)
N_AHEAD = 8  # stretches of the time ahead, in the figure

Answers = Mapping[str, Float64[np.ndarray, "q"]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecasts(Source):
    """Windows of series, whose future is hidden.

    Errors are macro (the mean over variables of the mean of each) or, with `IS_MACRO` off, over all numbers alike. To
    choose settings without a look at the test, `tested_on="validation"` puts the validation windows in its place. Times
    are counted in units of `unit`. `n_trees` is that of boosting; 0 leaves it out. Training windows hide their future
    as the others do, or, with `masked_by="stage"`, what the stages say. A model sees values standardised `per` channel
    or all alike, and, as `center` says, relative to the visible ones of their window. With a likelihood the squared
    error is that of the mean and the absolute one that of the median.
    """

    IS_MACRO: ClassVar[bool] = True
    HEADLINE: ClassVar[Literal["mse", "ratio"]] = "mse"
    SCALES: ClassVar[tuple[float, float]] = (1.0, 1.0)  # of squared and of absolute errors

    tested_on: Literal["test", "validation"] = "test"
    unit: float = 1.0
    n_trees: int = N_TREES
    masked_by: Literal["window", "stage"] = "window"
    per: Literal["channel", "all"] = "channel"
    center: Literal["global", "sample", "instance"] = "global"

    @abstractmethod
    def schema(self) -> Schema:
        """The names of the data."""

    @abstractmethod
    def parts(self, split: int) -> Mapping[str, list[Sample]]:
        """Windows of training, validation and test."""

    def split_of(self, seed: int) -> int:
        """The division into training, validation and test that a seed has; most data have the same for all."""
        return 0

    def splits(self, seed: int) -> Splits:
        parts = self.parts(self.split_of(seed))
        scaling = fit_scaling(parts["train"], per=self.per, unit=self.unit, center=self.center)
        parts = {**parts, "test": parts[self.tested_on]}
        if self.masked_by == "stage":
            parts["train"] = [replace(sample, hidden=None) for sample in parts["train"]]
        splits = Splits.of(parts, seed, scaling=scaling)
        return replace(splits, schema=self.schema())

    def measure(self, task: Task, splits: Splits) -> Measured:
        test, predicted = self.observed(splits.test), _predicted(task, splits.test)
        trees = self._trees(splits)
        answers = {"RoMAE": predicted, **self._simple(splits, test, trees)}
        mse, mae = self.errors(answers, test)
        if isinstance(task, MaskedReconstruction) and task.likelihood is not None:
            mae |= {"RoMAE": self.errors({"median": _medians(task, splits.test)}, test)[1]["median"]}
        divisor = mse["last value"] if self.HEADLINE == "ratio" else 1.0
        clean = [sample.target[sample.hidden, 0].double().numpy() for sample in splits.test if _has_clean(sample)]
        floors = self.errors({"floor": np.concatenate(clean)}, test)[0] if clean else {}
        others = {name.replace(" ", "_"): name for name in answers if name != "RoMAE"}
        metrics = {"mse": mse["RoMAE"], "mae": mae["RoMAE"], "ratio": mse["RoMAE"] / mse["last value"]}
        metrics |= {f"mae_{key}": mae[name] for key, name in others.items()}
        metrics |= {f"mse_{key}": mse[name] for key, name in others.items()} if self.HEADLINE == "ratio" else {}
        weight = self._weight_of_boosting(task, splits, trees)
        if weight is not None:
            answers[COMBINED] = (1 - weight) * predicted + weight * answers["boosting"]
            squared, absolute = (errors[COMBINED] for errors in self.errors({COMBINED: answers[COMBINED]}, test))
            metrics |= {"mse_with_boosting": squared, "mae_with_boosting": absolute, "weight_of_boosting": weight}
            metrics["ratio_with_boosting"] = squared / mse["last value"]
        return Measured(
            metrics=metrics,
            baselines={name: mse[name] / divisor for name in others.values()},
            floor=floors["floor"] / divisor if floors else None,
            figure=self._figure({name: answers[name] for name in SHOWN if name in answers}, test),
        )

    def baselines(self, splits: Splits) -> dict[str, Float64[np.ndarray, "q"]]:
        """What simple methods answer where the test samples hide something; nothing of a model is needed."""
        return self._simple(splits, self.observed(splits.test), self._trees(splits))

    def errors(self, answers: Answers, test: Observed) -> tuple[dict[str, float], dict[str, float]]:
        """The squared and the absolute errors of answers, in the units of the benchmark."""
        off = {name: answer - test.truth for name, answer in answers.items()}
        squared, absolute = self.SCALES
        return (
            {name: self._mean(error**2, test) * squared for name, error in off.items()},
            {name: self._mean(np.abs(error), test) * absolute for name, error in off.items()},
        )

    def draw(self, figures: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        # Results of before know nothing of the combination.
        names = [name for name in SHOWN if all(name in figure["by_variable"] for figure in figures)]

        def runs(key: str, name: str) -> Float64[np.ndarray, "r k"]:
            return np.array([figure[key][name] for figure in figures], dtype=float)

        asked = np.isfinite(runs("by_variable", names[0])).any(axis=0)
        by_variable = {name: np.nanmean(runs("by_variable", name)[:, asked], axis=0) for name in names}
        variables = [str(name) for name, is_asked in zip(self.schema().channels, asked, strict=True) if is_asked]
        ahead = np.array(figures[0]["ahead"], dtype=float)
        lines = [Line(name, ahead, runs("by_ahead", name)) for name in names]
        return {
            f"Error by variable, {len(figures)} seeds": paired(variables, by_variable, x="MSE"),
            f"Error by how far ahead, {len(figures)} seeds": bands(lines, x=self.schema().time, y="MSE"),
        }

    def observed(self, samples: Sequence[Sample]) -> Observed:
        """The numbers of samples end to end, as baselines and errors take them."""
        return Observed.of(samples, len(self.schema().channels))

    def _asked_of(self, splits: Splits) -> Observed:
        """The training windows as they hide their future, for methods that know no other question."""
        is_asked = self.masked_by == "window"
        return self.observed(splits.train if is_asked else self.parts(self.split_of(splits.seed))["train"])

    def _trees(self, splits: Splits) -> Boosting | None:
        """Boosted trees that have learned from the training samples."""
        split = self.split_of(splits.seed)  # trees of a split are the same for all of its seeds
        train = self._asked_of(splits)
        return Boosting(train, macro=self.IS_MACRO, seed=split, n_trees=self.n_trees) if self.n_trees > 0 else None

    def _simple(self, splits: Splits, test: Observed, trees: Boosting | None) -> dict[str, Float64[np.ndarray, "q"]]:
        """The answers of simple methods, those of the trees behind them."""
        train = self._asked_of(splits)
        answers = {name: method(train, test) for name, method in METHODS.items()}
        return answers if trees is None else {**answers, "boosting": trees(test)}

    def _weight_of_boosting(self, task: Task, splits: Splits, trees: Boosting | None) -> float | None:
        """The weight of boosting in its mean with RoMAE; None where no windows are left to choose it on."""
        if trees is None or not splits.validation or self.tested_on == "validation":
            return None
        seen = self.observed(splits.validation)
        return weight_of_second(_predicted(task, splits.validation), trees(seen), seen, macro=self.IS_MACRO)

    def _mean(self, errors: Float64[np.ndarray, "q"], test: Observed) -> float:
        return metrics.macro(errors, test.asked)[0] if self.IS_MACRO else float(errors.mean())

    def _figure(self, answers: Answers, test: Observed) -> dict[str, Any]:
        """Errors by variable, and by the time since the first number that is asked of any sample."""
        n_variables, scale, time = test.n_variables, self.SCALES[0], test.time[test.hidden]
        edges = np.linspace(time.min(), time.max(), N_AHEAD + 1)
        stretch = np.searchsorted(edges[1:-1], time, side="right")
        squares = {name: (answer - test.truth) ** 2 * scale for name, answer in answers.items()}
        return {
            "by_variable": {name: metrics.macro(x, test.asked, n_variables)[1] for name, x in squares.items()},
            "by_ahead": {name: metrics.macro(x, stretch, N_AHEAD)[1] for name, x in squares.items()},
            "ahead": (edges[:-1] + edges[1:]) / 2 - edges[0],
        }


def _predicted(task: Task, samples: Sequence[Sample]) -> Float64[np.ndarray, "q"]:
    """What a task answers where samples hide something, end to end."""
    return np.concatenate([np.asarray(part)[:, 0] for part in predict(task, samples)]).astype(np.float64)


def _medians(task: Task, samples: Sequence[Sample]) -> Float64[np.ndarray, "q"]:
    """The median of what a task with a likelihood answers there, which has the least absolute error."""
    parts = predict(task, samples, returns="distribution")
    assert isinstance(parts, list)
    return np.concatenate([part.median()[:, 0] for part in parts]).astype(np.float64)


def _has_clean(sample: Sample) -> bool:
    """Whether a sample knows its numbers without noise: of generated data, as the target of each token."""
    return sample.target is not None and sample.target.ndim == 2


TRAIN = TrainConfig(
    epochs=60,
    batch_size=32,
    lr=1e-3,
    betas=(0.9, 0.95),
    weight_decay=0.05,
    warmup=0.05,
    clip=1.0,
    ema=0.999,
    precision="bf16",
)
# Of eight normals: its median has less of an absolute error than the mean that a squared error learns, and its mean
# about the same squared one.
MIXTURE = Mixture(n=8)
RANDOM = UniformTokens(ratio=0.5)
# Windows ask for what is measured when their future begins, which a masking still shows: hence a little earlier.
ASKED: Mapping[str, Future] = {
    "activity": Future(after=2999.9),
    "ushcn": Future(after=23.999),
    "physionet": Future(after=23.999),
    "physionet-hourly": Future(after=34.5),
}
QUICK = (
    "model.encoder={width=32, heads=2, depth=1}",
    "model.decoder={width=32, heads=2, depth=1}",
    "data.n_trees=5",
    "train.precision=float32",
    "train.batch_size=8",
    "train.epochs=6",
    "train.ema=none",
    "train.lr=5e-3",
)


def row(
    name: str,
    title: str,
    protocol: str,
    data: Forecasts,
    *,
    epochs: int,
    quick: tuple[str, ...],
    loss_weights: Literal["channel"] | None = None,
    likelihood: Likelihood | None = None,
    mixed: Future | None = None,
) -> Recipe:
    """A recipe for forecasts with the settings that all of them have.

    With `mixed`, the future that the benchmark asks for, half of the training windows hide numbers at random instead:
    the model sees what comes later, too, and learns more from the same windows.
    """
    masking = UniformTokens() if mixed is None else Mixed(((RANDOM, 0.5), (mixed, 0.5)))
    return Recipe(
        name=f"forecasting/{name}",
        title=title,
        paper="beyond the paper",
        protocol=f"{protocol}; an embedding of its own for each variable, wavelengths from the data, tokens dropped",
        data=data if mixed is None else replace(data, masked_by="stage"),
        model=ModelConfig(channels=1, position_dims=2, kinds=len(data.schema().channels), kinds_spread=1.0),
        ladder="data",
        # Where samples hide their future themselves, the masking of the stage is not asked.
        stages=(
            Pretrain(
                masking=masking,
                train=replace(TRAIN, epochs=epochs),
                drop_tokens=0.2,
                loss_weights=loss_weights,
                likelihood=likelihood,
            ),
        ),
        metric=data.HEADLINE,
        quick=(*QUICK, *quick),
    )

"""How sure: distributions of what is hidden, judged by what they give away and by what their intervals hold.

Rows of other tables, with a likelihood in the place of the squared error. The number is the continuous ranked
probability score (CRPS), which for a single number is its absolute error; beside it stand the negative log density
(`nll`), the share of numbers in central intervals of 50, 80, 90 and 95 % (`coverage_90`) and their mean width
(`width_90`), all of these once more after split conformal calibration on the validation samples (`_calibrated`), and
the squared error of the mean. Units are those of the rows that these come from: standard deviations of a variable of
PhysioNet, the noisy values of synthetic series, scaled fluxes, sines and cosines.

    romae run uncertainty/physionet-tokens --seeds 0-2    11 400 steps a seed; H200 8 minutes
    romae run uncertainty/physionet-rows --seeds 0-2      22 800 steps a seed; H200 13 minutes
    romae run uncertainty/physionet-grid --seeds 0-2      9 600 steps a seed (120 passes of 80); H200 15 minutes
    romae run uncertainty/physionet-minutes --seeds 0-2   9 590 steps a seed, of a sixth more tokens
    romae run uncertainty/synthetic --seeds 0-4           10 000 steps a seed; H200 2 minutes, two CPU cores 10
    romae run uncertainty/plasticc --seeds 0-2            4 600 steps a seed; H200 5 minutes
    romae run uncertainty/pendulum --seeds 0-2            12 500 steps a seed; H200 11 minutes, two CPU cores some 10

Times on the H200 are with a dozen of runs on it, those of the first two rows and of light curves with six and with
`train.compile=true`. Beside them: what the numbers of a variable are like (`constant`), straight lines with the spread
of their residuals by variable and distance, and, on the first test stays (`crps_of_some`), a Gaussian process fitted to
each variable of each stay (`crps_process_of_some`). The floor of synthetic series is the CRPS of their exact posterior,
which nothing can beat. A share of the numbers of PhysioNet is one exact number, such as a temperature of 37.0: a
density may grow there without end, and `share_exact` tells how many there are.

The row `physionet-grid` is imputation as PyPOTS and its benchmark TSI-Bench have it: a tenth of the observed cells of
an hourly grid is hidden, in the training stays as well, where nobody sees them. `mae` is that of the median, as others
report it: published are 0.252 for CSDI, 0.257 for SAITS and 0.366 for lines (`mae_linear`; 0.356 to 0.368 here). Peers
run on the very same arrays by `python -m romae.experiments.peers`. `physionet-minutes` asks for the same cells and
shows the same measurements, each at its own minute and not as the mean of its hour. A hidden cell is one token at the
middle of its hour; none of its measurements is left in the sample, and all that is known of it is its hour and its
variable.

Expected: synthetic 0.217, where the exact posterior has 0.215; pendulum 0.0094, with a squared error of 0.0012, where
the row without distributions has 0.0022; the grid 0.150, an MAE of 0.204 and 91.8 % in intervals of 90 %; tokens
0.180 with a squared error of 0.250, rows 0.236 with 0.336, both with 91 % in intervals of 90 %; light curves 0.201,
with 91 %. After calibration all intervals hold what they say, to one in a hundred (1.2 on synthetic series).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float64, Int64
from joblib import Parallel, delayed

from romae.data.atoms import atoms
from romae.data.scaling import fit_scaling, scaled
from romae.data.schema import SampleSet, Schema
from romae.experiments import baselines
from romae.experiments.datasets import physionet_grid, synthetic
from romae.experiments.datasets.light_curves import BANDS
from romae.experiments.density_scores import Lines, Predicted, calibrated_scores, climatology_crps, drawn
from romae.experiments.forecasts import QUICK, TRAIN
from romae.experiments.recipe import Measured, Recipe, Source, Splits, Target
from romae.experiments.recipes import lightcurves, pendulum, physionet
from romae.experiments.recipes import synthetic as curves
from romae.experiments.recipes.lightcurves import HiddenPoints
from romae.experiments.recipes.pendulum import Pendulum
from romae.experiments.recipes.physionet import VARIABLES, Stays
from romae.experiments.recipes.synthetic import Synthetic
from romae.experiments.stays import LIMITS, MASKING, masked
from romae.experiments.zero_baselines import fitted_process
from romae.experiments.zero_scores import crps_of_standard_normal
from romae.experiments.zero_sets import Question, Series
from romae.inference.distributions import Distribution, Units
from romae.inference.predictions import predict
from romae.model.config import ModelConfig
from romae.model.likelihoods import Likelihood, Mixture, Normal
from romae.model.tasks import Task
from romae.tokens.masking import UniformTokens, hide
from romae.tokens.sample import Sample
from romae.training.stages import Pretrain, Regress

MIXTURE = Mixture(n=8)
# Of stays the squared error of the mean counts as well: without it that error is 9 % above that of a model which learns
# nothing else, with it 0.4 %, and the CRPS is lower, too (chosen on validation stays; docs/log.md).
WEIGHED = replace(MIXTURE, mean_weight=1.0)
N_LINES = 1_500  # training samples, for the residuals of lines
FEW = 4  # stays, for which processes of their own do not pay


@dataclass(frozen=True, slots=True, kw_only=True)
class LikelyStays(Stays):
    """Stays of intensive care. A Gaussian process is fitted to the variables of the first `n_processes` test stays."""

    n_processes: int = 12

    def measure(self, task: Task, splits: Splits) -> Measured:
        validation = masked(splits.validation or (), MASKING[self.hide])
        training = masked(splits.train[:N_LINES], MASKING[self.hide])
        return _measured(task, splits, validation, training, self.n_processes)

    def draw(self, figures: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        return drawn(figures)


@dataclass(frozen=True, slots=True, kw_only=True)
class LikelyGrid(Source):
    """Stays on an hourly grid, a tenth of whose observed cells is hidden; values and scores are z-scores.

    A seed has its own split and its own hidden cells. Training samples do not hold what they hide. `n_records` takes
    the first records of each part. To choose settings without a look at the test, `tested_on="validation"` puts the
    validation stays in its place.
    """

    tested_on: Literal["test", "validation"] = "test"
    n_records: int | None = None
    n_processes: int = 40

    def splits(self, seed: int) -> Splits:
        if self.n_records is not None and self.n_records < 1:
            raise ValueError(f"data.n_records must be at least 1, or none for all records, not {self.n_records}")
        parts = {name: grid.first(self.n_records) for name, grid in physionet_grid.load(seed).items()}
        train = parts["train"].visible_samples()
        return Splits(
            train=train,
            validation=parts["validation"].samples(),
            test=parts[self.tested_on].samples(),
            scaling=fit_scaling(SampleSet(train, physionet_grid.SCHEMA), values="none"),
            schema=physionet_grid.SCHEMA,
            seed=seed,
        )

    def measure(self, task: Task, splits: Splits) -> Measured:
        training = hide(list(splits.train[:N_LINES]), UniformTokens(ratio=physionet_grid.HIDDEN), splits.seed)
        return self._scored(task, splits, training)

    def _scored(self, task: Task, splits: Splits, training: Sequence[Sample]) -> Measured:
        measured = _measured(task, splits, splits.validation, training, self.n_processes)
        off = np.concatenate([baselines.fill(baselines.linear, x) - baselines.truth(x) for x in splits.test])
        lines = {"mae_linear": float(np.abs(off).mean()), "mse_linear": float((off**2).mean())}
        return measured._replace(metrics=measured.metrics | lines)

    def draw(self, figures: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        return drawn(figures)


@dataclass(frozen=True, slots=True, kw_only=True)
class LikelyMinutes(LikelyGrid):
    """The records, splits and hidden cells of the grid, where what is seen stands at its own minute.

    A hidden cell is asked as one token at the middle of its hour; none of its measurements is seen. Training asks the
    same of a `share` of the visible cells, drawn `n_draws` times for each record, so that a pass over the training
    samples is so many passes over the records.
    """

    share: float = 0.2
    n_draws: int = 12

    def splits(self, seed: int) -> Splits:
        if self.n_records is not None and self.n_records < 1:
            raise ValueError(f"data.n_records must be at least 1, or none for all records, not {self.n_records}")
        if not 0 < self.share < 1:
            raise ValueError(f"data.share is a share of the visible cells, above 0 and below 1, not {self.share:g}")
        if self.n_draws < 1:
            raise ValueError(f"data.n_draws is how often cells to ask are drawn, at least 1, not {self.n_draws}")
        parts = physionet_grid.load_minutes(seed, self.n_records)
        train = parts["train"].questions(self.n_draws, self.share, seed)
        return Splits(
            train=train,
            validation=parts["validation"].samples(),
            test=parts[self.tested_on].samples(),
            scaling=fit_scaling(SampleSet(train, physionet_grid.SCHEMA), values="none"),
            schema=physionet_grid.SCHEMA,
            seed=seed,
        )

    def measure(self, task: Task, splits: Splits) -> Measured:
        # One draw of each record says what numbers are like; the others have the same ones.
        once = splits.train[: len(splits.train) // self.n_draws]
        return self._scored(task, replace(splits, train=once), once[:N_LINES])


@dataclass(frozen=True, slots=True, kw_only=True)
class LikelySeries(Synthetic):
    """Synthetic series beside their exact posterior."""

    def measure(self, task: Task, splits: Splits) -> Measured:
        test, grid = splits.test, synthetic.GRIDS[self.grid]
        truth = _hidden(test)
        predicted = Predicted(_distributions(task, test), truth, np.ones(len(truth)))
        scores, figure = calibrated_scores(task, predicted, splits.validation)
        exact = [_posterior(sample, grid) for sample in test]
        middle, deviation = (np.concatenate(parts) for parts in zip(*exact, strict=True))
        z = (truth - middle) / deviation
        scores["nll_exact"] = float(np.mean(z**2 / 2 + np.log(deviation) + np.log(2 * np.pi) / 2))
        training = [sample for sample in splits.train if sample.hidden is not None]
        training = training or hide(list(splits.train), UniformTokens(ratio=1 - grid.most / len(grid.times)), 0)
        lines, seen = Lines(training, _zeros(training)), _hidden(training)
        of_seen, of_test = np.zeros(len(seen), dtype=np.int64), np.zeros(len(truth), dtype=np.int64)
        return Measured(
            metrics=scores,
            baselines={
                "constant": float(climatology_crps(seen, of_seen, truth, of_test).mean()),
                "linear": float(lines.crps(test, _zeros(test)).mean()),
            },
            floor=float(np.mean(deviation * crps_of_standard_normal(z))),
            figure=figure,
        )

    def draw(self, figures: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        return drawn(figures)


@dataclass(frozen=True, slots=True, kw_only=True)
class LikelyFluxes(HiddenPoints):
    """Light curves whose measurement errors are read, never predicted, and part of the distribution of a flux.

    Scores are of the scaled flux, as the model sees it.
    """

    def splits(self, seed: int) -> Splits:
        splits = HiddenPoints.splits(self, seed)
        assert splits.schema is not None
        schema = replace(splits.schema, values=("flux",), errors=("flux error",))
        train = SampleSet(list(splits.train), schema)
        scaling = fit_scaling(train, values="asinh", per="channel", origin="first")
        return replace(splits, scaling=scaling, schema=schema)

    def measure(self, task: Task, splits: Splits) -> Measured:
        assert splits.scaling is not None
        predicted = self._seen(task, splits.test)
        validation = hide(list(splits.validation or ()), UniformTokens(ratio=self.hide), splits.seed)
        scores, figure = calibrated_scores(task, predicted, validation)
        bands = _channels(splits.test)
        of_band = np.concatenate(bands)
        by_number = predicted.by_number()
        scores |= {
            f"coverage_90_{name}": float(by_number["coverage_90"][of_band == i].mean())
            for i, name in enumerate(BANDS)
            if (of_band == i).any()
        }
        training = hide(list(splits.train[:N_LINES]), UniformTokens(ratio=self.hide), splits.seed)
        seen, test = (_first_column(scaled(part, splits.scaling)) for part in (training, splits.test))
        lines, of_seen = Lines(seen, _channels(training)), np.concatenate(_channels(training))
        return Measured(
            metrics=scores,
            baselines={
                "constant": float(climatology_crps(_hidden(seen), of_seen, predicted.truth, of_band).mean()),
                "linear": float(lines.crps(test, bands).mean()),
            },
            figure=figure,
        )

    def draw(self, figures: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        return drawn(figures)

    def _seen(self, task: Task, samples: Sequence[Sample]) -> Predicted:
        """Distributions of measurements and what came, both as the model sees fluxes."""
        parts, truth = [], []
        for part, x in zip(_distributions(task, samples, noise=True), _by_sample(samples), strict=True):
            z = part.units.to_model(x.reshape(part.shape))
            one, zero = np.ones(part.shape), np.zeros(part.shape)
            parts.append(part.in_units(Units(one, zero, one, zero)))
            truth.append(np.asarray(z).ravel())
        whole = np.concatenate(truth)
        return Predicted(parts, whole, np.ones(len(whole)))


@dataclass(frozen=True, slots=True, kw_only=True)
class LikelyPendulum(Pendulum):
    """The sine and the cosine of the angle in every frame, each with how sure it is."""

    def measure(self, task: Task, splits: Splits) -> Measured:
        truth, train = (
            np.concatenate([_target(sample) for sample in samples]) for samples in (splits.test, splits.train)
        )
        parts = predict(task, splits.test, returns="distribution")
        assert isinstance(parts, list)
        predicted = Predicted(parts, truth.ravel(), np.ones(truth.size))
        scores, figure = calibrated_scores(task, predicted, splits.validation)
        mean = np.concatenate([np.asarray(part.mean()) for part in parts])
        scores["mse"] = float(np.mean((mean - truth) ** 2))
        which, of_train = (np.tile(np.arange(2), len(x)) for x in (truth, train))
        constant = climatology_crps(train.ravel(), of_train, truth.ravel(), which)
        return Measured(metrics=scores, baselines={"constant": float(constant.mean())}, figure=figure)

    def draw(self, figures: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        return drawn(figures)


def _measured(
    task: Task,
    splits: Splits,
    validation: Sequence[Sample] | None,
    training: Sequence[Sample],
    n_processes: int,
) -> Measured:
    """Scores of stays in deviations of their variables; validation and training samples hide what a test does."""
    assert splits.scaling is not None and splits.schema is not None
    test, unit = splits.test, _units(splits.test, splits)
    predicted = Predicted(_distributions(task, test), _hidden(test), unit)
    scores, figure = calibrated_scores(task, predicted, validation)
    shown = scaled(test, splits.scaling)
    truth, variables = np.concatenate([baselines.truth(x)[:, 0] for x in shown]), _channels(test)
    of_test = np.concatenate(variables)
    seen = scaled(training, splits.scaling)
    lines, of_seen = Lines(seen, _channels(training)), np.concatenate(_channels(training))
    mean, median = (
        np.concatenate([np.asarray(point).ravel() for point in points])
        for points in ([part.mean() for part in predicted.parts], [part.median() for part in predicted.parts])
    )
    scores["mse"] = float(np.mean(((mean - predicted.truth) / unit) ** 2))
    scores["mae"] = float(np.mean(np.abs(median - predicted.truth) / unit))
    scores["share_exact"] = float(np.mean(_is_exact(predicted.truth, of_test, splits.train, splits.schema)))
    some = test[:n_processes]
    if len(some):
        n = sum(int(sample.hidden.sum()) for sample in some if sample.hidden is not None)
        scores["crps_of_some"] = float(predicted.by_number()["crps"][:n].mean())
        scores["crps_process_of_some"] = float(np.mean(_process_crps(scaled(some, splits.scaling))))
    return Measured(
        metrics=scores,
        baselines={
            "constant": float(climatology_crps(_hidden(seen), of_seen, truth, of_test).mean()),
            "linear": float(lines.crps(shown, variables).mean()),
        },
        figure=figure,
    )


def _distributions(task: Task, samples: Sequence[Sample], *, noise: bool = False) -> list[Distribution]:
    parts = predict(task, samples, returns="distribution", noise=noise)
    assert isinstance(parts, list)
    return parts


def _by_sample(samples: Sequence[Sample]) -> list[Float64[np.ndarray, "_"]]:
    """The hidden numbers of each sample, in its first column."""
    return [sample.values[sample.hidden, 0].double().numpy() for sample in samples]


def _hidden(samples: Sequence[Sample]) -> Float64[np.ndarray, "q"]:
    return np.concatenate(_by_sample(samples))


def _first_column(samples: Sequence[Sample]) -> list[Sample]:
    return [replace(sample, values=sample.values[:, :1]) for sample in samples]


def _channels(samples: Sequence[Sample]) -> list[Int64[np.ndarray, "_"]]:
    """The variable of each hidden number of each sample."""
    return [sample.positions[sample.hidden, 1].numpy().astype(np.int64) for sample in samples]


def _zeros(samples: Sequence[Sample]) -> list[Int64[np.ndarray, "_"]]:
    return [np.zeros(len(x), dtype=np.int64) for x in _by_sample(samples)]


def _target(sample: Sample) -> Float64[np.ndarray, "f 2"]:
    assert sample.target is not None
    return sample.target.double().numpy()


def _units(samples: Sequence[Sample], splits: Splits) -> Float64[np.ndarray, "q"]:
    """The standard deviation of the variable of each hidden number."""
    assert splits.scaling is not None
    places = torch.cat([sample.positions[sample.hidden] for sample in samples])
    one, zero = (
        splits.scaling.scale_values(torch.full((len(places), 1), x, dtype=torch.float64), places).double()
        for x in (1.0, 0.0)
    )
    return (1 / (one - zero)).numpy()[:, 0]


def _is_exact(
    values: Float64[np.ndarray, "q"], variables: Int64[np.ndarray, "q"], train: Sequence[Sample], schema: Schema
) -> np.ndarray:
    """Which numbers are one of those that a variable has again and again."""
    exact = atoms(SampleSet(list(train), schema))
    found = np.zeros(len(values), dtype=bool)
    for row in exact:
        found |= (variables == list(schema.channels).index(row.name)) & (values == row.value)
    return found


def _posterior(sample: Sample, grid: synthetic.Grid) -> tuple[Float64[np.ndarray, "_"], Float64[np.ndarray, "_"]]:
    """The mean and the deviation of what is hidden, noise included."""
    times, values, hidden = sample.positions[:, 0].numpy(), sample.values[:, 0].double().numpy(), sample.hidden.numpy()
    mean, variance = synthetic.posterior(times[~hidden], values[~hidden], times[hidden], grid)
    return mean, np.sqrt(variance)


def _process_crps(samples: Sequence[Sample]) -> list[float]:
    """The CRPS of a Gaussian process fitted to each variable; where nothing of it is visible, of a standard normal.

    A stay takes a core half a minute, so that stays are given out to all cores.
    """
    n_jobs = -1 if len(samples) > FEW else 1
    parts = Parallel(n_jobs=n_jobs)(delayed(_process_crps_of)(sample) for sample in samples)
    return [score for part in parts for score in part]


def _process_crps_of(sample: Sample) -> list[float]:
    found: list[float] = []
    times, variable = sample.positions.double().numpy().T
    values, hidden = sample.values[:, 0].double().numpy(), sample.hidden.numpy()
    for number in np.unique(variable[hidden]):
        here = variable == number
        order = np.flatnonzero(here)[np.argsort(times[here], kind="stable")]
        truth, seen = values[order][hidden[order]], ~hidden[order]
        if seen.sum() >= 2 and np.ptp(values[order][seen]) > 0:
            question = Question(Series(times[order], values[order]), hidden[order])
            middle, deviation = fitted_process(question)
        else:
            middle = np.full(len(truth), values[order][seen].mean() if seen.any() else 0.0)
            deviation = np.ones(len(truth))
        found += (deviation * crps_of_standard_normal((truth - middle) / deviation)).tolist()
    return found


def _with(recipe: Recipe, name: str, source: Any, likelihood: Likelihood, **changes: Any) -> Recipe:
    """A row of another table with a likelihood, and with a source of the same settings that has other scores."""
    before: Any = recipe.data
    data = source(**{field.name: getattr(before, field.name) for field in fields(before)})
    last = recipe.stages[-1]
    assert isinstance(last, Pretrain | Regress)
    return replace(
        recipe,
        name=f"uncertainty/{name}",
        title=f"{recipe.title.removesuffix(', tuned settings')}: distributions",
        paper="beyond the paper",
        data=data,
        stages=(*recipe.stages[:-1], replace(last, likelihood=likelihood)),
        metric="crps",
        better="lower",
        published=None,
        **changes,
    )


BY_NAME = {recipe.name: recipe for part in (physionet, curves, lightcurves, pendulum) for recipe in part.RECIPES}
SEEDS = (0, 1, 2)
FLUXES = lightcurves.TUNED_PRETRAIN


def _stays(hide: str, target: float) -> Recipe:
    recipe = BY_NAME[f"physionet/{hide}-tuned"]
    return replace(
        _with(
            recipe,
            f"physionet-{hide}",
            LikelyStays,
            WEIGHED,
            seeds=SEEDS,
            target=Target(value=target, of_baselines=(("best", 1.0),)),
            quick=(*recipe.quick, "data.n_processes=2"),
        ),
        model=replace(recipe.model, kinds=len(VARIABLES), kinds_spread=1.0),
        protocol=f"{recipe.protocol}; an embedding of its own for each variable, a mixture of eight normals",
    )


GRID = Recipe(
    name="uncertainty/physionet-grid",
    title="PhysioNet 2012, a tenth of an hourly grid hidden: distributions",
    paper="beyond the paper",
    protocol="imputation as in PyPOTS: set a, 35 variables, means of hours, 64/16/20 by record, 10 % of the observed "
    "cells hidden in all three parts, z-scores; an embedding of its own for each variable, a mixture of eight normals",
    data=LikelyGrid(),
    model=ModelConfig(channels=1, position_dims=2, kinds=len(physionet_grid.VARIABLES), kinds_spread=1.0),
    ladder="data",
    stages=(
        Pretrain(
            masking=UniformTokens(ratio=0.2), train=replace(TRAIN, epochs=120), drop_tokens=0.2, likelihood=WEIGHED
        ),
    ),
    metric="crps",
    seeds=SEEDS,
    target=Target(of_baselines=(("best", 1.0),)),
    quick=(
        *(setting for setting in QUICK if not setting.startswith("data.")),
        "data.n_records=60",
        "data.n_processes=2",
    ),
    data_set="physionet2012",
    limits=LIMITS,
)
MINUTES = replace(
    GRID,
    name="uncertainty/physionet-minutes",
    title="PhysioNet 2012, a tenth of an hourly grid hidden, true minutes: distributions",
    protocol="records, splits, z-scores and hidden cells as in PyPOTS; what is seen stands at its own minute, and a "
    "hidden cell is one token at the middle of its hour; an embedding of its own for each variable, a mixture of eight "
    "normals",
    data=LikelyMinutes(),
    # Ten passes over twelve draws of each record are the 120 passes of the grid.
    stages=tuple(replace(stage, train=replace(stage.train, epochs=10)) for stage in GRID.stages),
    remark="not run yet; peers see means of hours, and this row sees more",
    quick=(*GRID.quick, "data.n_draws=2"),
)
RECIPES = (
    _stays("tokens", 0.180),
    _stays("rows", 0.235),
    GRID,
    MINUTES,
    _with(
        BY_NAME["synthetic/romae-tuned"],
        "synthetic",
        LikelySeries,
        Normal(),
        target=Target(of_floor=1.02),
        remark="the posterior is normal, and so is the likelihood",
        quick=(*BY_NAME["synthetic/romae-tuned"].quick, "data.n_validation=24"),
    ),
    replace(
        _with(
            BY_NAME["lightcurves/plasticc-pretrain"],
            "plasticc",
            LikelyFluxes,
            MIXTURE,
            seeds=SEEDS,
            target=Target(of_baselines=(("best", 1.0),)),
            remark="known errors of fluxes are input and part of the variance",
        ),
        model=replace(BY_NAME["lightcurves/plasticc-pretrain"].model, errors=1),
        stages=(replace(FLUXES, likelihood=MIXTURE, train=replace(FLUXES.train, epochs=200)),),
        protocol="half of the points of a test object hidden, CRPS of the scaled flux, errors read and never predicted",
    ),
    _with(
        BY_NAME["pendulum/tuned"],
        "pendulum",
        LikelyPendulum,
        MIXTURE,
        seeds=SEEDS,
        target=Target(of_baselines=(("best", 1.0),)),
        remark="",
    ),
)

"""Variable stars of ASAS: their classes, their periods, and what is hidden of their light curves.

A token is (magnitude, its error), its position (days since the star's first point, phase): the phase is the time in
periods, which the periodogram of the star's visible points gives (`romae.add_phase`), 0 without a significant period.
With `data.phase=false` there is none. `data.features` adds static facts of a star as tokens: none, those of its
periodogram ("period": the logarithms of the period and of the runner-up, and the power), or all features that boosted
trees are given ("summary"). 13 909 stars of ten classes; a seed is a fold of five with equal shares of the classes
(seeds 5 to 9 are another division), and nothing is learned from its test stars, in pre-training either.

    romae run asas/classes-20 --seeds 0-4            6 960 steps of pre-training, 1 800 of fine-tuning
    romae run asas/classes-100 --seeds 0-4           6 960 and 2 800
    romae run asas/classes --seeds 0-4               6 960 and 4 710
    romae run asas/classes-20-scratch --seeds 0-4    fine-tuning alone; likewise classes-100-scratch, classes-scratch
    romae run asas/log-period --seeds 0-4            3 480 and 5 220
    romae run asas/log-period-unaided --seeds 0-4    6 960 and 4 640
    romae run asas/hidden-points --seeds 0-4         9 280
    romae run asas/hidden-points-time --seeds 0-4    9 280

No row has been run in full yet, and times are reckoned: on the H200, where a step of 45 000 tokens takes some 25 ms,
three to six minutes a seed with what stands beside it, half a minute to two from scratch; on the two cores of a CPU a
day or more. Periods are looked for before, a quarter of an hour of a core for each of three shares of the points;
`python -m romae.experiments.datasets.asas` does it once and keeps them. Pre-training is the same in the three rows of a
fold: with --out, the folder `0-pretrain` of one may be copied to where another has its own, and --resume goes on there.

Expected, as targets: macro F1 above boosting and a random forest on the same stars and labels, with 20 labels of each
class 0.05 more than from scratch. They are given quantiles, skewness and such, and the same periods as the model. Macro
F1 is over all ten classes; β Cephei has seven stars, one or two in a fold, whose F1 is a matter of luck: numbers with
`_common` leave out classes of fewer than 50 stars. The literature has an accuracy of 0.979 for five classes (Naul et
al. 2018, with given periods), which is other stars. With all labels, a tenth of them is for validation, where the best
weights are chosen, and by what share the logarithm of the frequency of classes is taken off.

`asas/log-period` asks for the logarithm (base 10) of the period that Lomb and Scargle find in all points, from 0.1 to
500 days, as `romae compare` does. Whoever is given that period knows the answer, so that models and trees see a random
half of the points, and what the periodogram of that half says. In `asas/log-period-unaided` all have all points and
nobody has a period; that is the question of `romae compare`. Targets are an R² above boosting; beside it stands the
median absolute error.

`asas/hidden-points` hides 30 % of the points of each star, the same in every fold; values are relative to mean and
spread of what is visible, and the number is the rmse in magnitudes over all hidden points. The few stars that vary by
magnitudes decide it, so that the median over stars stands beside it (`median_rmse`). Periods come from visible points
alone; those of training stars from as large a share of theirs, so that as many are wrong. Beside it: the mean, lines, a
sum of sinusoids of the period, as many as the BIC takes, and, on some stars (`_of_some`), a Gaussian process with a
periodic kernel. Target: better than all of them and than the time alone, 0.95 of it. On another survey (483 RR Lyrae in
five bands) the same gave .300 for the mean, .060 for the process, .046 with time and .037 with time and phase.

Wavelengths of the time axis go from 12.7 to 17 000 days, as `fit_ladders` has them for all stars. They are one ladder
for all heads and layers; `--set data.ladder.shortest=0.2` begins below most periods. Ladders that differ by head, which
another group reports to help periods, the model does not have.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float64, Int64
from joblib import Parallel, delayed

from romae.data.scaling import fit_scaling
from romae.data.schema import SampleSet
from romae.experiments import baselines
from romae.experiments.datasets import asas
from romae.experiments.folds import first_of_each, fold_of
from romae.experiments.periodic_baselines import Seen, harmonics, periodic_process
from romae.experiments.recipe import Measured, Recipe, Splits, Target
from romae.experiments.recipes.lightcurves import adjusted, best_strength, class_figures
from romae.experiments.variable_stars import FACTS, N_FOLDS, OF_SHAPE, Stars, StarSource, relative, seen_points
from romae.inference.predictions import predict, predict_proba
from romae.model.config import ModelConfig
from romae.model.likelihoods import Normal
from romae.model.tasks import Task
from romae.pages.charts import agreement, paired, reconstruction
from romae.pages.plots import Panel
from romae.tokens.masking import UniformTokens
from romae.tokens.sample import Sample
from romae.training.config import TrainConfig
from romae.training.rules import held_out
from romae.training.stages import Classify, Pretrain, Regress

SHORT = 400  # points of a star, for processes, whose time grows with the cube
RIGHT = 0.01  # of a period: how far off one may be that counts as found
MANY = 8  # stars, whose fits are worth the start of processes
N_DRAWN = 500  # stars in a figure
SHOWN = ("RR Lyrae, Fundamental Mode", "Detached", "Mira")


# Classes


@dataclass(frozen=True, slots=True, kw_only=True)
class Classes(StarSource):
    """Stars to classify. `validation` is a share of the training stars.

    With `labels_per_class` only so many stars of each class are classified in training, drawn by the seed. Pre-training
    is on all training stars, unless `uses_unlabelled` is off.
    """

    validation: float = 0.0
    labels_per_class: int | None = None
    uses_unlabelled: bool = True

    def splits(self, seed: int) -> Splits:
        if (n := self.labels_per_class) is not None and n < 1:
            raise ValueError(f"data.labels_per_class must be at least 1, or none for all, not {n}")
        if n is not None and self.validation > 0:
            raise ValueError("with few labels none is kept for validation: data.validation=0")
        stars = self.stars()
        schema = replace(asas.SCHEMA, classes=stars.names)
        inputs = self.inputs(stars, [relative(sample) for sample in stars.samples], schema)
        fold, test = (
            SampleSet(part, inputs.schema) for part in fold_of(list(inputs), N_FOLDS, seed % N_FOLDS, seed // N_FOLDS)
        )
        labels, random = baselines.classes(fold), np.random.default_rng(seed)
        train, validation = fold, None
        if n is not None:
            order = random.permutation(len(fold)).tolist()
            train = SampleSet(first_of_each([fold[i] for i in order], n), inputs.schema)
        elif self.validation > 0:
            is_kept = held_out(labels, self.validation, random)
            train, validation = (
                SampleSet([fold[i] for i in np.flatnonzero(chosen).tolist()], inputs.schema)
                for chosen in (~is_kept, is_kept)
            )
        return Splits(
            train=train,
            validation=validation,
            test=test,
            unlabelled=fold if self.uses_unlabelled else None,
            # The mean is taken off already: a scaling by sample would leave a quarter of it, which tells no class.
            scaling=fit_scaling(fold, values="robust-asinh", origin="first"),
            schema=inputs.schema,
            seed=seed,
        )

    def measure(self, task: Task, splits: Splits) -> Measured:
        from sklearn.metrics import confusion_matrix

        stars, truth = self.stars(), baselines.classes(splits.test)
        is_common = stars.counts >= self.rare
        counts = np.bincount(baselines.classes(splits.train), minlength=len(stars.names))
        labelled = [*splits.train, *(splits.validation or ())]
        of_network = predict_proba(task, splits.test)
        chances = {name: _chances(fit, stars, labelled, splits.test, splits.seed) for name, fit in CLASSIFIERS.items()}
        answers = {"RoMAE": of_network.argmax(1)} | {name: scores.argmax(1) for name, scores in chances.items()}
        numbers = {}
        if splits.validation:  # all are judged with classes adjusted by a share that is chosen on these
            numbers["macro_f1_unadjusted"] = _scores(truth, answers["RoMAE"], is_common)["macro_f1"]
            of_validation = {"RoMAE": predict_proba(task, splits.validation)} | {
                name: _chances(fit, stars, splits.train, splits.validation, splits.seed)
                for name, fit in CLASSIFIERS.items()
            }
            for name, scores in {"RoMAE": of_network, **chances}.items():
                strength, reached = best_strength(of_validation[name], counts, splits.validation)
                answers[name] = adjusted(scores, counts, strength)
                if name == "RoMAE":
                    numbers |= {"adjustment": strength, "validation_macro_f1": reached}
        scored = {name: _scores(truth, told, is_common) for name, told in answers.items()}
        beside = {
            f"{metric}_{name.replace(' ', '_')}": value
            for name in CLASSIFIERS
            for metric, value in scored[name].items()
            if metric != "macro_f1"
        }
        constant = _scores(truth, np.full_like(truth, counts.argmax()), is_common)
        return Measured(
            metrics=scored["RoMAE"] | numbers | beside,
            baselines={name: scored[name]["macro_f1"] for name in CLASSIFIERS} | {"constant": constant["macro_f1"]},
            figure={
                "classes": list(stars.names),
                "confusion": confusion_matrix(truth, answers["RoMAE"], labels=np.arange(len(counts))),
                "confusion_boosting": confusion_matrix(
                    truth, answers["gradient boosting"], labels=np.arange(len(counts))
                ),
            },
        )

    def draw(self, figures: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        return class_figures(figures)


def _scores(
    truth: Int64[np.ndarray, "b"], predicted: Int64[np.ndarray, "b"], is_common: Bool[np.ndarray, "k"]
) -> dict[str, float]:
    """Macro F1 and accuracy, and the same of the stars of common classes."""
    from sklearn.metrics import accuracy_score, f1_score

    scores = {
        "macro_f1": float(f1_score(truth, predicted, average="macro")),
        "accuracy": float(accuracy_score(truth, predicted)),
    }
    here = is_common[truth]
    if not here.any():
        return scores
    labels = np.unique(truth[here])
    return scores | {
        "macro_f1_common": float(f1_score(truth[here], predicted[here], labels=labels, average="macro")),
        "accuracy_common": float(accuracy_score(truth[here], predicted[here])),
    }


def _random_forest(seed: int) -> Any:
    from sklearn.ensemble import RandomForestClassifier

    return RandomForestClassifier(500, class_weight="balanced", random_state=seed, n_jobs=-1)


CLASSIFIERS: dict[str, Callable[[int], Any]] = {
    "gradient boosting": baselines.gradient_boosting,
    "random forest": _random_forest,
}


def _chances(
    model: Callable[[int], Any], stars: Stars, train: Sequence[Sample], test: Sequence[Sample], seed: int
) -> Float64[np.ndarray, "b k"]:
    """The chances of each class by a model of all features; a class of which there is no star has none."""
    fitted = model(seed).fit(stars.rows(train, FACTS["summary"]), baselines.classes(train))
    chances = np.zeros((len(test), len(stars.names)))
    chances[:, fitted.classes_] = fitted.predict_proba(stars.rows(test, FACTS["summary"]))
    return chances


# Periods


@dataclass(frozen=True, slots=True, kw_only=True)
class Periods(StarSource):
    """The logarithm of the period that all points of a star have, from a share of them; stars of common classes.

    Without phase and features nobody is given a period.
    """

    share: float = 0.5
    features: Literal["none", "period", "summary"] = "period"

    def splits(self, seed: int) -> Splits:
        stars, whole = self.stars(), self.stars(1.0)
        chosen = [
            sample
            for sample in stars.samples
            if stars.counts[int(sample.target)] >= self.rare and np.isfinite(whole.highest[sample.id])
        ]
        if not chosen:
            raise ValueError(f"no star with a period is of a class of {self.rare} stars or more; set data.rare")
        fold, test = (
            self.inputs(stars, [relative(_with_period(sample, whole)) for sample in part], asas.SCHEMA)
            for part in fold_of(chosen, N_FOLDS, seed % N_FOLDS, seed // N_FOLDS)
        )
        scaling = fit_scaling(fold, values="robust-asinh", origin="first", target=True)
        return Splits(train=fold, test=test, scaling=scaling, schema=fold.schema, seed=seed)

    def measure(self, task: Task, splits: Splits) -> Measured:
        from sklearn.ensemble import HistGradientBoostingRegressor

        stars, (learned, truth) = self.stars(), (_targets(part) for part in (splits.train, splits.test))
        answers = {
            "RoMAE": np.asarray(predict(task, splits.test), dtype=np.float64).reshape(-1),
            "constant": np.full(len(truth), learned.mean()),
        }
        is_aided = self.phase or self.features != "none"
        tables = {"gradient boosting": FACTS["summary"]} if is_aided else {}
        for name, columns in {**tables, "gradient boosting without periods": OF_SHAPE}.items():
            trees = HistGradientBoostingRegressor(learning_rate=0.05, max_iter=200, random_state=splits.seed)
            rows = stars.rows(splits.train, columns)
            is_measured = ~np.isnan(rows).all(axis=0)
            trees.fit(rows[:, is_measured], learned)
            answers[name] = trees.predict(stars.rows(splits.test, columns)[:, is_measured])
        if self.share < 1:
            found = np.log10(stars.highest[[sample.id for sample in splits.test]].to_numpy())
            answers["Lomb-Scargle"] = np.where(np.isnan(found), learned.mean(), found)
        scored = {name: _scores_of_periods(truth, told) for name, told in answers.items()}
        beside = {
            f"{metric}_{name.replace(' ', '_').lower()}": value
            for name in answers
            if name not in ("RoMAE", "constant")
            for metric, value in scored[name].items()
            if metric != "r2"
        }
        some = np.arange(len(truth))[:N_DRAWN]
        return Measured(
            metrics=scored["RoMAE"] | beside,
            baselines={name: scored[name]["r2"] for name in answers if name != "RoMAE"},
            figure={
                "ids": [str(splits.test[i].id) for i in some.tolist()],
                "truth": truth[some],
                "predicted": answers["RoMAE"][some],
            },
        )

    def draw(self, figures: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        truth, predicted = (
            np.concatenate([np.array(figure[name], dtype=float) for figure in figures])
            for name in ("truth", "predicted")
        )
        ids = [name for figure in figures for name in figure["ids"]]
        return {
            f"Periods of up to {N_DRAWN} test stars, {len(figures)} seeds": agreement(
                truth, predicted, ids, "log10 of the period in days"
            )
        }


def _with_period(sample: Sample, stars: Stars) -> Sample:
    return replace(sample, target=torch.tensor([np.log10(stars.highest[sample.id])], dtype=torch.float32))


def _targets(samples: Sequence[Sample]) -> Float64[np.ndarray, "b"]:
    return np.array([float(sample.target) for sample in samples if sample.target is not None])


def _scores_of_periods(truth: Float64[np.ndarray, "b"], told: Float64[np.ndarray, "b"]) -> dict[str, float]:
    from sklearn.metrics import r2_score

    off = np.abs(told - truth)
    return {
        "r2": float(r2_score(truth, told)),
        "median_error": float(np.median(off)),
        "share_right": float((off < np.log10(1 + RIGHT)).mean()),
    }


# Points


@dataclass(frozen=True, slots=True, kw_only=True)
class HiddenPoints(StarSource):
    """Stars with a share of their points hidden in the test, in magnitudes, to be predicted from the others.

    A Gaussian process is fitted to `n_processes` test stars of no more than 400 points.
    """

    share: float = 0.7
    n_processes: int = 40

    def splits(self, seed: int) -> Splits:
        stars = self.stars()
        schema = replace(asas.SCHEMA, classes=stars.names)
        inputs = self.inputs(stars, stars.samples, schema)
        fold, test = fold_of(list(inputs), N_FOLDS, seed % N_FOLDS, seed // N_FOLDS)
        # Masks of training are drawn anew at each step; phases stay those of as many points as a test star shows.
        train = SampleSet([replace(sample, hidden=None) for sample in fold], inputs.schema)
        scaling = fit_scaling(train, center="instance", origin="first")
        return Splits(
            train=train, test=SampleSet(test, inputs.schema), scaling=scaling, schema=inputs.schema, seed=seed
        )

    def measure(self, task: Task, splits: Splits) -> Measured:
        stars, test = self.stars(), splits.test
        truth = [baselines.truth(sample)[:, 0] for sample in test]
        answers = {"RoMAE": [np.asarray(part, dtype=np.float64)[:, 0] for part in predict(task, test)]}
        answers |= {name: [_answer(method, sample, stars) for sample in test] for name, method in METHODS.items()}
        off = {name: [told - x for told, x in zip(parts, truth, strict=True)] for name, parts in answers.items()}
        numbers = {"rmse": _rmse(off["RoMAE"]), "median_rmse": _median_rmse(off["RoMAE"])}
        numbers |= {f"median_rmse_{name}": _median_rmse(off[name]) for name in METHODS}
        numbers["share_with_period"] = float(stars.periods[[sample.id for sample in test]].notna().mean())
        short = [i for i, sample in enumerate(test) if len(sample) <= SHORT]
        some = (
            [short[i] for i in np.linspace(0, len(short), self.n_processes, endpoint=False, dtype=int)] if short else []
        )
        if some:
            off_of_some = {name: [parts[i] for i in some] for name, parts in off.items()}
            # Matrices of some hundred rows are slower with threads, of which a process of joblib has one.
            fits = Parallel(n_jobs=-1 if len(some) >= MANY else 1)(
                delayed(periodic_process)(*_question(test[i], stars)) for i in some
            )
            off_of_some["process"] = [told - truth[i] for i, told in zip(some, fits, strict=True)]
            for name, parts in off_of_some.items():
                end = "of_some" if name == "RoMAE" else f"{name}_of_some"
                numbers |= {f"rmse_{end}": _rmse(parts), f"median_rmse_{end}": _median_rmse(parts)}
        labels = baselines.classes(test)
        here = np.unique(labels)
        by_class = {
            name: [_rmse([off[name][i] for i in np.flatnonzero(labels == label)]) for label in here] for name in off
        }
        figure = {"classes": [stars.names[label] for label in here], "by_class": by_class}
        return Measured(
            metrics=numbers,
            baselines={name: _rmse(off[name]) for name in METHODS},
            figure=figure | ({} if splits.seed else {"stars": _folded(test, answers["RoMAE"], stars)}),
        )

    def draw(self, figures: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        # Of small files a fold may lack a class.
        names = [name for name in figures[0]["classes"] if all(name in figure["classes"] for figure in figures)]
        by_class = {
            method: np.mean(
                [[figure["by_class"][method][figure["classes"].index(name)] for name in names] for figure in figures],
                axis=0,
            )
            for method in figures[0]["by_class"]
        }
        drawn: dict[str, Any] = {
            f"Error at hidden points by class, {len(figures)} seeds": paired(names, by_class, x="rmse, magnitudes")
        }
        for figure in figures:
            if panels := [_panel(stored) for stored in figure.get("stars", ())]:
                drawn["Stars over their phase, with 30 % of their points hidden"] = reconstruction(panels, x="phase")
        return drawn


def _mean(seen: Seen, period: float, queries: Float64[np.ndarray, "q"]) -> Float64[np.ndarray, "q"]:
    return np.full(len(queries), seen.values.mean())


def _lines(seen: Seen, period: float, queries: Float64[np.ndarray, "q"]) -> Float64[np.ndarray, "q"]:
    return baselines.linear(seen.times, seen.values[:, None], queries)[:, 0]


METHODS: dict[str, Callable[[Seen, float, np.ndarray], np.ndarray]] = {
    "mean": _mean,
    "linear": _lines,
    "harmonics": harmonics,
}


def _answer(method: Callable[..., np.ndarray], sample: Sample, stars: Stars) -> Float64[np.ndarray, "q"]:
    """What a method says of the hidden points of a star, from its visible ones and their period."""
    return method(*_question(sample, stars))


def _question(sample: Sample, stars: Stars) -> tuple[Seen, float, Float64[np.ndarray, "q"]]:
    queries = sample.positions[sample.hidden, 0].double().numpy()
    return seen_points(sample), float(stars.periods[sample.id]), queries


def _rmse(off: Sequence[np.ndarray]) -> float:
    return float(np.sqrt(np.mean(np.concatenate(off) ** 2)))


def _median_rmse(off: Sequence[np.ndarray]) -> float:
    """The median over stars."""
    return float(np.median([np.sqrt(np.mean(part**2)) for part in off]))


def _folded(test: Sequence[Sample], answers: Sequence[np.ndarray], stars: Stars) -> list[dict[str, Any]]:
    """The first test star of each class that is shown, over its phase; of other classes where those are missing."""
    periods = stars.periods[[sample.id for sample in test]].to_numpy()
    names = [stars.names[int(sample.target)] for sample in test]
    has_period = np.flatnonzero(periods > 0).tolist()
    first = {names[i]: i for i in reversed(has_period)}
    chosen = [first[name] for name in SHOWN if name in first] or has_period[: len(SHOWN)]
    stored = []
    for i in chosen:
        seen, hidden = seen_points(test[i]), test[i].hidden
        phase = (test[i].positions[hidden, 0].double().numpy() / periods[i]) % 1
        stored.append(
            {
                "title": f"{names[i]}, {periods[i]:.4g} days",
                "observed": [(seen.times / periods[i]) % 1, seen.values],
                "hidden": [phase, baselines.truth(test[i])[:, 0]],
                "predicted": [phase, answers[i]],
            }
        )
    return stored


def _panel(stored: Mapping[str, Any]) -> Panel:
    observed, hidden, predicted = (np.array(stored[name], dtype=float) for name in ("observed", "hidden", "predicted"))
    return Panel(stored["title"], tuple(observed), tuple(hidden), predicted=tuple(predicted), inverted=True)


# The rows

PRETRAIN = Pretrain(
    masking=UniformTokens(ratio=0.5),
    likelihood=Normal(),  # errors are part of its variance, and stars that vary little count as much as others
    train=TrainConfig(epochs=60, batch_size=96, lr=1e-3, ema=0.998, precision="bf16"),
    weights="last",
)
FINETUNE = TrainConfig(
    epochs=30, batch_size=64, lr=3e-4, betas=(0.9, 0.999), ema=0.998, precision="bf16", validate_every=150
)
CLASSIFY = Classify(
    n_classes=asas.N_CLASSES,
    confidence=0.9,
    dropout=0.1,
    stochastic_depth=0.1,
    drop_tokens=0.8,
    train=FINETUNE,
)
# Dropout on attention scores would keep the fast kernels away; times are from each star's first point, without CLS.
MODEL = ModelConfig(channels=2, position_dims=1, errors=1, cls=False, attention_dropout=0.0, kinds_spread=1.0)
QUICK = (
    "model.encoder={width=48, heads=2, depth=2}",
    "model.decoder={width=48, heads=2, depth=1}",
    "data.most_per_class=5",  # 50 stars, whose periods need no processes
    "data.shortest=1.0",
    "train.epochs=4",
    "train.batch_size=8",
    "train.lr=4e-3",
    "train.warmup=0.1",
    "train.ema=none",
    "train.precision=float32",
    "train.validate_every=none",
)
LIMITS = (
    "It has seen stars of one survey, in one band, that were taken for variable and classified from these very data; "
    "other bands, cadences and depths it was not judged on."
)


def _row(name: str, **settings: Any) -> Recipe:
    data: StarSource = settings.pop("data")
    return Recipe(
        name=f"asas/{name}",
        paper="beyond the paper",
        data=data,
        model=data.shaped(MODEL),
        data_set="asas",
        **{"limits": LIMITS, "quick": QUICK} | settings,
    )


def _of_classes(labels: int | None, classify: Classify) -> tuple[Recipe, Recipe]:
    """The row of so many labels of each class, and that from scratch."""
    name = "classes" if labels is None else f"classes-{labels}"
    words = "all labels" if labels is None else f"{labels} labels of each class"
    drawn = "a tenth of them for validation" if labels is None else "drawn by the seed, no validation"
    data = Classes(features="period", labels_per_class=labels, validation=0.1 if labels is None else 0.0)
    few = (*QUICK, "data.labels_per_class=3") if labels else QUICK
    row = _row(
        name,
        title=f"ASAS, {words}",
        protocol=f"5 folds, macro F1 of ten classes; {words}, {drawn}; time, phase and facts of the periodogram; "
        "pre-trained on all training stars of the fold",
        data=data,
        stages=(PRETRAIN, classify),
        metric="macro_f1",
        better="higher",
        target=Target(of_baselines=(("best", 1.0),), beyond=((f"asas/{name}-scratch", 0.05 if labels == 20 else 0.0),)),
        remark="not run yet",
        quick=few,
        limits=f"{LIMITS} It knows ten classes and no other; its probabilities were not calibrated.",
    )
    scratch = replace(
        row,
        name=f"asas/{name}-scratch",
        title=f"ASAS, {words}, from scratch",
        protocol=f"as the row with {words}, without pre-training",
        data=replace(data, uses_unlabelled=False),
        stages=(classify,),
        target=None,
    )
    return row, scratch


def _few(epochs: int) -> Classify:
    train = replace(FINETUNE, epochs=epochs, batch_size=32, validate_every=None)
    return replace(CLASSIFY, train=train, weights="last")


REGRESS = Regress(
    dropout=0.1,
    stochastic_depth=0.1,
    drop_tokens=0.5,
    train=replace(FINETUNE, epochs=60, batch_size=128, validate_every=None),
    weights="last",
)
LOG_PERIOD = _row(
    "log-period",
    title="ASAS, log period from half of the points",
    protocol="5 folds, R² of log10 of the period that Lomb and Scargle find in all points; a random half of the points "
    "and what its periodogram says are given, to boosting as well",
    data=Periods(),
    stages=(replace(PRETRAIN, train=replace(PRETRAIN.train, batch_size=192)), REGRESS),
    metric="r2",
    better="higher",
    target=Target(of_baselines=(("best", 1.0),)),
    remark="not run yet",
)
ALL_POINTS = Periods(share=1.0, phase=False, features="none")
UNAIDED = replace(
    LOG_PERIOD,
    name="asas/log-period-unaided",
    title="ASAS, log period, none given",
    protocol="5 folds, R² of log10 of the period that Lomb and Scargle find in all points; all points are given, and "
    "no period, to nobody; the question of `romae compare`",
    data=ALL_POINTS,
    model=ALL_POINTS.shaped(MODEL),
    stages=(PRETRAIN, replace(REGRESS, train=replace(REGRESS.train, epochs=40, batch_size=96))),
)
POINTS = _row(
    "hidden-points",
    title="ASAS, hidden points",
    protocol="5 folds, 30 % of the points of a star hidden, rmse in magnitudes; time and phase, periods from visible "
    "points alone; values relative to mean and spread of the visible points",
    data=HiddenPoints(),
    stages=(replace(PRETRAIN, masking=UniformTokens(ratio=0.3), train=replace(PRETRAIN.train, epochs=80)),),
    metric="rmse",
    trivial="mean",
    target=Target(of_baselines=(("best", 1.0),), beyond=(("asas/hidden-points-time", 0.0),)),
    remark="not run yet",
    quick=(*QUICK, "data.n_processes=0", "train.epochs=10"),
)
TIME_ALONE = HiddenPoints(phase=False)
POINTS_TIME = replace(
    POINTS,
    name="asas/hidden-points-time",
    title="ASAS, hidden points, time alone",
    protocol="as the row of hidden points, without the phase",
    data=TIME_ALONE,
    model=TIME_ALONE.shaped(MODEL),
    target=None,
)
RECIPES = (
    *_of_classes(20, _few(300)),
    *_of_classes(100, _few(100)),
    *_of_classes(None, CLASSIFY),
    LOG_PERIOD,
    UNAIDED,
    POINTS,
    POINTS_TIME,
)

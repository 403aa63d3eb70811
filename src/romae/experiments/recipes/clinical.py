"""Who dies and who gets sepsis: P12 and P19 on the five splits that all published tables share.

A token is one measurement at (hours, variable). Beside them stand facts of the stay (age, sex, unit, …), which are
never hidden, and summary statistics (minimum, maximum, mean, last, first, count, mean of the last 12 hours of the
variable), each of them brought to a normal distribution by its rank among the training stays, a token of a kind of its
own at time 0, hidden and predicted in pre-training like any other (`data.summary=false` leaves them out). Seed k is
split k; seeds 6 to 10 are the same splits with other first weights, and so on, of which
`python -m romae.experiments.clinical_ensembles` makes ensembles. Pre-training is on the training stays,
and the validation stays choose the weights of both stages.

    romae run clinical/p12 --seeds 1-5    3 600 steps of pre-training and 2 400 of fine-tuning a seed
    romae run clinical/p19 --seeds 1-5    11 664 and 7 776; reading takes a core a minute

No row has been run in full yet: they are for a GPU such as an H200, and too many steps for a CPU. A batch is 64 stays:
some 37 600 tokens of P12, 25 500 of P19. Expected, as targets: AUROC 0.888 and AUPRC 0.60 on P12, 0.894 and 0.57 on
P19, and above boosting on every split. A trial of a design like it (six statistics, five splits, one seed) had 0.880
and 0.580 on P12. Best published: ISTS-PLM with 0.876 ± 0.014 and 0.576 ± 0.033 on P12, 0.894 ± 0.022 and 0.569 ± 0.050
on P19.

Beside it: boosting and logistic regression on the same statistics and facts, which nobody prints. As baselines they
learn from training and validation stays, as people would use them; `…_train` are those of the training stays alone.
`…_with_boosting` is the sum of the ranks of the model and of boosting; `…_stacked` the weighted sum of their logits, of
which the validation stays choose the weight (`weight_of_boosting`).

P19 is answered to a large part by how long a stay is. One with sepsis ends where its label begins, so that its length
alone has an AUROC of 0.741 (`length`). No stay without sepsis has fewer than 8 rows, and all 402 shorter ones have it:
in a trial of the baselines alone, trees that know nothing but the length have 0.785 and an AUPRC of 0.487 on the first
split (`boosting on length`), and with the statistics 0.930 and 0.676, above all that is published. Counts and times
tell every model the length, so it is a token as well; `…_of_long` are the numbers of the stays of 8 rows and more.

The files are read from ROMAE_DATA: raindrop/p12.npz and p19.npz, physionet2012/ (sets a, b, c) and physionet2019/.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from jaxtyping import Float64, Int64

from romae.data.scaling import fit_scaling
from romae.data.schema import SampleSet, Schema
from romae.data.static import with_static
from romae.experiments import baselines
from romae.experiments.datasets import raindrop
from romae.experiments.datasets.files import data_root
from romae.experiments.datasets.raindrop import Cohort, Name
from romae.experiments.recipe import Measured, Recipe, Source, Splits, Target
from romae.experiments.recipes import physionet
from romae.experiments.stays import LIMITS, MASKING, alarm_figure, ranks, recall_by_alarms
from romae.experiments.summary_tokens import (
    NormalScores,
    Numbers,
    statistics,
    summary_names,
    with_tokens,
    without_counts_of_nothing,
)
from romae.inference.predictions import predict_proba
from romae.model.config import ModelConfig
from romae.model.tasks import Task
from romae.tokens.sample import Sample
from romae.training.stages import Pretrain

HOURS = "hours"  # how many rows a stay of P19 has, a channel behind the series
SHORTEST = 8  # rows of a stay of P19 without sepsis; every shorter one has sepsis
WEIGHTS = np.linspace(0, 1, 21)  # of boosting, in its sum with the model


@dataclass(frozen=True, slots=True, kw_only=True)
class OfficialSplits(Source):
    """Stays of P12 or P19 and their labels. `summary` adds summary statistics as tokens.

    To choose settings without a look at the test, `tested_on="validation"` puts the validation stays in its place.
    `n_records` takes so many stays in all, of each part and each class its share.
    """

    cohort: Name = "p12"
    tested_on: Literal["test", "validation"] = "test"
    summary: bool = True
    n_records: int | None = None

    def shaped(self, model: ModelConfig) -> ModelConfig:
        """The model with a kind for each channel, each statistic and each fact."""
        n = len(self._channels())
        kinds = n + len(raindrop.FACTS[self.cohort])
        return replace(model, kinds=kinds, static_from=n, pool="tokens" if model.cls else "kinds")

    def splits(self, seed: int) -> Splits:
        if self.n_records is not None and self.n_records < 1:
            raise ValueError(f"data.n_records must be at least 1, or none for all stays, not {self.n_records}")
        cohort, table = _read(self.cohort, data_root())
        split = raindrop.split_of(seed)
        share = min((self.n_records or len(cohort)) / len(cohort), 1.0)
        chosen = {
            part: _some(cohort.parts[part, split], cohort.labels, share) for part in ("train", "validation", "test")
        }
        together = np.concatenate(list(chosen.values()))
        samples = [_bare(cohort, i) for i in together.tolist()]
        facts = cohort.facts.iloc[together].reset_index(drop=True)
        n_train = len(chosen["train"])
        numeric = facts.select_dtypes("number").columns
        of_facts = facts[numeric].to_numpy(np.float64)
        facts[numeric] = NormalScores.of(of_facts[:n_train])(of_facts)
        if self.summary:
            rows = without_counts_of_nothing(table[together])
            samples = with_tokens(samples, NormalScores.of(rows[:n_train])(rows), len(_measured(self.cohort)))
        schema = Schema(
            id="record",
            time="hours",
            channel="variable",
            channels=self._channels(),
            label="outcome",
            classes=("survived", "died") if self.cohort == "p12" else ("no sepsis", "sepsis"),
        )
        whole = with_static(SampleSet(samples, schema), facts, raindrop.FACTS[self.cohort])
        ends = np.cumsum([len(part) for part in chosen.values()])
        train, validation, test = (
            SampleSet(whole[start:end], whole.schema) for start, end in zip([0, *ends[:-1]], ends, strict=True)
        )
        return Splits(
            train=train,
            validation=validation,
            test=test if self.tested_on == "test" else validation,
            scaling=fit_scaling(train),
            schema=whole.schema,
            seed=seed,
        )

    def measure(self, task: Task, splits: Splits) -> Measured:
        cohort, table = _read(self.cohort, data_root())
        place = {name: i for i, name in enumerate(cohort.ids)}
        features = _features(cohort, table)

        def rows(samples: Sequence[Sample]) -> Int64[np.ndarray, "k"]:
            return np.array([place[str(sample.id)] for sample in samples], dtype=np.int64)

        validation = splits.validation if self.tested_on == "test" and splits.validation else []
        learned, held_out, asked = rows(splits.train), rows(validation), rows(splits.test)
        truth = cohort.labels[asked]
        of_train = {name: fit(splits.seed) for name, fit in MODELS.items()}
        for model in of_train.values():
            model.fit(features[learned], cohort.labels[learned])
        labelled = np.concatenate([learned, held_out])
        scores = {name: model.predict_proba(features[asked])[:, 1] for name, model in of_train.items()}
        numbers = _areas(truth, {f"{name}_train": score for name, score in scores.items()})
        if len(held_out):
            scores = {
                name: fit(splits.seed).fit(features[labelled], cohort.labels[labelled]).predict_proba(features[asked])
                for name, fit in MODELS.items()
            }
            scores = {name: score[:, 1] for name, score in scores.items()}
        if cohort.hours is not None:
            scores["length"] = -cohort.hours[asked].astype(np.float64)
            lengths = cohort.hours[:, None].astype(np.float64)
            trees = baselines.gradient_boosting(splits.seed).fit(lengths[labelled], cohort.labels[labelled])
            scores["boosting on length"] = trees.predict_proba(lengths[asked])[:, 1]
        ours = predict_proba(task, splits.test)[:, 1].astype(np.float64)
        areas = _areas(truth, {**scores, "RoMAE": ours, "with_boosting": ranks(ours) + ranks(scores["boosting"])})
        if len(held_out):
            trees = of_train["boosting"]
            pairs = {
                part: (_logits(chances), _logits(trees.predict_proba(features[where])[:, 1]))
                for part, chances, where in (
                    ("validation", predict_proba(task, validation)[:, 1], held_out),
                    ("test", ours, asked),
                )
            }
            weight = best_weight(*pairs["validation"], cohort.labels[held_out])
            network, boosting = pairs["test"]
            areas |= _areas(truth, {"stacked": (1 - weight) * network + weight * boosting})
            numbers["weight_of_boosting"] = weight
        if cohort.hours is not None:
            long = cohort.hours[asked] >= SHORTEST
            if len(np.unique(truth[long])) == 2:
                of_long = {"of_long": ours[long], "boosting_of_long": scores["boosting"][long]}
                numbers |= _areas(truth[long], of_long)
        metrics = {"auroc": areas.pop("auroc_RoMAE"), "auprc": areas.pop("auprc_RoMAE")}
        beside = {name: areas.pop(f"auroc_{_key(name)}") for name in scores}
        return Measured(
            metrics=metrics | areas | numbers,
            baselines={"constant": 0.5, **beside},
            figure={
                **{name: recall_by_alarms(score, truth) for name, score in {"RoMAE": ours, **scores}.items()},
                # For ensembles of seeds of one split (experiments/clinical_ensembles.py).
                "logits": np.round(_logits(ours), 4),
                "logits_of_boosting": np.round(_logits(scores["boosting"]), 4),
                "labels": truth,
            },
        )

    def draw(self, figures: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        names = [name for name in ("RoMAE", *MODELS, "length") if all(name in figure for figure in figures)]
        what = "Deaths" if self.cohort == "p12" else "Stays with sepsis"
        return alarm_figure(figures, names, what)

    def _channels(self) -> tuple[str, ...]:
        return _measured(self.cohort) + (summary_names(raindrop.SERIES[self.cohort]) if self.summary else ())


MODELS: Mapping[str, Any] = {
    "logistic regression": lambda seed: baselines.logistic_regression(),
    "boosting": baselines.gradient_boosting,
}


@lru_cache(maxsize=1)  # tens of seconds for P19
def _read(name: Name, root: Path) -> tuple[Cohort, Float64[np.ndarray, "r v s"]]:
    """A benchmark and the statistics of its stays."""
    cohort = raindrop.load(name, root=root)
    sample = np.repeat(np.arange(len(cohort)), np.diff(cohort.offsets))
    numbers = Numbers(sample, cohort.times, cohort.variables, cohort.values, len(cohort))
    return cohort, statistics(numbers, len(raindrop.SERIES[name]))


def _measured(name: Name) -> tuple[str, ...]:
    """The channels that are no statistics."""
    return raindrop.SERIES[name] + ((HOURS,) if name == "p19" else ())


def _some(chosen: Int64[np.ndarray, "k"], labels: Int64[np.ndarray, "r"], share: float) -> Int64[np.ndarray, "_"]:
    """The first of these stays, of each class its share and at least one."""
    parts = [chosen[labels[chosen] == label] for label in (0, 1)]
    return np.concatenate([part[: max(round(share * len(part)), 1)] for part in parts])


def _bare(cohort: Cohort, i: int) -> Sample:
    """The measurements of a stay and, of P19, how long it is: some stays have nothing else."""
    here = slice(*cohort.offsets[i : i + 2].tolist())
    positions = np.stack([cohort.times[here], cohort.variables[here].astype(np.float64)], axis=1)
    values = cohort.values[here]
    if cohort.hours is not None:
        positions = np.concatenate([positions, [[0.0, len(raindrop.SERIES["p19"])]]])
        values = np.append(values, cohort.hours[i])
    return Sample(values[:, None].astype(np.float32), positions, target=int(cohort.labels[i]), id=cohort.ids[i])


def _features(cohort: Cohort, table: Float64[np.ndarray, "r v s"]) -> Float64[np.ndarray, "r k"]:
    """What boosting and logistic regression are told: the statistics, the facts and the length."""
    facts = pd.get_dummies(cohort.facts, dtype=float).to_numpy(np.float64)
    length = np.empty((len(cohort), 0)) if cohort.hours is None else cohort.hours[:, None].astype(np.float64)
    return np.concatenate([table.reshape(len(table), -1), facts, length], axis=1)


def _areas(truth: Int64[np.ndarray, "b"], scores: Mapping[str, Float64[np.ndarray, "b"]]) -> dict[str, float]:
    """The areas under both curves of each score."""
    from sklearn.metrics import average_precision_score, roc_auc_score

    areas = {f"auroc_{_key(name)}": float(roc_auc_score(truth, score)) for name, score in scores.items()}
    return areas | {
        f"auprc_{_key(name)}": float(average_precision_score(truth, score)) for name, score in scores.items()
    }


def _key(name: str) -> str:
    return name.replace(" ", "_")


def _logits(chances: Float64[np.ndarray, "b"]) -> Float64[np.ndarray, "b"]:
    clipped = np.clip(np.asarray(chances, dtype=np.float64), 1e-7, 1 - 1e-7)
    return np.log(clipped) - np.log1p(-clipped)


def best_weight(
    first: Float64[np.ndarray, "b"], second: Float64[np.ndarray, "b"], labels: Int64[np.ndarray, "b"]
) -> float:
    """The weight of the second logits in a sum with the highest AUROC and AUPRC together."""
    sums = {f"{weight:g}": (1 - weight) * first + weight * second for weight in WEIGHTS}
    areas = _areas(labels, sums)
    return float(max(WEIGHTS, key=lambda weight: areas[f"auroc_{weight:g}"] + areas[f"auprc_{weight:g}"]))


CLINICAL_LIMITS = {
    "p12": LIMITS,
    "p19": "For research, never for the care of a patient. It has seen stays of two hospitals; stays with sepsis end "
    "where its label begins, so that it learns from how long a stay is, which nobody knows beforehand.",
}


def _row(cohort: Name, title: str, what: str, published: float, target: float, remark: str) -> Recipe:
    data = OfficialSplits(cohort=cohort)
    model = ModelConfig(channels=1, position_dims=2, cls=False, attention_dropout=0.0, kinds_spread=1.0)
    return Recipe(
        name=f"clinical/{cohort}",
        title=title,
        paper="beyond the paper",
        protocol=f"{what}; the five official splits (seed k is split k), 80/10/10, AUROC; an embedding of its own for "
        "each variable, summary statistics and facts as tokens; pre-trained on the training stays",
        data=data,
        ladder="data",
        model=data.shaped(model),
        stages=(
            Pretrain(
                masking=MASKING["tokens"],
                train=replace(physionet.TUNED, epochs=24, batch_size=64),
                drop_tokens=0.2,
            ),
            replace(physionet.CLASSIFY, train=replace(physionet.FINETUNE, epochs=16, batch_size=64)),
        ),
        metric="auroc",
        better="higher",
        seeds=(1, 2, 3, 4, 5),
        published=published,
        target=Target(value=target, of_baselines=(("best", 1.0),)),
        remark=remark,
        quick=(*physionet.QUICK, "stages.0.train.epochs=1", "stages.1.train.epochs=4"),
        data_set=f"raindrop-{cohort}",
        limits=CLINICAL_LIMITS[cohort],
    )


RECIPES = (
    _row(
        "p12",
        "P12, in-hospital death",
        "11 988 stays, 36 series and five facts",
        0.876,
        0.888,
        "not run yet; published: ISTS-PLM 87.6 ± 1.4 | 57.6 ± 3.3, Warpformer 86.6 | 55.5, ViTST 85.1 | 51.1, Raindrop "
        "82.8 | 44.0; the target for AUPRC is 0.60",
    ),
    _row(
        "p19",
        "P19, sepsis",
        "38 803 stays, 34 series and six facts, stays with sepsis end where its label begins",
        0.894,
        0.894,
        "not run yet; published: ISTS-PLM 89.4 ± 2.2 | 56.9 ± 5.0, Warpformer 88.1 | 56.1, ViTST 89.2 | 53.1, Raindrop "
        "87.0 | 51.8; the target for AUPRC is 0.57; length alone has 0.741",
    ),
)

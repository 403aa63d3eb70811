"""Interpolation with 30 % of the times hidden: stays of intensive care, and positions of tags on a person.

All numbers at 30 % of a sample's times are hidden, and asked for from what is left; training hides as many, anew at
each step. Beside the model stand lines, the mean of what is visible and the last visible value before (LOCF), for each
variable by itself.

    romae run interpolation/physionet-30 --seeds 0-2    22 800 steps a seed (120 passes of 190)
    romae run interpolation/activity-30 --seeds 0-2     16 560 steps a seed (40 passes of 414)

No row has been run in full yet: they are for a GPU such as an H200, and too many steps for a CPU. A batch of stays is
32 with some 14 000 tokens, one of windows 32 with 11 600. `physionet-30` has the split, the masks that follow from
records and the z-scores of `physionet/rows-kinds`, with 30 % of the times in the place of half. `activity-30` has the
recordings, windows of 4 000 ms and values of `forecasting/activity`: min-max over training and validation, and a macro
MSE in 1e-3 (the mean over variables of the mean of each), with the MAE in 1e-2. Expected, as targets: below the best of
what stands beside them; published numbers of such tables have splits and masks of their own, and none is compared.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np

from romae.data.scaling import fit_scaling
from romae.data.schema import SampleSet
from romae.experiments import baselines, metrics
from romae.experiments.datasets import human_activity
from romae.experiments.forecasts import QUICK, TRAIN
from romae.experiments.recipe import Measured, Recipe, Source, Splits, Target
from romae.experiments.recipes import physionet
from romae.experiments.recipes.physionet import Stays
from romae.experiments.stays import MASKING
from romae.inference.baselines import Method, filled_along_time
from romae.inference.predictions import predict
from romae.model.config import ModelConfig
from romae.model.tasks import Task
from romae.pages.charts import paired
from romae.tokens.masking import Rows, hide
from romae.training.stages import Pretrain

METHODS: Mapping[str, Method] = {
    "mean": baselines.mean,
    "linear": baselines.linear,
    "last value": baselines.METHODS["last value"],
}
MASKS = 42  # the seed of the masks of windows
SCALES = (1e3, 1e2)  # of squared and of absolute errors


@dataclass(frozen=True, slots=True, kw_only=True)
class StayTimes(Stays):
    """Stays beside one method more."""

    BESIDE: ClassVar[Mapping[str, Method]] = METHODS

    hide: Literal["rows", "tokens", "rows-30"] = "rows-30"


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivityTimes(Source):
    """Windows of Human Activity with the share `hide` of their times hidden in the test.

    `n_windows` takes the first windows of each split, and with `train_stride` those of training begin more often. Times
    are counted in units of `unit`. To choose settings without a look at the test, `tested_on="validation"` puts the
    validation windows in its place.
    """

    hide: float = 0.3
    tested_on: Literal["test", "validation"] = "test"
    unit: float = 10.0
    n_windows: int | None = None
    train_stride: float | None = None

    def splits(self, seed: int) -> Splits:
        if not 0 < self.hide < 1:
            raise ValueError(f"data.hide is a share of the times, above 0 and below 1, not {self.hide:g}")
        if self.n_windows is not None and self.n_windows < 1:
            raise ValueError(f"data.n_windows must be at least 1, or none for all windows, not {self.n_windows}")
        parts = human_activity.windows(human_activity.load(), self.n_windows, self.train_stride)
        train = SampleSet([replace(window, hidden=None) for window in parts["train"]], human_activity.SCHEMA)
        validation, test = (
            hide(parts[part], Rows(ratio=self.hide, axis=0), MASKS) for part in ("validation", self.tested_on)
        )
        return Splits(
            train=train,
            validation=validation,
            test=test,
            scaling=fit_scaling(train, unit=self.unit),
            schema=human_activity.SCHEMA,
            seed=seed,
        )

    def measure(self, task: Task, splits: Splits) -> Measured:
        test = SampleSet(list(splits.test), human_activity.SCHEMA)
        truth = np.concatenate([baselines.truth(sample)[:, 0] for sample in test])
        variable = np.concatenate([sample.positions[sample.hidden, 1].numpy() for sample in test]).astype(np.int64)
        answers = {"RoMAE": np.concatenate([np.asarray(part)[:, 0] for part in predict(task, splits.test)])}
        answers |= {name: filled_along_time(method, test)[:, 0] for name, method in METHODS.items()}
        values = np.concatenate([sample.values[:, 0].double().numpy() for sample in splits.train])
        of_train = np.concatenate([sample.positions[:, 1].numpy() for sample in splits.train]).astype(np.int64)
        answers["constant"] = metrics.macro(values, of_train, len(human_activity.VARIABLES))[1][variable]
        off = {name: answer.astype(np.float64) - truth for name, answer in answers.items()}
        mse = {name: metrics.macro(x**2, variable)[0] * SCALES[0] for name, x in off.items()}
        mae = {name: metrics.macro(np.abs(x), variable)[0] * SCALES[1] for name, x in off.items()}
        others = [name for name in answers if name != "RoMAE"]
        return Measured(
            metrics={"mse": mse["RoMAE"], "mae": mae["RoMAE"]}
            | {f"mae_{name.replace(' ', '_')}": mae[name] for name in others},
            baselines={name: mse[name] for name in others},
            figure={
                name: metrics.macro(off[name] ** 2, variable, len(human_activity.VARIABLES))[1] * SCALES[0]
                for name in ("RoMAE", "linear")
            },
        )

    def draw(self, figures: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        by_variable = {
            name: np.array([figure[name] for figure in figures], dtype=float).mean(axis=0)
            for name in ("RoMAE", "linear")
        }
        caption = f"Error by variable, {len(figures)} seeds"
        return {caption: paired(list(human_activity.VARIABLES), by_variable, x="MSE in 1e-3")}


ROWS = next(recipe for recipe in physionet.RECIPES if recipe.name == "physionet/rows-kinds")
RECIPES = (
    replace(
        ROWS,
        name="interpolation/physionet-30",
        title="PhysioNet 2012, 30 % of the times hidden",
        protocol=ROWS.protocol.replace("half of the times", "30 % of the times"),
        data=StayTimes(minutes=5.0),
        stages=tuple(
            replace(stage, masking=MASKING["rows-30"]) for stage in ROWS.stages if isinstance(stage, Pretrain)
        ),
        seeds=(0, 1, 2),
        target=Target(of_baselines=(("best", 1.0),)),
        remark="not run yet",
    ),
    Recipe(
        name="interpolation/activity-30",
        title="Human Activity, 30 % of the times hidden",
        paper="beyond the paper",
        protocol="windows of 4 000 ms of 25 recordings, 30 % of the times of each hidden, macro MSE in 1e-3, min-max "
        "values; an embedding of its own for each variable, wavelengths from the data, tokens dropped",
        data=ActivityTimes(train_stride=250.0),
        model=ModelConfig(channels=1, position_dims=2, kinds=len(human_activity.VARIABLES), kinds_spread=1.0),
        ladder="data",
        stages=(Pretrain(masking=Rows(ratio=0.3, axis=0), train=replace(TRAIN, epochs=40), drop_tokens=0.2),),
        metric="mse",
        seeds=(0, 1, 2),
        target=Target(of_baselines=(("best", 1.0),)),
        remark="not run yet",
        quick=(
            *(setting for setting in QUICK if not setting.startswith("data.")),
            "data.n_windows=24",
            "data.train_stride=none",
        ),
        data_set="human_activity",
    ),
)

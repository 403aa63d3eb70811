"""What helps forecasts: settings of the recipes tried one by one, judged on validation windows alone.

    python -m romae.experiments.forecast_choices activity ushcn --device cuda     about a minute each on an H200
    python -m romae.experiments.forecast_choices activity --only pretrained --quick

Each trial is the recipe with one thing changed. It learns from the training windows and stops by the validation
windows, as the recipe does, and these are also what it is judged on: numbers are below those of a test, and only their
order means something. Every trial is a file of its own, results/choices/forecasting/DATA/NAME-SEED.json.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from romae.experiments import results
from romae.experiments.forecasts import ASKED, RANDOM
from romae.experiments.recipe import Recipe, find, run
from romae.files import require_writable, write_whole_text
from romae.model.likelihoods import Mixture
from romae.tokens.masking import Future, Mixed, Strategy
from romae.training.stages import Pretrain

FOLDER = Path("results/choices/forecasting")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cuts:
    """The future that a benchmark asks for and how far it reaches, from where it may begin in training instead, and
    how much denser training windows may be, if its series are longer than they."""

    asked: Future
    horizon: float
    earliest: float
    stride: float | None = None

    @property
    def drawn(self) -> Future:
        """A future of the same length after a cut that is drawn for each sample and epoch."""
        assert isinstance(self.asked.after, float)
        return Future(after=(self.earliest, self.asked.after), horizon=self.horizon)


CUTS: Mapping[str, Cuts] = {
    "activity": Cuts(asked=ASKED["activity"], horizon=1000.0, earliest=1500.0, stride=250.0),
    "ushcn": Cuts(asked=ASKED["ushcn"], horizon=1.0, earliest=18.0, stride=0.5),
    "physionet": Cuts(asked=ASKED["physionet"], horizon=24.0, earliest=12.0),
    "physionet-hourly": Cuts(asked=ASKED["physionet-hourly"], horizon=3.0, earliest=12.0),
}
Variant = Callable[[Recipe, Cuts], Recipe]


def _set(*settings: str) -> Variant:
    return lambda recipe, cuts: recipe.overridden(*settings)


def _stages(*maskings: Callable[[Cuts], Strategy]) -> Variant:
    """A stage for each masking; those before the last have half of its passes."""

    def changed(recipe: Recipe, cuts: Cuts) -> Recipe:
        last = recipe.stages[-1]
        assert isinstance(last, Pretrain)
        before = replace(last, weights="last", train=replace(last.train, epochs=max(last.train.epochs // 2, 1)))
        stages = [replace(before, masking=masking(cuts)) for masking in maskings[:-1]]
        recipe = recipe.overridden("data.masked_by=stage")
        return replace(recipe, stages=(*stages, replace(last, masking=maskings[-1](cuts))))

    return changed


def _weighted(recipe: Recipe, cuts: Cuts) -> Recipe:
    """The other way to weigh numbers: all alike, or all variables alike."""
    (stage,) = recipe.stages
    assert isinstance(stage, Pretrain)
    return replace(recipe, stages=(replace(stage, loss_weights=None if stage.loss_weights else "channel"),))


def _denser(recipe: Recipe, cuts: Cuts) -> Recipe:
    """Training windows that begin more often, in fewer passes."""
    if cuts.stride is None:
        raise ValueError(f"{recipe.name}: its windows are whole series, and there are no others between them")
    (stage,) = recipe.stages
    stage = replace(stage, train=replace(stage.train, epochs=max(stage.train.epochs // 3, 1)))
    return replace(recipe, stages=(stage,)).overridden(f"data.train_stride={cuts.stride}")


def _likely(recipe: Recipe, cuts: Cuts) -> Recipe:
    """The other loss: a mixture of normals, or squared errors."""
    (stage,) = recipe.stages
    assert isinstance(stage, Pretrain)
    return replace(recipe, stages=(replace(stage, likelihood=None if stage.likelihood else Mixture(n=8)),))


def _with_mean(recipe: Recipe, cuts: Cuts) -> Recipe:
    """A mixture of normals as loss, and the squared error of its mean beside it."""
    (stage,) = recipe.stages
    assert isinstance(stage, Pretrain)
    return replace(recipe, stages=(replace(stage, likelihood=Mixture(n=8, mean_weight=1.0)),))


VARIANTS: Mapping[str, Variant] = {
    "recipe": _set(),
    "weights": _weighted,
    "likelihood": _likely,
    "likelihood-and-mean": _with_mean,
    "denser": _denser,
    "pretrained": _stages(lambda cuts: RANDOM, lambda cuts: cuts.asked),
    "asked": _stages(lambda cuts: cuts.asked),
    "mixed": _stages(lambda cuts: Mixed(((RANDOM, 0.5), (cuts.asked, 0.5)))),
    "cuts": _stages(lambda cuts: cuts.drawn),
    "cuts-first": _stages(lambda cuts: cuts.drawn, lambda cuts: cuts.asked),
    "centred": _set("data.center=sample"),
    "alike": _set("data.per=all"),
    "drop-0": _set("stages.0.drop_tokens=0.0"),
    "drop-0.4": _set("stages.0.drop_tokens=0.4"),
    "small": _set("model.encoder={width=96, heads=3, depth=4}"),
    "dropout": _set("model.dropout=0.1"),
    "slow": _set("train.lr=3e-4"),
}


def trial(data: str, name: str, seed: int, *, quick: bool, settings: Sequence[str]) -> dict[str, Any]:
    """What a recipe has on its validation windows with one thing changed."""
    recipe = find(f"forecasting/{data}")
    recipe = recipe.overridden(*(recipe.quick if quick else ()), "data.tested_on=validation", "data.n_trees=0")
    recipe = VARIANTS[name](recipe, CUTS[data]).overridden(*settings)
    began = time.monotonic()
    result, _ = run(recipe, seed)
    return {
        "data": data,
        "variant": name,
        "seed": seed,
        "quick": quick,
        "settings": list(settings),
        "metrics": {key: result.metrics[key] for key in ("mse", "mae", "ratio")},
        "seconds": round(time.monotonic() - began, 1),
        "device": result.device,
        "commit": results.commit(),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line of this file."""
    parser = argparse.ArgumentParser(
        prog="python -m romae.experiments.forecast_choices", description=__doc__.split("\n")[0]
    )
    parser.add_argument("data", nargs="+", choices=sorted(CUTS), help="which recipes")
    parser.add_argument("--only", action="append", choices=sorted(VARIANTS), help="a trial and no other; repeatable")
    parser.add_argument("--seed", type=int, default=0, help="the seed of all trials")
    parser.add_argument("--out", default=str(FOLDER), help="the folder of trials; what is there is not run again")
    parser.add_argument("--set", action="append", default=[], help="a setting of all trials, as train.epochs=6")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--quick", action="store_true", help="tiny models and few windows; the numbers mean nothing")
    given = parser.parse_args(arguments)
    try:
        for data in given.data:
            for name in given.only or [name for name in VARIANTS if name != "denser" or CUTS[data].stride]:
                path = Path(given.out) / data / f"{name}-{given.seed}.json"
                if path.exists():
                    print(f"{path} is there already")
                    continue
                require_writable(path)
                settings = [*given.set, f"train.device={given.device}"]
                found = trial(data, name, given.seed, quick=given.quick, settings=settings)
                write_whole_text(path, json.dumps(found, indent=1) + "\n")
                numbers = ", ".join(f"{key} {value:.4g}" for key, value in found["metrics"].items())
                print(f"{data} {name}: {numbers}, {found['seconds']:.0f} s", flush=True)
    except ValueError as error:
        print(f"romae: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()

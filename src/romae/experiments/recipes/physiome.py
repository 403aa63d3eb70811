"""Forecasts of biological systems: sixteen of the fifty of Physiome-ODE (ICLR 2025), generated from their equations.

The first half of a series is seen, a value in five of it and with noise; the second half is asked for. The error is the
mean square over all numbers, in standard deviations of each state. What the exact solution leaves is the noise, 0.0025:
the floor, which is reached only where the first half decides the second. Seeds are the benchmark's folds.

    romae run forecasting/physiome-dup01 --seeds 0-4        8 800 steps a seed, and so for each system
    romae run forecasting/physiome-rev01 --seeds 0-4

Solving 2 000 series takes a CPU 10 seconds to 3 minutes. Some minutes a seed on an H200 are to be expected; the models
have not been run yet, and are too many steps for a CPU. Expected: below the last value everywhere. Published errors
(the best of six models, over five folds) are of other draws of the same distribution, whose folds differ by 2 to 40 %
of the error: they say what can be expected, and are not compared.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from romae.data.schema import Schema
from romae.experiments.datasets import physiome
from romae.experiments.datasets.physiome import N_SERIES, SYSTEMS, System
from romae.experiments.forecasts import Forecasts, row
from romae.experiments.recipe import Recipe, Target
from romae.tokens.sample import Sample


@dataclass(frozen=True, slots=True, kw_only=True)
class Physiome(Forecasts):
    """A system of Physiome-ODE, from the first half of a series to the second. The seed is the fold."""

    IS_MACRO: ClassVar[bool] = False

    system: str = "dup01"
    unit: float = 0.01
    n_series: int = N_SERIES

    def schema(self) -> Schema:
        return SYSTEMS[self.system].schema

    def split_of(self, seed: int) -> int:
        return seed

    def parts(self, split: int) -> Mapping[str, list[Sample]]:
        return physiome.generate(self.system, seed=split, n_series=self.n_series)


def _row(system: System) -> Recipe:
    title = f"{system.title.capitalize()} ({system.model}), half a series ahead"
    protocol = f"Physiome-ODE: 2 000 series of {len(system.states)} states, 70/20/10, MSE over all numbers, z-scores"
    recipe = row(
        f"physiome-{system.name}",
        title,
        protocol,
        Physiome(system=system.name),
        epochs=200,
        quick=("data.n_series=40",),
    )
    return replace(
        recipe,
        published=system.published,
        comparable=False,
        target=Target(of_baselines=(("best", 1.0),)),
        remark="published: the best of six models, on other draws of the same distribution",
    )


RECIPES = tuple(_row(system) for system in SYSTEMS.values())

"""Public data sets and generators, one file each. A data set's file lists its descriptions in `DATASETS`."""

import difflib
import pkgutil
from functools import cache
from importlib import import_module

from romae.experiments.datasets.catalogue import DataSet


@cache
def discover() -> dict[str, DataSet]:
    """The descriptions of all data sets by name, found in the files of this folder."""
    by_name = {}
    for module in sorted(pkgutil.iter_modules(__path__), key=lambda module: module.name):
        for dataset in getattr(import_module(f"{__name__}.{module.name}"), "DATASETS", ()):
            by_name[dataset.name] = dataset
    return by_name


def find(name: str) -> DataSet:
    """The description of one data set. Any set of the UEA archive is known as `uea/<Name>`."""
    if name in discover():
        return discover()[name]
    if name.startswith("uea/"):
        from romae.experiments.datasets.uea import describe

        return describe(name.removeprefix("uea/"))
    near = difflib.get_close_matches(name, discover(), n=3, cutoff=0.4)
    hint = f"do you mean {' or '.join(near)}?" if near else "`romae data list` names those that there are"
    raise ValueError(f"there is no data set {name!r}; {hint}")

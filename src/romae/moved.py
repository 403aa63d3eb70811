"""Where the modules of 0.1 are now, so that imports written for it keep working for one version, with a warning."""

import sys
import warnings
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

MOVED: dict[str, str] = {
    "writing": "files",
    "layout": "tokens.layout",
    "ragged": "tokens.packed",
    "arrays": "tokens.arrays",
    "patches": "tokens.patches",
    "masking": "tokens.masking",
    "augmentation": "tokens.augmentation",
    "rope": "model.rope",
    "attention": "model.attention",
    "tasks": "model.tasks",
    "data.loading": "data.loader",
    "train_config": "training.config",
    "evaluation": "training.validation",
    "runs": "training.run_folder",
    "optim": "training.optim",
    "stages": "training.stages",
    "jobs": "training.tables",
    "checkpoint": "checkpoints.native",
    "reference": "checkpoints.authors",
    "answers": "inference.tables",
    "recipe": "experiments.recipe",
    "results": "experiments.results",
    "report": "experiments.report",
    "baselines": "experiments.baselines",
    "metrics": "experiments.metrics",
    "minirocket": "experiments.minirocket",
    "datasets": "experiments.datasets",
    "recipes": "experiments.recipes",
    "plots": "pages.plots",
}
# Modules whose place a package of the same name has taken: the names that people imported from them.
PACKAGES: dict[str, dict[str, tuple[str, ...]]] = {
    "tokens": {
        "tokens.tokens": ("Tokens", "Batch", "collate", "concat", "channel_index"),
        "tokens.sample": ("Sample",),
        "tokens.layout": ("Layout",),
    },
    "model": {
        "model.config": ("ModelConfig", "Size", "SIZES"),
        "model.blocks": ("Block", "Transformer"),
        "model.autoencoder": ("Encoder", "Decoder"),
    },
    "training": {"training.loop": ("train", "Interrupted", "Log")},
    "inference": {
        "inference.predictions": ("predict", "predict_proba", "embed"),
        "inference.interpolation": ("interpolate",),
    },
}


class _Finder(MetaPathFinder, Loader):
    """Finds an old module by its name and hands out the new one."""

    def find_spec(self, fullname: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        return ModuleSpec(fullname, self) if _new_name(fullname) else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        new = _new_name(spec.name)
        assert new is not None
        warnings.warn(f"{spec.name} is {new} now; import it from there", DeprecationWarning, stacklevel=2)
        module = import_module(new)
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Nothing is left to run: the new module has been imported; it gets back what says where it is from."""
        assert module.__spec__ is not None
        module.__spec__ = module.__spec__.loader_state


def _new_name(fullname: str) -> str | None:
    """The new name of a module, or of one in a package that has moved."""
    package, _, name = fullname.partition(".")
    if package != "romae":
        return None
    for old, new in MOVED.items():
        if name == old or name.startswith(f"{old}."):
            return f"romae.{new}{name[len(old) :]}"
    return None


def find_moved_modules() -> None:
    """Let old names be imported. They are looked for first: a file of a moved package would else be found twice."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def moved_name(package: str, name: str) -> object:
    """What a package has in the place of the module that it was in 0.1."""
    for home, names in PACKAGES[package].items():
        if name in names:
            return getattr(import_module(f"romae.{home}"), name)
    raise AttributeError(f"module 'romae.{package}' has no attribute {name!r}")

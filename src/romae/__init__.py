"""RoMAE: learn from sets of measurements at real-valued positions.

Rotary Masked Autoencoders (arXiv 2505.20535) in PyTorch. The public names are listed here and nowhere else; each
is imported when it is first used, so that `import romae` is quick.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_HOME = {
    "Tokens": "tokens",
    "Sample": "tokens",
    "Batch": "tokens",
    "Layout": "tokens",
    "collate": "tokens",
    "concat": "tokens",
    "patchify": "patches",
    "unpatchify": "patches",
    "grid_positions": "patches",
    "from_table": "data.tables",
    "from_table_like": "data.tables",
    "from_arrays": "data.series",
    "from_image": "data.images",
    "from_image_folder": "data.images",
    "from_stack": "data.images",
    "from_video": "data.images",
    "to_image": "data.images",
    "from_audio": "data.audio",
    "from_audio_folder": "data.audio",
    "SampleSet": "data.series",
    "Schema": "data.series",
    "Scaling": "data.scaling",
    "fit_scaling": "data.scaling",
    "fit_ladders": "data.scaling",
    "to_table": "data.export",
    "to_sample_table": "data.export",
    "Store": "data.store",
    "write_store": "data.store",
    "Loader": "data.loading",
    "Ladder": "rope",
    "AxialRope": "rope",
    "ModelConfig": "model",
    "Size": "model",
    "SIZES": "model",
    "Encoder": "model",
    "UniformTokens": "masking",
    "Rows": "masking",
    "Channels": "masking",
    "Spans": "masking",
    "Future": "masking",
    "Loss": "tasks",
    "MaskedReconstruction": "tasks",
    "Classification": "tasks",
    "Regression": "tasks",
    "TrainConfig": "training",
    "train": "training",
    "predict": "inference",
    "predict_proba": "inference",
    "embed": "inference",
    "interpolate": "inference",
    "RoMAEClassifier": "estimators.supervised",
    "RoMAERegressor": "estimators.supervised",
    "RoMAEInterpolator": "estimators.unsupervised",
    "RoMAEEmbedder": "estimators.unsupervised",
    "load": "checkpoint",
    "load_reference": "reference",
}

__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'romae' has no attribute {name!r}; it has {', '.join(sorted(_HOME))}")
    return getattr(import_module(f"romae.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)

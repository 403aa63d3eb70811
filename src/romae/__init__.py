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
}

__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'romae' has no attribute {name!r}; it has {', '.join(sorted(_HOME))}")
    return getattr(import_module(f"romae.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)

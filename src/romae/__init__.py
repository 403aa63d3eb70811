"""RoMAE: learn from sets of measurements at real-valued positions.

Rotary Masked Autoencoders (arXiv 2505.20535) in PyTorch. The public names are listed here and nowhere else; each
is imported when it is first used, so that `import romae` is quick. `__all__` is what stays stable between versions.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

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
    "SampleSet": "data.schema",
    "Schema": "data.schema",
    "Scaling": "data.scaling",
    "fit_scaling": "data.scaling",
    "fit_ladders": "data.scaling",
    "to_table": "data.export",
    "to_sample_table": "data.export",
    "Store": "data.store",
    "write_store": "data.store",
    "Loader": "data.loading",
    "RandAugment": "augmentation",
    "Noise": "augmentation",
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
    "hide": "masking",
    "Loss": "tasks",
    "MaskedReconstruction": "tasks",
    "Classification": "tasks",
    "Regression": "tasks",
    "TrainConfig": "train_config",
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


if TYPE_CHECKING:  # the same names for type checkers and editors; a test holds them against the list
    from romae.augmentation import Noise as Noise
    from romae.augmentation import RandAugment as RandAugment
    from romae.checkpoint import load as load
    from romae.data.audio import from_audio as from_audio
    from romae.data.audio import from_audio_folder as from_audio_folder
    from romae.data.export import to_sample_table as to_sample_table
    from romae.data.export import to_table as to_table
    from romae.data.images import from_image as from_image
    from romae.data.images import from_image_folder as from_image_folder
    from romae.data.images import from_stack as from_stack
    from romae.data.images import from_video as from_video
    from romae.data.images import to_image as to_image
    from romae.data.loading import Loader as Loader
    from romae.data.scaling import Scaling as Scaling
    from romae.data.scaling import fit_ladders as fit_ladders
    from romae.data.scaling import fit_scaling as fit_scaling
    from romae.data.schema import SampleSet as SampleSet
    from romae.data.schema import Schema as Schema
    from romae.data.series import from_arrays as from_arrays
    from romae.data.store import Store as Store
    from romae.data.store import write_store as write_store
    from romae.data.tables import from_table as from_table
    from romae.data.tables import from_table_like as from_table_like
    from romae.estimators.supervised import RoMAEClassifier as RoMAEClassifier
    from romae.estimators.supervised import RoMAERegressor as RoMAERegressor
    from romae.estimators.unsupervised import RoMAEEmbedder as RoMAEEmbedder
    from romae.estimators.unsupervised import RoMAEInterpolator as RoMAEInterpolator
    from romae.inference import embed as embed
    from romae.inference import interpolate as interpolate
    from romae.inference import predict as predict
    from romae.inference import predict_proba as predict_proba
    from romae.masking import Channels as Channels
    from romae.masking import Future as Future
    from romae.masking import Rows as Rows
    from romae.masking import Spans as Spans
    from romae.masking import UniformTokens as UniformTokens
    from romae.masking import hide as hide
    from romae.model import SIZES as SIZES
    from romae.model import Encoder as Encoder
    from romae.model import ModelConfig as ModelConfig
    from romae.model import Size as Size
    from romae.patches import grid_positions as grid_positions
    from romae.patches import patchify as patchify
    from romae.patches import unpatchify as unpatchify
    from romae.reference import load_reference as load_reference
    from romae.rope import AxialRope as AxialRope
    from romae.rope import Ladder as Ladder
    from romae.tasks import Classification as Classification
    from romae.tasks import Loss as Loss
    from romae.tasks import MaskedReconstruction as MaskedReconstruction
    from romae.tasks import Regression as Regression
    from romae.tokens import Batch as Batch
    from romae.tokens import Layout as Layout
    from romae.tokens import Sample as Sample
    from romae.tokens import Tokens as Tokens
    from romae.tokens import collate as collate
    from romae.tokens import concat as concat
    from romae.train_config import TrainConfig as TrainConfig
    from romae.training import train as train
else:

    def __getattr__(name: str) -> Any:
        if name not in _HOME:
            raise AttributeError(f"module 'romae' has no attribute {name!r}; it has {', '.join(sorted(_HOME))}")
        return getattr(import_module(f"romae.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)

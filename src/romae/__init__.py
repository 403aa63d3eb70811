"""RoMAE: self-supervised learning for irregular time series and other irregularly sampled data.

Rotary Masked Autoencoders (arXiv 2505.20535) in PyTorch. The public names are listed here and nowhere else; each
is imported when it is first used, so that `import romae` is quick. `__all__` is what stays stable between versions.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from romae.moved import find_moved_modules

__version__ = "0.2.0"
"""The version of romae."""

_HOME = {
    "Tokens": "tokens.tokens",
    "Sample": "tokens.sample",
    "Batch": "tokens.tokens",
    "Layout": "tokens.tokens",
    "collate": "tokens.tokens",
    "concat": "tokens.tokens",
    "patchify": "tokens.patches",
    "unpatchify": "tokens.patches",
    "grid_positions": "tokens.patches",
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
    "fit_ladders": "data.ladders",
    "atoms": "data.atoms",
    "add_phase": "data.periods",
    "find_periods": "data.periods",
    "summary_features": "data.summary",
    "to_table": "data.export",
    "to_sample_table": "data.export",
    "Store": "data.store",
    "write_store": "data.store",
    "Stores": "data.stores",
    "write_stores": "data.stores",
    "Loader": "data.loader",
    "Prior": "prior.series",
    "RandAugment": "tokens.augmentation",
    "Noise": "tokens.augmentation",
    "Ladder": "tokens.ladder",
    "AxialRope": "model.rope",
    "ModelConfig": "model.config",
    "Size": "model.config",
    "SIZES": "model.config",
    "Encoder": "model.autoencoder",
    "UniformTokens": "tokens.masking",
    "Rows": "tokens.masking",
    "Channels": "tokens.masking",
    "Spans": "tokens.masking",
    "Future": "tokens.masking",
    "Mixed": "tokens.masking",
    "Masking": "tokens.masking",
    "hide": "tokens.masking",
    "Loss": "model.tasks",
    "Task": "model.tasks",
    "MaskedReconstruction": "model.tasks",
    "Classification": "model.tasks",
    "MultiLabel": "model.tasks",
    "Regression": "model.tasks",
    "TrainConfig": "training.config",
    "train": "training.loop",
    "History": "training.run_folder",
    "Interrupted": "training.loop",
    "evaluate": "training.validation",
    "Pretrain": "training.stages",
    "Classify": "training.stages",
    "ClassifyLabels": "training.stages",
    "Regress": "training.stages",
    "run_stages": "training.stages",
    "predict": "inference.predictions",
    "predict_proba": "inference.predictions",
    "embed": "inference.predictions",
    "interpolate": "inference.interpolation",
    "calibrate": "inference.calibration",
    "anomaly": "inference.anomalies",
    "explain": "inference.explanations",
    "early_scores": "inference.early",
    "forecast": "inference.forecasts",
    "export": "inference.export",
    "RoMAEClassifier": "estimators.supervised",
    "RoMAERegressor": "estimators.supervised",
    "RoMAEInterpolator": "estimators.unsupervised",
    "RoMAEEmbedder": "estimators.unsupervised",
    "RoMAEForecaster": "estimators.forecasting",
    "load": "checkpoints.native",
    "load_reference": "checkpoints.authors",
}

__all__ = ["__version__", *_HOME]


if TYPE_CHECKING:  # the same names for type checkers and editors; a test holds them against the list
    from romae.checkpoints.authors import load_reference as load_reference
    from romae.checkpoints.native import load as load
    from romae.data.atoms import atoms as atoms
    from romae.data.audio import from_audio as from_audio
    from romae.data.audio import from_audio_folder as from_audio_folder
    from romae.data.export import to_sample_table as to_sample_table
    from romae.data.export import to_table as to_table
    from romae.data.images import from_image as from_image
    from romae.data.images import from_image_folder as from_image_folder
    from romae.data.images import from_stack as from_stack
    from romae.data.images import from_video as from_video
    from romae.data.images import to_image as to_image
    from romae.data.ladders import fit_ladders as fit_ladders
    from romae.data.loader import Loader as Loader
    from romae.data.periods import add_phase as add_phase
    from romae.data.periods import find_periods as find_periods
    from romae.data.scaling import Scaling as Scaling
    from romae.data.scaling import fit_scaling as fit_scaling
    from romae.data.schema import SampleSet as SampleSet
    from romae.data.schema import Schema as Schema
    from romae.data.series import from_arrays as from_arrays
    from romae.data.store import Store as Store
    from romae.data.store import write_store as write_store
    from romae.data.stores import Stores as Stores
    from romae.data.stores import write_stores as write_stores
    from romae.data.summary import summary_features as summary_features
    from romae.data.tables import from_table as from_table
    from romae.data.tables import from_table_like as from_table_like
    from romae.estimators.forecasting import RoMAEForecaster as RoMAEForecaster
    from romae.estimators.supervised import RoMAEClassifier as RoMAEClassifier
    from romae.estimators.supervised import RoMAERegressor as RoMAERegressor
    from romae.estimators.unsupervised import RoMAEEmbedder as RoMAEEmbedder
    from romae.estimators.unsupervised import RoMAEInterpolator as RoMAEInterpolator
    from romae.inference.anomalies import anomaly as anomaly
    from romae.inference.calibration import calibrate as calibrate
    from romae.inference.early import early_scores as early_scores
    from romae.inference.explanations import explain as explain
    from romae.inference.export import export as export
    from romae.inference.forecasts import forecast as forecast
    from romae.inference.interpolation import interpolate as interpolate
    from romae.inference.predictions import embed as embed
    from romae.inference.predictions import predict as predict
    from romae.inference.predictions import predict_proba as predict_proba
    from romae.model.autoencoder import Encoder as Encoder
    from romae.model.config import SIZES as SIZES
    from romae.model.config import ModelConfig as ModelConfig
    from romae.model.config import Size as Size
    from romae.model.rope import AxialRope as AxialRope
    from romae.model.tasks import Classification as Classification
    from romae.model.tasks import Loss as Loss
    from romae.model.tasks import MaskedReconstruction as MaskedReconstruction
    from romae.model.tasks import MultiLabel as MultiLabel
    from romae.model.tasks import Regression as Regression
    from romae.model.tasks import Task as Task
    from romae.prior.series import Prior as Prior
    from romae.tokens.augmentation import Noise as Noise
    from romae.tokens.augmentation import RandAugment as RandAugment
    from romae.tokens.ladder import Ladder as Ladder
    from romae.tokens.masking import Channels as Channels
    from romae.tokens.masking import Future as Future
    from romae.tokens.masking import Masking as Masking
    from romae.tokens.masking import Mixed as Mixed
    from romae.tokens.masking import Rows as Rows
    from romae.tokens.masking import Spans as Spans
    from romae.tokens.masking import UniformTokens as UniformTokens
    from romae.tokens.masking import hide as hide
    from romae.tokens.patches import grid_positions as grid_positions
    from romae.tokens.patches import patchify as patchify
    from romae.tokens.patches import unpatchify as unpatchify
    from romae.tokens.sample import Sample as Sample
    from romae.tokens.tokens import Batch as Batch
    from romae.tokens.tokens import Layout as Layout
    from romae.tokens.tokens import Tokens as Tokens
    from romae.tokens.tokens import collate as collate
    from romae.tokens.tokens import concat as concat
    from romae.training.config import TrainConfig as TrainConfig
    from romae.training.loop import Interrupted as Interrupted
    from romae.training.loop import train as train
    from romae.training.run_folder import History as History
    from romae.training.stages import Classify as Classify
    from romae.training.stages import ClassifyLabels as ClassifyLabels
    from romae.training.stages import Pretrain as Pretrain
    from romae.training.stages import Regress as Regress
    from romae.training.stages import run_stages as run_stages
    from romae.training.validation import evaluate as evaluate
else:

    def __getattr__(name: str) -> Any:
        if name not in _HOME:
            raise AttributeError(f"module 'romae' has no attribute {name!r}; it has {', '.join(sorted(_HOME))}")
        return getattr(import_module(f"romae.{_HOME[name]}"), name)

    find_moved_modules()


def __dir__() -> list[str]:
    return sorted(__all__)

"""The checkpoints of the paper's authors: read them, and hold our model against what theirs computed."""

import math
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from romae.checkpoints.native import filled, read_json, read_weights, require_fit, require_room, without_weights
from romae.model.autoencoder import Encoder
from romae.model.config import SIZES, ModelConfig, Size
from romae.model.tasks import Classification, MaskedReconstruction, Regression, Task
from romae.tokens.patches import patchify
from romae.tokens.tokens import Batch, Tokens

TOLERANCE = 1e-4
_LAYER_NAMES = {
    "attention.wo": "out",
    "feed_forward.w1": "up",
    "feed_forward.w2": "down",
    "attention_norm": "attention_norm",
    "ffn_norm": "mlp_norm",
}
_NAMES = {
    "projection": "encoder.projection",
    "cls": "encoder.cls",
    "encoder_decoder_proj": "decoder.projection",
    "mask_token": "decoder.mask_token",
    "head.head.1": "head.norm",
    "head.head.2": "head.linear",
}


def load_reference(directory: str | Path) -> Task:
    """Load a checkpoint of the paper's authors as a task of ours.

    Parameters
    ----------
    directory : str or Path
        The folder, which holds model.safetensors and model_config.json.

    Returns
    -------
    MaskedReconstruction, Classification or Regression
        The task, in evaluation mode, with joint queries as in the paper.

    Raises
    ------
    ValueError
        If the folder lacks a file, or holds something unexpected.

    Examples
    --------
    >>> import romae
    >>> romae.load_reference("no-such-folder")
    Traceback (most recent call last):
    ...
    ValueError: no-such-folder/model_config.json does not exist; ...
    """
    directory = Path(directory)
    settings = read_json(directory / "model_config.json")
    try:
        config = _config(settings)
        weights = {name: x.float() for name, x in _renamed(read_weights(directory / "model.safetensors")).items()}
        with_decoder = settings.get("decoder_config") is not None
        require_room(config, weights, directory, with_decoder=with_decoder)
        task = without_weights(partial(_task, config, settings), directory)
    except KeyError as error:
        raise ValueError(f"the checkpoint {directory} lacks {error.args[0]!r}") from None
    except (TypeError, AttributeError, RuntimeError) as error:
        raise ValueError(f"{directory / 'model_config.json'} holds something unexpected: {error}") from None
    require_fit(task, weights, str(directory))
    return filled(task, weights, partial(_task, config, settings)).eval()


@torch.no_grad()
def largest_difference(directory: str | Path) -> float:
    """How far our outputs are from those stored beside a checkpoint (io.safetensors), on real tokens."""
    directory = Path(directory)
    task, stored = load_reference(directory), read_weights(directory / "io.safetensors")
    n_dims = {"values": 5, "positions": 3, "logits": 3 if isinstance(task, MaskedReconstruction) else 2}
    if isinstance(task, MaskedReconstruction):
        n_dims["mask"] = 2
    for name, dims in n_dims.items():
        if name not in stored:
            raise ValueError(f"{directory / 'io.safetensors'} lacks {name!r}")
        if stored[name].ndim != dims:
            raise ValueError(
                f"{name} in {directory / 'io.safetensors'} has shape {list(stored[name].shape)}, not {dims}-D"
            )
    patch = read_json(directory / "model_config.json")["tubelet_size"]
    values = patchify(stored["values"].float(), patch, channels=1)
    positions = stored["positions"].double().transpose(1, 2).contiguous()
    valid = ~stored["pad_mask"].bool() if "pad_mask" in stored else torch.ones(values.shape[:2], dtype=torch.bool)
    tokens, theirs = Tokens.from_padded(values, positions, valid), stored["logits"].float()
    if not isinstance(task, MaskedReconstruction):
        return _distance(task.predict(Batch(tokens)), theirs)
    masked = stored["mask"].bool()
    if masked.shape != valid.shape or len(set(masked.sum(1).tolist())) != 1:
        raise ValueError(f"the mask in {directory / 'io.safetensors'} must hide as many tokens in every sample")
    is_hidden = masked[valid]
    hidden = tokens.select(is_hidden)
    ours = task.reconstruct(tokens.select(~is_hidden), hidden.positions, hidden.layout)
    is_real = valid[masked].reshape(len(values), -1)  # padding that was marked as masked has a meaningless output
    if is_real.shape != theirs.shape[:2]:
        raise ValueError(f"{list(is_real.shape)} tokens are hidden, but the logits are for {list(theirs.shape[:2])}")
    return _distance(ours, theirs[is_real])


def _distance(ours: Tensor, theirs: Tensor) -> float:
    if ours.shape != theirs.shape:
        raise ValueError(f"our outputs are {list(ours.shape)}, theirs {list(theirs.shape)}")
    if ours.numel() == 0:
        raise ValueError("there is no real output to compare")
    return float((ours - theirs).abs().max())


def _config(settings: Mapping[str, Any]) -> ModelConfig:
    if settings["pos_encoding"] != "ropend":
        raise ValueError(
            f"the checkpoint uses {settings['pos_encoding']!r} positions; only the rotary ones ('ropend') are read: "
            "the authors' absolute ones count tokens instead of taking their positions"
        )
    encoder, decoder = settings["encoder_config"], settings.get("decoder_config")
    if decoder is not None and decoder["layer_norm_eps"] != encoder["layer_norm_eps"]:
        raise ValueError("encoder and decoder differ in layer_norm_eps, and our models have one for both")
    return ModelConfig(
        channels=math.prod(settings["tubelet_size"]) * settings["n_channels"],
        position_dims=settings["n_pos_dims"],
        encoder=_size(encoder),
        decoder=SIZES["tiny-shallow"] if decoder is None else _size(decoder),
        cls=settings["use_cls"],
        queries="joint",
        keep=settings["p_rope_val"],
        dropout=encoder.get("hidden_drop_rate", 0.0),
        attention_dropout=encoder.get("attn_drop_rate", 0.0),
        stochastic_depth=encoder.get("drop_path_rate", 0.0),
        norm_eps=encoder["layer_norm_eps"],
    )


def _task(config: ModelConfig, settings: Mapping[str, Any]) -> Task:
    if settings.get("decoder_config") is not None:
        return MaskedReconstruction(Encoder(config), normalise=settings["normalize_targets"])
    n_outputs = settings["dim_output"]
    return Regression(Encoder(config), 1) if n_outputs == 1 else Classification(Encoder(config), n_outputs)


def _size(settings: Mapping[str, Any]) -> Size:
    feed_forward = settings["dim_feedforward"]
    return Size(
        width=settings["d_model"],
        heads=settings["nhead"],
        depth=settings["depth"],
        feed_forward=round(settings["mlp_ratio"] * settings["d_model"]) if feed_forward is None else feed_forward,
    )


def _renamed(theirs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Their weights under our names; the query, key and value matrices become one."""
    ours: dict[str, Tensor] = {}
    for key, value in theirs.items():
        if key == "zeros" or key.endswith("pos_embedding.timescale"):
            continue  # a constant and the frequencies, which follow from the configuration
        part, _, rest = key.partition(".layers.")
        if rest:
            layer, _, name = rest.partition(".")
            block = f"{part}.transformer.blocks.{layer}"
            if name in ("attention.wk.weight", "attention.wv.weight"):
                continue  # taken together with the queries
            if name == "attention.wq.weight":
                stem = f"{part}.layers.{layer}.attention"
                ours[f"{block}.qkv.weight"] = torch.cat([theirs[f"{stem}.{w}.weight"] for w in ("wq", "wk", "wv")])
                continue
            stem, _, suffix = name.rpartition(".")
            ours[f"{block}.{_LAYER_NAMES.get(stem, stem)}.{suffix}"] = value
        elif key in _NAMES:
            ours[_NAMES[key]] = value.flatten()
        else:
            stem, _, suffix = key.rpartition(".")
            ours[f"{_NAMES.get(stem, stem)}.{suffix}"] = value
    return ours

"""The checkpoints of the paper's authors: read them, and hold our model against what theirs computed."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from romae.checkpoint import fill, read_json, read_weights
from romae.model import SIZES, Encoder, ModelConfig, Size
from romae.patches import patchify
from romae.tasks import Classification, MaskedReconstruction, Task
from romae.tokens import Batch, Tokens

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
    """The authors' checkpoint folder (model.safetensors, model_config.json) as a task of ours."""
    directory = Path(directory)
    settings = read_json(directory / "model_config.json")
    try:
        task = _empty_task(settings)
    except KeyError as error:
        raise ValueError(f"{directory / 'model_config.json'} lacks {error.args[0]!r}") from None
    fill(task, _renamed(read_weights(directory / "model.safetensors")), str(directory))
    return task.eval()


@torch.no_grad()
def largest_difference(directory: str | Path) -> float:
    """How far our outputs are from those stored beside a checkpoint (io.safetensors), on real tokens."""
    directory = Path(directory)
    task, patch = load_reference(directory), read_json(directory / "model_config.json")["tubelet_size"]
    io = read_weights(directory / "io.safetensors")
    missing = [name for name in ("values", "positions", "logits") if name not in io]
    if missing:
        raise ValueError(f"{directory / 'io.safetensors'} lacks {missing}")
    values = patchify(io["values"], patch, channels=1)
    positions = io["positions"].transpose(1, 2).contiguous()
    valid = ~io["pad_mask"].bool() if "pad_mask" in io else torch.ones(values.shape[:2], dtype=torch.bool)
    if isinstance(task, Classification):
        ours = task.predict(Batch(Tokens.from_padded(values, positions, valid)))
        return _distance(ours, io["logits"])
    assert isinstance(task, MaskedReconstruction)
    if "mask" not in io:
        raise ValueError(f"{directory / 'io.safetensors'} lacks the mask of a pre-training checkpoint")
    masked = io["mask"].bool()
    tokens, is_hidden = Tokens.from_padded(values, positions, valid), masked[valid]
    visible, hidden = tokens.select(~is_hidden), tokens.select(is_hidden)
    ours = task.reconstruct(visible, hidden.positions, hidden.layout)
    is_real = valid[masked].reshape(len(values), -1)  # padding that was marked as masked has a meaningless output
    return _distance(ours, io["logits"][is_real])


def _distance(ours: Tensor, theirs: Tensor) -> float:
    if ours.shape != theirs.shape:
        raise ValueError(f"our outputs are {list(ours.shape)}, theirs {list(theirs.shape)}")
    return float((ours - theirs).abs().max())


def _empty_task(settings: Mapping[str, Any]) -> Task:
    if settings["pos_encoding"] != "ropend":
        raise ValueError(
            f"the checkpoint uses {settings['pos_encoding']!r} positions; only the rotary ones ('ropend') are read: "
            "the authors' absolute ones count tokens instead of taking their positions"
        )
    encoder = settings["encoder_config"]
    config = ModelConfig(
        channels=math.prod(settings["tubelet_size"]) * settings["n_channels"],
        position_dims=settings["n_pos_dims"],
        encoder=_size(encoder),
        decoder=_size(settings["decoder_config"]) if "decoder_config" in settings else SIZES["tiny-shallow"],
        cls=settings["use_cls"],
        queries="joint",
        keep=settings["p_rope_val"],
        dropout=encoder.get("hidden_drop_rate", 0.0),
        attention_dropout=encoder.get("attn_drop_rate", 0.0),
        stochastic_depth=encoder.get("drop_path_rate", 0.0),
        norm_eps=encoder["layer_norm_eps"],
    )
    if "decoder_config" in settings:
        return MaskedReconstruction(Encoder(config), normalise=settings["normalize_targets"])
    return Classification(Encoder(config), settings["dim_output"])


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
                parts = [theirs[f"{stem}.{w}.weight"] for w in ("wq", "wk", "wv") if f"{stem}.{w}.weight" in theirs]
                ours[f"{block}.qkv.weight"] = torch.cat(parts)
                continue
            stem, _, suffix = name.rpartition(".")
            ours[f"{block}.{_LAYER_NAMES.get(stem, stem)}.{suffix}"] = value
        elif key in _NAMES:
            ours[_NAMES[key]] = value.flatten()
        else:
            stem, _, suffix = key.rpartition(".")
            ours[f"{_NAMES.get(stem, stem)}.{suffix}"] = value
    return ours

"""The authors' checkpoints: their folders where they are at hand, and folders made here in their format."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

import brute_force
from conftest import SHARED
from messages import refused
from romae.checkpoints.authors import TOLERANCE, largest_difference, load_reference
from romae.checkpoints.native import load
from romae.model.tasks import Regression

PARITY = sorted(path for path in (SHARED / "parity").glob("*") if path.is_dir())


@pytest.mark.parametrize("folder", PARITY or [None], ids=lambda path: path.name if path else "absent")
def test_the_authors_outputs_are_reproduced(folder):
    if folder is None:
        pytest.skip("needs the authors' checkpoints in shared/parity beside the project")
    assert largest_difference(folder) <= TOLERANCE


def layers(part: str, width: int, depth: int, hidden: int, generator: torch.Generator) -> dict[str, torch.Tensor]:
    weights = {}
    for layer in range(depth):
        stem = f"{part}.layers.{layer}"
        for name in ("wq", "wk", "wv", "wo"):
            weights[f"{stem}.attention.{name}.weight"] = torch.randn(width, width, generator=generator) / width**0.5
        weights[f"{stem}.feed_forward.w1.weight"] = torch.randn(hidden, width, generator=generator) / width**0.5
        weights[f"{stem}.feed_forward.w2.weight"] = torch.randn(width, hidden, generator=generator) / hidden**0.5
        for name in ("attention_norm", "ffn_norm"):
            weights[f"{stem}.{name}.weight"] = 1 + 0.1 * torch.randn(width, generator=generator)
    return weights


def settings_of(width: int, heads: int, depth: int, feed_forward: int | None) -> dict:
    return {
        "d_model": width,
        "nhead": heads,
        "depth": depth,
        "dim_feedforward": feed_forward,
        "mlp_ratio": 2.0,
        "layer_norm_eps": 1e-12,
        "hidden_drop_rate": 0.1,
        "attn_drop_rate": 0.2,
        "drop_path_rate": 0.1,
    }


def write_folder(
    folder, *, dims: int, cls: bool, ragged: bool, pretrain: bool, feed_forward: int | None, n_outputs: int = 5
) -> None:
    """A checkpoint in the authors' format whose outputs come from the plain implementation, in double precision."""
    generator = torch.Generator().manual_seed(dims)
    heads, width, narrow, channels, n = (2, 1), 24, 12, 2, 9
    weights = layers("encoder", width, 2, feed_forward or 2 * width, generator)
    weights |= {
        "projection.weight": torch.randn(width, channels, generator=generator),
        "projection.bias": torch.randn(width, generator=generator),
        "zeros": torch.zeros(1),
        "attn_pos_embedding.timescale": torch.ones(3),
    }
    if cls:
        weights["cls"] = torch.randn(width, generator=generator)
    config = {
        "encoder_config": settings_of(width, heads[0], 2, feed_forward),
        "use_cls": cls,
        "pos_encoding": "ropend",
        "tubelet_size": [1, 1, 1],
        "n_channels": channels,
        "n_pos_dims": dims,
        "p_rope_val": 0.75,
    }
    head_width, n_outputs = (narrow, channels) if pretrain else (width, n_outputs)
    if pretrain:
        weights |= layers("decoder", narrow, 1, 2 * narrow, generator) | {
            "encoder_decoder_proj.weight": torch.randn(narrow, width, generator=generator) / width**0.5,
            "encoder_decoder_proj.bias": torch.randn(narrow, generator=generator),
            "mask_token": torch.randn(1, 1, narrow, generator=generator),
        }
        config |= {"decoder_config": settings_of(narrow, heads[1], 1, None), "normalize_targets": False}
    else:
        config["dim_output"] = n_outputs
    weights["head.head.1.weight"] = torch.rand(head_width, generator=generator)
    weights["head.head.2.weight"] = torch.randn(n_outputs, head_width, generator=generator)
    weights["head.head.2.bias"] = torch.randn(n_outputs, generator=generator)

    values = torch.randn(3, n, channels, generator=generator)
    positions = 20 * torch.rand(3, n, dims, generator=generator)
    lengths = [n, n - 2, n - 4] if ragged else [n] * 3
    pad = torch.arange(n) >= torch.tensor(lengths)[:, None]
    mask = torch.zeros(3, n, dtype=torch.bool)
    mask[:, 1:5] = True
    if ragged:
        mask[2, 1:5], mask[2, 5:9] = False, True  # all that is hidden here is padding
    exact = {key: value.double() for key, value in weights.items()}
    logits = torch.zeros(3, 4, channels) if pretrain else torch.zeros(3, n_outputs)
    for i in range(3):
        x, at = values[i][~pad[i]].double(), positions[i][~pad[i]].double()
        if pretrain:
            hidden = mask[i][~pad[i]]
            if hidden.any():
                logits[i] = brute_force.reconstruct(x, at, hidden, exact, heads, 0.75, 1e-12).float()
        else:
            logits[i] = brute_force.classify(x, at, exact, heads[0], 0.75, 1e-12).float()
    io = {"values": values[..., None, None].contiguous(), "logits": logits}
    io["positions"] = positions.transpose(1, 2).contiguous()
    if ragged:
        io["pad_mask"] = pad.to(torch.uint8)
    if pretrain:
        io["mask"] = mask.to(torch.uint8)
    folder.mkdir()
    save_file(weights, folder / "model.safetensors")
    save_file(io, folder / "io.safetensors")
    (folder / "model_config.json").write_text(json.dumps(config))


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("cls", [True, False])
@pytest.mark.parametrize("ragged", [True, False])
@pytest.mark.parametrize("pretrain", [True, False])
@pytest.mark.parametrize("feed_forward", [None, 20])
def test_the_brute_force_agrees(tmp_path, dims, cls, ragged, pretrain, feed_forward):
    folder = tmp_path / "theirs"
    write_folder(folder, dims=dims, cls=cls, ragged=ragged, pretrain=pretrain, feed_forward=feed_forward)
    assert largest_difference(folder) <= TOLERANCE


@pytest.fixture
def folder(tmp_path):
    write_folder(tmp_path / "theirs", dims=1, cls=True, ragged=True, pretrain=True, feed_forward=None)
    return tmp_path / "theirs"


def test_an_imported_checkpoint_is_one_of_ours(folder, tmp_path):
    theirs = load_reference(folder)
    theirs.save(tmp_path / "ours")
    ours = load(tmp_path / "ours")
    assert ours.config == theirs.config and ours.config.stochastic_depth == 0.1
    for (name, one), (_, other) in zip(theirs.state_dict().items(), ours.state_dict().items(), strict=True):
        assert torch.equal(one, other), name


def test_a_difference_is_found(folder):
    io = load_file(folder / "io.safetensors")
    io["logits"][0, 0, 0] += 0.01
    save_file(io, folder / "io.safetensors")
    assert largest_difference(folder) == pytest.approx(0.01, rel=0.01)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_the_types_of_the_stored_arrays_do_not_matter(folder, dtype):
    stored = load_file(folder / "io.safetensors")
    stored["values"] = stored["values"].to(dtype)
    stored["mask"] = stored["mask"].bool()
    save_file(stored, folder / "io.safetensors")
    assert largest_difference(folder) < (TOLERANCE if dtype == torch.float64 else 1)


def test_a_single_output_is_a_regression(tmp_path):
    write_folder(tmp_path / "one", dims=1, cls=True, ragged=False, pretrain=False, feed_forward=None, n_outputs=1)
    assert (
        isinstance(load_reference(tmp_path / "one"), Regression) and largest_difference(tmp_path / "one") <= TOLERANCE
    )


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        ({"logits": lambda x: x[0]}, ["logits", "shape"]),
        ({"mask": lambda x: torch.ones_like(x).triu()}, ["as many tokens"]),
        ({"logits": lambda x: x[:, :2]}, ["hidden", "logits"]),
        ({"positions": lambda x: x[:, 0]}, ["positions", "shape"]),
    ],
)
def test_arrays_that_do_not_fit_get_a_sentence(folder, change, parts):
    stored = load_file(folder / "io.safetensors")
    for name, edit in change.items():
        stored[name] = edit(stored[name]).contiguous()
    save_file(stored, folder / "io.safetensors")
    with refused(ValueError, *parts):
        largest_difference(folder)


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        ({"encoder_config": ["d_model"]}, ["holds something unexpected"]),
        ({"pos_encoding": "absolute"}, ["rotary"]),
        ({"n_channels": 3}, ["encoder.projection.weight", "[24, 2]", "[24, 3]"]),
        ({"use_cls": False}, ["unexpected encoder.cls"]),
        ({"p_rope_val": None}, ["lacks 'p_rope_val'"]),
    ],
)
def test_folders_that_do_not_fit_get_a_sentence(folder, change, parts):
    path = folder / "model_config.json"
    config = json.loads(path.read_text()) | change
    path.write_text(json.dumps({key: value for key, value in config.items() if value is not None}))
    with refused(ValueError, *parts):
        load_reference(folder)


def test_files_that_are_missing_or_damaged_are_named(folder):
    (folder / "model.safetensors").write_bytes(b"nonsense")
    with refused(ValueError, "model.safetensors is damaged"):
        load_reference(folder)
    (folder / "model.safetensors").unlink()
    with refused(ValueError, "model.safetensors", "exist"):
        load_reference(folder)
    (folder / "model_config.json").write_text("{")
    with refused(ValueError, "model_config.json is damaged"):
        load_reference(folder)

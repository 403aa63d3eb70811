"""Which models of PyPOTS there are here, with the settings that their authors found."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

PeerTask = Literal["imputation", "classification"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A model of PyPOTS: the name of its class there, its settings, and others for a quick run.

    Settings `per_feature` are multiples of the number of series.
    """

    task: PeerTask
    model: str
    lr: float
    settings: Mapping[str, Any]
    quick: Mapping[str, Any]
    answers: Literal["samples", "latent curves", "point"]
    network: str | None = None  # the module that takes all the time, where it can be compiled or computed in bfloat16
    per_feature: Mapping[str, int] = field(default_factory=dict)
    needs: tuple[str, ...] = ()  # libraries that PyPOTS does not bring, since they are compiled for a version of torch


PEERS: Mapping[str, Peer] = {
    "csdi": Peer(
        task="imputation",
        model="CSDI",
        lr=0.0004496995494581241,
        settings={
            "n_layers": 5,
            "n_heads": 8,
            "n_channels": 128,
            "d_time_embedding": 32,
            "d_feature_embedding": 8,
            "d_diffusion_embedding": 256,
        },
        quick={"n_layers": 1, "n_heads": 2, "n_channels": 8, "d_diffusion_embedding": 16, "n_diffusion_steps": 3},
        answers="samples",
        network="model.backbone.diff_model",
    ),
    "gp-vae": Peer(
        task="imputation",
        model="GPVAE",
        lr=0.0006284348862580636,
        settings={
            "latent_size": 37,
            "encoder_sizes": (256, 256),
            "decoder_sizes": (256, 256),
            "window_size": 36,
            "beta": 0.2,
            "sigma": 1.005,
            "length_scale": 7,
        },
        quick={"latent_size": 3, "encoder_sizes": (8, 8), "decoder_sizes": (8, 8), "window_size": 4},
        answers="latent curves",
    ),
    "saits": Peer(
        task="imputation",
        model="SAITS",
        lr=0.00010230680340587147,
        settings={
            "n_layers": 3,
            "d_model": 64,  # PyPOTS takes the product of heads and d_k instead, and says so
            "d_ffn": 512,
            "n_heads": 8,
            "d_k": 128,
            "d_v": 256,
            "dropout": 0.2,
            "attn_dropout": 0.1,
        },
        quick={"n_layers": 1, "d_model": 8, "d_ffn": 8, "n_heads": 2, "d_k": 4, "d_v": 4},
        answers="point",
    ),
    "brits": Peer(
        task="imputation",
        model="BRITS",
        lr=0.00013,
        settings={"rnn_hidden_size": 1024},
        quick={"rnn_hidden_size": 8},
        answers="point",
    ),
    "gru-d": Peer(
        task="classification",
        model="GRUD",
        lr=1e-3,
        settings={"rnn_hidden_size": 64},
        quick={"rnn_hidden_size": 8},
        answers="point",
    ),
    # Four numbers to an observation, two layers, twice the width in between: as its authors have it for P12 and P19.
    "raindrop": Peer(
        task="classification",
        model="Raindrop",
        lr=1e-4,
        settings={"n_layers": 2, "n_heads": 2, "dropout": 0.3, "aggregation": "mean"},
        quick={"n_layers": 1},
        answers="point",
        per_feature={"d_model": 4, "d_ffn": 8},
        needs=("torch_geometric", "torch_scatter", "torch_sparse"),
    ),
}

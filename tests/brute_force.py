"""The same mathematics a second time, padded, slow and plain: what every fast path is held against.

Weights go by the names of the authors' checkpoints, so that one dictionary feeds this and `romae.load_reference`.
"""

import math

import torch
from torch import Tensor


def attention(q: Tensor, k: Tensor, v: Tensor, lengths: list[int], key_lengths: list[int] | None = None) -> Tensor:
    """Attention sample by sample and head by head, written out."""
    out, keys = [], key_lengths or lengths
    for qs, ks, vs in zip(q.split(lengths), k.split(keys), v.split(keys), strict=True):
        scores = torch.einsum("qhe,khe->hqk", qs, ks) / math.sqrt(q.shape[-1])
        out.append(torch.einsum("hqk,khe->qhe", scores.softmax(-1), vs))
    return torch.cat(out)


def rotated(x: Tensor, positions: Tensor, keep: float, base: float = 10000.0) -> Tensor:
    """x [n, h, e] turned channel pair by channel pair at positions [n, d]."""
    x, dims = x.clone(), positions.shape[1]
    axis = x.shape[-1] // dims
    for d in range(dims):
        for i in range(int(keep * axis / 2)):
            angle = positions[:, d] * base ** (-2 * i / axis)
            first, second = d * axis + i, d * axis + i + axis // 2
            a, b = x[..., first].clone(), x[..., second].clone()
            x[..., first] = a * angle.cos()[:, None] - b * angle.sin()[:, None]
            x[..., second] = b * angle.cos()[:, None] + a * angle.sin()[:, None]
    return x


def norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return x / (x.square().mean(-1, keepdim=True) + eps).sqrt() * weight


def stack(x: Tensor, positions: Tensor, weights: dict[str, Tensor], part: str, heads: int, keep: float, eps: float):
    """The layers of one sample, [n, w]."""
    depth = 1 + max(int(key.split(".")[2]) for key in weights if key.startswith(f"{part}.layers."))
    for layer in range(depth):
        w = {k.removeprefix(f"{part}.layers.{layer}."): v for k, v in weights.items()}
        y = norm(x, w["attention_norm.weight"], eps)
        q, k, v = ((y @ w[f"attention.{name}.weight"].T).reshape(len(x), heads, -1) for name in ("wq", "wk", "wv"))
        q, k = rotated(q, positions, keep), rotated(k, positions, keep)
        x = x + attention(q, k, v, [len(x)]).flatten(1) @ w["attention.wo.weight"].T
        y = norm(x, w["ffn_norm.weight"], eps)
        y = y @ w["feed_forward.w1.weight"].T
        x = x + (y * y.sigmoid()) @ w["feed_forward.w2.weight"].T
    return x


def encode(values: Tensor, positions: Tensor, weights: dict[str, Tensor], heads: int, keep: float, eps: float):
    """One sample through the encoder: embeddings and positions, CLS first where there is one."""
    x = values @ weights["projection.weight"].T + weights["projection.bias"]
    if "cls" in weights:
        x = torch.cat([weights["cls"].reshape(1, -1), x])
        positions = torch.cat([positions.new_zeros(1, positions.shape[1]), positions])
    return stack(x, positions, weights, "encoder", heads, keep, eps), positions


def head(x: Tensor, weights: dict[str, Tensor], eps: float) -> Tensor:
    return norm(x, weights["head.head.1.weight"], eps) @ weights["head.head.2.weight"].T + weights["head.head.2.bias"]


def classify(values: Tensor, positions: Tensor, weights: dict[str, Tensor], heads: int, keep: float, eps: float):
    x, _ = encode(values, positions, weights, heads, keep, eps)
    return head(x[0] if "cls" in weights else x.mean(0), weights, eps)


def reconstruct(
    values: Tensor,
    positions: Tensor,
    hidden: Tensor,
    weights: dict[str, Tensor],
    heads: tuple[int, int],
    keep: float,
    eps: float,
) -> Tensor:
    x, seen = encode(values[~hidden], positions[~hidden], weights, heads[0], keep, eps)
    x = x @ weights["encoder_decoder_proj.weight"].T + weights["encoder_decoder_proj.bias"]
    n_hidden = int(hidden.sum())
    x = torch.cat([x, weights["mask_token"].reshape(1, -1).expand(n_hidden, -1)])
    x = stack(x, torch.cat([seen, positions[hidden]]), weights, "decoder", heads[1], keep, eps)
    return head(x[len(x) - n_hidden :], weights, eps)

"""Ragged attention alone, beside padding to the longest sample."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from romae.benchmark.timing import milliseconds
from romae.model.attention import attend
from romae.model.windowed import attend_window
from romae.tokens.layout import Layout

Attention = Callable[[Tensor, Tensor, Tensor, Layout], Tensor]
PRECISIONS = {"bf16": torch.bfloat16, "float32": torch.float32}
HEADS, SIZE = 3, 60


def attention(*, n_runs: int = 9, share: float = 1.0) -> dict[str, Any]:
    """Ragged attention beside padding to the longest sample: the same mathematics, forward and backward, in one run.

    `share` takes fewer samples of every case.

    Errors, also that of attention within a window as long as the longest sample, are the largest of outputs and
    gradients against padding in double precision, in units of their size.
    """
    device = "cuda" if torch.cuda.is_available() else "cpu"
    random = np.random.default_rng(0)
    cases = {
        "light curves": np.where(np.arange(256) < 8, 220, random.integers(20, 146, 256)),
        "ICU records": np.where(np.arange(16) < 2, 1300, random.integers(100, 820, 16)),
        "short series": np.where(np.arange(512) < 16, 40, random.integers(4, 28, 512)),
        "equal lengths": np.full(64, 100),
    }
    ways: dict[str, Attention] = {"padded": _padded, "ragged": attend, "windowed": _windowed}
    rows = []
    for precision in PRECISIONS if device == "cuda" else ["float32"]:
        for name, lengths in cases.items():
            lengths = lengths[: max(2, round(share * len(lengths)))]
            layout = Layout.of(lengths.tolist(), device)
            torch.manual_seed(0)
            parts = [torch.randn(layout.n_tokens, HEADS, SIZE, device=device).to(PRECISIONS[precision]) for _ in "qkv"]
            truth = _both_ways(_padded, [part.double() for part in parts], layout)
            row: dict[str, Any] = {"case": name, "precision": precision}
            row["useful_share"] = round(float(lengths.mean() / lengths.max()), 3)
            for way, function in ways.items():
                work = partial(_both_ways, function, parts, layout)
                errors = [(x.double() - y).norm() / y.norm() for x, y in zip(work(), truth, strict=True)]
                row[f"{way}_error"] = float(f"{max(errors).item():.2g}")
                if way != "windowed":  # it is for samples that are longer than its window
                    row[f"{way}_milliseconds"] = milliseconds(work, n_runs).rounded()
            padded, ragged = (row[f"{way}_milliseconds"]["median"] for way in ("padded", "ragged"))
            rows.append(row | {"times_faster": round(padded / ragged, 2)})
    return {"rows": rows, "threads": torch.get_num_threads()}


def _padded(q: Tensor, k: Tensor, v: Tensor, layout: Layout) -> Tensor:
    """What people do otherwise: pad to the longest sample and mask."""
    n, columns = layout.n_samples, torch.arange(layout.longest, device=q.device)
    valid = columns < layout.device_lengths.unsqueeze(-1)
    places = valid.flatten().nonzero().squeeze(-1)

    def padded(x: Tensor) -> Tensor:
        rows = x.new_zeros(valid.numel(), *x.shape[1:]).index_copy(0, places, x)
        return rows.unflatten(0, (n, layout.longest)).transpose(1, 2)

    mask = valid[:, None, None, :]
    out = torch.nn.functional.scaled_dot_product_attention(padded(q), padded(k), padded(v), attn_mask=mask)
    return out.transpose(1, 2).flatten(0, 1).index_select(0, places)


def _windowed(q: Tensor, k: Tensor, v: Tensor, layout: Layout) -> Tensor:
    """A window that leaves nothing out."""
    return attend_window(q, k, v, layout, layout.longest, has_cls=False, dropout=0.0, scale=SIZE**-0.5)


def _both_ways(function: Attention, parts: list[Tensor], layout: Layout) -> list[Tensor]:
    """What attention gives, and the gradients of its squares."""
    q, k, v = (part.detach().requires_grad_() for part in parts)
    out = function(q, k, v, layout)
    squares = out.to(torch.promote_types(out.dtype, torch.float32)).square().sum()
    return [out.detach(), *torch.autograd.grad(squares, (q, k, v))]

"""Ragged attention alone, beside padding to the longest sample."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from romae.attention import attend
from romae.benchmark.timing import milliseconds
from romae.layout import Layout


def attention(*, n_runs: int = 9) -> dict[str, Any]:
    """Ragged attention beside padding to the longest sample: the same mathematics, forward and backward, in one run."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    random = np.random.default_rng(0)
    cases = {
        "light curves": np.where(np.arange(256) < 8, 220, random.integers(20, 146, 256)),
        "ICU records": np.where(np.arange(16) < 2, 1300, random.integers(100, 820, 16)),
        "short series": np.where(np.arange(512) < 16, 40, random.integers(4, 28, 512)),
        "equal lengths": np.full(64, 100),
    }
    rows = []
    for name, lengths in cases.items():
        layout = Layout.of(lengths.tolist(), device)
        q, k, v = (torch.randn(layout.n_tokens, 3, 60, device=device, requires_grad=True) for _ in range(3))
        ours, padded = attend(q, k, v, layout), _padded_attention(q, k, v, layout)
        times = {
            "ragged": milliseconds(partial(_both_ways, attend, q, k, v, layout), n_runs).median,
            "padded": milliseconds(partial(_both_ways, _padded_attention, q, k, v, layout), n_runs).median,
        }
        rows.append(
            {
                "case": name,
                "useful_share": round(float(lengths.mean() / lengths.max()), 3),
                "largest_difference": (ours - padded).detach().abs().max().item(),
                **{f"{kind}_milliseconds": round(value, 2) for kind, value in times.items()},
                "times_faster": round(times["padded"] / times["ragged"], 2),
            }
        )
    return {"rows": rows, "threads": torch.get_num_threads()}


def _padded_attention(q: Tensor, k: Tensor, v: Tensor, layout: Layout) -> Tensor:
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


def _both_ways(attention: Callable[..., Tensor], *inputs: Any) -> None:
    attention(*inputs).sum().backward()

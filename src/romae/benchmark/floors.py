"""What a step cannot go below: its arithmetic, and the memory that has to be moved."""

from typing import Any

from romae.benchmark.workloads import Workload
from romae.model.config import Size
from romae.tokens.masking import share_of
from romae.tokens.tokens import collate

# Peak of dense bf16 arithmetic and of memory, by the maker's data sheet: FLOP/s and bytes/s.
PEAKS = {"NVIDIA H200": (989e12, 4.8e12), "NVIDIA H100 80GB HBM3": (989e12, 3.35e12), "NVIDIA A100": (312e12, 2.0e12)}
HALF, SINGLE = 2, 4  # bytes


def floor(workload: Workload, device: str) -> dict[str, Any]:
    """TFLOP and GB of one training step, and the milliseconds that the slower of the two takes at the device's peak.

    Arithmetic counts matrix products, forward once and backward twice. Memory counts what the backward pass has to
    find again of every block (its input, queries, keys and values, what attention gave, the hidden layer), written and
    read once in half precision, and the traffic of AdamW: weights, gradients and two moments.
    """
    config = workload.task().config
    lengths = collate(workload.samples(workload.n_samples)).tokens.layout.lengths
    n_hidden = share_of(lengths, workload.ratio)
    visible = lengths - n_hidden + int(config.cls)
    flop = bytes_moved = 0.0
    n_weights = 0
    for size, tokens in ((config.encoder, visible), (config.decoder, visible + n_hidden)):
        n_tokens, n_pairs = int(tokens.sum()), int((tokens**2).sum())
        weights = size.depth * (4 * size.width**2 + 2 * size.width * size.hidden)
        flop += 3 * 2 * (n_tokens * weights + 2 * size.depth * n_pairs * size.width)
        bytes_moved += 2 * HALF * n_tokens * size.depth * _kept(size)
        n_weights += weights
    into, out_of = config.encoder.width * config.channels, config.decoder.width * config.channels
    between = config.encoder.width * config.decoder.width
    flop += 2 * 2 * int((lengths - n_hidden).sum()) * into  # values need no gradient
    flop += 3 * 2 * (int(visible.sum()) * between + int(n_hidden.sum()) * out_of)
    bytes_moved += SINGLE * 7 * (n_weights + into + between + out_of)
    bounds = {"tflop": round(flop / 1e12, 6), "gigabytes": round(bytes_moved / 1e9, 3)}
    if (peak := next((PEAKS[name] for name in PEAKS if device.startswith(name)), None)) is not None:
        arithmetic, memory = peak
        bounds["milliseconds"] = round(1e3 * max(flop / arithmetic, bytes_moved / memory), 2)
    return bounds


def _kept(size: Size) -> int:
    """Channels per token of one block that the backward pass reads."""
    return 6 * size.width + size.hidden

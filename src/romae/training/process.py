"""What a run changes of the process that it runs in, and gives back at its end, however it ends.

These belong to everyone in the process: the state that all objects of Accelerate share, the precision of products on a
GPU, and the generators that torch draws from.
"""

import contextlib
from collections.abc import Iterator

import torch

from romae.seeds import generators_as_before


@contextlib.contextmanager
def process_as_before(*, on_gpu: bool) -> Iterator[None]:
    """After the block, all of this is as it was before, also for an `Accelerator` of the user's own."""
    with _accelerate_as_before(), _products_as_before(), generators_as_before(has_gpus=on_gpu):
        yield


@contextlib.contextmanager
def _accelerate_as_before() -> Iterator[None]:
    from accelerate.state import AcceleratorState, GradientState, PartialState

    shared = [state._shared_state for state in (PartialState, AcceleratorState, GradientState)]
    before = [dict(state) for state in shared]
    try:
        yield
    finally:
        for state, values in zip(shared, before, strict=True):
            state.clear()
            state.update(values)


@contextlib.contextmanager
def _products_as_before() -> Iterator[None]:
    """Torch keeps two older settings, `allow_tf32` and the precision of float32 products, and newer ones per backend.

    The older ones cannot be read once the newer ones disagree with them, which they then did from the start.
    """
    backends = (torch.backends.cuda.matmul, torch.backends.mkldnn.matmul)  # type: ignore[attr-defined]
    newer = [backend.fp32_precision for backend in backends]
    try:
        older = torch.get_float32_matmul_precision()
    except RuntimeError:
        older = "highest"
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(older)  # sets the newer ones as well
        for backend, precision in zip(backends, newer, strict=True):
            backend.fp32_precision = precision

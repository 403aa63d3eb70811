"""Matrix products on ARM processors, which are faster without oneDNN."""

import platform
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

IS_ARM = platform.machine() in ("aarch64", "arm64")

_LOCK = threading.Lock()
_BEFORE: list[bool] = []  # the user's setting, once for each thread that is inside


@contextmanager
def without_onednn() -> Iterator[None]:
    """Leave matrix products on an ARM processor to BLAS until the last thread is done; elsewhere nothing changes.

    On ARM, torch hands every float32 product with transposed weights to oneDNN, which arranges the weights anew at each
    call. On a Neoverse N1 that makes 0.8 ms out of 0.2 for 400 tokens and a layer of 48 x 144, and large products are
    a fifth slower. The setting is one for the whole process, so it is put back as it was.
    """
    if not IS_ARM:
        yield
        return
    with _LOCK:
        _BEFORE.append(_BEFORE[0] if _BEFORE else bool(torch.backends.mkldnn.enabled))
        torch.backends.mkldnn.enabled = False  # type: ignore[assignment]
    try:
        yield
    finally:
        with _LOCK:
            before = _BEFORE.pop()
            if not _BEFORE:
                torch.backends.mkldnn.enabled = before  # type: ignore[assignment]

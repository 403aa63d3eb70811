"""What watches over a run: losses that are no numbers, and signals that ask it to stop."""

import contextlib
import signal
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class _Arriving(NamedTuple):
    step: int
    ids: Sequence[Hashable]
    loss: Tensor
    event: torch.cuda.Event | None


class LossWatch:
    """Looks at every loss once it has arrived from the device, so that no step waits for one."""

    def __init__(self, last_state: Callable[[], str]) -> None:
        self.last_state = last_state
        self.arriving: deque[_Arriving] = deque()

    def add(self, step: int, ids: Sequence[Hashable], loss: Tensor) -> None:
        """Take note of a step's loss, and look at those of two steps ago."""
        if loss.device.type == "cuda":
            copy = torch.empty((), dtype=loss.dtype, pin_memory=True)
            copy.copy_(loss, non_blocking=True)
            event = torch.cuda.Event()
            event.record()
            self.arriving.append(_Arriving(step, ids, copy, event))
            self.check(n_left=2)
        else:
            self.arriving.append(_Arriving(step, ids, loss, None))
            self.check()

    def check(self, n_left: int = 0) -> None:
        """Look at all losses but the last `n_left`."""
        while len(self.arriving) > n_left:
            step, ids, loss, event = self.arriving.popleft()
            if event is not None:
                event.synchronize()
            if not bool(torch.isfinite(loss)):
                shown = ", ".join(map(str, ids[:8])) + (", …" if len(ids) > 8 else "")
                raise FloatingPointError(
                    f"the loss became {float(loss)} at step {step} on the samples {shown}; {self.last_state()}. "
                    "Look at these samples, lower lr, or leave such batches out with nonfinite='skip'"
                )


@contextlib.contextmanager
def stop_signals(ask: Callable[[], None]) -> Iterator[None]:
    """Call `ask` on SIGTERM and SIGUSR1, which batch systems send before they end a job."""
    signals = [signal.SIGTERM, *([signal.SIGUSR1] if hasattr(signal, "SIGUSR1") else [])]
    try:
        before = {number: signal.signal(number, lambda *_: ask()) for number in signals}
    except ValueError:  # not in the main thread: whoever owns that one handles signals
        before = {}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

"""Progress for people: a bar on a terminal, plain lines elsewhere, nothing on ranks other than the first."""

import sys
import time
from collections.abc import Mapping
from types import TracebackType


class Progress:
    """How far a run is, what it last reported, and how many tokens go by each second."""

    def __init__(self, title: str, n_steps: int, *, start: int = 0, is_shown: bool = True) -> None:
        self.title, self.n_steps, self.step, self.is_shown = title, n_steps, start, is_shown
        self.is_terminal = is_shown and sys.stderr.isatty()
        self.n_tokens, self.since = 0, time.perf_counter()

    def __enter__(self) -> "Progress":
        if self.is_terminal:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as Bar

            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
            self.bar = Bar(*columns, TextColumn("{task.fields[news]}"), console=Console(stderr=True))
            self.task = self.bar.add_task(self.title, total=self.n_steps, completed=self.step, news="")
            self.bar.start()
        return self

    def __exit__(self, error_type: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self.is_terminal:
            self.bar.stop()

    def advance(self, n_tokens: int) -> None:
        """One step done."""
        self.step += 1
        self.n_tokens += n_tokens
        if self.is_terminal:
            self.bar.update(self.task, advance=1)

    def report(self, numbers: Mapping[str, float | None]) -> None:
        """Say how it stands."""
        seconds = max(time.perf_counter() - self.since, 1e-9)
        shown = [f"{name} {number:.4g}" for name, number in numbers.items() if number is not None]
        if self.n_tokens:
            shown.append(f"{self.n_tokens / seconds:,.0f} tokens/s")
        self.n_tokens, self.since = 0, time.perf_counter()
        if self.is_terminal:
            self.bar.update(self.task, news=", ".join(shown))
        else:
            self.say(f"step {self.step} of {self.n_steps}, {', '.join(shown)}")

    def say(self, sentence: str) -> None:
        """Say something on a line of its own."""
        if self.is_shown:
            print(f"{self.title}: {sentence}", file=sys.stderr, flush=True)

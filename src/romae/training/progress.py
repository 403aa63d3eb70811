"""Progress for people: a bar on a terminal, plain lines elsewhere, nothing on ranks other than the first."""

import sys
import time
from collections.abc import Mapping
from types import TracebackType

FIRST_LINE, NEXT_LINES = 5.0, 60.0  # seconds without a word, at first and then, where lines are read and no bar


class Progress:
    """How far a run is, what it last reported, how many tokens go by each second, and how long it will take."""

    def __init__(self, title: str, n_steps: int, *, start: int = 0, is_shown: bool = True) -> None:
        self.title, self.n_steps, self.step, self.is_shown = title, n_steps, start, is_shown
        self.start, self.is_terminal = start, is_shown and sys.stderr.isatty()
        self.n_tokens, self.since = 0, time.perf_counter()
        self.began, self.due = self.since, self.since + FIRST_LINE

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
        elif self.is_shown and time.perf_counter() >= self.due and self.step < self.n_steps:
            self.say(f"step {self.step} of {self.n_steps}, about {self.left()} left")

    def left(self) -> str:
        """How long the remaining steps will take, as long as those so far."""
        n_done = max(self.step - self.start, 1)
        return in_words((time.perf_counter() - self.began) * (self.n_steps - self.step) / n_done)

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
            if self.start < self.step < self.n_steps:
                shown.append(f"about {self.left()} left")
            self.say(f"step {self.step} of {self.n_steps}, {', '.join(shown)}")

    def say(self, sentence: str) -> None:
        """Say something on a line of its own."""
        self.due = time.perf_counter() + NEXT_LINES
        if self.is_shown:
            print(f"{self.title}: {sentence}", file=sys.stderr, flush=True)


def in_words(seconds: float) -> str:
    """A time in a unit that suits it: 45 s, 4 min, 2.5 h."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5_400 else f"{seconds / 3_600:.1f} h"

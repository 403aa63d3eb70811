"""The paper's tables and figures, one by one: what became of each of them here.

Which recipes answer which number, and what is known where they fall short, is in `paper.toml` beside the results.

Every published number is answered by a recipe with the paper's settings and, mostly, by one with ours. It is
reproduced if ours differs by no more than the spread over seeds, but one part in a hundred at least and one in twenty
at most; it is beaten or missed if ours is better or worse than that. A number in other units or on other data is not
comparable, whatever ours is.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from romae.config import load_config, parsed_json
from romae.experiments.recipe import Better, gained
from romae.experiments.summary import Row, blemish, with_spread

FILE = "paper.toml"
NO_RESULT, NOT_COMPARABLE, NOT_USED = "no result yet", "not comparable", "not comparable: its data were not used"
LEAST, MOST = 0.01, 0.05  # of a published number: how far off one may be that is reproduced
UNEXPLAINED = "falls short, which is not explained"


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """A published number, by the recipes that answer it.

    `short` is what is known of a row that falls short of it, or of its target, with the paper's settings, and
    `short_tuned` with ours.
    """

    paper: str
    tuned: str = ""
    short: str = UNEXPLAINED
    short_tuned: str = UNEXPLAINED
    is_used: bool = True

    @property
    def recipes(self) -> list[str]:
        return [name for name in (self.paper, self.tuned) if name]


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """A published speed of continuous rotary positions, in units of absolute ones, on some workload."""

    published: float
    workload: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """A table or figure of the paper: numbers of recipes, or a speed from benchmarks.

    `reason` begins a sentence that goes on with the numbers that fall short.
    """

    name: str
    about: str
    reason: str
    numbers: tuple[Number, ...] = ()
    speed: Speed | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Paper:
    """All tables and figures, in the order of the paper."""

    items: tuple[Item, ...]


class Answer(NamedTuple):
    """A number of ours that answers a published one: what it is of, the number in words, and its verdict."""

    name: str
    number: str
    verdict: str


class Answered(NamedTuple):
    """A published number, if there is one, with the answers of the paper's settings and of ours."""

    published: float | None
    paper: Answer | None
    tuned: Answer | None

    @property
    def answers(self) -> list[Answer]:
        return [answer for answer in (self.paper, self.tuned) if answer is not None]


class Judgement(NamedTuple):
    """What became of a table or figure: in words with the paper's settings and with ours, number by number, and why.

    `device` is what speeds were measured on.
    """

    item: Item
    paper: str
    tuned: str
    numbers: tuple[Answered, ...]
    reason: str
    device: str = ""


def read_items(folder: str | Path) -> tuple[Item, ...]:
    """The tables and figures in the paper.toml of a folder of results; none where there is no such file."""
    path = Path(folder) / FILE
    return load_config(Paper, path).items if path.exists() else ()


def judge(items: Sequence[Item], rows: Sequence[Row], benchmarks: str | Path) -> list[Judgement]:
    """What became of each table and figure; speeds are read from a folder of benchmarks."""
    headlines = {row.recipe: row for row in rows if row.is_headline}
    return [
        _judged(item, headlines) if item.speed is None else _speed(item, item.speed, Path(benchmarks)) for item in items
    ]


def _judged(item: Item, rows: Mapping[str, Row]) -> Judgement:
    numbers = tuple(_answered(entry, rows) for entry in item.numbers)
    paper = [number.paper.verdict for number in numbers if number.paper is not None]
    tuned = [number.tuned.verdict for number in numbers if number.tuned is not None]
    return Judgement(item, _counted(paper), _counted(tuned), numbers, _reason(item, rows))


def _answered(entry: Number, rows: Mapping[str, Row]) -> Answered:
    """A published number beside the recipes that answer it."""

    def answer(name: str) -> Answer:
        row = rows.get(name)
        return Answer(name, "" if row is None else with_spread(row), _verdict(entry, row))

    known = [rows[name] for name in entry.recipes if name in rows]
    published = next((row.published for row in known if row.published is not None), None)
    return Answered(published, answer(entry.paper), answer(entry.tuned) if entry.tuned else None)


def _reason(item: Item, rows: Mapping[str, Row]) -> str:
    """One sentence: what is to be known of the item, and of its numbers that fall short of the paper or of a target."""
    short: dict[str, list[str]] = {}
    for entry in item.numbers:
        for name, reason in ((entry.paper, entry.short), (entry.tuned, entry.short_tuned)):
            row = rows.get(name)
            if row is not None and "missed" in (row.verdict, _verdict(entry, row)):
                short.setdefault(reason, []).append(name)
    return "; ".join([item.reason, *(f"{', '.join(names)}: {reason}" for reason, names in short.items())]) + "."


def _counted(verdicts: Sequence[str]) -> str:
    """One word where all agree, else how many there are of each."""
    counts = Counter(verdicts)
    return "".join(counts) if len(counts) < 2 else ", ".join(f"{n} {name}" for name, n in counts.items())


def _verdict(entry: Number, row: Row | None) -> str:
    if row is None or (row.mean is None and not row.failed_seeds):
        return NO_RESULT if entry.is_used else NOT_USED
    if row.verdict == "below its floor":
        return row.verdict
    if problem := blemish(row.failed_seeds, row.changed_settings, bool(row.missing_seeds)):
        return problem
    if row.mean is None or row.published is None or not row.is_comparable:
        return NOT_COMPARABLE
    return _compared(row.mean, row.std or 0.0, row.published, row.better)


def _compared(mean: float, spread: float, published: float, better: Better) -> str:
    gain = gained(mean, published, better)
    if abs(gain) <= min(max(spread, LEAST * published), MOST * published):
        return "reproduced"
    return "beaten" if gain > 0 else "missed"


def _speed(item: Item, claim: Speed, folder: Path) -> Judgement:
    """From the first benchmark on a GPU that has it; other workloads than the paper's stand beside it."""
    measured = [(device, speeds) for device, speeds in map(_speeds, sorted(folder.glob("*.json"))) if device != "cpu"]
    timed = [pair for pair in measured if claim.workload in pair[1]] or [pair for pair in measured if pair[1]]
    device, speeds = timed[0] if timed else ("", {})
    numbers = tuple(_answered_speed(claim, workload, speed) for workload, speed in speeds.items())
    claimed = (answer.verdict for number in numbers if number.published is not None for answer in number.answers)
    return Judgement(item, "", next(claimed, NO_RESULT), numbers, f"{item.reason}.", device)


def _answered_speed(claim: Speed, workload: str, speed: float) -> Answered:
    is_claimed = workload == claim.workload
    verdict = _compared(speed, 0.0, claim.published, "higher") if is_claimed else NOT_COMPARABLE
    return Answered(claim.published if is_claimed else None, None, Answer(workload, f"{speed:.2f}", verdict))


def _speeds(path: Path) -> tuple[str, dict[str, float]]:
    """The device of a benchmark, and the speed of positions by workload; none where they were not measured."""
    try:
        report = parsed_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} is torn or no JSON: {error}; `romae benchmark` writes it anew") from None
    try:
        positions = report.get("positions")
        if positions is None:
            return "", {}
        return str(positions["machine"]["device"]), {
            row["workload"]: float(row["continuous_speed"]) for row in positions["rows"]
        }
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError):
        raise ValueError(f"{path} is no benchmark; remove it, and `romae benchmark` writes it anew") from None

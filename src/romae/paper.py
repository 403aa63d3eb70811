"""The paper's tables and figures, one by one: what became of each of them here.

Every published number is answered by a recipe with the paper's settings and, mostly, by one with ours. It is
reproduced if ours differs by no more than the spread over seeds, but one part in a hundred at least and one in twenty
at most; it is beaten or missed if ours is better or worse than that. A number in other units or on other data is not
comparable, whatever ours is.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from romae.rows import Row, number, ours

NO_RESULT, INCOMPLETE = "no result yet", "not all seeds yet"
LEAST, MOST = 0.01, 0.05  # of a published number: how far off one may be that is reproduced
PUBLISHED_SPEED = 0.87  # of continuous rotary positions, in units of absolute ones


class Number(NamedTuple):
    """A published number, by the recipes that answer it."""

    paper: str
    house: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """A table or figure of the paper."""

    name: str
    about: str
    numbers: tuple[Number, ...]
    reason: str


class Judgement(NamedTuple):
    """What became of a table or figure, in words: with the paper's settings, and with ours."""

    item: Item
    paper: str
    house: str
    numbers: str


def _both(stem: str) -> Number:
    return Number(f"{stem}-paper", f"{stem}-house")


_SIZES = ("tiny", "small", "base")
_SETS = ("basic-motions", "character-trajectories", "epilepsy", "lsst", "heartbeat")
ITEMS = (
    Item(
        name="Table 1",
        about="positions told by the encoder",
        numbers=(
            *(Number(f"positions/{size}-cls", f"positions/house-{size}-cls") for size in _SIZES),
            *(Number(f"positions/{size}-no-cls") for size in _SIZES),
        ),
        reason="Without CLS the published number fits positions from 1 to 50, where the text, and ours, have 0 to 50.",
    ),
    Item(
        name="Figure 2",
        about="the error against the position",
        numbers=(Number("positions/range-100"), Number("positions/range-1000")),
        reason="A plot without numbers; ours is on the page of results.",
    ),
    Item(
        name="Table 2",
        about="Tiny ImageNet",
        numbers=(
            Number("tiny_imagenet/a-no-cls"),
            Number("tiny_imagenet/b-no-cls", "tiny_imagenet/b-house"),
            Number("tiny_imagenet/b-cls"),
            Number("tiny_imagenet/b-absolute"),
        ),
        reason="Published at 224 pixels; only row A is that large.",
    ),
    Item(
        name="Table 3",
        about="ESC-50",
        numbers=(_both("audio/esc50"),),
        reason="The paper pre-trains on AudioSet or LibriSpeech, which are not at hand, and chooses on the test folds.",
    ),
    Item(
        name="Table 4",
        about="light curves",
        numbers=(Number("lightcurves/elasticc"), _both("lightcurves/plasticc")),
        reason="ELAsTiCC is not at hand; PLAsTiCC, on which the paper has no number, stands in for it.",
    ),
    Item(
        name="Table 5",
        about="the pendulum",
        numbers=(Number("pendulum/paper", "pendulum/house"), Number("pendulum/paper-cls")),
        reason="The paper's script prints a sum, so that the unit of its number is uncertain.",
    ),
    Item(
        name="Table 6",
        about="UEA",
        numbers=tuple(_both(f"uea/{name}") for name in _SETS),
        reason="The test half of Heartbeat is not at hand: its row is a part of TRAIN and compares with nothing.",
    ),
    Item(
        name="Table 7",
        about="interpolation",
        numbers=(
            _both("spirals/a"),
            _both("spirals/b"),
            _both("synthetic/romae"),
            _both("synthetic/hetvae"),
            _both("physionet/rows"),
            _both("physionet/tokens"),
        ),
        reason="Spirals have other units, PhysioNet a normalisation that is not told. ContiFormer's and HeTVAE's own "
        "protocols (spirals/a, synthetic/hetvae) stand beside their numbers.",
    ),
    Item(
        name="Table 8",
        about="the speed of positions",
        numbers=(),
        reason="Continuous positions in units of absolute ones, on images (`romae benchmark positions`).",
    ),
    Item(
        name="Appendix B.4",
        about="frequencies",
        numbers=(Number("frequencies/paper", "frequencies/house"),),
        reason="Plots without numbers; ours are on the page of results.",
    ),
)


def judge(rows: Sequence[Row], benchmarks: str | Path) -> list[Judgement]:
    """All tables and figures in the order of the paper; the speed is read from a folder of benchmarks."""
    headlines = {row.recipe: row for row in rows if row.is_headline}
    return [_judged(item, headlines) if item.numbers else _speed(item, Path(benchmarks)) for item in ITEMS]


def _judged(item: Item, rows: Mapping[str, Row]) -> Judgement:
    paper = [_verdict(rows.get(one.paper)) for one in item.numbers]
    house = [_verdict(rows.get(one.house)) for one in item.numbers if one.house]
    told = [text for one in item.numbers if (text := _told(one, rows))]
    return Judgement(item, _counted(paper), _counted(house), "; ".join(told))


def _told(one: Number, rows: Mapping[str, Row]) -> str:
    """Such as: a-paper 0.3 ± 0.1 (5), a-house 0.2 ± 0.1 (5) beside 0.25."""
    found = [row for name in one if (row := rows.get(name)) is not None and row.mean is not None]
    published = next((row.published for row in found if row.published is not None), None)
    beside = "" if published is None else f" beside {number(published)}"
    return ", ".join(f"{row.recipe} {ours(row)}" for row in found) + beside


def _counted(verdicts: Sequence[str]) -> str:
    """One word where all agree, else how many there are of each."""
    counts = Counter(verdicts)
    return "".join(counts) if len(counts) < 2 else ", ".join(f"{n} {name}" for name, n in counts.items())


def _verdict(row: Row | None) -> str:
    if row is None or row.mean is None:
        return NO_RESULT
    if row.verdict == "below its floor":
        return row.verdict
    if row.missing_seeds:
        return INCOMPLETE
    if row.published is None or not row.is_comparable:
        return "not comparable"
    return _compared(row.mean, row.std or 0.0, row.published, row.better)


def _compared(mean: float, spread: float, published: float, better: Literal["lower", "higher"]) -> str:
    gain = (published - mean) * (1 if better == "lower" else -1)
    if abs(gain) <= min(max(spread, LEAST * published), MOST * published):
        return "reproduced"
    return "beaten" if gain > 0 else "missed"


def _speed(item: Item, folder: Path) -> Judgement:
    """From the first benchmark on a GPU that has it."""
    verdict, told = NO_RESULT, ""
    for path in sorted(folder.glob("*.json")):
        try:
            found = json.loads(path.read_text()).get("positions")
        except json.JSONDecodeError as error:
            raise ValueError(f"{path} is torn or no JSON: {error}; `romae benchmark` writes it anew") from None
        speeds = {} if found is None else {row["workload"]: row["continuous_speed"] for row in found["rows"]}
        if "images" in speeds and found["machine"]["device"] != "cpu":
            verdict = _compared(speeds["images"], 0.0, PUBLISHED_SPEED, "higher")
            told = ", ".join(f"{workload} {speed:.2f}" for workload, speed in speeds.items())
            told += f" beside {PUBLISHED_SPEED} ({found['machine']['device']})"
            break
    return Judgement(item, "", verdict, told)

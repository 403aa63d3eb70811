"""The paper's tables and figures, one by one: what became of each of them here.

Every published number stands beside the best of the recipes that answer it. It is beaten if ours is better, reproduced
if ours is worse by no more than the spread over seeds and one part in twenty, and missed otherwise; one part in a
hundred counts for nothing. A number in other units or on other data is not comparable, whatever ours is.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from romae.rows import Row, number, ours

NO_RESULT = "no result yet"
NOTHING, MOST = 0.01, 0.05  # by how much a number that is reproduced may be worse, as shares of the published one


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """A table or figure. Each of its `numbers` is answered by one or more recipes, of which the best counts."""

    name: str
    about: str
    numbers: tuple[tuple[str, ...], ...]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What became of a table or figure, in words."""

    name: str
    about: str
    verdict: str
    ours: str
    reason: str


_SIZES, _SETS = ("tiny", "small", "base"), ("basic-motions", "character-trajectories", "epilepsy", "lsst")
ITEMS = (
    Item(
        name="Table 1",
        about="positions told by the encoder",
        numbers=tuple((f"positions/{size}-cls", f"positions/house-{size}-cls") for size in _SIZES)
        + tuple((f"positions/{size}-no-cls",) for size in _SIZES),
        reason="Without CLS the published number fits positions from 1 to 50, where the text, and ours, have 0 to 50.",
    ),
    Item(
        name="Figure 2",
        about="the error against the position",
        numbers=(("positions/range-100",), ("positions/range-1000",)),
        reason="A plot without numbers; ours is on the page of results.",
    ),
    Item(
        name="Table 2",
        about="Tiny ImageNet",
        numbers=(
            ("tiny_imagenet/a-no-cls",),
            ("tiny_imagenet/b-no-cls", "tiny_imagenet/b-house"),
            ("tiny_imagenet/b-cls",),
            ("tiny_imagenet/b-absolute",),
        ),
        reason="Published at 224 pixels; only row A is that large.",
    ),
    Item(
        name="Table 3",
        about="ESC-50",
        numbers=(("audio/esc50-paper", "audio/esc50-house"),),
        reason="The paper pre-trains on AudioSet or LibriSpeech, which are not at hand, and chooses on the test folds.",
    ),
    Item(
        name="Table 4",
        about="light curves",
        numbers=(("lightcurves/elasticc",), ("lightcurves/plasticc-paper", "lightcurves/plasticc-house")),
        reason="ELAsTiCC is not at hand; PLAsTiCC, on which the paper has no number, stands in for it.",
    ),
    Item(
        name="Table 5",
        about="the pendulum",
        numbers=(("pendulum/paper", "pendulum/house"), ("pendulum/paper-cls",)),
        reason="The paper's script prints a sum, so that the unit of its number is uncertain.",
    ),
    Item(
        name="Table 6",
        about="UEA",
        numbers=tuple((f"uea/{name}-paper", f"uea/{name}-house") for name in _SETS)
        + (("uea/heartbeat-paper", "uea/heartbeat-house"),),
        reason="The test half of Heartbeat is not at hand: its row is a part of TRAIN and compares with nothing.",
    ),
    Item(
        name="Table 7",
        about="interpolation",
        numbers=(
            ("spirals/a-paper", "spirals/a-house"),
            ("spirals/b-paper", "spirals/b-house"),
            ("synthetic/romae-paper", "synthetic/romae-house"),
            ("synthetic/hetvae-paper", "synthetic/hetvae-house"),
            ("physionet/rows-paper", "physionet/rows-house"),
            ("physionet/tokens-paper", "physionet/tokens-house"),
        ),
        reason="Spirals were published in other units, and PhysioNet in an unknown normalisation.",
    ),
    Item(
        name="Appendix B.4",
        about="frequencies",
        numbers=(("frequencies/paper", "frequencies/house"),),
        reason="Plots without numbers; ours are on the page of results.",
    ),
)
SPEED = ("Table 8", "the speed of positions")
PUBLISHED_SPEED = 0.87  # of continuous rotary positions, in units of absolute ones


def judge(rows: Sequence[Row], benchmarks: str | Path) -> list[Judgement]:
    """All tables and figures in the order of the paper; the speed is read from a folder of benchmarks."""
    headlines = {row.recipe: row for row in rows if row.is_headline}
    judged = [_judged(item, headlines) for item in ITEMS]
    return [*judged[:-1], _speed(Path(benchmarks)), judged[-1]]


def _judged(item: Item, rows: Mapping[str, Row]) -> Judgement:
    verdicts, told = [], []
    for names in item.numbers:
        found = [rows[name] for name in names if name in rows and rows[name].mean is not None]
        best = _best(found)
        verdicts.append(NO_RESULT if best is None else _verdict(best))
        if best is not None:
            beside = "" if best.published is None else f" beside {number(best.published)}"
            told.append(f"{best.recipe} {ours(best)}{beside}")
    counts = Counter(verdicts)
    verdict = next(iter(counts)) if len(counts) == 1 else ", ".join(f"{n} {name}" for name, n in counts.items())
    return Judgement(name=item.name, about=item.about, verdict=verdict, ours="; ".join(told), reason=item.reason)


def _best(rows: Sequence[Row]) -> Row | None:
    if not rows:
        return None
    return min(rows, key=lambda row: (row.mean or 0.0) * (1 if row.better == "lower" else -1))


def _verdict(row: Row) -> str:
    assert row.mean is not None
    if row.published is None or not row.is_comparable:
        return "not comparable"
    worse = (row.mean - row.published) * (1 if row.better == "lower" else -1)
    if worse < 0:
        return "beaten"
    allowed = min(max(row.std or 0.0, NOTHING * row.published), MOST * row.published)
    return "reproduced" if worse <= allowed else "missed"


def _speed(folder: Path) -> Judgement:
    """The paper's Table 8 from the benchmark of positions on a GPU."""
    name, about = SPEED
    for path in sorted(folder.glob("*.json")):
        found = json.loads(path.read_text()).get("positions")
        if found is None or found["machine"]["device"] == "cpu":
            continue
        speeds = {row["workload"]: row["continuous_speed"] for row in found["rows"]}
        told = ", ".join(f"{workload} {speed:.2f}" for workload, speed in speeds.items())
        return Judgement(
            name=name,
            about=about,
            verdict="beaten" if speeds["images"] > PUBLISHED_SPEED else "missed",
            ours=f"{told} beside {PUBLISHED_SPEED} ({found['machine']['device']})",
            reason="Continuous positions in units of absolute ones; the paper's workload is one of images.",
        )
    return Judgement(
        name=name, about=about, verdict=NO_RESULT, ours="", reason="`romae benchmark positions` measures it."
    )

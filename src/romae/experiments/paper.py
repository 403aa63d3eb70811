"""The paper's tables and figures, one by one: what became of each of them here.

Every published number is answered by a recipe with the paper's settings and, mostly, by one with ours. It is
reproduced if ours differs by no more than the spread over seeds, but one part in a hundred at least and one in twenty
at most; it is beaten or missed if ours is better or worse than that. A number in other units or on other data is not
comparable, whatever ours is. Every table and figure has its reason, one sentence that also tells why numbers fall
short, as far as that is known.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from romae.experiments.recipe import Better, gained
from romae.experiments.summary import Row, blemish, number, ours

NO_RESULT, NOT_COMPARABLE, NOT_USED = "no result yet", "not comparable", "not comparable: its data were not used"
LEAST, MOST = 0.01, 0.05  # of a published number: how far off one may be that is reproduced
UNEXPLAINED = "falls short, which is not explained"
PUBLISHED_SPEED = 0.87  # of continuous rotary positions, in units of absolute ones
TIMED = "photographs"  # the workload of that number


class Number(NamedTuple):
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
class Item:
    """A table or figure of the paper. `reason` begins a sentence that goes on with the numbers that fall short."""

    name: str
    about: str
    numbers: tuple[Number, ...]
    reason: str


class Judgement(NamedTuple):
    """What became of a table or figure, in words: with the paper's settings, with ours, number by number, and why."""

    item: Item
    paper: str
    tuned: str
    numbers: str
    reason: str


def _both(stem: str, short: str = UNEXPLAINED, short_tuned: str = UNEXPLAINED) -> Number:
    return Number(f"{stem}-paper", f"{stem}-tuned", short, short_tuned)


SPIKE = "a seed is thrown back by a spike of the loss, which nothing clips"
JOINT = "the paper's wavelengths and joint queries, where ours differ in both and in size"
STAY = "time in units of a whole stay, in which the paper's wavelengths tell hours apart badly, and joint queries"
FEW = "by a few of the 1 436 test samples"
CLOSE = "below MiniRocket by a few of the 1 436 test samples"
GAIN = "above every baseline and 0.70, but what pre-training adds to training from scratch is no more than chance gives"
SMALL = "MiniRocket makes no mistake here, and there are only 137 cases to learn from"
PLAIN = "a smaller model than ours, which sees frames neither dropped nor with noise"
_SIZES = ("tiny", "small", "base")
ITEMS = (
    Item(
        name="Table 1",
        about="positions told by the encoder",
        numbers=(
            *(Number(f"positions/{size}-cls", f"positions/tuned-{size}-cls", SPIKE) for size in _SIZES),
            *(Number(f"positions/{size}-no-cls") for size in _SIZES),
        ),
        reason="Without CLS the published number fits positions from 1 to 50, where the text, and ours, have 0 to 50",
    ),
    Item(
        name="Figure 2",
        about="the error against the position",
        numbers=(Number("positions/range-100"), Number("positions/range-1000")),
        reason="A plot without numbers; ours is on the page of results",
    ),
    Item(
        name="Table 2",
        about="Tiny ImageNet",
        numbers=(
            Number("tiny_imagenet/a-no-cls"),
            Number("tiny_imagenet/b-no-cls"),
            Number("tiny_imagenet/b-cls"),
            Number("tiny_imagenet/b-absolute"),
        ),
        reason="Published at 224 pixels; only row A is that large",
    ),
    Item(
        name="Table 3",
        about="ESC-50",
        numbers=(_both("audio/esc50"),),
        reason="The paper pre-trains on AudioSet or LibriSpeech, not used here, and chooses on the test folds",
    ),
    Item(
        name="Table 4",
        about="light curves",
        numbers=(Number("lightcurves/elasticc", is_used=False), _both("lightcurves/plasticc", short_tuned=GAIN)),
        reason="ELAsTiCC was not used; PLAsTiCC, on which the paper has no number, stands in for it",
    ),
    Item(
        name="Table 5",
        about="the pendulum",
        numbers=(Number("pendulum/paper", "pendulum/tuned", PLAIN), Number("pendulum/paper-cls")),
        reason="The paper's script prints a sum, so that the unit of its number is uncertain",
    ),
    Item(
        name="Table 6",
        about="UEA",
        numbers=(
            _both("uea/basic-motions"),
            _both("uea/character-trajectories", FEW, CLOSE),
            _both("uea/epilepsy", short_tuned=SMALL),
            _both("uea/lsst"),
            _both("uea/heartbeat"),
        ),
        reason="The test half of Heartbeat was not used: its row is a part of TRAIN and compares with nothing",
    ),
    Item(
        name="Table 7",
        about="interpolation",
        numbers=(
            _both("spirals/a"),
            _both("spirals/b"),
            _both("synthetic/romae", JOINT),
            _both("synthetic/hetvae", JOINT),
            _both("physionet/rows", STAY),
            _both("physionet/tokens", STAY),
        ),
        reason="Spirals have other units, PhysioNet a normalisation that is not told; ContiFormer's and HeTVAE's own "
        "protocols (spirals/a, synthetic/hetvae) stand beside their numbers",
    ),
    Item(
        name="Table 8",
        about="the speed of positions",
        numbers=(),
        reason="Continuous positions in units of absolute ones; published on images of 196 patches, our photographs; "
        "the target is 0.98",
    ),
    Item(
        name="Appendix B.4",
        about="frequencies",
        numbers=(Number("frequencies/paper", "frequencies/tuned"),),
        reason="Plots without numbers; ours are on the page of results",
    ),
)


def judge(rows: Sequence[Row], benchmarks: str | Path) -> list[Judgement]:
    """All tables and figures in the order of the paper; the speed is read from a folder of benchmarks."""
    headlines = {row.recipe: row for row in rows if row.is_headline}
    return [_judged(item, headlines) if item.numbers else _speed(item, Path(benchmarks)) for item in ITEMS]


def _judged(item: Item, rows: Mapping[str, Row]) -> Judgement:
    paper = [_verdict(one, rows.get(one.paper)) for one in item.numbers]
    tuned = [_verdict(one, rows.get(one.tuned)) for one in item.numbers if one.tuned]
    numbers = "; ".join(_told(one, rows) for one in item.numbers)
    return Judgement(item, _counted(paper), _counted(tuned), numbers, _reason(item, rows))


def _told(one: Number, rows: Mapping[str, Row]) -> str:
    """Such as: a-paper 0.3 ± 0.1 (5) missed, a-tuned 0.2 ± 0.1 (5) beaten, beside 0.25."""
    found = {name: rows.get(name) for name in one.recipes}
    told = [
        f"{name} {_verdict(one, row)}"
        if row is None or row.mean is None
        else f"{name} {ours(row)} {_verdict(one, row)}"
        for name, row in found.items()
    ]
    published = next((row.published for row in found.values() if row is not None and row.published is not None), None)
    return ", ".join(told + ([] if published is None else [f"beside {number(published)}"]))


def _reason(item: Item, rows: Mapping[str, Row]) -> str:
    """One sentence: what is to be known of the item, and of its numbers that fall short of the paper or of a target."""
    short: dict[str, list[str]] = {}
    for one in item.numbers:
        for name, known in ((one.paper, one.short), (one.tuned, one.short_tuned)):
            row = rows.get(name)
            if row is not None and "missed" in (row.verdict, _verdict(one, row)):
                short.setdefault(known, []).append(name)
    return "; ".join([item.reason, *(f"{', '.join(names)}: {known}" for known, names in short.items())]) + "."


def _counted(verdicts: Sequence[str]) -> str:
    """One word where all agree, else how many there are of each."""
    counts = Counter(verdicts)
    return "".join(counts) if len(counts) < 2 else ", ".join(f"{n} {name}" for name, n in counts.items())


def _verdict(one: Number, row: Row | None) -> str:
    if row is None or (row.mean is None and not row.failed_seeds):
        return NO_RESULT if one.is_used else NOT_USED
    if row.verdict == "below its floor":
        return row.verdict
    if found := blemish(row.failed_seeds, row.changed_settings, bool(row.missing_seeds)):
        return found
    if row.mean is None or row.published is None or not row.is_comparable:
        return NOT_COMPARABLE
    return _compared(row.mean, row.std or 0.0, row.published, row.better)


def _compared(mean: float, spread: float, published: float, better: Better) -> str:
    gain = gained(mean, published, better)
    if abs(gain) <= min(max(spread, LEAST * published), MOST * published):
        return "reproduced"
    return "beaten" if gain > 0 else "missed"


def _speed(item: Item, folder: Path) -> Judgement:
    """From the first benchmark on a GPU that has it; other workloads than the paper's stand beside it."""
    verdict, told = NO_RESULT, ""
    found = [(device, speeds) for device, speeds in map(_speeds, sorted(folder.glob("*.json"))) if device != "cpu"]
    timed = [one for one in found if TIMED in one[1]] or [one for one in found if one[1]]
    for device, speeds in timed[:1]:
        verdicts = dict.fromkeys(speeds, NOT_COMPARABLE)
        if TIMED in speeds:
            verdicts[TIMED] = verdict = _compared(speeds[TIMED], 0.0, PUBLISHED_SPEED, "higher")
        told = ", ".join(f"{name} {speed:.2f} {verdicts[name]}" for name, speed in speeds.items())
        told += f", beside {PUBLISHED_SPEED} ({device})"
    return Judgement(item, "", verdict, told, f"{item.reason}.")


def _speeds(path: Path) -> tuple[str, dict[str, float]]:
    """The device of a benchmark, and the speed of positions by workload; none where they were not measured."""
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is torn or no JSON: {error}; `romae benchmark` writes it anew") from None
    try:
        found = held.get("positions")
        if found is None:
            return "", {}
        return str(found["machine"]["device"]), {
            row["workload"]: float(row["continuous_speed"]) for row in found["rows"]
        }
    except (AttributeError, KeyError, TypeError, ValueError):
        raise ValueError(f"{path} is no benchmark; remove it, and `romae benchmark` writes it anew") from None

"""Tasks: the recipes that answer one question, as one line of the page of results.

Recipes of a task have the same metric and the same name but for words that say how it is answered and not which it is.
The line shows one of them, chosen by these words and never by its number on the test data.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, get_args

from romae.experiments.recipe import Better, gained
from romae.experiments.rivals import Beside, Score, best, is_simple
from romae.experiments.summary import Row, blemish

Verdict = Literal["ahead", "level", "behind", "alone", "incomplete", "suspect"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
SPREAD_OF_ONE_SEED = 0.05  # of the number it is compared with: one seed has no spread of its own

# Words of recipes' names, those that a line rather shows first. A recipe without any of them comes before all.
VARIANTS = MappingProxyType(
    {
        "summary": "summary statistics of the sample as further tokens",
        "kinds": "an embedding of its own for each variable",
        "tuned": "settings chosen on validation data",
        "no-cls": "the mean of all tokens in place of a CLS token",
        "paper": "the paper's hyper-parameters",
        "cls": "a CLS token",
        "absolute": "absolute positions in place of rotary ones",
        "time": "time alone, without the phase",
        "both": "test samples, without their labels, are seen in pre-training",
        "shallow": "an encoder of two layers",
        "scratch": "no pre-training",
    }
)
_WORD = re.compile(rf"\b(?:{'|'.join(sorted(VARIANTS, key=len, reverse=True))})\b")
GROUPS = MappingProxyType(  # of experiments, else of the last stage of training; in the order of the page
    {
        "forecasting": "Forecasting",
        "pretrain": "Interpolation and imputation",
        "uncertainty": "Predictive distributions",
        "classify": "Classification",
        "multilabel": "Classification",
        "regress": "Regression",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A task: the recipe it is answered by best, and what that stands beside.

    `rows` are the headlines of all its recipes that have results, `peers` all peers that were run, best first.
    """

    task: str
    title: str
    group: str
    ours: Row
    rows: tuple[Row, ...]
    default: Score | None
    peers: tuple[Score, ...]
    simple: Score | None
    verdict: Verdict

    @property
    def peer(self) -> Score | None:
        return self.peers[0] if self.peers else None


def task_of(recipe: str) -> str:
    """The name of a recipe without the words that say how: uea/lsst-tuned is a row of uea/lsst."""
    experiment, _, rest = recipe.partition("/")
    words = [word for word in _WORD.sub("", rest).split("-") if word]
    return "/".join(part for part in (experiment, "-".join(words)) if part)


def experiment_of(name: str) -> str:
    """What a recipe or a task belongs to: the first part of its name."""
    return name.split("/")[0]


def lines(rows: Sequence[Row], beside: Beside) -> list[Line]:
    """A line for each task that has results, by groups, within them in the order of the recipes."""
    tasks: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if row.is_headline and has_result(row):
            tasks.setdefault((task_of(row.recipe), row.metric), []).append(row)
    every = [_line(task, of_task, beside) for (task, _), of_task in tasks.items()]
    order = list(dict.fromkeys(GROUPS.values()))
    return sorted(every, key=lambda line: order.index(line.group))


def has_result(row: Row) -> bool:
    """Whether any seed was run, be it that it failed."""
    return row.n > 0 or len(row.failed_seeds) > 0


def _line(task: str, rows: Sequence[Row], beside: Beside) -> Line:
    ours = min(rows, key=lambda row: _preference(row.recipe))
    baselines = [Score(name, value, ours.n) for name, value in ours.baselines.items()]
    peers = [score for score in baselines if not is_simple(score.name)]
    peers += beside.peers.get(task, {}).get(ours.metric, {}).values()
    simple = best((score for score in baselines if is_simple(score.name)), ours.better)
    experiment = experiment_of(task)
    ordered = sorted(peers, key=lambda score: score.value, reverse=ours.better == "higher")
    return Line(
        task=task,
        title=_shared_title([row.title for row in rows]),
        group=GROUPS[experiment if experiment in GROUPS else ours.stage],
        ours=ours,
        rows=tuple(rows),
        default=beside.defaults.get(task),
        peers=tuple(ordered),
        simple=simple,
        verdict=verdict(ours, ordered[0] if ordered else None, simple),
    )


def _preference(recipe: str) -> list[int]:
    """How late the words of a recipe's name come; of two recipes, the line shows that with the smaller list."""
    order = list(VARIANTS)
    return sorted(order.index(word) for word in _WORD.findall(recipe.partition("/")[2]))


def _shared_title(titles: Sequence[str]) -> str:
    """What titles have in common, up to a comma; that of a recipe alone is kept."""
    parts = [title.split(", ") for title in titles]
    shared = [words[0] for words in zip(*parts, strict=False) if len(set(words)) == 1]
    return ", ".join(shared) or titles[0]


def verdict(ours: Row, peer: Score | None, simple: Score | None) -> Verdict:
    """How ours stands to the best of peer, comparable published number and simple method.

    It is level within its standard deviation over seeds, or 5 % where there is one seed.
    """
    if ours.mean is not None and ours.floor is not None and gained(ours.mean, ours.floor, ours.better) > 0:
        return "suspect"
    if ours.mean is None or blemish(ours.failed_seeds, ours.changed_settings, bool(ours.missing_seeds)):
        return "incomplete"
    rivals = [*_values(peer), *([ours.published] if ours.published is not None and ours.is_comparable else [])]
    others = [*rivals, *_values(simple)]
    if not others:
        return "alone"
    strictest = (min if ours.better == "lower" else max)(others)
    return _against(ours.mean, ours.std, strictest, ours.better) or ("ahead" if rivals else "alone")


def _against(mean: float, spread: float | None, other: float, better: Better) -> Verdict | None:
    """Level or behind; nothing where ours is better by more than its spread."""
    margin = SPREAD_OF_ONE_SEED * abs(other) if spread is None else spread
    gain = gained(mean, other, better)
    if gain > margin:
        return None
    return "behind" if gain < -margin else "level"


def _values(score: Score | None) -> Iterator[float]:
    if score is not None:
        yield score.value


def counted(of: Sequence[Line]) -> Mapping[Verdict, int]:
    """How many lines have each verdict, of those that there are."""
    counts = {word: sum(line.verdict == word for line in of) for word in VERDICTS}
    return {word: n for word, n in counts.items() if n}

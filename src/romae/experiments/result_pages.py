"""The report as Markdown: one page of results, the paper's tables, and every run. Cells hold one number each.

Pages name each other by addresses relative to where they lie.
"""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from romae.experiments.paper import Answer, Answered, Judgement
from romae.experiments.recipe import Better
from romae.experiments.rivals import PEERS, SIMPLE, Score
from romae.experiments.summary import Row, number, ours, published, target, with_spread
from romae.experiments.tasks import GROUPS, Line, counted, experiment_of, has_result

WRITTEN = "Written by `romae report`"
RUNS, PAPER = "runs.md", "paper.md"  # in the folder of results

COLUMNS = (
    "task",
    "metric",
    "ours",
    "default",
    "best peer",
    "published",
    "simple",
    "floor",
    "verdict",
    "seeds",
    "recipe",
)
VERDICTS = {
    "ahead": "ours is better than the best of peer, published and simple by more than its standard deviation",
    "level": "it differs from the best of them by no more than that; with one seed, by no more than 5 %",
    "behind": "it is worse than that",
    "alone": "it is ahead of what is simple, and there is nothing else yet to compare it with",
    "incomplete": "seeds are missing or failed, or the recipe has changed since",
    "suspect": "it is below the floor, which must be a mistake of ours",
}
HOW_TO_READ = """\
One line per task. *Ours* is the mean ± standard deviation over seeds of the recipe at the end of the line, chosen by \
its settings and never by its score; its name leads to its command and its protocol. *Default* is the \
[default estimator](COMPARISON.md) on the same split, with nothing tuned; it takes no part in the verdict. *Best peer* \
is the best model trained here on the same data. *Published* is the best published number, in brackets where its \
protocol differs, so that it does not count. *Simple* is the best method that needs no training, and *floor* what the \
best possible prediction leaves. ↓ means that lower is better, ↑ that higher is.\
"""
# What a distribution is also judged by, as columns of its own.
OF_DISTRIBUTIONS = {
    "nll": "NLL ↓",
    "coverage_90": "90 % intervals hold",
    "width_90": "their width",
    "coverage_90_calibrated": "calibrated ones hold",
}
_ACRONYMS = ("mse", "rmse", "mae", "crps", "auroc", "auprc")
_WORDS = {"macro_f1": "macro F1", "r2": "R²", "mse_above_9_hz": "MSE above 9 Hz", "ratio": "MSE / last value's"}


def pages(
    rows: Sequence[Row], lines: Sequence[Line], judged: Sequence[Judgement], front: Path, folder: Path
) -> dict[Path, str]:
    """The pages by where they lie: `front`, the page of results, and the others in the folder of results."""
    runs, of_paper = folder / RUNS, folder / PAPER
    written = {
        front: _results(rows, lines, _address(runs, front), _address(of_paper, front) if judged else ""),
        runs: _runs(rows, lines, _address(front, runs)),
    }
    return written | ({of_paper: _paper(judged, lines, _address(front, of_paper))} if judged else {})


def is_page(path: Path) -> bool:
    """Whether a file is one of these pages, whose place another may take."""
    with path.open("rb") as file:
        return WRITTEN.encode() in file.read(200)


# What a line says, here and on pages of the browser


def cells(line: Line) -> list[str]:
    """A line of the page of results under its COLUMNS."""
    row = line.ours
    return [
        line.title,
        metric(row.metric, row.better),
        with_spread(row),
        "" if line.default is None else number(line.default.value),
        _named(line.peer),
        published(row),
        _named(line.simple),
        number(row.floor),
        line.verdict,
        str(row.n),
        row.recipe,
    ]


def metric(name: str, better: Better) -> str:
    """A metric as the field writes it, and which way is better."""
    plain = name.upper() if name in _ACRONYMS else name.replace("_", " ")
    return f"{_WORDS.get(name, plain)} {'↓' if better == 'lower' else '↑'}"


def tally(lines: Sequence[Line]) -> str:
    """How many lines have which verdict, in a sentence."""
    return f"{len(lines)} tasks: " + ", ".join(f"{n} {word}" for word, n in counted(lines).items()) + "."


def not_run(rows: Sequence[Row]) -> dict[str, list[str]]:
    """Recipes without any result, by experiment."""
    names: dict[str, list[str]] = {}
    for row in rows:
        if row.is_headline and not has_result(row):
            names.setdefault(experiment_of(row.recipe), []).append(row.recipe)
    return names


def grouped(lines: Sequence[Line]) -> dict[str, list[Line]]:
    """Lines by the heading that they stand under."""
    groups: dict[str, list[Line]] = {}
    for line in lines:
        groups.setdefault(line.group, []).append(line)
    return groups


PAPER_COLUMNS = ("row", "published", "paper's settings", "verdict", "tuned settings", "verdict")


def answered_cells(numbers: Answered) -> list[str]:
    """A published number and its answers under PAPER_COLUMNS, named after the first of them."""
    name = numbers.answers[0].name
    return [name, number(numbers.published), *_answer_cells(numbers.paper), *_answer_cells(numbers.tuned)]


def _answer_cells(answer: Answer | None) -> list[str]:
    return ["", ""] if answer is None else [answer.number, answer.verdict]


def _named(score: Score | None) -> str:
    return "" if score is None else f"{number(score.value)} {score.name}"


# The page of results


def _results(rows: Sequence[Row], lines: Sequence[Line], runs: str, of_paper: str) -> str:
    parts = [
        "# Results",
        f"{WRITTEN} from the files in `results/`; no number of ours is entered by hand. {HOW_TO_READ}",
        "\n".join(f"- **{word}**: {meaning};" for word, meaning in VERDICTS.items())[:-1] + ".",
        _further(runs, of_paper),
        tally(lines),
    ]
    for heading, of_group in grouped(lines).items():
        names = OF_DISTRIBUTIONS if heading == GROUPS["uncertainty"] else {}
        columns = (*COLUMNS[:-1], *names.values(), COLUMNS[-1])
        parts += [f"## {heading}", _table(columns, [_linked(line, runs, rows, names) for line in of_group])]
    if missing := not_run(rows):
        parts += [
            "## Not run yet",
            "`romae show NAME` has the protocol, the target and what is published.",
            "\n".join(f"- {', '.join(f'`{name}`' for name in names)}" for names in missing.values()),
        ]
    return "\n\n".join(parts) + "\n"


def _further(runs: str, of_paper: str) -> str:
    """Where the rest is."""
    places = [f"[the paper's tables and figures, one by one]({of_paper})"] if of_paper else []
    places += [
        f"[every run]({runs}) with its command, protocol, remarks and seeds",
        "[how to read all this](docs/reproduction.md)",
        "[what was tried](docs/log.md)",
    ]
    return f"Further pages: {'; '.join(places)}."


def _linked(line: Line, runs: str, rows: Sequence[Row], names: Iterable[str]) -> list[str]:
    """The cells of a line, with the means of these further metrics before the name of its recipe, which is a link."""
    *others, recipe = cells(line)
    means = {row.metric: number(row.mean) for row in rows if row.recipe == recipe}
    return [*others, *(means.get(name, "") for name in names), f"[`{recipe}`]({runs}#{_anchor(line.task)})"]


# The paper's tables


def _paper(judged: Sequence[Judgement], lines: Sequence[Line], front: str) -> str:
    anchors = {row.recipe: _anchor(line.task) for line in lines for row in line.rows}
    parts = [
        "# The paper's tables and figures",
        f"{WRITTEN}. Each published number of arXiv 2505.20535 beside ours, with the paper's settings and with "
        "tuned ones. It is reproduced if ours differs by no more than the spread over seeds, but 1 % at least and 5 % "
        "at most; beaten or missed if ours is better or worse than that. One in other units or on other data is not "
        f"comparable. Beyond the paper: [the page of results]({front}).",
    ]
    for judgement in judged:
        parts += [f"## {judgement.item.name}: {judgement.item.about}", _in_short(judgement)]
        if judgement.numbers:
            parts.append(_table(PAPER_COLUMNS, [_with_link(numbers, anchors) for numbers in judgement.numbers]))
    return "\n\n".join(parts) + "\n"


def _in_short(judgement: Judgement) -> str:
    """The verdicts, counted, and the reason."""
    verdicts = [("With the paper's settings", judgement.paper), ("With tuned settings", judgement.tuned)]
    counts = " ".join(f"{settings}: {verdict}." for settings, verdict in verdicts if verdict)
    return " ".join(filter(None, [counts, judgement.reason, f"On {judgement.device}." if judgement.device else ""]))


def _with_link(numbers: Answered, anchors: Mapping[str, str]) -> list[str]:
    name, *others = answered_cells(numbers)
    return [f"[`{name}`]({RUNS}#{anchors[name]})" if name in anchors else f"`{name}`", *others]


# Every run


def _runs(rows: Sequence[Row], lines: Sequence[Line], front: str) -> str:
    parts = [
        "# Every run",
        f"{WRITTEN}. All recipes with results, by the tasks of [the page of results]({front}). Peers and simple "
        "methods are judged on the same test data, over the same seeds; those of the recipe that stands for the task "
        "are shown. A target is our own; where it is another recipe, the gain over it is the mean difference ± "
        "standard deviation over (n) seeds that both have.",
    ]
    for heading, of_group in grouped(lines).items():
        parts.append(f"## {heading}")
        for line in of_group:
            parts += [f"### {line.task}", *_task(line)]
    others = [row for row in rows if not row.is_headline]
    if others:
        further = [(f"`{row.recipe}`", row.metric, with_spread(row), str(row.n)) for row in others]
        parts += ["## Further numbers of the same runs", _table(("recipe", "metric", "ours", "seeds"), further)]
    return "\n\n".join(parts) + "\n"


def _task(line: Line) -> list[str]:
    """A table of all that stands side by side, and what is to be known of each recipe."""
    row = line.ours
    place = "" if row.paper == "beyond the paper" else f"; {row.paper} of the paper"
    bodies = [(f"`{one.recipe}`", with_spread(one), str(one.n), one.paper) for one in line.rows]
    bodies += [(score.name, number(score.value), str(score.n), what) for score, what in _beside(line)]
    if row.published is not None:
        bodies.append(("published", number(row.published), "", "" if row.is_comparable else "not comparable"))
    if row.floor is not None:
        bodies.append(("floor", number(row.floor), str(row.n), ""))
    columns = ("", metric(row.metric, row.better), "seeds", "what it is")
    return [f"{line.title}{place}.", _table(columns, bodies), "\n".join(_described(one) for one in line.rows)]


def _beside(line: Line) -> list[tuple[Score, str]]:
    """Scores beside ours, each with what it is: default, peers, then simple methods."""
    simple = [Score(name, value, line.ours.n) for name, value in line.ours.baselines.items() if name in SIMPLE]
    told = [] if line.default is None else [(line.default, "the default estimator, untuned")]
    told += [(score, f"peer: {_about_peer(score.name, line)}") for score in line.peers]
    return told + [(score, f"simple: {SIMPLE[score.name]}") for score in simple]


def _about_peer(name: str, line: Line) -> str:
    if name in line.ours.baselines:
        return PEERS.get(name, "fitted to the same training data")
    return "from its own package, by `romae compare --with`"


def _described(row: Row) -> str:
    """One recipe: its protocol, number, target, remark, the number of every seed, and the command."""
    seeds = ", ".join(f"{number(value)} ({seed})" for seed, value in row.by_seed.items())
    sentences = [
        f"`{row.recipe}`: {row.protocol}",
        f"Ours: {ours(row)}",
        f"Target: {target(row)}" if row.target else "",
        f"To be known: {row.remark}" if row.remark else "",
        f"By seed: {seeds}" if len(row.by_seed) > 1 else "",
        f"`romae run {row.recipe} --seeds {_span(sorted({*row.by_seed, *row.missing_seeds, *row.failed_seeds}))}`",
    ]
    return f"- {'. '.join(sentence.rstrip('.') for sentence in sentences if sentence)}."


def _span(seeds: Sequence[int]) -> str:
    """Seeds as the command line takes them."""
    is_run = len(seeds) > 1 and list(seeds) == list(range(seeds[0], seeds[-1] + 1))
    return f"{seeds[0]}-{seeds[-1]}" if is_run else ",".join(map(str, seeds))


# Markdown


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    body = [" | ".join(cell.replace("|", "\\|") for cell in row) for row in rows]
    return "\n".join([f"| {' | '.join(columns)} |", "|" + "---|" * len(columns), *(f"| {row} |" for row in body)])


def _anchor(heading: str) -> str:
    """A heading as it is written in addresses."""
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower())


def _address(page: Path, seen_from: Path) -> str:
    """Where a page lies, as one beside it says it."""
    return Path(os.path.relpath(page, seen_from.parent)).as_posix()

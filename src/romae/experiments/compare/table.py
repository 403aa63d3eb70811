"""What the comparison comes to: a row for each problem, mean ranks, and whether the targets are met, as Markdown."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from romae.experiments.compare.methods import METHODS, OURS, VECTORS
from romae.experiments.compare.problems import PROBLEMS, Problem
from romae.experiments.compare.trial import Trial

BEHIND = 0.01  # how far ours may be below the best of the others
TITLE = "# Default estimators beside what people would take instead"


class Row(NamedTuple):
    """A problem with the mean scores and seconds of the methods over its folds."""

    problem: Problem
    n_folds: int
    n_train: int
    n_tokens: int
    scores: Mapping[str, float]
    seconds: Mapping[str, float]

    @property
    def ahead(self) -> float | None:
        """By how much ours is above the best of the others."""
        others = [score for name, score in self.scores.items() if name not in (OURS, VECTORS)]
        return self.scores[OURS] - max(others) if OURS in self.scores and others else None


Trials = Mapping[str, Sequence[Trial]]  # of a machine, by problem


def completed(by_machine: Mapping[str, Trials]) -> dict[str, Trials]:
    """What was run on GPUs, with the methods that use none as they were run on a CPU for the same folds."""
    at_home = {name: {trial.fold: trial for trial in folds} for name, folds in by_machine.get("cpu", {}).items()}

    def whole(trial: Trial) -> Trial:
        other = at_home.get(trial.problem, {}).get(trial.fold)
        if other is None:
            return trial
        kept = [name for name in other.scores if name not in (OURS, VECTORS, *trial.scores)]
        return replace(
            trial,
            scores={**trial.scores, **{name: other.scores[name] for name in kept}},
            seconds={**trial.seconds, **{name: other.seconds[name] for name in kept}},
        )

    return {
        machine: {name: [whole(trial) for trial in folds] for name, folds in trials.items()}
        for machine, trials in by_machine.items()
    }


def rows(trials: Trials) -> list[Row]:
    """The problems that have been run, in their order, by the folds that ours has, where it has any.

    Methods that lack one of these folds are left out of the row.
    """
    result = []
    for problem in PROBLEMS:
        folds = trials.get(problem.name, ())
        folds = [trial for trial in folds if OURS in trial.scores] or folds
        if not folds:
            continue
        names = [name for name in METHODS[problem.task] if all(name in trial.scores for trial in folds)]
        result.append(
            Row(
                problem,
                len(folds),
                round(np.mean([trial.n_train for trial in folds])),
                round(np.mean([trial.n_tokens for trial in folds])),
                {name: float(np.mean([trial.scores[name] for trial in folds])) for name in names},
                {name: float(np.mean([trial.seconds[name] for trial in folds])) for name in names},
            )
        )
    return result


def mean_ranks(of: Sequence[Row]) -> dict[str, float]:
    """The mean rank of each method over the problems that it is for, 1 the best; equal scores share their ranks.

    Vectors of ours are no rival of ours: their place is beside the linear model on summary features.
    """
    from scipy.stats import rankdata

    ranks: dict[str, list[float]] = {}
    for row in of:
        names = [name for name in row.scores if name != VECTORS]
        for name, rank in zip(names, rankdata([-round(row.scores[name], 6) for name in names]), strict=True):
            ranks.setdefault(name, []).append(float(rank))
    return dict(sorted(((name, float(np.mean(found))) for name, found in ranks.items()), key=lambda pair: pair[1]))


def to_markdown(by_machine: Mapping[str, Trials], notes: Mapping[str, str] | None = None) -> str:
    """The tables of all machines, under each what is noted of it, such as what else ran there."""
    lines = [
        TITLE,
        "",
        "Written by `romae compare` from the files under results/compare; nothing is tuned for any data set. Scores "
        "are means over folds on test data, each better the higher it is. \\* marks problems on whose training data "
        "defaults were chosen (a quarter of it as test); the others show whether they carry over. Seconds are those "
        "of the wall, from samples in memory to answers for the test, in the order of the methods. Methods that use no "
        "GPU are run on a CPU alone, and repeated in the tables of GPUs.",
        "",
    ]
    for machine, trials in completed(by_machine).items():
        if trials:
            lines += _section(machine, rows(trials), trials, (notes or {}).get(machine, ""))
    return "\n".join(lines)


def _section(machine: str, of: Sequence[Row], trials: Trials, note: str) -> list[str]:
    threads = sorted({trial.n_threads for folds in trials.values() for trial in folds})
    lines = [f"## {machine} ({' or '.join(map(str, threads))} threads)", ""]
    lines += [note.strip(), ""] if note.strip() else []
    for task in METHODS:
        chosen = [row for row in of if row.problem.task == task]
        if not chosen:
            continue
        names = list(METHODS[task])
        lines += [f"### {task.capitalize()}", ""]
        lines += ["| problem | series | tokens | score | " + " | ".join(names) + " | ahead | seconds |"]
        lines += ["|---|---|---|---|" + "---|" * (len(names) + 2)]
        lines += [_line(row, names) for row in chosen] + [""]
    both = [row for row in of if VECTORS in row.scores and "linear model" in row.scores]
    if both:
        n_better = sum(row.scores[VECTORS] > row.scores["linear model"] for row in both)
        lines += [
            f"The linear model is better on the embedder's vectors than on summary features in {n_better} of "
            f"{len(both)} problems.",
            "",
        ]
    ranks = ", ".join(f"{name} {rank:.2f}" for name, rank in mean_ranks(of).items())
    lines += [f"Mean ranks over {len(of)} of {len(PROBLEMS)} problems: {ranks}.", ""]
    known = [row for row in of if row.ahead is not None]
    behind = [f"{row.problem.title} ({row.ahead:+.3f})" for row in known if round(row.ahead or 0.0, 6) < -BEHIND]
    lines += [f"More than {BEHIND:g} below the best other method: {'; '.join(behind) if behind else 'nowhere'}.", ""]
    return lines


def _line(row: Row, names: Sequence[str]) -> str:
    best = max(row.scores.values())
    cells = []
    for name in names:
        score = row.scores.get(name)
        shown = "" if score is None else f"{score:.3f}"
        cells.append(f"**{shown}**" if score is not None and score >= best - 5e-4 else shown)
    ahead = "" if row.ahead is None else f"{row.ahead:+.3f}"
    spent = ", ".join(f"{row.seconds[name]:.0f}" for name in names if name in row.seconds)
    title = row.problem.title + (" \\*" if row.problem.is_chosen_on else "")
    folds = f" ({row.n_folds} folds)" if row.n_folds > 1 else ""
    return (
        f"| {title}{folds} | {row.n_train:,} | {row.n_tokens:,} | {row.problem.metric} | "
        + " | ".join(cells)
        + f" | {ahead} | {spent} |"
    )

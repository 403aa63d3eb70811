"""The table of the model that needs no training: every set that was judged, also where it loses, and its targets."""

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from romae.experiments.zero_results import ALONE, BESIDE, CHANNELS, EXACT, OURS, PROCESS, TOGETHER, Asked, SetResult
from romae.experiments.zero_scores import LEVELS, Scores
from romae.experiments.zero_sets import DEVELOPMENT, FEWEST, GAUSSIAN, HIDDEN, MOST, WAYS

POINTS = ("linear", "seasonal naive", "last value", "mean")
WORDS = {"holes": "random holes", "gap": "one long gap", "ahead": "the last quarter ahead"}
Cases = list[tuple[SetResult, Asked]]


def in_one_line(result: SetResult) -> str:
    """The CRPS of the model in each way, and over that of the Gaussian process."""
    parts = []
    for way, asked in result.ways.items():
        over = _ratio(asked, PROCESS)
        parts.append(
            f"{way} CRPS {asked.scores[OURS].mean('crps'):.3f}" + ("" if over is None else f" ({over:.2f} x GP)")
        )
    return ", ".join(parts)


def mean_ratio(results: Mapping[str, SetResult]) -> float | None:
    """The CRPS of the model over that of the Gaussian process, the mean over all real sets and ways."""
    ratios = [_ratio(asked, PROCESS) for one in results.values() if one.is_real for asked in one.ways.values()]
    there = [ratio for ratio in ratios if ratio is not None]
    return float(np.mean(there)) if there else None


def markdown(results: Mapping[str, SetResult], seconds: Mapping[str, float]) -> str:
    """All of it; `seconds` are those for a thousand series, by where they were answered."""
    if not results:
        raise ValueError("there is no result of this command yet; run it with --model FOLDER")
    models = sorted({f"{one.model} ({one.n_parameters / 1e6:.2f} M parameters)" for one in results.values()})
    quick = any(one.quick for one in results.values())
    sections = [
        "# The model that needs no training, beside what needs a fit to each series",
        f"Written by `python -m romae.experiments.zero_bench --table`. Weights: {', '.join(models)}."
        + (" **A rehearsal with few series; the numbers mean nothing.**" if quick else ""),
        _protocol(),
        "## Targets",
        _targets(results, seconds),
    ]
    for way in WAYS:
        cases = [(one, one.ways[way]) for one in results.values() if way in one.ways]
        if cases:
            sections += [f"## {WORDS[way].capitalize()}", _crps(cases), _details(cases)]
    if TOGETHER in results:
        sections += ["## Several channels", _together(results[TOGETHER])]
    return "\n\n".join(sections) + "\n"


def _protocol() -> str:
    shares = " / ".join(f"{level:.0%}" for level in LEVELS)
    return (
        f"Of each series {FEWEST} to {MOST} consecutive measurements are taken; {HIDDEN:.0%} are hidden in holes or in "
        "a gap, or the last quarter. Scores are in standard deviations of the visible values of the series, every "
        "series counts alike, and series whose visible values are all the same are left out. CRPS: of single numbers "
        "it is the absolute error. MAE is that of the median, MSE that of the mean; NMAE is the mean absolute error "
        "over the mean absolute distance from the visible mean. "
        f"Coverage: the share in the central intervals of {shares}, as they are, and after split conformal calibration "
        "over series (one half of them calibrates the other). The Gaussian process is fitted to each series: the best "
        "of Matérn 3/2, squared exponential and quasi-periodic kernels plus white noise by marginal likelihood, with "
        "one restart, known measurement errors as noise. Seconds are processor time on one thread. "
        f"Sets with * ({', '.join(DEVELOPMENT)}) and generated functions were named beforehand as those that the prior "
        "may be chosen on; the three blood pressures were looked at while processes for several channels were made. "
        "No set was ever trained on."
    )


def _crps(cases: Cases) -> str:
    methods = [OURS, PROCESS, *POINTS, EXACT]
    rows = []
    for one, asked in cases:
        numbers = {name: asked.scores[name].mean("crps") for name in methods if name in asked.scores}
        best = min(value for name, value in numbers.items() if name != EXACT)
        cells = [_number(numbers.get(name), bold=numbers.get(name) == best) for name in methods]
        rows.append([_name(one), str(asked.n), *cells, *(_number(_ratio(asked, x), 2) for x in (PROCESS, "linear"))])
    return "CRPS, the best in bold:\n\n" + _table(["set", "series", *methods, "/ process", "/ linear"], rows)


def _details(cases: Cases) -> str:
    rows = []
    for one, asked in cases:
        ours, line = asked.scores[OURS], asked.scores["linear"]
        process = asked.scores.get(PROCESS)
        rows.append(
            [
                _name(one),
                f"{ours.mean('mae'):.3f} / {line.mean('mae'):.3f}",
                f"{ours.mean('mse'):.3f} / {line.mean('mse'):.3f}",
                f"{ours.mean('mae') / asked.spread:.3f} / {line.mean('mae') / asked.spread:.3f}",
                _shares(ours.coverage),
                _shares(ours.calibrated),
                _shares(None if process is None else process.coverage),
                "" if process is None else f"{_wins(ours, process):.0%}",
                f"{_number(ours.seconds, 1)} / {_number(None if process is None else process.seconds, 1)}",
            ]
        )
    head = ["set", "MAE / linear", "MSE / linear", "NMAE / linear", "coverage", "calibrated", "coverage of process"]
    return _table([*head, "series won from process", "seconds / process"], rows)


def _together(result: SetResult) -> str:
    rows = []
    for way, asked in result.ways.items():
        for name, scores in asked.scores.items():
            numbers = [_number(scores.mean(key)) for key in ("crps", "mae", "mse")]
            rows.append([way, name, *numbers, _shares(scores.coverage)])
    words = (
        f"SysABP, DiasABP and MAP, {HIDDEN:.0%} of all numbers hidden ({result.ways[CHANNELS].n} stays), and of these "
        "the MAP where both others of its minute are visible; the regression on them is fitted to the visible minutes "
        "of the stay."
    )
    return words + "\n\n" + _table(["asked", "method", "CRPS", "MAE", "MSE", "coverage"], rows)


def _targets(results: Mapping[str, SetResult], seconds: Mapping[str, float]) -> str:
    """Each target and by how much it is met or missed, over what was judged."""
    real = [(one, asked) for one in results.values() if one.is_real for way, asked in one.ways.items() if way in WAYS]
    rows: list[list[str]] = []

    def add(target: str, words: str, is_met: bool) -> None:
        rows.append([target, words, "met" if is_met else "**missed**"])

    if GAUSSIAN in results:
        ratios = [x for asked in results[GAUSSIAN].ways.values() if (x := _ratio(asked, EXACT)) is not None]
        add("CRPS at most 1.10 x the exact posterior", " / ".join(f"{x:.2f}" for x in ratios), max(ratios) <= 1.1)
    beside = [(one, x) for one, asked in real if (x := _ratio(asked, PROCESS)) is not None]
    if beside:
        lost = sorted({one.set for one, x in beside if x >= 1})
        words = f"{sum(x < 1 for _, x in beside)} of {len(beside)}" + (f"; not on {', '.join(lost)}" if lost else "")
        add("CRPS below the Gaussian process on every real set, in every way", words, not lost)
        average = float(np.mean([x for _, x in beside]))
        add("20 % below it on average", f"{1 - average:.0%}", average <= 0.8)
    if real:
        worse = sorted({one.set for one, asked in real if _over(asked, "mae", "linear") >= 1})
        n_better = sum(_over(asked, "mae", "linear") < 1 for _, asked in real)
        words = f"{n_better} of {len(real)}" + (f"; not on {', '.join(worse)}" if worse else "")
        add("MAE of the median below linear on every real set, in every way", words, not worse)
    smooth = [asked for one in results.values() if one.is_smooth for asked in one.ways.values()]
    if smooth:
        ratio = float(np.mean([_over(asked, "mae", "linear") for asked in smooth]))
        add("NMAE at most .6 x linear on average over smooth sets", f"{ratio:.2f}", ratio <= 0.6)
    for name, is_close in (("coverage", 0.03), ("calibrated", 0.03)):
        off = [x for _, asked in real if (x := _off(getattr(asked.scores[OURS], name))) is not None]
        if off:
            told = f"{sum(x <= is_close for x in off)} of {len(off)}, at worst {max(off):.3f}"
            when = "before calibration" if name == "coverage" else "after calibration (no target)"
            add(f"coverage within {is_close:.2f} on real sets, {when}", told, max(off) <= is_close)
    if TOGETHER in results:
        asked = results[TOGETHER].ways[CHANNELS]
        x = _over(asked, "crps", ALONE)
        add("all channels together below each alone", f"{x:.3f} of it", x < 1)
        x = _over(results[TOGETHER].ways[BESIDE], "crps", "regression")
        add("hidden MAP beside both others: CRPS over that of regression (no target)", f"{x:.2f}", x < 1)
    if "2 CPU threads" in seconds:
        words = ", ".join(f"{x:.2f} s on {place}" for place, x in seconds.items())
        add("1 000 series of 50 points in 5 s on two CPU cores", words, seconds["2 CPU threads"] <= 5)
    return _table(["target", "measured", ""], rows)


def _name(one: SetResult) -> str:
    return f"{one.title}{' *' if one.set in DEVELOPMENT else ''}"


def _over(asked: Asked, score: str, other: str) -> float:
    return asked.scores[OURS].mean(score) / asked.scores[other].mean(score)


def _ratio(asked: Asked, other: str) -> float | None:
    """The CRPS of the model over that of another method."""
    return _over(asked, "crps", other) if other in asked.scores else None


def _wins(ours: Scores, other: Scores) -> float:
    """The share of series on which the model has the lower CRPS."""
    return float(np.mean(np.array(ours.crps) < np.array(other.crps)))


def _off(coverage: Mapping[str, float] | None) -> float | None:
    """The farthest of coverages from what is promised."""
    if coverage is None:
        return None
    return max(abs(coverage[f"{level:.0%}"] - level) for level in LEVELS)


def _shares(coverage: Mapping[str, float] | None) -> str:
    return "" if coverage is None else " / ".join(f"{share:.2f}" for share in coverage.values())


def _number(x: float | None, digits: int = 3, *, bold: bool = False) -> str:
    if x is None:
        return ""
    return f"**{x:.{digits}f}**" if bold else f"{x:.{digits}f}"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    line: Callable[[Sequence[str]], str] = lambda cells: f"| {' | '.join(cells)} |"  # noqa: E731
    return "\n".join([line(head), line(["---"] * len(head)), *map(line, rows)])

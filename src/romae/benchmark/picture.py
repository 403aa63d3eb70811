"""What was measured, as one picture: steps by mode, loops, positions, attention, and how samples and batches grow."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from romae.pages.plots import BASELINE, HIDDEN, OBSERVED, PREDICTED

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

N_COLUMNS = 3
MODES = {
    "padded": "#b0b0b0",
    "padded graph": "#b8b8b8",
    "padded compiled": "#8c8c8c",
    "padded compiled graph": "#5f5f5f",
    "eager": "#edae49",
    "compiled": OBSERVED,
    "graph": HIDDEN,
    "compiled graph": PREDICTED,
}


def picture(sections: Mapping[str, Any]) -> "Figure | None":
    """The sections that can be drawn, side by side; None where there is none."""
    from matplotlib.figure import Figure

    drawn = [(name, draw) for name, draw in PANELS if name in sections]
    if not drawn:
        return None
    n_rows = -(-len(drawn) // N_COLUMNS)
    figure = Figure(figsize=(5.5 * min(len(drawn), N_COLUMNS), 3.6 * n_rows), layout="constrained")
    axes = figure.subplots(n_rows, min(len(drawn), N_COLUMNS), squeeze=False).flatten()
    for axis, (name, draw) in zip(axes, drawn, strict=False):
        draw(axis, sections[name])
        axis.spines[["top", "right"]].set_visible(False)
    for axis in axes[len(drawn) :]:
        axis.set_visible(False)
    figure.suptitle(sections[drawn[0][0]]["machine"]["device"], x=0.01, ha="left", fontsize=11)
    return figure


def write_picture(sections: Mapping[str, Any], path: Path) -> Path | None:
    """Draw the measured sections to a file beside their numbers."""
    import matplotlib

    figure = picture(sections)
    if figure is None:
        return None
    with matplotlib.rc_context({"svg.hashsalt": "romae", "svg.fonttype": "none"}):  # the same picture each time
        figure.savefig(path, metadata={"Date": None})
    return path


def _steps(axis: "Axes", section: Mapping[str, Any]) -> None:
    """A training step of every workload in every mode, in the first precision that was measured."""
    precision = section["rows"][0]["precision"]
    rows = [row for row in section["rows"] if row["precision"] == precision]
    workloads = list(dict.fromkeys(row["workload"] for row in rows))
    modes = [mode for mode in MODES if any(row["mode"] == mode for row in rows)]
    width = 0.8 / len(modes)
    for number, mode in enumerate(modes):
        rows_of_mode = [row for row in rows if row["mode"] == mode]
        places = [workloads.index(row["workload"]) + (number - (len(modes) - 1) / 2) * width for row in rows_of_mode]
        medians, reach = _times(rows_of_mode)
        axis.bar(places, medians, width, yerr=reach, color=MODES[mode], label=mode)
    axis.set_xticks(range(len(workloads)), workloads)
    axis.set_yscale("log")
    axis.set_ylabel("milliseconds")
    axis.set_title(f"A training step, {precision}", fontsize=10, loc="left")
    axis.legend(frameon=False, fontsize=8)


def _times(rows: Sequence[Mapping[str, Any]]) -> tuple[list[float], list[list[float]]]:
    """The medians of rows, and how far their spreads reach below and above."""
    times = [row["milliseconds"] for row in rows]
    below, above = ([abs(spread[end] - spread["median"]) for spread in times] for end in ("low", "high"))
    return [spread["median"] for spread in times], [below, above]


def _lengths(axis: "Axes", section: Mapping[str, Any]) -> None:
    """Time against the length of samples, and memory where it was measured."""
    plain, saving = ([row for row in section["rows"] if row["checkpointing"] is on] for on in (False, True))
    lines = [("training", plain, PREDICTED), ("training, checkpointing", saving, HIDDEN)]
    lines.append(("inference", section.get("inference", []), OBSERVED))
    _growth(axis, [line for line in lines if line[1]], "tokens_per_sample")
    axis.set_title(f"Longer samples, {section['rows'][0]['tokens']} tokens in all", fontsize=10, loc="left")


def _batches(axis: "Axes", section: Mapping[str, Any]) -> None:
    """Time against the size of a batch, and memory where it was measured."""
    rows = section["growing_batches"]
    _growth(axis, [("training", rows, PREDICTED)], "tokens")
    axis.set_title(f"Larger batches, samples of {rows[0]['tokens_per_sample']} tokens", fontsize=10, loc="left")


def _growth(axis: "Axes", lines: Sequence[tuple[str, Sequence[Mapping[str, Any]], str]], along: str) -> None:
    for label, rows, colour in lines:
        medians, reach = _times(rows)
        axis.errorbar([row[along] for row in rows], medians, yerr=reach, color=colour, label=label)
    axis.set(xscale="log", yscale="log", xlabel=along.replace("_", " "), ylabel="milliseconds")
    if lines[0][1][0]["gib"] is not None:
        memory = axis.twinx()
        for _, rows, colour in lines:
            memory.plot([row[along] for row in rows], [row["gib"] for row in rows], "--", color=colour)
        memory.set(ylim=(0, None), ylabel="GiB (dashed)")
        memory.spines["top"].set_visible(False)
    axis.legend(frameon=False, fontsize=8)


def _attached(axis: "Axes", section: Mapping[str, Any]) -> None:
    """The share of the rate of a bare step that is left with a loader, without and with workers."""
    rows = section["rows"]
    workloads, workers = (list(dict.fromkeys(row[name] for row in rows)) for name in ("workload", "workers"))
    width = 0.8 / len(workers)
    for number, n in enumerate(workers):
        rows_of_workers = [row for row in rows if row["workers"] == n]
        places = [
            workloads.index(row["workload"]) + (number - (len(workers) - 1) / 2) * width for row in rows_of_workers
        ]
        shares = [100 * row["share_of_the_rate_alone"] for row in rows_of_workers]
        axis.bar(places, shares, width, color=(BASELINE, PREDICTED)[number % 2], label=f"{n} workers")
    axis.axhline(90, color=OBSERVED, lw=1, ls=":")
    axis.set_xticks(range(len(workloads)), workloads)
    axis.set(ylim=(0, 125), ylabel="% of the rate of the step alone")
    axis.set_title("With loaders attached", fontsize=10, loc="left")
    axis.legend(frameon=False, fontsize=8, ncols=2, loc="upper right")


def _positions(axis: "Axes", section: Mapping[str, Any]) -> None:
    """The speed of each kind of positions in units of absolute ones."""
    rows = section["rows"]
    for number, (encoding, colour) in enumerate((("quantised", BASELINE), ("continuous", PREDICTED))):
        places = [place + (number - 0.5) * 0.35 for place in range(len(rows))]
        axis.bar(places, [row[f"{encoding}_speed"] for row in rows], 0.35, color=colour, label=encoding)
    axis.axhline(0.98, color=OBSERVED, lw=1, ls=":")
    axis.set_xticks(range(len(rows)), [row["workload"] for row in rows])
    axis.set(ylim=(0, 1.3), ylabel="speed, absolute positions are 1")
    axis.set_title(f"Kinds of positions, {section['mode']}", fontsize=10, loc="left")
    axis.legend(frameon=False, fontsize=8, ncols=2, loc="upper right")


def _attention(axis: "Axes", section: Mapping[str, Any]) -> None:
    """How many times as fast as padding ragged attention is, forward and backward."""
    rows = section["rows"]
    names = [f"{row['case']}\n{row.get('precision', '')}" for row in rows]
    axis.bar(names, [row["times_faster"] for row in rows], 0.6, color=PREDICTED)
    axis.axhline(1, color=OBSERVED, lw=1, ls=":")
    axis.tick_params(axis="x", labelsize=6)
    axis.set_ylabel("times as fast as padding")
    axis.set_title("Attention alone", fontsize=10, loc="left")


PANELS: tuple[tuple[str, Callable[["Axes", Mapping[str, Any]], None]], ...] = (
    ("steps", _steps),
    ("attached", _attached),
    ("positions", _positions),
    ("lengths", _lengths),
    ("lengths", _batches),
    ("attention", _attention),
)

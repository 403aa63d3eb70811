"""What was measured, as one picture: steps by mode, and time and memory as samples and batches grow."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from romae.plots import BASELINE, HIDDEN, OBSERVED, PREDICTED

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MODES = {
    "padded": BASELINE,
    "eager": "#edae49",
    "compiled": OBSERVED,
    "graph": HIDDEN,
    "compiled graph": PREDICTED,
}


def picture(found: Mapping[str, Any]) -> "Figure | None":
    """The sections that can be drawn, side by side; None where there is none."""
    from matplotlib.figure import Figure

    drawn = [(name, draw) for name, draw in PANELS.items() if name in found]
    if not drawn:
        return None
    figure = Figure(figsize=(5.5 * len(drawn), 3.6), layout="constrained")
    for axis, (name, draw) in zip(figure.subplots(1, len(drawn), squeeze=False)[0], drawn, strict=True):
        draw(axis, found[name])
        axis.spines[["top", "right"]].set_visible(False)
    figure.suptitle(found[drawn[0][0]]["machine"]["device"], x=0.01, ha="left", fontsize=11)
    return figure


def write_picture(found: Mapping[str, Any], path: Path) -> Path | None:
    """Draw what was found beside its numbers."""
    import matplotlib

    figure = picture(found)
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
        mine = [row for row in rows if row["mode"] == mode]
        places = [workloads.index(row["workload"]) + (number - (len(modes) - 1) / 2) * width for row in mine]
        times = [row["milliseconds"] for row in mine]
        reach = [[one["median"] - one["low"] for one in times], [one["high"] - one["median"] for one in times]]
        medians = [one["median"] for one in times]
        axis.bar(places, medians, width, yerr=reach, color=MODES[mode], label=mode)
    axis.set_xticks(range(len(workloads)), workloads)
    axis.set_yscale("log")
    axis.set_ylabel("milliseconds")
    axis.set_title(f"A training step, {precision}", fontsize=10, loc="left")
    axis.legend(frameon=False, fontsize=8)


def _lengths(axis: "Axes", section: Mapping[str, Any]) -> None:
    """Time against the length of samples, and memory where it was measured."""
    plain, saving = ([row for row in section["rows"] if row["checkpointing"] is on] for on in (False, True))
    for rows, label, colour in ((plain, "time", PREDICTED), (saving, "time, checkpointing", HIDDEN)):
        _line(axis, rows, lambda row: row["milliseconds"]["median"], label, colour, "-")
    axis.set(xscale="log", yscale="log", xlabel="tokens per sample", ylabel="milliseconds")
    axis.set_title(f"Longer samples, {section['rows'][0]['tokens']} tokens in all", fontsize=10, loc="left")
    if plain[0]["gib"] is not None:
        memory = axis.twinx()
        for rows, label, colour in ((plain, "memory", PREDICTED), (saving, "memory, checkpointing", HIDDEN)):
            _line(memory, rows, lambda row: row["gib"], label, colour, "--")
        memory.set(ylim=(0, None), ylabel="GiB (dashed)")
        memory.spines["top"].set_visible(False)
    axis.legend(frameon=False, fontsize=8, loc="center left")


def _line(
    axis: "Axes",
    rows: Sequence[Mapping[str, Any]],
    value: Callable[[Mapping[str, Any]], float],
    label: str,
    colour: str,
    style: str,
) -> None:
    axis.plot(
        [row["tokens_per_sample"] for row in rows], [value(row) for row in rows], style, color=colour, label=label
    )


def _attached(axis: "Axes", section: Mapping[str, Any]) -> None:
    """The share of the rate of a bare step that is left with a loader."""
    rows = section["rows"]
    shares: dict[str, float] = {}
    for row in rows:
        shares[row["workload"]] = max(row["share_of_the_rate_alone"], shares.get(row["workload"], 0.0))
    axis.bar(list(shares), [100 * share for share in shares.values()], 0.6, color=PREDICTED)
    axis.axhline(90, color=OBSERVED, lw=1, ls=":")
    axis.set_ylabel("% of the rate of the step alone")
    axis.set_title("With loaders attached", fontsize=10, loc="left")


PANELS: dict[str, Callable[["Axes", Mapping[str, Any]], None]] = {
    "steps": _steps,
    "lengths": _lengths,
    "attached": _attached,
}

"""The figures of concepts.md, drawn by the library that they explain: python docs/figures.py"""

from collections.abc import Sequence
from pathlib import Path

import matplotlib
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import romae
from romae.pages.plots import BASELINE, HIDDEN, OBSERVED, PREDICTED
from romae.tokens.layout import Layout

FOLDER = Path(__file__).parent / "images"
VARIABLES = ("pulse", "pressure", "glucose", "lactate")
STAY = 48.0  # hours
HEAD_DIM, KEEP = 60, 0.75  # those of RoMAE-tiny
SMALL = romae.Size(width=48, heads=2, depth=2)


def stay(seed: int = 0, counts: Sequence[int] = (26, 18, 9, 6)) -> romae.Sample:
    """A made record: each variable is measured at times of its own, one number per token, at (hour, variable)."""
    random = np.random.default_rng(seed)
    times = [np.sort(random.uniform(0, STAY, n)) for n in counts]
    waves = [np.sin(t / (4 + 2 * i) + i) + random.normal(0, 0.1, len(t)) for i, t in enumerate(times)]
    positions = [np.stack([t, np.full_like(t, i)], 1) for i, t in enumerate(times)]
    return romae.Sample(np.concatenate(waves)[:, None], np.concatenate(positions))


def panels(n: int, *, height: float = 2.6) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(10, height), layout="constrained")
    axes = list(figure.subplots(1, n, squeeze=False)[0])
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
    return figure, axes


def name_variables(axis: Axes) -> None:
    axis.set_yticks(range(len(VARIABLES)), VARIABLES)
    axis.set_ylim(len(VARIABLES) - 0.5, -0.5)
    axis.set_xlabel("hour")


def tokens() -> Figure:
    """A record as it is measured, and as the model sees it."""
    sample = stay()
    hours, variables = sample.positions.T.numpy()
    values = sample.values[:, 0].numpy()
    figure, (measured, seen) = panels(2)
    for i in range(len(VARIABLES)):
        here = variables == i
        measured.plot(hours[here], i - 0.3 * values[here], "o-", ms=3, lw=0.8, color=OBSERVED)
    measured.set_title("what was measured: each variable at times of its own", fontsize=10, loc="left")
    drawn = seen.scatter(hours, variables, c=values, s=36, cmap="viridis", edgecolors="none")
    figure.colorbar(drawn, ax=seen, label="value")
    seen.set_title(f"what the model sees: {len(sample)} tokens, values at positions", fontsize=10, loc="left")
    for axis in (measured, seen):
        name_variables(axis)
    return figure


def ladders() -> Figure:
    """The cosine of every rotating pair's angle over a record, for three choices of unit."""
    hours = np.linspace(0, STAY, 241)
    (fitted, _) = romae.fit_ladders([stay(seed) for seed in range(20)])
    cases = (
        ("the paper's ladder, times from 0 to 1", hours / STAY, romae.Ladder()),
        ("the paper's ladder, times in seconds", hours * 3600, romae.Ladder()),
        ("fitted to the data, times in hours", hours, fitted),
    )
    figure, axes = panels(3)
    n_kept = int(KEEP * HEAD_DIM / 2)
    for axis, (title, times, ladder) in zip(axes, cases, strict=True):
        rope = romae.AxialRope(HEAD_DIM, 1, keep=KEEP, ladders=[ladder])
        cosines = rope(torch.tensor(times[:, None], dtype=torch.float32)).cos[:, 0, 0, :n_kept].T
        picture = {"aspect": "auto", "cmap": "RdBu", "vmin": -1, "vmax": 1, "extent": (0, STAY, n_kept, 0)}
        drawn = axis.imshow(cosines.numpy(), interpolation="none", **picture)  # kept as small as it is
        axis.set_title(title, fontsize=10, loc="left")
        axis.set_xlabel("hour")
    axes[0].set_ylabel("pair of channels")
    figure.colorbar(drawn, ax=axes, label="cosine of the angle")
    return figure


def masking() -> Figure:
    """What each strategy hides of one record."""
    sample = stay(counts=(22, 22, 22, 22))
    hours = sample.positions[:22, 0].repeat(4)  # a common clock, so that rows can be seen
    sample = romae.Sample(sample.values, torch.stack([hours, sample.positions[:, 1]], 1))
    strategies = {
        "UniformTokens(ratio=0.5)": romae.UniformTokens(ratio=0.5),
        "Rows(ratio=0.5)": romae.Rows(ratio=0.5),
        "Channels(ratio=0.5)": romae.Channels(ratio=0.5),
        "Spans(ratio=0.3, axes=(0,))": romae.Spans(ratio=0.3, axes=(0,)),
        "Future(ratio=0.3)": romae.Future(ratio=0.3),
    }
    figure, axes = panels(len(strategies), height=2.0)
    packed = romae.collate([sample]).tokens
    for axis, (title, strategy) in zip(axes, strategies.items(), strict=True):
        hidden = strategy.hidden(packed, torch.Generator().manual_seed(1)).numpy()
        x, y = sample.positions.T.numpy()
        axis.plot(x[~hidden], y[~hidden], "o", color=OBSERVED, ms=3.5)
        axis.plot(x[hidden], y[hidden], "o", color=HIDDEN, ms=3.5, mfc="none")
        axis.set_title(title, fontsize=8, loc="left")
        name_variables(axis)
        if axis is not axes[0]:
            axis.set_yticks([])
    return figure


def cls() -> Figure:
    """How alike the embeddings of two tokens are, by their distance, wherever the pair stands."""
    distances = torch.linspace(0, 20, 61)
    figure, axes = panels(2)
    for axis, has_cls in zip(axes, (False, True), strict=True):
        torch.manual_seed(0)
        encoder = romae.Encoder(romae.ModelConfig(channels=1, position_dims=1, encoder=SMALL, cls=has_cls)).eval()
        for start, colour in zip((0.0, 3.0, 6.0, 9.0), (OBSERVED, PREDICTED, "#edae49", HIDDEN), strict=True):
            pairs = [romae.Sample([[1.0], [-0.5]], [[start], [start + float(one)]]) for one in distances]
            with torch.no_grad():
                embedded = encoder(romae.collate(pairs).tokens).values.unflatten(0, (len(pairs), -1))
            alike = torch.cosine_similarity(embedded[:, -2], embedded[:, -1], dim=-1)
            width = 1.5 if has_cls else 4 - start / 3  # curves that coincide are seen one inside the other
            axis.plot(distances.numpy(), alike.numpy(), color=colour, lw=width, label=f"pair at {start:.0f}")
        axis.set_title(f"{'with' if has_cls else 'without'} CLS", fontsize=10, loc="left")
        axis.set_xlabel("distance between two tokens")
    axes[0].set_ylabel("similarity of their embeddings")
    axes[1].legend(frameon=False, fontsize=8)
    return figure


def packed() -> Figure:
    """The places that a batch takes, padded and packed."""
    lengths = np.random.default_rng(3).integers(5, 60, 8)
    longest, total = int(lengths.max()), int(lengths.sum())
    figure, (padded, end_to_end) = panels(2)
    colours = matplotlib.colormaps["viridis"](np.linspace(0.1, 0.9, len(lengths)))
    padded.barh(range(len(lengths)), longest, color="white", edgecolor=BASELINE, hatch="////", lw=0.5, height=0.8)
    padded.barh(range(len(lengths)), lengths, color=colours, height=0.8)
    padded.set_title(f"padded: {len(lengths) * longest} places for {total} tokens", fontsize=10, loc="left")
    padded.invert_yaxis()
    padded.set_ylabel("sample")
    end_to_end.barh([0] * len(lengths), lengths, left=lengths.cumsum() - lengths, color=colours, height=0.8)
    end_to_end.set_title(f"packed: {total} places for {total} tokens", fontsize=10, loc="left")
    end_to_end.set(ylim=(-3.5, 3.5), yticks=[])
    for axis in (padded, end_to_end):
        axis.set_xlabel("place")
    return figure


def queries() -> Figure:
    """Which inputs of the decoder an output depends on, found by its gradients."""
    n_encoded, n_queries = 6, 4
    encoded = romae.Tokens(torch.randn(n_encoded, 48), torch.rand(n_encoded, 1) * 9, Layout.of([n_encoded]))
    asked = torch.rand(n_queries, 1) * 9
    figure, axes = panels(2, height=3.2)
    for axis, kind in zip(axes, ("independent", "joint"), strict=True):
        torch.manual_seed(0)
        config = romae.ModelConfig(channels=1, position_dims=1, encoder=SMALL, decoder=SMALL, queries=kind)
        decoder = romae.MaskedReconstruction(config).decoder.eval()
        depends = dependence(decoder, encoded, asked)
        axis.pcolormesh(depends, cmap="Greens", vmin=0, vmax=1.6, edgecolors=BASELINE, lw=0.5)
        axis.invert_yaxis()
        axis.set_title(f'queries="{kind}"', fontsize=10, loc="left")
        names = [f"token {i + 1}" for i in range(n_encoded)] + [f"query {i + 1}" for i in range(n_queries)]
        axis.set_xticks(np.arange(len(names)) + 0.5, names, rotation=90)
        axis.set_yticks(np.arange(n_queries) + 0.5, [f"answer {i + 1}" for i in range(n_queries)])
        axis.set_xlabel("depends on")
    return figure


def dependence(decoder: torch.nn.Module, encoded: romae.Tokens, asked: torch.Tensor) -> np.ndarray:
    """1 where the answer to a query (rows) changes with an encoded token or the position of a query (columns)."""
    values, places = encoded.values.clone().requires_grad_(), asked.clone().requires_grad_()
    answers = decoder(romae.Tokens(values, encoded.positions, encoded.layout), places, Layout.of([len(asked)]))
    rows = []
    for answer in answers:
        by_token, by_query = torch.autograd.grad(answer.sum(), (values, places), retain_graph=True)
        rows.append(torch.cat([by_token.abs().sum(1), by_query.abs().sum(1)]))
    return (torch.stack(rows) > 1e-9).float().numpy()


FIGURES = (tokens, ladders, masking, cls, packed, queries)


def main(folder: Path = FOLDER) -> None:
    matplotlib.rcParams.update({"svg.hashsalt": "romae", "font.size": 8})  # the same picture gives the same file
    torch.manual_seed(0)
    for draw in FIGURES:
        draw().savefig(folder / f"{draw.__name__}.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()

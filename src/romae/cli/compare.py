"""The command `romae compare`: default estimators beside what people would take instead."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from romae.cli.options import Quiet
from romae.cli.tables import Force, Json, print_table
from romae.files import require_free, write_whole_text

if TYPE_CHECKING:
    from romae.experiments.compare.problems import Problem

RESULTS = Path("results/compare")
SHOWN_OF_PEERS = ("mae", "mse", "crps", "auroc", "auprc")


def compare(
    names: Annotated[list[str] | None, typer.Argument(help="Problems, by default all; --list names them.")] = None,
    folds: Annotated[str | None, typer.Option(help="Folds to run, as 0-2 or 0,3; by default all.")] = None,
    methods: Annotated[
        list[str] | None, typer.Option("--method", help="A method to run, and no other; repeatable.")
    ] = None,
    results: Annotated[Path, typer.Option("--results", help="The folder of trials.")] = RESULTS,
    markdown: Annotated[Path | None, typer.Option(help="Write the tables of all machines to this file.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, or one GPU of several: cuda:1.")] = "auto",
    quick: Annotated[bool, typer.Option("--quick", help="A few samples; the numbers mean nothing.")] = False,
    tried: Annotated[
        list[str] | None,
        typer.Option(
            "--try",
            help='Settings of our estimator as JSON, on a part of the training data: {"epochs": 9}; repeatable.',
        ),
    ] = None,
    peers: Annotated[
        str | None,
        typer.Option("--with", help="Peers of PyPOTS to run on physionet-grid, p12 or p19: saits,brits,csdi."),
    ] = None,
    seeds: Annotated[str | None, typer.Option(help="Of peers: 0-2, or 0,3,5; by default those of our rows.")] = None,
    minutes: Annotated[float | None, typer.Option(help="Of a peer's fit at most.")] = None,
    n_validation: Annotated[int | None, typer.Option(help="The first of a peer's validation stays.")] = None,
    precision: Annotated[
        str | None, typer.Option(help="Of a peer's products: float32, tf32, or bf16 for csdi.")
    ] = None,
    compiled: Annotated[bool | None, typer.Option("--compile", help="Compile the network of csdi.")] = None,
    only_list: Annotated[bool, typer.Option("--list", help="Name the problems, and run nothing.")] = False,
    only_table: Annotated[bool, typer.Option("--table", help="Show what there is, and run nothing.")] = False,
    force: Force = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Run default estimators and simple baselines on public data sets, and show scores, times and mean ranks.

    What has been run before is not run again without --force. With --method, other methods keep the scores that they
    have. --try is how defaults are chosen: it learns from three quarters of a problem's training data and asks for the
    rest, and what comes of it is written to RESULTS/choices; test data take no part (--method "RoMAE vectors" tries
    the embedder). The data are read from ROMAE_DATA; `romae data list` says where they come from.

    With --with, models of PyPOTS run on the very arrays, masks and splits of our rows instead (physionet-grid:
    uncertainty/physionet-grid; p12 and p19: clinical/…), with their authors' settings; what comes of them is written to
    results/peers, or to the folder --results.

    Example: romae compare Epilepsy-complete LSST-complete --device cpu
    Example: romae compare p12 --with gru-d,raindrop --seeds 1-5
    """
    if peers is not None:
        options = {"minutes": minutes, "n_validation": n_validation, "precision": precision, "compile": compiled}
        _with_peers(names or [], peers, seeds, results, options | {"device": device}, quick=quick, as_json=as_json)
        return
    from romae.experiments.compare import trial
    from romae.experiments.compare.problems import PROBLEMS, find
    from romae.experiments.compare.table import TITLE, completed, mean_ranks, rows, to_markdown

    problems = [find(name) for name in names] if names else list(PROBLEMS)
    if only_list:
        listed = [{"name": one.name, "title": one.title, "task": one.task, "score": one.metric} for one in problems]
        typer.echo(json.dumps(listed)) if as_json else print_table("", listed)
        return
    if tried:
        _choose(problems, tried, methods, results, device, quick=quick, force=force, as_json=as_json)
        return
    if markdown is not None:
        require_free(markdown, force=force, is_ours=lambda path: path.read_text(encoding="utf-8").startswith(TITLE))
    machine = trial.machine_name(device)
    if not only_table:
        for problem in problems:
            for fold in _chosen_folds(folds, problem.n_folds):
                path = trial.trial_path(results, problem, fold, machine, quick=quick)
                if methods is None and not force and trial.is_complete(path, problem):
                    continue

                def said(name: str, score: float, seconds: float, place: Path = path) -> None:
                    if not quiet:
                        typer.echo(f"{place}: {name} {score:.4f} in {seconds:.1f} s", err=True)

                trial.run(problem, fold, results, device=device, methods=methods, quick=quick, force=force, report=said)
    root = results / trial.TRIALS if quick else results
    homes = sorted(path.name for path in root.iterdir() if path.is_dir()) if root.is_dir() else []
    trials = {home: trial.read_all(root, home) for home in homes if home not in (trial.TRIALS, trial.CHOICES)}
    if markdown is not None:
        places = {home: root / home / trial.NOTE for home in homes}
        notes = {home: place.read_text(encoding="utf-8") for home, place in places.items() if place.is_file()}
        write_whole_text(markdown, to_markdown(trials, notes))
    whole = completed(trials)
    shown: list[dict[str, Any]] = []
    for home, found in whole.items():
        for row in rows(found):
            ahead = None if row.ahead is None else round(row.ahead, 4)
            scores = {name: round(score, 4) for name, score in row.scores.items()}
            shown.append({"machine": home, "problem": row.problem.name, "ahead": ahead, "scores": scores})
    ranks = {home: mean_ranks(rows(found)) for home, found in whole.items() if found}
    if as_json:
        typer.echo(json.dumps({"rows": shown, "mean_ranks": ranks}))
        return
    if shown:
        words = [
            row | {"scores": ", ".join(f"{name} {score:.3f}" for name, score in row["scores"].items())} for row in shown
        ]
        print_table("Scores, the higher the better; ahead is ours beside the best other", words)
    for home, of in ranks.items():
        typer.echo(f"mean ranks on {home}: " + ", ".join(f"{name} {rank:.2f}" for name, rank in of.items()))
    if markdown is not None:
        typer.echo(f"written to {markdown}")


def _with_peers(
    names: list[str],
    peers: str,
    seeds: str | None,
    results: Path,
    options: dict[str, Any],
    *,
    quick: bool,
    as_json: bool,
) -> None:
    from romae.experiments.peers.command import DATA, FIRST_SEEDS, compare, fit_of, read_seeds

    if len(names) != 1 or names[0] not in DATA:
        raise ValueError(
            f"--with runs peers on one of {', '.join(DATA)}; name it, as in `romae compare p12 --with gru-d`"
        )
    data = names[0]
    out = (Path("results/peers") if results == RESULTS else results) / data
    wanted = [name.strip() for name in peers.split(",")]
    fit = fit_of(options, is_quick=quick)
    found = compare(
        wanted, data, read_seeds(seeds or FIRST_SEEDS[data]), out, fit, lambda text: typer.echo(text, err=True)
    )
    if as_json:
        typer.echo(json.dumps(found))
        return
    shown = [
        {
            "peer": one["peer"],
            "seed": one["seed"],
            **{name: round(score, 4) for name, score in one["metrics"].items() if name in SHOWN_OF_PEERS},
            "passes": round(one["epochs"]),
            "fit, s": one["seconds"]["fit"],
            "answers, s": one["seconds"]["answer"],
            "memory, MB": one["peak_memory_mb"],
        }
        for one in found
    ]
    print_table(f"Peers on {data}", shown)


def _choose(
    problems: list["Problem"],
    tried: list[str],
    methods: list[str] | None,
    results: Path,
    device: str,
    *,
    quick: bool,
    force: bool,
    as_json: bool,
) -> None:
    from romae.experiments.compare import choices

    settings = [choices.read_settings(text) for text in tried]
    places = [
        choices.run(problem, one, results, method=method, device=device, quick=quick, force=force)
        for problem in problems
        for method in methods or [choices.OURS]
        for one in settings
    ]
    found = [choices.read(place) for place in places]
    rows = [
        {"problem": one.problem, "settings": json.dumps(one.settings), "score": one.score, "seconds": one.seconds}
        for one in found
    ]
    typer.echo(json.dumps(rows)) if as_json else print_table("Scores on a part of the training data", rows)


def _chosen_folds(text: str | None, n_folds: int) -> list[int]:
    """Folds as they are written on the command line, of a problem that has so many."""
    if text is None:
        return list(range(n_folds))
    from romae.cli.recipes import read_seeds

    return [fold for fold in read_seeds(text) if fold < n_folds]


COMMANDS = {"compare": compare}

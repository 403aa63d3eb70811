"""The commands for experiments and runs: list, show, run, report, page."""

import json
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from romae.cli.options import Quiet
from romae.cli.runs import is_first_rank, require_new, resumable
from romae.cli.tables import Force, Json, print_table
from romae.files import require_free

if TYPE_CHECKING:
    from romae.experiments.recipe import Finished, Recipe
    from romae.experiments.results import Result

Name = Annotated[str, typer.Argument(help="A name from `romae list`.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", help="One setting, as key=value: train.epochs=6, model.cls=false, data.…, stages.0.…"),
]
Results = Annotated[Path, typer.Option("--results", help="The folder of results.")]
MOST_SEEDS = 10_000  # at a time
ZERO = "zero/"  # names of what a model that needs no training is judged on
Quick = Annotated[bool, typer.Option("--quick", help="A few seconds; the numbers mean nothing and are not counted.")]


def list_recipes(
    part: Annotated[
        str | None, typer.Argument(help="A part of the names to list, such as uncertainty or tuned; by default all.")
    ] = None,
    results: Results = Path("results"),
    as_json: Json = False,
) -> None:
    """The experiments that can be run, and what they have given so far.

    Results are means ± standard deviations over seeds, whose number is in brackets. Published values are in brackets
    where their protocol differs. `romae show` says what is asked of an experiment, and --json all that is known.

    Example: romae list lightcurves
    """
    from romae.experiments.summary import all_rows, ours, published, read_all
    from romae.experiments.zero_results import results_in
    from romae.experiments.zero_table import mean_ratio

    rows = [row for row in all_rows(read_all(results)) if row.is_headline and (part or "") in row.recipe]
    is_zero_asked = (part or "") in f"{ZERO}all"
    if not rows and not is_zero_asked:
        raise ValueError(f"no experiment has {part!r} in its name; `romae list` names all of them")
    if as_json:
        typer.echo(json.dumps([asdict(row) for row in rows]))
        return
    shown = [
        {
            "name": row.recipe,
            "metric": row.metric,
            "result": ours(row) if row.n or row.failed_seeds else "",
            "published": published(row),
        }
        for row in rows
    ]
    if is_zero_asked:
        ratio = mean_ratio(results_in(results / "zero"))
        result = "" if ratio is None else f"{ratio:.3f}"
        shown.append({"name": f"{ZERO}all", "metric": "crps ratio", "result": result, "published": ""})
    print_table("", shown)


def show(name: Name, quick: Quick = False, settings: Settings = None, as_json: Json = False) -> None:
    """What an experiment is, its settings, and how to run it.

    Example: romae show positions/tiny-cls
    """
    from romae.config import flat
    from romae.experiments.recipe import find

    recipe = find(name)
    effective = recipe.overridden(*(recipe.quick if quick else ()), *(settings or ()))
    name = recipe.name
    command = f"romae run {name} --seeds {_seed_range(recipe.seeds)}"
    if as_json:
        about = {"name": name, "title": recipe.title, "paper": recipe.paper, "protocol": recipe.protocol}
        typer.echo(json.dumps(about | {"about": recipe.about, "command": command, "config": effective.config}))
        return
    typer.echo(f"{name}: {recipe.title} ({recipe.paper})\n{recipe.protocol}\n\n{recipe.about}\n")
    if recipe.target is not None:
        typer.echo(f"Target: {recipe.metric} {recipe.target.words(recipe.better)}\n")
    for path, value in flat(effective.config):
        typer.echo(f"  {path} = {json.dumps(value)}")
    typer.echo(f"\n{command}")


def run(
    name: Name,
    seed: Annotated[int | None, typer.Option(help="Decides data, first weights, masks and order.", min=0)] = None,
    seeds: Annotated[str | None, typer.Option(help="Several seeds, one after the other: 0-4, or 0,2,5-7.")] = None,
    quick: Quick = False,
    settings: Settings = None,
    results: Results = Path("results"),
    out: Annotated[
        Path | None, typer.Option(help="A folder for the states of the run, from which it can be resumed.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on where the run in --out stopped.")] = False,
    save: Annotated[Path | None, typer.Option(help="A folder for the model, with a card; for one seed.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, or one GPU of several: cuda:1.")] = "auto",
    force: Force = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Run an experiment: make or read its data, train, measure, and write results/NAME/SEED.json.

    Quick runs and runs with other settings are trials: they are written to results/trials and never counted, unless
    the settings say how steps are taken and not what they compute (train.workers, train.compile, train.graph). With
    --out, Ctrl-C lets the run save its state first, and the message says how to go on with it.

    Nothing is trained in zero/all, or zero/SET for one of its sets: the model that needs no training is judged beside
    what is fitted to each series, or another one with --set model=FOLDER, and results/zero/README.md gets the table.

    Example: romae run positions/tiny-cls --seeds 0-4
    """
    if name.startswith(ZERO):
        untrained = {"--seed": seed, "--seeds": seeds, "--out": out, "--resume": resume or None, "--save": save}
        _judge(name.removeprefix(ZERO), untrained, settings or [], results, quick=quick, device=device)
        return
    from romae.checkpoints.native import require_place
    from romae.experiments.recipe import effective_seed, find
    from romae.experiments.recipe import run as run_recipe
    from romae.experiments.results import is_result, result_path
    from romae.files import require_writable
    from romae.training.config import require_device_name

    recipe = find(name)
    if seed is not None and seeds is not None:
        raise ValueError("give either --seed or --seeds, not both")
    if resume and out is None:
        raise ValueError("--resume needs --out, the folder of the run that was stopped")
    require_device_name(device)
    requested_seeds: list[int | None] = [seed] if seeds is None else list(read_seeds(seeds))
    if save is not None and len(requested_seeds) > 1:
        raise ValueError("--save keeps the model of one seed; give --seed instead of --seeds")
    require_writable(results)
    if save is not None:
        require_place(save)
        require_new(save, force)
    seeds_to_run = []
    for requested in requested_seeds:
        run_seed, overrides = effective_seed(requested, settings or [])
        path = result_path(results, recipe.name, run_seed, overrides, quick=quick)
        require_free(path, force=force, is_ours=is_result)
        seeds_to_run.append(run_seed)
    finished_results = []
    command = [word for word in sys.argv[1:] if word != "--resume"]
    start = partial(
        run_recipe, recipe, quick=quick, overrides=settings or (), device=device, resume=resume, quiet=quiet
    )
    with resumable(None if out is None else out / name, *command):
        for run_seed in seeds_to_run:
            finished = start(run_seed, out=None if out is None else out / name / str(run_seed))
            finished_results.append(finished.result)
            if is_first_rank():
                path = _write(recipe, finished, results, save)
                if not as_json:
                    typer.echo(f"{path}: {_in_one_line(recipe, finished.result)}")
            del finished  # the next run needs the memory of its model
    if is_first_rank() and as_json:
        typer.echo(json.dumps([result.summary for result in finished_results]))


def report(
    results: Results = Path("results"),
    markdown: Annotated[
        Path, typer.Option(help="The page of results to write; what it leads to lies in the folder of results.")
    ] = Path("REPRODUCTION.md"),
    page: Annotated[
        Path | None,
        typer.Option(help="The first page to write, beside a folder for the others; results/report.html by default."),
    ] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """All results beside peers, floors and published values: REPRODUCTION.md and pages with figures.

    There is one line per task. The paper's tables and every run have pages of their own, paper.md and runs.md in the
    folder of results. Nothing is run again. --json prints one row per recipe and metric instead, and writes nothing.

    Example: romae report --results results --markdown REPRODUCTION.md
    """
    from romae.experiments import report, summary

    report.require_results(results)
    for stranger in report.strangers(results):
        typer.echo(f"romae: left out {results / stranger}: there is no recipe of that name", err=True)
    if as_json:
        rows = summary.all_rows(summary.read_all(results))
        typer.echo(json.dumps([asdict(row) for row in rows if row.n or row.failed_seeds]))
        return
    for path in report.write(results, markdown=markdown, page=page, force=force):
        typer.echo(f"written to {path}")


def page(
    run: Annotated[Path, typer.Argument(help="The folder of a run: --out of pretrain, finetune or run.")],
    data: Annotated[
        Path | None,
        typer.Option(help="A table to show the model on, of the kinds that training takes."),
    ] = None,
    label: Annotated[str | None, typer.Option(help="The column of labels, if not the one of the training.")] = None,
    kept_out: Annotated[
        bool | None,
        typer.Option(
            "--kept-out/--all",
            help="Show the ids alone that the run did not train on, or all. By default those alone where --data is the "
            "table of the run.",
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="One setting, as key=value: ratio=0.3, columns.id=star; repeatable."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The page to write; page.html in the folder by default.")] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """One self-contained, interactive page for a run: losses and settings and, with --data, what the model says.

    Reconstructions at hidden points or a confusion matrix, and a map of the embeddings.

    Example: romae page run --data curves.parquet
    """
    from romae.config import override
    from romae.pages import run_page

    if data is None and (kept_out is not None or label or settings):
        raise ValueError("--label, --kept-out, --all and --set say how to show a table; give it with --data")
    shown: Literal["auto", "kept out", "all"] = "auto" if kept_out is None else "kept out" if kept_out else "all"
    config = run_page.PageConfig(label=label, samples=shown)
    config = override(config, *(settings or ()))
    written = run_page.write(run, data=data, config=config, out=out, force=force)
    typer.echo(json.dumps({"page": str(written)}) if as_json else f"written to {written}")


COMMANDS: dict[str, Callable[..., None]] = {
    "list": list_recipes,
    "show": show,
    "run": run,
    "report": report,
    "page": page,
}


def _judge(
    name: str, untrained: Mapping[str, object], settings: list[str], results: Path, *, quick: bool, device: str
) -> None:
    """Judge a model that needs no training on all sets or on one."""
    from romae.experiments.zero_bench import chosen, judge

    for option, value in untrained.items():
        if value is not None:
            raise ValueError(f"nothing is trained in {ZERO}{name}; leave {option} out")
    model = "romae/zero"
    for setting in settings:
        key, _, model = (part.strip() for part in setting.partition("="))
        if key != "model" or not model:
            raise ValueError(f"{ZERO}{name} has no setting {setting!r}; it has model, as in --set model=FOLDER")
    table = judge(chosen([] if name == "all" else [name]), results / "zero", model=model, device=device, quick=quick)
    typer.echo(f"written to {table}")


def _write(recipe: "Recipe", finished: "Finished", results: Path, save: Path | None) -> Path:
    """Write the result of a run and, where it is wanted, its model; return where the result is."""
    from romae.experiments.card import model_card
    from romae.experiments.results import write_result

    result, task = finished
    path = write_result(result, results)  # first, so that a model that cannot be saved costs no result
    if save is not None:
        task.save(save, half=True, card=model_card(recipe, result, task))
    return path


def _in_one_line(recipe: "Recipe", result: "Result") -> str:
    beside = [f"{name} {value:.4g}" for name, value in result.baselines.items()]
    beside += [] if result.floor is None else [f"floor {result.floor:.4g}"]
    trial = " (a trial, not counted)" if result.is_trial else ""
    spent = f"{result.seconds:.0f} s{' since it was resumed' if result.resumed else ''}"
    return f"{recipe.metric} {result.metrics[recipe.metric]:.4g}{trial}; {', '.join(beside)}; {spent}"


def read_seeds(text: str) -> list[int]:
    """0-4, or 0,2,5-7."""
    seeds: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not re.fullmatch(r"\d{1,18}", first) or (dash and not re.fullmatch(r"\d{1,18}", last)):
            raise ValueError(f"cannot read the seeds {text[:80]!r}; write them as 0-4 or 0,2,5-7")
        n_seeds = int(last or first) - int(first) + 1
        if not 0 < n_seeds <= MOST_SEEDS:
            raise ValueError(
                f"cannot read the seeds {part!r}; write them from the first to the last, at most {MOST_SEEDS} at a time"
            )
        seeds += range(int(first), int(first) + n_seeds)
    return seeds


def _seed_range(seeds: tuple[int, ...]) -> str:
    is_row = len(seeds) > 1 and seeds == tuple(range(seeds[0], seeds[-1] + 1))
    return f"{seeds[0]}-{seeds[-1]}" if is_row else ",".join(map(str, seeds))

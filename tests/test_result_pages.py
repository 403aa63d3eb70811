"""The page of results: one line per task, one number per cell, and verdicts that follow the numbers."""

import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from messages import refused
from romae.experiments import report, result_pages, rivals, tasks
from romae.experiments.compare.problems import PROBLEMS
from romae.experiments.recipe import discover, gained
from romae.experiments.results import numbered_files, read_result
from romae.experiments.rivals import Beside, Score
from romae.experiments.summary import Row
from romae.experiments.tasks import Line, task_of, verdict

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
NUMBER = r"-?\d+(?:\.\d+)?(?:e[+-]\d+)?"


@pytest.fixture(scope="module")
def committed() -> report.Contents:
    return report.Contents.read(RESULTS)


@pytest.fixture(scope="module")
def lines(committed) -> list[Line]:
    return committed.lines


@pytest.fixture(scope="module")
def written(committed) -> dict[str, str]:
    """The committed pages by their names."""
    texts = report.to_markdown(committed, ROOT / "REPRODUCTION.md", RESULTS)
    return {path.name: text for path, text in texts.items()}


def table_cells(text: str) -> list[list[str]]:
    """The rows of all tables of a page, without their heads."""
    rows = [line for line in text.splitlines() if line.startswith("| ") and "---" not in line]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for row in rows]


def row_of(lines: list[Line], **changes) -> Row:
    """A row that nothing is wrong with."""
    whole = next(line.ours for line in lines if line.ours.std and not line.ours.missing_seeds)
    return replace(whole, floor=None, published=None, is_comparable=True, changed_settings=(), **changes)


# Which recipes a line is of


def test_every_recipe_with_results_stands_in_one_line_and_once_among_the_runs(committed, lines, written):
    run = {row.recipe for row in committed.rows if row.is_headline and tasks.has_result(row)}
    of_lines = Counter(row.recipe for line in lines for row in line.rows)
    assert set(of_lines) == run and set(of_lines.values()) == {1}
    described = Counter(re.findall(r"^- `([^`]+)`: ", written["runs.md"], re.MULTILINE))
    in_tables = Counter(
        found[1]
        for cells in table_cells(written["runs.md"])
        if len(cells) == 4
        for found in [re.fullmatch(r"`([a-z_]+/[^`]+)`", cells[0])]
        if found and cells[1] not in METRICS
    )
    assert described == of_lines and in_tables == of_lines


METRICS = {name for recipe in RESULTS.glob("*/*/0.json") for name in json.loads(recipe.read_text())["metrics"]}


def test_every_recipe_is_on_the_page_by_its_task_or_among_those_not_run(lines, written):
    *_, missing = written["REPRODUCTION.md"].split("## Not run yet")
    not_run = set(re.findall(r"`([a-z_]+/[^`]+)`", missing))
    assert not_run | {row.recipe for line in lines for row in line.rows} == set(discover())
    assert not any(cells[-1].split("`")[1] in not_run for cells in result_lines(written))


def result_lines(written: dict[str, str]) -> list[list[str]]:
    """The lines of the page of results, by cells."""
    return [cells for cells in table_cells(written["REPRODUCTION.md"]) if cells[0] != "task"]


def test_recipes_of_a_task_share_metric_and_baselines(lines):
    for line in lines:
        assert len({(row.metric, row.better, experiment(row)) for row in line.rows}) == 1, line.task
        names = [{name.removesuffix(", adjusted") for name in row.baselines} for row in line.rows]
        assert all(name == names[0] for name in names), line.task


def experiment(row: Row) -> str:
    return tasks.experiment_of(row.recipe)


@pytest.mark.parametrize(
    ("recipe", "task"),
    [
        ("uea/lsst-tuned", "uea/lsst"),
        ("uea/basic-motions-scratch", "uea/basic-motions"),
        ("pendulum/paper-cls", "pendulum"),
        ("positions/tuned-tiny-cls", "positions/tiny"),
        ("positions/tiny-no-cls", "positions/tiny"),
        ("lightcurves/plasticc-tuned-scratch", "lightcurves/plasticc"),
        ("lightcurves/plasticc-few", "lightcurves/plasticc-few"),
        ("physionet/mortality-both-kinds", "physionet/mortality"),
        ("physionet/mortality-c", "physionet/mortality-c"),
        ("forecasting/physionet-hourly", "forecasting/physionet-hourly"),
        ("asas/classes-20-scratch", "asas/classes-20"),
    ],
)
def test_words_that_say_how_are_no_part_of_a_task(recipe, task):
    assert recipe in discover() and task_of(recipe) == task


def test_the_line_shows_a_recipe_for_its_settings_and_never_for_its_score(lines):
    for line in lines:
        worst = [replace(row, mean=None if row.mean is None else -1e9 * (row is not line.ours)) for row in line.rows]
        best = [replace(row, mean=None if row.mean is None else 1e9 * (row is not line.ours)) for row in line.rows]
        assert {one.ours.recipe for rows in (worst, best) for one in tasks.lines(rows, Beside())} == {line.ours.recipe}
    shown = {line.ours.recipe for line in lines}
    assert {"uea/lsst-tuned", "audio/esc50-tuned", "positions/tuned-base-cls", "tiny_imagenet/b-no-cls"} <= shown
    assert not any("scratch" in name or "both" in name for name in shown)


def test_a_task_is_called_what_its_titles_have_in_common():
    assert tasks._shared_title(["ESC-50, from scratch", "ESC-50, pre-trained, tuned settings"]) == "ESC-50"
    assert tasks._shared_title(["One token in (0, 100)"]) == "One token in (0, 100)"
    assert tasks._shared_title(["One", "Another"]) == "One"


# Cells


def test_cells_of_the_page_hold_one_number_each(lines, written):
    names = {*rivals.SIMPLE, *rivals.PEERS, *(score.name for line in lines for score in line.peers)}
    named = rf"{NUMBER} (?:{'|'.join(map(re.escape, names))})"
    kinds = dict(
        zip(
            result_pages.COLUMNS[2:10],
            [
                rf"{NUMBER}(?: ± {NUMBER})?",
                NUMBER,
                named,
                rf"{NUMBER}|\({NUMBER}\)",
                named,
                NUMBER,
                "|".join(tasks.VERDICTS),
                r"\d+",
            ],
            strict=True,
        )
    )
    for cells in result_lines(written):
        for cell, (column, kind) in zip(cells[2:10], kinds.items(), strict=True):
            assert cell == "" or re.fullmatch(kind, cell), f"{cells[0]}, {column}: {cell}"


def test_cells_of_the_other_pages_hold_one_number_each(written):
    value = rf"(?:{NUMBER}(?: ± {NUMBER})?)?"
    for cells in table_cells(written["paper.md"]):
        if cells[0] != "row":
            assert all(re.fullmatch(value, cells[i]) for i in (1, 2, 4)), cells
    for cells in table_cells(written["runs.md"]):
        if cells[0] not in ("", "recipe"):
            place = 2 if cells[1] in METRICS else 1
            assert re.fullmatch(value, cells[place]) and len(cells) == 4, cells


def test_the_page_is_read_at_a_glance(lines, written):
    page = written["REPRODUCTION.md"]
    assert len(page) < 400 * len(lines)
    assert all(f"**{word}**" in page for word in tasks.VERDICTS) and set(result_pages.VERDICTS) == set(tasks.VERDICTS)
    assert {cells[1][-1] for cells in result_lines(written)} == {"↓", "↑"}
    for line, cells in zip(lines, result_lines(written), strict=True):
        assert cells[1].endswith("↑" if line.ours.better == "higher" else "↓")
        assert f"results/runs.md#{result_pages._anchor(line.task)})" in cells[-1]
        assert f"\n### {line.task}\n" in written["runs.md"]


def test_what_is_not_comparable_stands_in_brackets(lines, written):
    for line, cells in zip(lines, result_lines(written), strict=True):
        if line.ours.published is not None:
            assert cells[5].startswith("(") == (not line.ours.is_comparable)


def test_a_metric_says_which_way_is_better():
    assert result_pages.metric("mse", "lower") == "MSE ↓" and result_pages.metric("macro_f1", "higher") == "macro F1 ↑"


# Verdicts


@pytest.mark.parametrize("better", ["lower", "higher"])
@pytest.mark.parametrize(
    ("gain", "std", "word"),
    [
        (0.11, 0.1, "ahead"),
        (0.09, 0.1, "level"),
        (-0.09, 0.1, "level"),
        (-0.11, 0.1, "behind"),
        (0.0, 0.0, "level"),
        (0.06, None, "ahead"),
        (0.04, None, "level"),
        (-0.06, None, "behind"),
    ],
)
def test_the_verdict_follows_the_numbers(lines, better, gain, std, word):
    ours = row_of(lines, better=better, mean=1 + gain if better == "higher" else 1 - gain, std=std)
    far = Score("constant", 0.0 if better == "higher" else 9.0, 1)
    near = Score("boosting", 1.0, 1)
    assert verdict(ours, near, far) == word
    assert verdict(replace(ours, published=1.0), None, far) == word
    assert verdict(ours, None, near) == ("alone" if word == "ahead" else word)
    assert verdict(replace(ours, published=1.0, is_comparable=False), None, far) == "alone"


def test_a_number_below_its_floor_and_seeds_that_lack_are_no_success(lines):
    ours = row_of(lines, better="lower", mean=1.0, std=0.1)
    rival = Score("boosting", 9.0, 1)
    assert verdict(replace(ours, floor=1.1), rival, None) == "suspect" and verdict(ours, rival, None) == "ahead"
    for changes in ({"missing_seeds": (3,)}, {"failed_seeds": (3,)}, {"changed_settings": ("a",)}, {"mean": None}):
        assert verdict(replace(ours, **changes), rival, None) == "incomplete"
    assert verdict(ours, None, None) == "alone"


def test_verdicts_of_the_page_agree_with_its_cells(lines, written):
    """From the cells alone, as a reader would check them."""
    for line, cells in zip(lines, result_lines(written), strict=True):
        numbers = [float(found[0]) for i in (4, 5, 6) if (found := re.match(NUMBER, cells[i]))]
        if not numbers or cells[8] in ("incomplete", "suspect"):
            continue
        ours = float(cells[2].split(" ")[0])
        best = (max if line.ours.better == "higher" else min)(numbers)
        assert {"behind": gained(ours, best, line.ours.better) < 0, "level": True}.get(
            cells[8], gained(ours, best, line.ours.better) > 0
        ), cells
        assert (cells[8] == "alone") <= (not cells[4] and not re.match(NUMBER, cells[5]))


# What stands beside ours


def test_every_baseline_is_simple_or_a_peer_with_a_reason():
    names = {
        name
        for recipe in discover()
        for path in numbered_files(RESULTS / recipe)
        for name in read_result(path).baselines
    }
    unknown = names - {*rivals.SIMPLE, *rivals.PEERS}
    assert names and not unknown, f"say in experiments/rivals.py what {unknown} are"
    assert not {*rivals.SIMPLE} & {*rivals.PEERS} and all({**rivals.SIMPLE, **rivals.PEERS}.values())


def test_peers_and_defaults_belong_to_tasks_and_problems_that_there_are(lines):
    known = {task_of(name) for name in discover()}
    assert {*rivals.DATA_OF_PEERS.values(), *rivals.DEFAULTS} <= known
    metrics = {problem.name: problem.metric.lower() for problem in PROBLEMS}
    for task, problem in rivals.DEFAULTS.items():
        (of_task,) = {recipe.metric for name, recipe in discover().items() if task_of(name) == task}
        assert of_task.replace("_", " ") == metrics[problem]


def test_default_estimators_are_judged_on_as_many_folds_as_there_are_and_on_a_gpu_first(tmp_path):
    def trial(machine: str, fold: int, score: float) -> None:
        path = tmp_path / "compare" / machine / "mortality" / f"{fold}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        body = json.loads((RESULTS / "compare" / "cpu" / "mortality" / "0.json").read_text())
        path.write_text(json.dumps(body | {"scores": {"RoMAE": score, "boosting": 0.99}}))

    def default() -> Score:
        return rivals.read_beside(tmp_path).defaults["physionet/mortality"]

    assert not rivals.read_beside(tmp_path).defaults
    trial("quick", 0, 0.1)
    trial("cpu", 0, 0.5)
    assert default() == ("default", 0.5, 1)
    trial("a-gpu", 0, 0.75)
    assert default() == ("default", 0.75, 1)
    trial("cpu", 1, 1.0)
    assert default() == ("default", 0.75, 2)


def test_peers_are_means_over_seeds_without_quick_runs(tmp_path, lines):
    folder = tmp_path / "peers" / "physionet-grid"
    folder.mkdir(parents=True)
    for seed, (crps, is_quick) in enumerate([(0.1, False), (0.2, False), (9.0, True)]):
        body = {"peer": "csdi", "quick": is_quick, "metrics": {"crps": crps}}
        (folder / f"csdi-{seed}.json").write_text(json.dumps(body))
    beside = rivals.read_beside(tmp_path)
    assert beside.peers["uncertainty/physionet-grid"]["crps"]["CSDI"] == ("CSDI", pytest.approx(0.15), 2)
    grid = next(line.ours for line in lines if line.task == "uncertainty/physionet-grid")
    (line,) = tasks.lines([grid], beside)
    assert line.peer is not None and line.peer.name == "CSDI"
    (folder / "csdi-3.json").write_text('{"peer": "csdi"')
    with refused(ValueError, "csdi-3.json", "run it again"):
        rivals.read_beside(tmp_path)


def test_a_baseline_of_no_known_name_counts_as_a_peer(lines):
    (line,) = tasks.lines([row_of(lines, baselines={"constant": 3.0, "a new one": 2.0})], Beside())
    assert line.peer == ("a new one", 2.0, line.ours.n) and line.simple == ("constant", 3.0, line.ours.n)

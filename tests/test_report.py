"""The report: means over seeds, plain verdicts, the same bytes for the same results, and no network."""

import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from romae import paper, report, result_blocks, rows
from romae import recipe as recipes
from romae.charts import comparison
from romae.page import Chart, Choice
from romae.recipe import Measured, Source, Splits, Target, find
from romae.results import Losses, Result, write_result
from romae.rows import summarise
from romae.tasks import Task

PENDULUM = replace(find("pendulum/paper"), seeds=(0, 1, 2, 3))


def result(seed: int, mse: float = 1.0, **changes) -> Result:
    told = Result(
        recipe="pendulum/paper",
        protocol="",
        seed=seed,
        metrics={"mse": mse, "mse_pure_noise": 10 * mse},
        baselines={"constant": 4.0, "other": 3.0 + seed},
        floor=None,
        published=None,
        config={},
        overrides=(),
        quick=False,
        commit="abc",
        device="cpu",
        versions={},
        seconds=1.0,
        figure={"error": [0.5] * 9 + [0.25]},
    )
    return replace(told, **changes)


def test_a_row_is_mean_standard_deviation_and_number_of_seeds():
    headline, other = summarise(PENDULUM, [result(seed, mse) for seed, mse in enumerate([1.0, 2.0, 3.0])])
    assert (headline.metric, headline.mean, headline.std, headline.n) == ("mse", 2.0, 1.0, 3)
    assert headline.n_planned == 4 and headline.missing_seeds == (3,)
    assert headline.baselines == {"constant": 4.0, "other": 4.0}
    assert (other.metric, other.mean, other.std, other.is_headline) == ("mse_pure_noise", 20.0, 10.0, False)
    assert rows.ours(headline) == "2 ± 1 (3, 1 of 4 seeds missing)"


def test_one_seed_has_no_spread_and_none_has_no_number():
    (alone, *_), (nothing,) = summarise(PENDULUM, [result(0)]), summarise(PENDULUM, [])
    assert alone.std is None and "±" not in rows.ours(alone)
    assert nothing.mean is None and nothing.verdict == "no result" and rows.ours(nothing) == "no result yet"


@pytest.mark.parametrize(
    ("better", "target", "floor", "mse", "verdict"),
    [
        ("lower", Target(value=1.5), None, 1.5, "reached"),
        ("lower", Target(value=1.5), None, 1.6, "missed"),
        ("lower", Target(of_floor=1.05), 1.0, 1.04, "reached"),
        ("lower", Target(of_floor=1.05), 1.0, 1.06, "missed"),
        ("lower", Target(value=1.5), 1.0, 0.99, "below its floor"),
        ("lower", Target(of_baselines=(("best", 1.0),)), None, 2.9, "reached"),
        ("lower", Target(of_baselines=(("constant", 0.5),)), None, 2.9, "missed"),
        ("higher", Target(value=0.8), None, 0.9, "reached"),
        ("higher", Target(value=0.8), None, 0.7, "missed"),
        ("lower", None, None, 0.7, "no target"),
    ],
)
def test_the_verdict_is_plain(better, target, floor, mse, verdict):
    row = summarise(replace(PENDULUM, better=better, target=target), [result(0, mse, floor=floor)])[0]
    assert row.verdict == verdict


@pytest.mark.parametrize(
    ("better", "mse", "other", "verdict"),
    [
        ("higher", 0.8, 0.74, "reached"),
        ("higher", 0.8, 0.76, "missed"),
        ("lower", 0.8, 0.86, "reached"),
        ("lower", 0.8, 0.84, "missed"),
        ("higher", 0.8, None, "nothing to compare with yet"),
    ],
)
def test_a_target_can_be_another_recipe_and_more(better, mse, other, verdict):
    held = replace(PENDULUM, better=better, target=Target(beyond=(("pendulum/house", 0.05),)))
    row = summarise(held, [result(0, mse)], {"pendulum/house": other})[0]
    assert row.verdict == verdict and row.target == f"{'≤' if better == 'lower' else '≥'} pendulum/house " + (
        "- 0.05" if better == "lower" else "+ 0.05"
    )


def told(row: rows.Row | None = None, **changes: Any) -> paper.Judgement:
    """What becomes of the paper's Table 5, when this is the row of one of its recipes."""
    given = [] if row is None else [replace(row, missing_seeds=(), is_comparable=True, **changes)]
    return next(one for one in paper.judge(given, "nowhere") if one.item.name == "Table 5")


@pytest.mark.parametrize("better", ["lower", "higher"])
@pytest.mark.parametrize(
    ("off", "std", "verdict"),
    [
        (-0.06, 0.05, "beaten"),
        (-0.04, 0.05, "reproduced"),
        (0.04, 0.05, "reproduced"),
        (0.06, 0.05, "missed"),
        (0.06, 10.0, "missed"),
        (-0.02, 0.0, "beaten"),
        (0.005, None, "reproduced"),
    ],
)
def test_a_number_of_the_paper_is_beaten_reproduced_or_missed(better, off, std, verdict):
    mean = 1 + off if better == "lower" else 1 - off
    row = replace(summarise(PENDULUM, [result(0, mean)])[0], better=better, published=1.0, std=std)
    assert told(row).paper == f"1 {verdict}, 1 no result yet"


def test_what_is_no_success_is_not_called_one():
    row = summarise(PENDULUM, [result(0, 0.1)])[0]
    assert told(row, published=1.0, verdict="below its floor").paper.startswith("1 below its floor")
    assert told(row, published=None).paper.startswith("1 not comparable")
    few = replace(row, is_comparable=True, published=1.0)
    assert few.missing_seeds and paper.judge([few], "nowhere")[5].paper.startswith("1 not all seeds yet")
    assert told().paper == told().house == "no result yet"


def test_both_settings_have_a_verdict_of_their_own():
    row = replace(summarise(PENDULUM, [result(0)])[0], is_comparable=True, missing_seeds=())
    found = [replace(row, recipe=f"pendulum/{name}", mean=mse) for name, mse in (("paper", 2e-2), ("house", 1e-3))]
    table = paper.judge(found, "nowhere")[5]
    assert (table.paper, table.house) == ("1 missed, 1 no result yet", "beaten")
    assert table.numbers == "pendulum/paper 0.02 (1), pendulum/house 0.001 (1) beside 0.00332"


def test_every_table_of_the_paper_is_judged_and_every_recipe_of_it_is_known():
    names = {name for item in paper.ITEMS for one in item.numbers for name in one if name}
    assert names <= set(recipes.discover())
    compared = {name for name, one in recipes.discover().items() if one.published is not None and "scratch" not in name}
    assert compared <= names
    tables = [one.item.name for one in paper.judge([], "nowhere") if one.item.name.startswith("Table")]
    assert tables == [f"Table {i}" for i in range(1, 9)]
    rivals = {name for one in recipes.discover().values() if one.target for name, _ in one.target.beyond}
    assert rivals and rivals <= set(recipes.discover())


def test_the_speed_is_read_from_a_benchmark(tmp_path):
    def speed() -> paper.Judgement:
        return next(one for one in paper.judge([], tmp_path) if one.item.name == "Table 8")

    measured = {"machine": {"device": "A card"}, "rows": [{"workload": "images", "continuous_speed": 1.01}]}
    (tmp_path / "a.json").write_text("{}")
    (tmp_path / "b.json").write_text(json.dumps({"positions": measured | {"machine": {"device": "cpu"}}}))
    assert speed().house == "no result yet"
    (tmp_path / "c.json").write_text(json.dumps({"positions": measured}))
    assert speed().house == "beaten" and speed().numbers == "images 1.01 beside 0.87 (A card)"
    (tmp_path / "a.json").write_text("{")
    with pytest.raises(ValueError, match=r"a.json is torn or no JSON"):
        speed()


def test_what_cannot_be_compared_says_so():
    row = summarise(PENDULUM, [result(0)])[0]
    assert rows.published(row) == "0.00332 (not comparable)"
    assert rows.published(replace(row, is_comparable=True)) == "0.00332"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Results of two seeds of one recipe, of one other without any, and a trial."""
    found = {"pendulum/paper": PENDULUM, "pendulum/house": find("pendulum/house")}
    monkeypatch.setattr(report, "discover", lambda: found)
    monkeypatch.setattr(rows, "discover", lambda: found)
    monkeypatch.setattr(recipes, "discover", lambda: found)
    for one in (result(0, 1.0), result(1, 3.0), result(2, 100.0, quick=True), result(3, 100.0, overrides=("x=1",))):
        write_result(one, tmp_path / "results")
    return tmp_path / "results"


def test_the_table_and_the_page_come_out_the_same_every_time(folder, tmp_path):
    written = []
    for _ in range(2):
        paths = report.write(folder, markdown=tmp_path / "R.md")
        written.append([path.read_bytes() for path in paths])
    assert written[0] == written[1] and paths == [tmp_path / "R.md", folder / "report.html"]
    table, page = (text.decode() for text in written[0])
    (line,) = [line for line in table.splitlines() if "`pendulum/paper`" in line]
    cells = [cell.strip() for cell in line.split("|")]
    assert cells[3] == "2 ± 1.4 (2, 2 of 4 seeds missing)" and cells[7] == "≤ 0.0033: missed"
    assert "100" not in cells[3] and "no result yet" in table
    assert page.count("<figure>") == 2  # the comparison, and what the source draws
    assert "default-src 'none'" in page and 'src="http' not in page.split("<script>")[0]


LOSSES = Losses(stage="regress", step=(1, 2), loss=(3.0, 2.0), validation=(4.0, 3.0))
PANELS = [
    {"title": "value", "observed": [[0, 1], [5, 6 + i]], "hidden": [[2], [7]], "predicted": [8 + i]} for i in range(2)
]
VIEWS = {
    "agreement": {"truth": [[1, 2], [3, 4]], "predicted": [[1, None], [3, 5]]},
    "reconstructions": [{"name": name, "channels": [one]} for name, one in zip("ab", PANELS, strict=True)],
    "confusion": {"classes": ["slow", "fast"], "counts": [[2, 1], [0, 3]]},
    "embeddings": {"points": [[0, 1], [2, 3]], "groups": ["slow", "fast"]},
}


class Drawing(Source):
    """A source that draws what it is told."""

    def __init__(self, **drawn: Chart) -> None:
        self.drawn = drawn

    def splits(self, seed: int) -> Splits:
        raise NotImplementedError

    def measure(self, task: Task, splits: Splits) -> Measured:
        raise NotImplementedError

    def draw(self, figures: Sequence[Mapping[str, Any]]) -> dict[str, Chart]:
        return self.drawn


def drawn(results: list[Result]) -> list[Chart | Choice]:
    return result_blocks.blocks(replace(PENDULUM, data=Drawing()), results)


def test_losses_of_all_seeds_stand_in_one_chart_for_each_stage():
    held = [result(0, losses=(LOSSES,)), result(1, losses=(replace(LOSSES, loss=(9.0, 8.0)),)), result(2)]
    (chart,) = drawn(held)
    training = [trace for trace in chart.traces if trace["name"] == "training"]
    assert [trace["y"] for trace in training] == [[3, 2], [9, 8]] and chart.caption == "Loss in regression, 2 seeds."
    assert [trace["showlegend"] for trace in training] == [True, False]
    two = [replace(one, losses=one.losses * 2) for one in held]
    (choice,) = drawn(two)
    assert list(choice.charts) == ["1: regression", "2: regression"]


def test_views_of_a_result_are_drawn():
    held = [result(0, views=VIEWS), result(1, views={"confusion": VIEWS["confusion"]})]
    sample, numbers, matrix, points = drawn(held)
    assert list(sample.charts) == ["a", "b"]
    assert [trace["y"] for trace in sample.charts["a"].traces] == [[5, 6], [7], [8]]
    assert list(numbers.charts) == ["number 1", "number 2"] and numbers.charts["number 1"].traces[1]["y"] == [1, None]
    assert matrix.traces[0]["text"] == [[4, 2], [0, 6]] and "2 seeds" in matrix.caption  # of both seeds together
    assert [trace["name"] for trace in points.traces] == ["fast", "slow"]


def test_a_source_may_draw_charts_of_its_own():
    own = comparison({"RoMAE": 1.0}, ours="RoMAE", metric="mse", caption="Mine")
    assert result_blocks.blocks(replace(PENDULUM, data=Drawing(Mine=own)), [result(0)]) == [own]


def test_the_page_escapes_what_it_is_told(folder, monkeypatch):
    told = {"pendulum/paper": replace(PENDULUM, remark="<b>a & b</b>", title="<i>")}
    monkeypatch.setattr(report, "discover", lambda: told)
    monkeypatch.setattr(rows, "discover", lambda: told)
    report.write(folder, markdown=folder / "R.md")
    page = (folder / "report.html").read_text()
    assert "&lt;b&gt;a &amp; b&lt;/b&gt;" in page and "<i>" not in page.split("<script>")[0]


def call(monkeypatch, capsys, *arguments):
    from romae.cli import main

    monkeypatch.setattr(sys, "argv", ["romae", *map(str, arguments)])
    try:
        main()
        code = 0
    except SystemExit as end:
        code = int(end.code or 0)
    return code, *capsys.readouterr()


def test_the_command_prints_one_row_per_recipe_and_metric(folder, tmp_path, monkeypatch, capsys):
    stranger = folder / "waves" / "old" / "0.json"
    stranger.parent.mkdir(parents=True)
    stranger.write_text("{}")
    code, out, error = call(monkeypatch, capsys, "report", "--results", folder, "--json")
    rows = json.loads(out)
    assert code == 0 and [(row["recipe"], row["metric"], row["n"]) for row in rows] == [
        ("pendulum/paper", "mse", 2),
        ("pendulum/paper", "mse_pure_noise", 2),
    ]
    assert rows[0]["mean"] == 2.0 and rows[0]["std"] == pytest.approx(2**0.5)
    assert "waves/old" in error and not (folder / "report.html").exists()


def test_a_torn_result_is_named_and_nothing_is_written(folder, tmp_path, monkeypatch, capsys):
    (folder / "pendulum" / "paper" / "1.json").write_text('{"recipe": "pen')
    table = tmp_path / "R.md"
    code, _, error = call(monkeypatch, capsys, "report", "--results", folder, "--markdown", table)
    assert code == 2 and "1.json is torn" in error and not table.exists() and not (folder / "report.html").exists()


def test_a_folder_that_is_not_there_is_named(tmp_path, monkeypatch, capsys):
    code, _, error = call(
        monkeypatch, capsys, "report", "--results", tmp_path / "none", "--markdown", tmp_path / "R.md"
    )
    assert code == 2 and "no folder of results" in error and not (tmp_path / "R.md").exists()


def test_the_numbers_of_the_readme_are_those_of_the_results():
    """A row names our recipe; the paper's has the same name with another ending."""
    root = Path(__file__).parents[1]
    found = {row.recipe: row for row in rows.all_rows(rows.read_all(root / "results")) if row.is_headline}
    lines = [line for line in (root / "README.md").read_text().splitlines() if re.match(r"\| `[a-z]+/", line)]
    assert len(lines) >= 3
    for line in lines:
        told, ours, theirs, baseline, floor = (cell.strip() for cell in line.strip("|").split("|"))
        house = found[told.split("`")[1]]
        paper_row = found[house.recipe.replace("-house", "-paper").replace("/house", "/paper")]
        assert [ours, theirs] == [f"{row.mean:.3g}" for row in (house, paper_row)], line
        value, _, name = baseline.partition(", ")
        assert value == f"{min(house.baselines.values()):.3g}", line
        assert name.lower() == min(house.baselines, key=lambda one: house.baselines[one]), line
        assert floor == ("" if house.floor is None else f"{house.floor:.3g}"), line


def test_the_committed_table_is_that_of_the_committed_results():
    root = Path(__file__).parents[1]
    found = rows.all_rows(rows.read_all(root / "results"))
    made = report.to_markdown(found, paper.judge(found, root / "results" / "benchmark"))
    assert made == (root / "REPRODUCTION.md").read_text(), "run `romae report`"

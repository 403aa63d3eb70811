"""The report: means over seeds, plain verdicts, the same bytes for the same results, and no network."""

import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from messages import assert_says, refused
from romae.experiments import figures, paper, report
from romae.experiments import recipe as recipes
from romae.experiments import summary as rows
from romae.experiments.recipe import Measured, Source, Splits, Target, find
from romae.experiments.results import Losses, Result, results_of, write_result
from romae.experiments.summary import summarise
from romae.model.tasks import Task
from romae.pages import charts, plots
from romae.pages.page import Chart, Choice
from romae.tokens.ladder import Ladder

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
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
        config=PENDULUM.config,
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


def test_results_of_settings_that_the_recipe_no_longer_has_are_named_and_never_called_reached():
    changed = PENDULUM.overridden("stages.0.train.epochs=3", "model.cls=false").config
    (row, *_) = summarise(replace(PENDULUM, target=Target(value=9.0)), [result(0, config=changed), result(1)])
    assert (row.mean, row.verdict) == (1.0, "settings changed since")
    assert row.changed_settings == ("model.cls", "stages.0.train.epochs")
    assert rows.ours(row) == "1 ± 0 (2, 2 of 4 seeds missing, with another model.cls, stages.0.train.epochs than now)"
    assert told(row, published=1.0).paper.startswith("1 settings changed since")


def test_no_gain_is_taken_over_results_of_settings_that_a_recipe_no_longer_has():
    tuned, scratch = find("audio/esc50-tuned"), find("audio/esc50-tuned-scratch")
    ours, theirs = (
        [result(seed, recipe=one.name, config=one.config, metrics={"accuracy": score}) for seed in range(5)]
        for one, score in ((tuned, 0.9), (scratch, 0.5))
    )
    changed = [replace(one, config=scratch.overridden("train.epochs=3").config) for one in theirs]

    def verdict(others: list[Result]) -> str:
        found = rows.all_rows({tuned.name: ours, scratch.name: others})
        return next(row.verdict for row in found if row.recipe == tuned.name and row.is_headline)

    assert (verdict(theirs), verdict(changed)) == ("reached", "nothing to compare with yet")


def test_where_a_run_took_place_and_what_was_fitted_to_its_data_are_no_other_settings():
    elsewhere = PENDULUM.overridden("train.device=cpu", "train.workers=4").config
    (row, *_) = summarise(PENDULUM, [result(0, config=elsewhere, overrides=("train.workers=4",))])
    assert not row.changed_settings
    ladders = replace(PENDULUM.model, ladders=(Ladder(scale=2.0), *[Ladder()] * (PENDULUM.model.position_dims - 1)))
    fitted = replace(PENDULUM, model=ladders).config
    (fits, *_), (not_fits, *_) = (
        summarise(replace(PENDULUM, ladder=ladder), [result(0, config=fitted | {"ladder": ladder})])
        for ladder in ("data", "paper")
    )
    assert not fits.changed_settings and not_fits.changed_settings


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
    recipe = replace(PENDULUM, better=better, target=target, seeds=(0,))
    assert summarise(recipe, [result(0, mse, floor=floor)])[0].verdict == verdict


def test_nothing_is_reached_or_missed_before_all_seeds_are_there():
    recipe = replace(PENDULUM, target=Target(value=1.5), seeds=(0, 1))
    few, all_of_them = ([result(seed) for seed in range(n)] for n in (1, 2))
    assert [summarise(recipe, found)[0].verdict for found in (few, all_of_them)] == ["not all seeds yet", "reached"]
    assert summarise(recipe, [])[0].verdict == "no result"
    assert summarise(recipe, [result(0, floor=2.0)])[0].verdict == "below its floor"


def test_a_seed_without_a_number_failed_and_nothing_is_reached(tmp_path):
    for seed, mse in enumerate([float("nan"), 1.0, 3.0]):
        write_result(result(seed, mse), tmp_path)
    row = summarise(replace(PENDULUM, target=Target(value=9.0)), results_of("pendulum/paper", tmp_path))[0]
    assert (row.mean, row.n, row.missing_seeds, row.failed_seeds) == (2.0, 2, (3,), (0,))
    assert row.baselines["other"] == 4.5  # of the seeds that the mean is of
    assert row.verdict == "seeds failed" and rows.ours(row) == "2 ± 1.4 (2, 1 of 4 seeds missing, seed 0 failed)"
    assert told(row, published=2.0).paper.startswith("1 seeds failed")
    alone = summarise(PENDULUM, results_of("pendulum/paper", tmp_path)[:1])[0]
    assert alone.verdict == "seeds failed" and rows.ours(alone) == "no number: seed 0 failed"
    assert told(alone).numbers[0].paper == ("pendulum/paper", "", "seeds failed")


def test_a_metric_that_older_results_do_not_have_is_missing_and_did_not_fail():
    row = summarise(PENDULUM, [result(0), result(1, metrics={"mse": 1.0})])[1]
    assert (row.metric, row.n, row.missing_seeds, row.failed_seeds) == ("mse_pure_noise", 1, (1, 2, 3), ())


def against(better: str, margin: float, ours: Sequence[float], theirs: Mapping[int, float]) -> rows.Row:
    target, seeds = Target(beyond=(("pendulum/tuned", margin),)), tuple(range(len(ours)))
    held = replace(PENDULUM, better=better, target=target, seeds=seeds)
    return summarise(held, [result(seed, mse) for seed, mse in enumerate(ours)], {"pendulum/tuned": theirs})[0]


@pytest.mark.parametrize(
    ("better", "other", "verdict"),
    [
        ("higher", {0: 0.74}, "reached"),
        ("higher", {0: 0.76}, "missed"),
        ("lower", {0: 0.86}, "reached"),
        ("lower", {0: 0.84}, "missed"),
        ("higher", {}, "nothing to compare with yet"),
        ("higher", {1: 0.74}, "nothing to compare with yet"),
    ],
)
def test_a_target_can_be_another_recipe_and_more(better, other, verdict):
    row = against(better, 0.05, [0.8], other)
    assert row.verdict == verdict and row.target == f"{'≤' if better == 'lower' else '≥'} pendulum/tuned " + (
        "- 0.05" if better == "lower" else "+ 0.05"
    )


@pytest.mark.parametrize("better", ["higher", "lower"])
@pytest.mark.parametrize(
    ("gains", "verdict"),
    [
        ([0.01, 0.02, 0.03], "reached"),  # small beside the spread over seeds, but the same in all of them
        ([0.1, -0.08, 0.01], "missed"),  # above 0 and below its standard error
        ([0.014, 0.004, -0.004], "missed"),  # above its standard error, as chance has it one time in six
        ([-0.01, -0.02, -0.03], "missed"),
        ([0.01], "nothing to compare with yet"),
        ([-0.01], "missed"),
    ],
)
def test_a_gain_is_taken_seed_by_seed_and_must_exceed_what_chance_gives(better, gains, verdict):
    sign, theirs = 1 if better == "higher" else -1, dict(enumerate([0.3, 0.9, 0.6]))
    row = against(better, 0.0, [theirs[seed] + sign * gain for seed, gain in enumerate(gains)], theirs)
    assert row.verdict == verdict and row.gains[0].mean == pytest.approx(sum(gains) / len(gains))


def test_the_gain_stands_beside_the_target():
    row = against("higher", 0.0, [0.31, 0.92, 0.63], {0: 0.3, 1: 0.9, 2: 0.6, 7: 0.1})
    assert rows.target(row) == "≥ pendulum/tuned; gain over pendulum/tuned 0.02 ± 0.01 (3): reached"
    short = against("higher", 0.0, [0.31, 0.92, 0.63, 0.5], {0: 0.3, 1: 0.9, 2: 0.6, 7: 0.1})
    assert short.verdict == "not all seeds yet" and short.gains == row.gains


def test_a_spread_that_is_none_is_written_as_such():
    row = summarise(PENDULUM, [result(seed, 0.1 + 0.2 + 1e-17 * seed) for seed in range(3)])[0]
    assert rows.ours(replace(row, std=5e-17)) == "0.3 ± 0 (3, 1 of 4 seeds missing)"


ITEMS = paper.read_items(RESULTS)
judge = partial(paper.judge, ITEMS)


def told(row: rows.Row | None = None, **changes: Any) -> paper.Judgement:
    """What becomes of the paper's Table 5, when this is the row of one of its recipes."""
    given = [] if row is None else [replace(row, missing_seeds=(), is_comparable=True, **changes)]
    return next(one for one in judge(given, "nowhere") if one.item.name == "Table 5")


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
    assert few.missing_seeds and judge([few], "nowhere")[5].paper.startswith("1 not all seeds yet")
    assert told().paper == told().tuned == "no result yet"


def test_both_settings_have_a_verdict_of_their_own():
    row = replace(summarise(PENDULUM, [result(0)])[0], is_comparable=True, missing_seeds=())
    found = [replace(row, recipe=f"pendulum/{name}", mean=mse) for name, mse in (("paper", 2e-2), ("tuned", 1e-3))]
    table = judge(found, "nowhere")[5]
    assert (table.paper, table.tuned) == ("1 missed, 1 no result yet", "beaten")
    assert table.numbers == (
        (0.00332, ("pendulum/paper", "0.02", "missed"), ("pendulum/tuned", "0.001", "beaten")),
        (None, ("pendulum/paper-cls", "", "no result yet"), None),
    )


def test_results_without_a_paper_have_a_report_without_its_tables(folder, committed):
    assert paper.read_items(folder) == ()
    without = report.Contents.read(folder)
    names = {path.name for path in report.to_markdown(without, Path("R.md"), folder)}
    assert names == {"R.md", "runs.md"} and "The paper's tables" not in report.to_pages(without)["report.html"]
    assert Path("paper.md") in report.to_markdown(committed, Path("R.md"), Path())
    (folder / "paper.toml").write_text('[[items]]\nname = "Table 1"\nabaut = "positions"')
    with pytest.raises(ValueError, match="abaut"):
        paper.read_items(folder)


def test_every_table_of_the_paper_is_judged_and_every_recipe_of_it_is_known():
    names = {name for item in ITEMS for one in item.numbers for name in one.recipes}
    assert names <= set(recipes.discover())
    known = {name: one for name, one in recipes.discover().items() if one.paper != "beyond the paper"}
    compared = {name for name, one in known.items() if one.published is not None and "scratch" not in name}
    assert compared <= names
    items = [one.item.name for one in judge([], "nowhere")]
    assert sorted(items) == ["Appendix B.4", "Figure 2", *(f"Table {i}" for i in range(1, 9))]
    rivals = {name for one in recipes.discover().values() if one.target for name, _ in one.target.beyond}
    assert rivals and rivals <= set(recipes.discover())


VERDICTS = (
    "reproduced",
    "beaten",
    "missed",
    "not comparable",
    "no result yet",
    "not all seeds yet",
    "settings changed since",
    "were not used",
)


@pytest.fixture(scope="module")
def committed() -> report.Contents:
    return report.Contents.read(RESULTS)


def test_every_number_of_the_paper_has_a_verdict_and_every_item_a_reason_of_one_sentence(committed):
    for one in committed.judged:
        answers = [answer for number in one.numbers for answer in number.answers]
        assert answers and all(answer.verdict.endswith(VERDICTS) for answer in answers), answers
        assert len(answers) >= sum(len(number.recipes) for number in one.item.numbers)
        assert re.fullmatch(r"[A-Z].*\w[).]?\.", one.reason) and not re.search(r"[.!?] ", one.reason), one.reason


def test_what_falls_short_is_named_in_the_reason():
    row = replace(summarise(PENDULUM, [result(0)])[0], recipe="uea/lsst-paper", published=0.5, missing_seeds=())
    table = judge([replace(row, is_comparable=True, verdict="reached")], "nowhere")[6]
    assert table.paper == "4 no result yet, 1 missed"
    assert table.reason.endswith("; uea/lsst-paper: falls short, which is not explained.")
    clips = [
        replace(row, recipe=f"positions/{size}-cls", verdict="missed", is_comparable=False)
        for size in ("small", "base")
    ]
    assert (
        f"; positions/small-cls, positions/base-cls: {ITEMS[0].numbers[0].short}." in judge(clips, "nowhere")[0].reason
    )
    tuned = replace(row, recipe="uea/lsst-tuned", is_comparable=True)
    assert "uea/lsst-tuned: falls short" in judge([tuned], "nowhere")[6].reason
    target = replace(row, recipe="uea/epilepsy-tuned", verdict="missed", is_comparable=False)
    assert judge([target], "nowhere")[6].reason.endswith(f"; uea/epilepsy-tuned: {ITEMS[6].numbers[2].short_tuned}.")
    fine = replace(row, verdict="reached", is_comparable=False)
    assert "lsst" not in judge([fine], "nowhere")[6].reason


def test_data_that_are_not_at_hand_are_not_waited_for():
    table = judge([], "nowhere")[4]
    assert table.numbers[0].paper == ("lightcurves/elasticc", "", "not comparable: its data were not used")
    assert table.paper == "1 not comparable: its data were not used, 1 no result yet"


def test_the_speed_is_read_from_a_benchmark(tmp_path):
    def speed() -> paper.Judgement:
        return next(one for one in judge([], tmp_path) if one.item.name == "Table 8")

    speeds = [{"workload": "images", "continuous_speed": 1.01}, {"workload": "audio", "continuous_speed": 0.5}]
    measured = {"machine": {"device": "A card"}, "rows": speeds}
    (tmp_path / "a.json").write_text("{}")
    (tmp_path / "b.json").write_text(json.dumps({"positions": measured | {"machine": {"device": "cpu"}}}))
    assert speed().tuned == "no result yet"
    (tmp_path / "c.json").write_text(json.dumps({"positions": measured}))
    assert speed().tuned == "no result yet"
    assert [answer for number in speed().numbers for answer in number.answers] == [
        ("images", "1.01", "not comparable"),
        ("audio", "0.50", "not comparable"),
    ]
    speeds.append({"workload": "photographs", "continuous_speed": 0.95})
    (tmp_path / "c.json").write_text(json.dumps({"positions": measured}))
    assert speed().tuned == "beaten"
    assert speed().numbers[-1] == (0.87, None, ("photographs", "0.95", "beaten")) and speed().device == "A card"
    (tmp_path / "a.json").write_text(json.dumps({"positions": measured | {"rows": speeds[:1]}}))
    assert speed().tuned == "beaten", "a card before it without the number hides it"


@pytest.mark.parametrize(
    ("held", "parts"),
    [
        (b"{", ["a.json", "no JSON"]),
        (b"\xff\xfe{}", ["a.json", "no JSON"]),
        (b"[1]", ["a.json", "no benchmark"]),
        (b'{"positions": {}}', ["a.json", "no benchmark"]),
        (
            b'{"positions": {"machine": {"device": "A card"}, "rows": [{"workload": "images"}]}}',
            ["a.json", "no benchmark"],
        ),
    ],
)
def test_a_file_that_is_no_benchmark_is_named(tmp_path, held, parts):
    (tmp_path / "a.json").write_bytes(held)
    with refused(ValueError, *parts):
        judge([], tmp_path)


def test_what_cannot_be_compared_says_so():
    row = summarise(PENDULUM, [result(0)])[0]
    assert rows.published(row) == "(0.00332)"
    assert rows.published(replace(row, is_comparable=True)) == "0.00332"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Results of two seeds of one recipe, of one other without any, and a trial."""
    found = {"pendulum/paper": PENDULUM, "pendulum/tuned": find("pendulum/tuned")}
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
    assert written[0] == written[1]
    assert paths == [tmp_path / "R.md", folder / "runs.md", folder / "report.html"]
    table, runs, page = (text.decode() for text in written[0])
    (line,) = [line for line in table.splitlines() if "[`pendulum/paper`]" in line]
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[2] == "2 ± 1.4" and cells[8:10] == ["incomplete", "2"] and "](results/runs.md#pendulum)" in cells[10]
    assert "2 ± 1.4 (2, 2 of 4 seeds missing)" in runs and "≤ 0.0033: not all seeds yet" in runs
    assert "By seed: 1 (0), 3 (1)." in runs and "- `pendulum/tuned`\n" in table
    of_pendulum = (folder / "report" / "pendulum.html").read_text()
    assert page.count("<figure>") == of_pendulum.count("<figure>") == 1  # the comparison; what the source draws
    for text in (page, of_pendulum):
        assert "default-src 'none'" in text and 'src="http' not in text.split("<script>")[0]


def test_the_page_opens_with_verdicts_and_each_experiment_has_a_page_of_its_own(folder, tmp_path):
    *_, place = report.write(folder, markdown=tmp_path / "R.md")
    page = place.read_text()
    first = page[: page.index("</section>")]
    assert f'<a href="report/pendulum.html">{PENDULUM.title}</a>' in first and "<td>incomplete</td>" in first
    assert "1 tasks: 1 incomplete." in first and "pendulum/tuned" in page.split("Not run yet")[1]
    one = (folder / "report" / "pendulum.html").read_text()
    assert PENDULUM.title in one and '<a href="../report.html">' in one
    assert 'src="report/plotly.min.js"' in page and 'src="plotly.min.js"' in one
    assert "plotly.js v" in (folder / "report" / "plotly.min.js").read_text()[:1000]
    assert len(page) < 100_000 and len(one) < 100_000


def test_a_page_of_an_experiment_takes_the_place_of_a_page_and_of_nothing_else(folder, tmp_path, monkeypatch, capsys):
    command = ["report", "--results", folder, "--markdown", tmp_path / "R.md"]
    (folder / "report").mkdir()
    for name in ("pendulum.html", "plotly.min.js"):
        mine = folder / "report" / name
        mine.write_text("mine")
        code, _, error = call(monkeypatch, capsys, *command)
        assert code == 2 and mine.read_text() == "mine" and not (tmp_path / "R.md").exists()
        assert_says(error, name, "--force")
        mine.unlink()
    assert [call(monkeypatch, capsys, *command)[0] for _ in range(2)] == [0, 0]


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

    def __init__(self, **drawn: Any) -> None:
        self.drawn = drawn

    def splits(self, seed: int) -> Splits:
        raise NotImplementedError

    def measure(self, task: Task, splits: Splits) -> Measured:
        raise NotImplementedError

    def draw(self, figures: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        return self.drawn


def drawn(results: list[Result]) -> list[Chart | Choice]:
    return figures.blocks(replace(PENDULUM, data=Drawing()), results)


def test_losses_of_all_seeds_stand_in_one_chart_for_each_stage():
    held = [result(0, losses=(LOSSES,)), result(1, losses=(replace(LOSSES, loss=(9.0, 8.0)),)), result(2)]
    (chart,) = drawn(held)
    training = [trace for trace in chart.figure.data if trace.name == "training"]
    assert [list(trace.y) for trace in training] == [[3, 2], [9, 8]] and chart.caption == "Loss in regression, 2 seeds."
    assert [trace.showlegend for trace in training] == [True, False]
    two = [replace(one, losses=one.losses * 2) for one in held]
    (choice,) = drawn(two)
    assert list(choice.charts) == ["1: regression", "2: regression"]


def test_diagnostics_of_a_result_are_drawn():
    held = [result(0, views=VIEWS), result(1, views={"confusion": VIEWS["confusion"]})]
    sample, numbers, matrix, points = drawn(held)
    assert list(sample.charts) == ["a", "b"]
    assert [list(trace.y) for trace in sample.charts["a"].figure.data] == [[5, 6], [7], [8]]
    assert list(numbers.charts) == ["number 1", "number 2"]
    assert_array_equal(numbers.charts["number 1"].figure.data[1].y, [1, np.nan])
    assert matrix.figure.data[0].text == ([4, 2], [0, 6]) and "2 seeds" in matrix.caption  # of both seeds together
    assert [trace.name for trace in points.figure.data] == ["fast", "slow"]


def test_a_source_draws_charts_pictures_and_choices():
    chart = charts.comparison({"RoMAE": 1.0}, ours="RoMAE", metric="mse")
    picture = plots.image_grid({"one": [np.zeros((2, 2))]})
    source = Drawing(Chart=chart, Picture=picture, Choice={"first": chart, "second": picture})
    first, second, choice = figures.blocks(replace(PENDULUM, data=source), [result(0)])
    assert (first, second) == (Chart(caption="Chart", figure=chart), Chart(caption="Picture", figure=picture))
    assert not first.is_picture and second.is_picture
    assert {name: one.figure for name, one in choice.charts.items()} == {"first": chart, "second": picture}


def test_the_page_escapes_what_it_is_told(folder, monkeypatch):
    told = {"pendulum/paper": replace(PENDULUM, remark="<b>a & b</b>", title="<i>")}
    monkeypatch.setattr(report, "discover", lambda: told)
    monkeypatch.setattr(rows, "discover", lambda: told)
    report.write(folder, markdown=folder / "R.md")
    page, one = ((folder / name).read_text() for name in ("report.html", "report/pendulum.html"))
    assert "&lt;b&gt;a &amp; b&lt;/b&gt;" in one and "&lt;i&gt;" in page
    assert "<i>" not in page.split("<script>")[0] + one.split("<script>")[0]


def call(monkeypatch, capsys, *arguments):
    from romae.cli.main import main

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


def test_results_under_a_name_of_0_1_are_counted_and_not_called_unknown(tmp_path, monkeypatch, capsys):
    write_result(result(0, recipe="pendulum/house", config=find("pendulum/tuned").config), tmp_path)
    code, out, error = call(monkeypatch, capsys, "report", "--results", tmp_path, "--json")
    assert (
        code == 0 and error == "" and {(row["recipe"], row["n"]) for row in json.loads(out)} == {("pendulum/tuned", 1)}
    )


def test_the_seconds_of_a_seed_are_those_of_runs_in_one_go():
    held = [result(0, seconds=30.0), result(1, seconds=2.0, resumed=True)]
    told = [report._section(replace(PENDULUM, data=Drawing()), part, []).blocks[2].text for part in (held, held[1:])]
    assert told[0].endswith("; 30 s a seed") and told[1].endswith("resumed, so that its seconds are not known")


def test_a_torn_result_is_named_and_nothing_is_written(folder, tmp_path, monkeypatch, capsys):
    (folder / "pendulum" / "paper" / "1.json").write_text('{"recipe": "pen')
    table = tmp_path / "R.md"
    code, _, error = call(monkeypatch, capsys, "report", "--results", folder, "--markdown", table)
    assert code == 2 and "1.json is torn" in error and not table.exists() and not (folder / "report.html").exists()


@pytest.mark.parametrize("how", [["--json"], []])
def test_a_folder_that_is_not_there_is_named(tmp_path, monkeypatch, capsys, how):
    code, out, error = call(
        monkeypatch, capsys, "report", "--results", tmp_path / "none", "--markdown", tmp_path / "R.md", *how
    )
    assert code == 2 and out == "" and "no folder of results" in error and not (tmp_path / "R.md").exists()


@pytest.mark.parametrize(
    ("markdown", "page", "parts"),
    [
        ("R.md", "results", ["results", "is a folder"]),
        ("results", "page.html", ["results", "is a folder"]),
        ("same", "./same", ["cannot both be"]),
        ("results/runs.md", "page.html", ["cannot both be", "runs.md"]),
        ("R.md", "file/page.html", ["file", "not a folder"]),
    ],
)
def test_both_places_are_looked_at_before_either_is_written(
    folder, tmp_path, monkeypatch, capsys, markdown, page, parts
):
    (tmp_path / "file").write_text("mine")
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    code, _, error = call(monkeypatch, capsys, "report", "--results", folder, "--markdown", markdown, "--page", page)
    assert code == 2 and error.count("\n") == 1 and sorted(tmp_path.rglob("*")) == before
    assert_says(error, *parts)


@pytest.mark.parametrize("name", ["pendulum/paper/1.json", "paper.toml", "benchmark/cpu.json", "trials/x/0.json"])
@pytest.mark.parametrize("option", ["--page", "--markdown"])
def test_what_a_report_is_made_from_is_never_written_over(folder, tmp_path, monkeypatch, capsys, name, option):
    place = folder / name
    place.parent.mkdir(parents=True, exist_ok=True)
    place.touch()
    before = place.read_bytes()
    others = {"--page": tmp_path / "p.html", "--markdown": tmp_path / "R.md"} | {option: place}
    arguments = [word for pair in others.items() for word in pair]
    for force in ((), ("--force",)):
        code, _, error = call(monkeypatch, capsys, "report", "--results", folder, *arguments, *force)
        assert code == 2 and place.read_bytes() == before
        assert_says(error, place.name, "is read", "another")
    assert not (tmp_path / "R.md").exists() and not (tmp_path / "p.html").exists()


def test_a_report_takes_the_place_of_a_report_and_of_nothing_else(folder, tmp_path, monkeypatch, capsys):
    table, page = tmp_path / "R.md", tmp_path / "p.html"
    command = ["report", "--results", folder, "--markdown", table, "--page", page]
    assert [call(monkeypatch, capsys, *command)[0] for _ in range(2)] == [0, 0]
    runs = folder / "runs.md"
    written = table.read_text(), page.read_text(), runs.read_text()
    for place, mine in ((table, "# Results\n\nMy notes."), (page, "<!doctype html><p>mine"), (runs, "# Every run\n")):
        place.write_text(mine)
        code, _, error = call(monkeypatch, capsys, *command)
        assert code == 2 and place.read_text() == mine
        assert_says(error, place.name, "--force")
        assert call(monkeypatch, capsys, *command, "--force")[0] == 0
        assert (table.read_text(), page.read_text(), runs.read_text()) == written


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"figure": {"other": 1}}, ["'error'"]),
        ({"figure": {"error": "many"}}, []),
        ({"figure": {"error": {"a": []}}}, []),
        ({"views": {"reconstructions": [{"name": "a"}]}}, ["'channels'"]),
        ({"views": {"agreement": {}}}, ["'truth'"]),
        ({"views": {"agreement": {"truth": [10**400], "predicted": [1]}}}, []),
        ({"views": {"confusion": {"classes": ["a"], "counts": [["many"]]}}}, []),
        ({"views": {"confusion": 3}}, []),
        ({"views": {"embeddings": {"points": [[1.0]]}}}, []),
        ({"losses": (Losses(stage="regress", step=(1, 2), loss=(0.5,)),)}, []),
    ],
    ids=lambda value: str(value)[:50],
)
@pytest.mark.usefixtures("without_shape_checks")
def test_a_result_that_lacks_what_there_is_to_draw_is_named(folder, tmp_path, monkeypatch, capsys, changes, parts):
    write_result(result(1, **changes), folder)
    places = "--markdown", tmp_path / "R.md", "--page", tmp_path / "p.html"
    code, _, error = call(monkeypatch, capsys, "report", "--results", folder, *places)
    assert code == 2 and len(error.splitlines()) == 1 and not list(tmp_path.glob("*.*"))
    assert_says(error, "pendulum/paper, seed 1", "run this seed", *parts)


def test_results_that_do_not_go_together_are_named(folder, tmp_path):
    write_result(result(1, figure={"error": 3}), folder)
    with refused(ValueError, "pendulum/paper", "run the seed", "remove"):
        report.write(folder, markdown=tmp_path / "R.md")
    assert not (tmp_path / "R.md").exists()


@pytest.mark.parametrize(
    "text",
    ["[" * 10**5, '{"seconds": ' + "9" * 400 + "}", '{"seed": ' + "9" * 5000 + "}", '{"figure": ' + '{"a":' * 5000],
    ids=["nested", "400 digits", "5000 digits", "nested tables"],
)
def test_a_result_without_end_is_named(folder, tmp_path, monkeypatch, capsys, text):
    (folder / "pendulum" / "paper" / "1.json").write_text(text)
    code, _, error = call(monkeypatch, capsys, "report", "--results", folder, "--markdown", tmp_path / "R.md")
    assert code == 2 and "1.json" in error and len(error) < 500


def test_a_file_with_a_number_that_is_no_seed_is_no_result(folder, monkeypatch, capsys):
    (folder / "pendulum" / "paper" / "².json").write_text("{}")
    assert call(monkeypatch, capsys, "report", "--results", folder, "--json")[0] == 0


def test_a_recipe_whose_seeds_all_failed_is_told_of(folder, monkeypatch, capsys):
    for seed in (0, 1):
        write_result(result(seed, float("nan")), folder)
    told = json.loads(call(monkeypatch, capsys, "report", "--results", folder, "--json")[1])
    assert [(row["mean"], row["failed_seeds"]) for row in told] == [(None, [0, 1])] * 2
    assert "no number: seeds 0, 1 failed" in call(monkeypatch, capsys, "list", "--results", folder)[1]


def test_the_numbers_of_the_readme_are_those_of_the_results(committed):
    """A row names our recipe; the paper's has the same name with another ending. Or it names the paper's alone."""
    found = {row.recipe: row for row in committed.rows if row.is_headline}
    lines = [line for line in (ROOT / "README.md").read_text().splitlines() if re.match(r"\| `[a-z_]+/", line)]
    assert len(lines) >= 3
    for line in lines:
        told, ours, theirs, published, baseline, floor = (cell.strip() for cell in line.strip("|").split("|"))
        tuned = found[told.split("`")[1]]
        is_beyond = tuned.paper == "beyond the paper"
        paper_row = None if is_beyond else found.get(re.sub("([-/])tuned$", r"\1paper", tuned.recipe))
        is_whole = paper_row is not None and paper_row.mean is not None and not paper_row.missing_seeds
        assert ours == ("" if tuned is paper_row else f"{tuned.mean:.3g}"), line
        assert theirs == (f"{paper_row.mean:.3g}" if is_whole else ""), line
        bare = "" if tuned.published is None else f"{tuned.published:.3g}"
        assert published == (bare if tuned.is_comparable or not bare else f"({bare})"), line
        assert not tuned.missing_seeds and not tuned.changed_settings, line
        value, _, name = baseline.partition(", ")
        best = (max if tuned.better == "higher" else min)(tuned.baselines, key=lambda one: tuned.baselines[one])
        assert [value, name.lower()] == [f"{tuned.baselines[best]:.3g}", best.lower()], line
        assert floor == ("" if tuned.floor is None else f"{tuned.floor:.3g}"), line


def test_the_committed_pages_are_those_of_the_committed_results(committed):
    for path, text in report.to_markdown(committed, ROOT / "REPRODUCTION.md", RESULTS).items():
        assert path.read_text() == text, f"{path.name}: run `romae report`"


def test_pages_of_experiments_need_a_folder_that_is_none_of_the_files(folder, tmp_path, monkeypatch, capsys):
    (tmp_path / "p").write_text("mine")
    command = ["report", "--results", folder, "--markdown", tmp_path / "R.md", "--page"]
    code, _, error = call(monkeypatch, capsys, *command, tmp_path / "p.html")
    assert code == 2 and not (tmp_path / "R.md").exists()
    assert_says(error, "is a file", "--page")
    assert call(monkeypatch, capsys, *command, tmp_path / "page")[0] == 0
    assert (tmp_path / "page").is_file() and (tmp_path / "page-pages" / "pendulum.html").is_file()

"""Recipes are values: settings by path, one seed for everything, and no trial is ever taken for a result."""

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import accuracy_score

from messages import assert_says, refused, warned
from romae.checkpoints.native import load
from romae.data.scaling import Scaling
from romae.experiments import datasets, results
from romae.experiments import recipe as recipes
from romae.experiments.card import model_card
from romae.experiments.recipe import Measured, Recipe, Source, Splits, Target, find
from romae.experiments.recipe import run as run_recipe
from romae.experiments.results import Losses, Result, compact, read_result, results_of, write_result
from romae.inference.predictions import predict
from romae.model.config import ModelConfig, Size
from romae.model.tasks import Classification
from romae.tokens.sample import Sample
from romae.training.config import TrainConfig
from romae.training.stages import Classify, Pretrain


@dataclass(frozen=True, slots=True, kw_only=True)
class Waves(Source):
    """Slow and fast sines to be told apart."""

    n_train: int = 16
    fast: float = 3.0

    def splits(self, seed: int) -> Splits:
        random = np.random.default_rng(seed)
        return Splits(train=self._waves(self.n_train, random), test=self._waves(8, random), seed=seed)

    def measure(self, task, splits: Splits) -> Measured:
        truth = [int(sample.target) for sample in splits.test]
        found = {"accuracy": accuracy_score(truth, predict(task, splits.test))}
        return Measured(found, {"constant": 0.5}, figure={"curve": np.linspace(0, 1, 3) / 3})

    def draw(self, figures: Sequence[Mapping[str, Any]]) -> dict:
        return {}

    def _waves(self, n: int, random: np.random.Generator) -> list[Sample]:
        times = np.sort(random.uniform(0, 6, (n, 8)), axis=1)
        frequency = (1.0, self.fast)
        return [Sample(np.sin(frequency[i % 2] * t)[:, None], t[:, None], target=i % 2) for i, t in enumerate(times)]


SMALL = Size(width=8, heads=2, depth=1)
TRAIN = TrainConfig(epochs=2, batch_size=8, device="cpu")


def run(*told: Any, **how: Any) -> Result:
    return run_recipe(*told, **how).result


TWO_STAGES = Recipe(
    name="waves/two-stages",
    title="Waves",
    paper="none",
    protocol="made up",
    data=Waves(),
    model=ModelConfig(channels=1, position_dims=1, encoder=SMALL, decoder=SMALL),
    stages=(Pretrain(train=TRAIN), Classify(n_classes=2, train=TRAIN)),
    metric="accuracy",
    better="higher",
    published=0.9,
    target=Target(value=0.8),
    quick=("train.epochs=1", "data.n_train=8"),
)


# Settings


def test_train_addresses_every_stage_and_a_number_one_of_them():
    changed = TWO_STAGES.overridden("train.epochs=6", "stages.1.train.lr=0.5", "stages.1.confidence=0.9")
    assert [stage.train.epochs for stage in changed.stages] == [6, 6]
    assert [stage.train.lr for stage in changed.stages] == [TRAIN.lr, 0.5]
    assert changed.stages[1].confidence == 0.9


def test_settings_reach_model_data_and_ladder_and_leave_the_rest():
    changed = TWO_STAGES.overridden(
        "model.cls=false", "model.encoder.width=12", "model.encoder.heads=3", "data.fast=5", "ladder=data"
    )
    assert not changed.model.cls and changed.model.encoder == Size(width=12, heads=3, depth=1)
    assert changed.data == Waves(fast=5.0) and changed.ladder == "data"
    assert changed.stages == TWO_STAGES.stages and TWO_STAGES.overridden() == TWO_STAGES


@pytest.mark.parametrize(
    ("setting", "parts"),
    [
        ("train.epoch=3", ["unknown key 'train.epoch'"]),
        ("epochs=3", ["no setting", "'epochs=3'"]),
        ("ladder=rungs", ["ladder=paper or data"]),
        ("stages.2.train.epochs=3", ["no stage '2'", "0 to 1"]),
        ("stages.first.train.epochs=3", ["no stage 'first'"]),
        ("data.slow=3", ["key 'slow'", "Waves has"]),
        ("model.cls=maybe", ["cls", "bool"]),
        ("train.epochs", ["key=value"]),
    ],
)
def test_a_setting_that_does_not_exist_is_named(setting, parts):
    with refused((ValueError, TypeError), *parts):
        TWO_STAGES.overridden(setting)


# Running


@pytest.fixture(scope="module")
def result():
    return run(TWO_STAGES, 3)


def test_a_result_holds_what_is_needed_to_believe_it(result):
    assert (result.recipe, result.seed, result.published) == ("waves/two-stages", 3, 0.9)
    assert 0 <= result.metrics["accuracy"] <= 1 and result.baselines == {"constant": 0.5}
    assert result.config["stages"][1]["n_classes"] == 2 and result.config["data"] == {"n_train": 16, "fast": 3.0}
    assert result.device == "cpu" and result.seconds > 0 and set(result.versions) == {"romae", "python", "torch"}


def test_the_seed_decides_everything_and_may_be_a_setting(result):
    for again in (run(TWO_STAGES, 3), run(TWO_STAGES, overrides=["train.seed=3"])):
        assert again.metrics == result.metrics and again.seed == 3 and not again.is_trial
    with refused(ValueError, "seed", "twice"):
        run(TWO_STAGES, 1, overrides=["train.seed=3"])


def test_fitted_wavelengths_are_written_down(result):
    fitted = run(TWO_STAGES, 3, overrides=["ladder=data"])
    assert result.config["model"]["ladders"] is None and fitted.config["model"]["ladders"][0]["longest"] > 0


def test_a_run_that_was_stopped_is_resumed(tmp_path, result):
    first = run(TWO_STAGES, 3, out=tmp_path / "run", resume=True)  # where there is nothing yet, from the beginning
    again = run(TWO_STAGES, 3, out=tmp_path / "run", resume=True)
    assert first.metrics == again.metrics == result.metrics
    assert (first.resumed, again.resumed) == (False, True)  # whose seconds are not those of the whole run
    with refused(ValueError, "holds a run"):
        run(TWO_STAGES, 3, out=tmp_path / "run")


def test_a_result_holds_how_the_losses_fell_and_what_became_of_the_test_samples(result):
    assert [(one.stage, one.step) for one in result.losses] == [("pretrain", (2, 4)), ("classify", (2, 4))]
    assert all(one.loss[0] > 0 and one.validation == () for one in result.losses)
    assert set(result.views) == {"confusion"} and np.sum(result.views["confusion"]["counts"]) == 8
    assert set(run(TWO_STAGES, 0).views) == {"confusion", "embeddings"}  # samples and points are those of one seed


def test_a_matrix_that_the_source_has_itself_is_not_drawn_twice():
    class Counted(Waves):
        def measure(self, task, splits: Splits) -> Measured:
            return Waves.measure(self, task, splits)._replace(figure={"confusion": [[1, 0], [0, 1]]})

    assert run(replace(TWO_STAGES, data=Counted()), 3).views == {}


def test_a_view_that_fails_costs_no_result(monkeypatch, result):
    monkeypatch.setattr("romae.pages.diagnostics.diagnose", lambda *_, **__: 1 / 0)
    with warned(UserWarning, "no samples", "division by zero"):
        again = run(TWO_STAGES, 3)
    assert again.views == {} and again.metrics == result.metrics


def test_losses_are_thinned_but_not_changed():
    records = [{"step": i, "epoch": 1, "loss": i / 10, "validation": float("nan")} for i in range(1, 1001)]
    losses = Losses.of("pretrain", records)
    assert len(losses.step) == 100 and (losses.step[0], losses.step[-1]) == (1, 1000)
    assert losses.loss == tuple(i / 10 for i in losses.step) and set(losses.validation) == {None}
    assert losses.records[0] == {"step": 1, "loss": 0.1, "validation": None}
    assert Losses.of("pretrain", []) == Losses(stage="pretrain", step=(), loss=())


def test_a_metric_that_was_not_measured_is_named():
    with refused(ValueError, "promises 'f1'", "['accuracy']"):
        run(replace(TWO_STAGES, metric="f1"), quick=True)


def test_data_without_samples_are_named_before_anything_is_trained():
    with refused(ValueError, "waves/two-stages", "no train samples", "settings"):
        run(TWO_STAGES, overrides=["data.n_train=0"])


def test_a_baseline_that_is_no_number_is_named():
    class Broken(Waves):
        def measure(self, task, splits: Splits) -> Measured:
            return Measured({"accuracy": 1.0}, {"constant": 0.5, "linear": float("nan")})

    with refused(ValueError, "nan", "'linear'"):
        run(replace(TWO_STAGES, data=Broken()), quick=True)


# On disk


def test_a_result_comes_back_as_it_was_written(result, tmp_path):
    path = write_result(result, tmp_path)
    assert path == tmp_path / "waves" / "two-stages" / "3.json"
    back = read_result(path)
    assert back.figure == {"curve": [0.0, 0.1667, 0.3333]}
    assert replace(back, figure=result.figure, views=result.views) == result
    assert back.views["confusion"] == compact(result.views["confusion"])
    assert results_of("waves/two-stages", tmp_path) == [back]
    assert [one.name for one in tmp_path.rglob(".*")] == []


def test_a_result_of_an_older_version_is_read(result, tmp_path):
    path = write_result(result, tmp_path)
    held = {key: value for key, value in json.loads(path.read_text()).items() if key not in ("losses", "views")}
    path.write_text(json.dumps(held))
    assert read_result(path).losses == () and read_result(path).metrics == result.metrics


def test_trials_lie_elsewhere_say_so_and_are_never_counted(tmp_path, result):
    quick = run(TWO_STAGES, 3, quick=True)
    changed = run(TWO_STAGES, 3, overrides=["train.lr=0.01"])
    paths = [write_result(one, tmp_path) for one in (quick, changed)]
    assert len(set(paths)) == 2 and all(path.parts[len(tmp_path.parts)] == "trials" for path in paths)
    assert quick.quick and changed.overrides == ("train.lr=0.01",)
    assert quick.config["data"]["n_train"] == 8 and changed.config["stages"][0]["train"]["lr"] == 0.01
    moved = tmp_path / "waves" / "two-stages" / "3.json"
    moved.parent.mkdir(parents=True)
    moved.write_text(paths[1].read_text())  # by mistake
    assert results_of("waves/two-stages", tmp_path) == []


@pytest.mark.parametrize("setting", ["train.n_states=1", "train.graph = none", "stages.1.train.workers=0"])
def test_how_a_step_is_taken_makes_no_trial(tmp_path, result, setting):
    free = run(TWO_STAGES, 3, overrides=[setting])
    assert free.metrics == result.metrics and not free.is_trial and free.overrides == (setting,)
    assert write_result(free, tmp_path) == tmp_path / "waves" / "two-stages" / "3.json"
    assert run(TWO_STAGES, 3, overrides=[setting, "train.lr=0.01"]).is_trial


@pytest.mark.parametrize(
    ("damage", "parts"),
    [
        (lambda text: text[:50], ["3.json is torn"]),
        (lambda text: "[]", ["3.json", "no result"]),
        (lambda text: text.replace('"seed": 3', '"seed": "three"'), ["seed", "be int"]),
        (lambda text: text.replace('"seed": 3', '"seed": 4'), ["wrong place"]),
        (
            lambda text: re.sub(r'"accuracy": [\d.]+', '"accuracy": true', text),
            ["3.json", "metrics.accuracy", "float"],
        ),
        (
            lambda text: re.sub(r'"accuracy": [\d.]+', '"accuracy": "0.1"', text),
            ["metrics.accuracy", "float", "not '0.1'"],
        ),
        (
            lambda text: text.replace('"constant": 0.5', '"constant": null'),
            ["3.json", "baselines.constant", "float"],
        ),
    ],
)
def test_a_file_that_is_no_result_is_named(result, tmp_path, damage, parts):
    path = write_result(result, tmp_path)
    path.write_text(damage(path.read_text()))
    with refused(ValueError, *parts):
        results_of("waves/two-stages", tmp_path)


def test_numbers_that_are_none_become_null(result, tmp_path):
    path = write_result(replace(result, figure={"gap": float("nan")}, metrics={"accuracy": float("nan")}), tmp_path)
    assert json.loads(path.read_text())["figure"] == {"gap": None}
    assert read_result(path).metrics == {"accuracy": None}


def test_the_commit_comes_from_git_or_from_the_environment(monkeypatch):
    def no_git(*_, **__):
        raise FileNotFoundError

    asked = []

    def clean(command, **_):
        asked.append(command)
        return subprocess.CompletedProcess(command, 0, stdout="0123456789ab\n" if "rev-parse" in command else "")

    def changed(command, **_):
        return subprocess.CompletedProcess(command, 0, stdout="0123456789ab\n" if "rev-parse" in command else " M x\n")

    monkeypatch.setattr(subprocess, "run", clean)
    assert results.commit() == "0123456789ab" and asked
    monkeypatch.setattr(subprocess, "run", changed)
    assert results.commit() == "0123456789ab+changes"
    monkeypatch.setattr(subprocess, "run", no_git)
    monkeypatch.delenv("ROMAE_COMMIT", raising=False)
    assert results.commit() == "unknown"
    monkeypatch.setenv("ROMAE_COMMIT", "fedcba")
    assert results.commit() == "fedcba"


# Names and targets


def test_a_name_that_is_misspelt_gets_the_nearest():
    assert find("pendulum/paper").name == "pendulum/paper"
    with refused(ValueError, "mean pendulum/paper"):
        find("pendulum/papper")
    with refused(ValueError, "mean spirals/a-paper or"):
        find("spirals")
    with refused(ValueError, "`romae list`"):
        find("zzz")


def test_a_recipe_is_found_by_its_name_of_0_1_with_a_warning_that_names_todays():
    with warned(FutureWarning, "positions/house-tiny-cls", "positions/tuned-tiny-cls"):
        assert find("positions/house-tiny-cls").name == "positions/tuned-tiny-cls"
    with pytest.raises(ValueError, match="no recipe 'pendulum/house-large'"):
        find("pendulum/house-large")


def test_results_that_0_1_wrote_count_and_those_run_again_replace_them(tmp_path, result):
    new = replace(result, recipe="waves/tuned", protocol="as the tuned row", seed=0, figure={}, views={})
    for seed in (0, 1):
        old = replace(new, recipe="waves/house", protocol="as the house row", seed=seed, seconds=7.0)
        path = write_result(old, tmp_path)
        assert read_result(path) == replace(old, recipe="waves/tuned", protocol="as the tuned row")
    write_result(new, tmp_path)
    found = results_of("waves/tuned", tmp_path)
    assert [(one.seed, one.seconds == 7.0) for one in found] == [(0, False), (1, True)]


def test_a_target_is_the_strictest_of_what_it_asks():
    assert Target(value=3.0, of_floor=1.05).limit({}, 2.0, "lower") == pytest.approx(2.1)
    both = Target(of_baselines=(("best", 1.0), ("linear", 0.5)))
    assert both.limit({"linear": 4.0, "spline": 3.0}, None, "lower") == 2.0
    assert both.limit({"linear": 4.0, "spline": 1.0}, None, "lower") == 1.0
    assert Target(of_baselines=(("best", 1.0),)).limit({"a": 0.6, "b": 0.7}, None, "higher") == 0.7
    assert Target(of_floor=1.05).limit({}, None, "lower") is None
    assert both.words("lower") == "≤ best baseline, ≤ 0.5 x linear" and Target(value=0.8).words("higher") == "≥ 0.8"


def test_two_recipes_of_one_name_are_refused(monkeypatch):
    from romae.experiments.recipes import spirals

    monkeypatch.setattr(spirals, "RECIPES", (*spirals.RECIPES, spirals.RECIPES[0]))
    with refused(ValueError, "two recipes", "'spirals/a-paper'"):
        recipes.discover.__wrapped__()


# The command line


@pytest.fixture
def romae(monkeypatch, capsys):
    """A call of the command line in this process: its exit code and what it printed."""
    from romae.cli.main import main

    def call(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["romae", *map(str, arguments)])
        try:
            main()
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return call


@pytest.fixture
def known(monkeypatch):
    """Two recipes, of which one is the toy."""
    found = {TWO_STAGES.name: replace(TWO_STAGES, about="romae run waves"), "pendulum/paper": find("pendulum/paper")}
    for name in ("summary", "report"):  # imported after the next line, they would keep these two for good
        import_module(f"romae.experiments.{name}")
    monkeypatch.setattr(recipes, "discover", lambda: found)
    monkeypatch.setattr("romae.experiments.summary.discover", lambda: found)


def test_run_writes_results_for_several_seeds_and_list_shows_them(romae, known, tmp_path):
    code, out, _ = romae("run", "waves/two-stages", "--seeds", "0-1", "--results", tmp_path)
    assert code == 0 and out.count("accuracy") == 2
    assert sorted(path.name for path in (tmp_path / "waves" / "two-stages").iterdir()) == ["0.json", "1.json"]
    code, out, _ = romae("list", "--results", tmp_path)
    rows = [line.split("  ") for line in out.splitlines()]
    assert code == 0 and len(rows) == 4 and "(2, 3 of 5 seeds missing)" in out  # and that of zero
    listed = json.loads(romae("list", "--results", tmp_path, "--json")[1])
    assert [row["n"] for row in listed] == [2, 0] and listed[0]["missing_seeds"] == [2, 3, 4]


@pytest.mark.parametrize("told", [("--seed", "3"), ("--seeds", "3"), ("--set", "train.seed=3")], ids=" ".join)
def test_states_lie_under_the_seed_however_it_is_given(romae, known, tmp_path, told):
    out = tmp_path / "runs"
    assert romae("run", "waves/two-stages", "--quick", *told, "--results", tmp_path, "--out", out)[0] == 0
    assert [path.name for path in (out / "waves" / "two-stages").iterdir()] == ["3"]


def test_a_model_is_saved_with_its_card(romae, known, tmp_path):
    folder = tmp_path / "model"
    told = ("run", "waves/two-stages", "--seed", "0", "--results", tmp_path, "--save", folder)
    assert romae(*told)[0] == 0
    (result,) = results_of("waves/two-stages", tmp_path)
    card = (folder / "README.md").read_text()
    assert "\n# Waves\n" in card and "`romae run waves/two-stages --seed 0`" in card
    assert_says(card, "pre-trained without labels", "trained on classes", "train 16, test 8")
    assert f"| this model | {result.metrics['accuracy']:.4g} |" in card
    assert_says(card, "Generated by the recipe")
    task = load(folder)
    splits = TWO_STAGES.data.splits(0)
    again = TWO_STAGES.data.measure(task, splits).metrics["accuracy"]
    assert again == pytest.approx(result.metrics["accuracy"], abs=0.05)  # weights were rounded
    (folder / "notes.txt").write_text("mine")
    code, _, error = romae(*told)
    assert code == 2 and "notes.txt" in error
    code, _, error = romae("run", "waves/two-stages", "--seeds", "0-1", "--save", folder)
    assert code == 2
    assert_says(error, "--save", "one seed")


TASK = Classification(ModelConfig(channels=1, position_dims=1, encoder=SMALL), 2)


def test_the_card_names_data_and_licence(result):
    card = model_card(replace(TWO_STAGES, data_set="plasticc", limits="Not for bets."), result, TASK)
    assert "A `Classification` of romae" in card and "PLAsTiCC" in card
    assert "Creative Commons Attribution 4.0" in card and card.endswith("Not for bets.\n")
    assert card.startswith("---\nlibrary_name: romae\nlicense: cc-by-4.0\n")
    assert "\nlicense: mit\n" in model_card(TWO_STAGES, result, TASK)  # it has read no data


def test_the_command_of_a_card_can_be_pasted_into_a_shell(result):
    settings = ("train.lr=1", "model.encoder={width=12, heads=3, depth=1}")
    card = model_card(TWO_STAGES, replace(result, quick=True, overrides=settings), TASK)
    assert "--seed 3 --quick --set train.lr=1 --set 'model.encoder" in card
    words = shlex.split(card.split("`")[3])
    assert words[:3] == ["romae", "run", "waves/two-stages"] and tuple(words[-3::2]) == settings


def test_the_card_says_whether_the_model_scales(result):
    plain = model_card(TWO_STAGES, result, TASK)
    assert_says(plain, "scales nothing", "values and positions", "as the recipe")
    assert "own units" not in plain
    task = Classification(TASK.encoder, 2)
    task.scaling = Scaling()
    assert_says(model_card(TWO_STAGES, result, task), "own units", "in config.json")


def test_every_data_set_that_a_recipe_names_is_known():
    generated = {"frequencies", "pendulum", "positions", "spirals", "synthetic"}
    for name, recipe in recipes.discover().items():
        is_generated = name.split("/")[0] in generated or name.startswith("forecasting/physiome-")
        is_generated = is_generated or name in ("uncertainty/synthetic", "uncertainty/pendulum")
        assert (recipe.data_set == "") == is_generated, name
        assert recipe.data_set == "" or recipe.data_set in datasets.discover()


def test_a_quick_run_leaves_only_a_trial(romae, known, tmp_path):
    code, out, _ = romae("run", "waves/two-stages", "--quick", "--results", tmp_path, "--json")
    assert code == 0 and json.loads(out)[0]["quick"] and not {"figure", "losses", "views"} & set(json.loads(out)[0])
    assert [path.parts[len(tmp_path.parts)] for path in tmp_path.rglob("*.json")] == ["trials"]


def test_show_gives_docstring_settings_and_command(romae, known):
    code, out, _ = romae("show", "waves/two-stages", "--set", "train.epochs=7")
    assert code == 0 and "romae run waves/two-stages --seeds 0-4" in out
    assert "  stages.1.train.epochs = 7" in out.splitlines() and "  data.fast = 3.0" in out.splitlines()
    told = json.loads(romae("show", "waves/two-stages", "--json")[1])
    assert told["config"]["model"]["channels"] == 1 and told["about"] == "romae run waves"


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["run", "waves/two-stage"], ["mean waves/two-stages"]),
        (["run", "waves/two-stages", "--set", "train.epoch=1"], ["unknown key 'train.epoch'"]),
        (["run", "waves/two-stages", "--seeds", "4-0"], ["cannot read", "seeds"]),
        (["run", "waves/two-stages", "--seed", "0", "--seeds", "0-4"], ["not both"]),
        (["run", "waves/two-stages", "--seeds", "3-4", "--set", "train.seed=3"], ["seed", "twice"]),
        (["run", "waves/two-stages", "--set", "train.seed=²"], ["train.seed", "from 0", "not '²'"]),
        (["run", "waves/two-stages", "--set", "stages.0.train.seed=5"], ["'stages.0.train.seed=5'", "ignored"]),
        (["run", "waves/two-stages", "--set", "stages.0.train={seed=5}"], ["'stages.0.train={seed=5}'", "ignored"]),
        (["run", "waves/two-stages", "--resume"], ["--resume needs --out"]),
        (["run", "waves/two-stages", "--device", "tpu"], ["device", "auto", "cuda"]),
        (["show", "nothing"], ["no recipe 'nothing'"]),
    ],
)
def test_bad_input_exits_with_2_and_writes_nothing(romae, known, tmp_path, monkeypatch, arguments, parts):
    monkeypatch.chdir(tmp_path)
    code, _, error = romae(*arguments)
    assert code == 2 and error.count("\n") == 1
    assert_says(error, *parts)
    assert list(tmp_path.iterdir()) == []

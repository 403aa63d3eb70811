"""Jobs on people's own tables: what they leave on disk, what they keep apart, and in whose units they answer."""

import csv
import json
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

import romae
from messages import refused, warned
from romae.config import from_dict, load_config, to_dict
from romae.inference.predictions import predict, predict_proba
from romae.inference.tables import (
    InferenceConfig,
    InterpolateConfig,
    embed_table,
    interpolate_table,
    predict_table,
    require_output,
    write_table,
)
from romae.model.config import ModelConfig, Size
from romae.model.tasks import MaskedReconstruction
from romae.tokens.masking import Rows
from romae.training.config import TrainSettings
from romae.training.run_folder import RunFolder
from romae.training.tables import (
    Columns,
    FinetuneConfig,
    ModelSettings,
    PretrainConfig,
    ScalingConfig,
    SplitConfig,
    finetune,
    load_model,
    pretrain,
    read_job,
    read_table,
    validation_split,
)

SMALL = Size(width=8, heads=2, depth=1)
COLUMNS = Columns(id="star", time="mjd", channel="band", values=("flux",))
TRAIN = TrainSettings(epochs=2, batch_size=8, device="cpu")
PRETRAIN = PretrainConfig(
    columns=COLUMNS,
    validation=SplitConfig(share=0.25),
    model=ModelSettings(encoder=SMALL, decoder=SMALL),
    train=TRAIN,
)
FINETUNE = FinetuneConfig(validation=SplitConfig(share=0.25), train=TRAIN)


def curves(n: int = 16) -> pd.DataFrame:
    """Light curves in two bands at times of their own, far from 0, with a class, a number and a count."""
    random = np.random.default_rng(0)
    parts = []
    for i in range(n):
        frequency, times = random.uniform(0.2, 0.6), 59000 + np.sort(random.uniform(0, 6, 10))
        band = random.choice(["g", "r"], 10)
        band[:2] = ["g", "r"]
        flux = 100 + 20 * np.sin(2 * np.pi * frequency * times) + np.where(band == "g", 0, 500)
        known = {"kind": "fast" if i % 2 else "slow", "freq": 1e3 + frequency, "count": 10 + i % 3}
        parts.append(pd.DataFrame({"star": f"s{i:02d}", "mjd": times, "band": band, "flux": flux, **known}))
    return pd.concat(parts, ignore_index=True)


CURVES = curves()
SHUFFLED = CURVES.sample(frac=1, random_state=1)


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory):
    return pretrain(PRETRAIN, CURVES, tmp_path_factory.mktemp("pretrained") / "run").model.parent


@pytest.fixture(scope="module")
def classifier(pretrained, tmp_path_factory):
    out = tmp_path_factory.mktemp("classifier") / "run"
    return finetune(replace(FINETUNE, label="kind"), CURVES, pretrained, out).model.parent


@pytest.fixture(scope="module")
def regressor(pretrained, tmp_path_factory):
    out = tmp_path_factory.mktemp("regressor") / "run"
    return finetune(replace(FINETUNE, label="freq"), CURVES, pretrained, out).model.parent


def contents(folder):
    """Every file of a run by its place and its bytes."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# What is written


def test_the_configuration_beside_a_run_makes_the_same_run_bit_for_bit(pretrained, tmp_path):
    config = load_config(PretrainConfig, pretrained / "job.json")
    model, train = (
        replace(PRETRAIN.model, cls=False, pool="kinds"),
        replace(TRAIN, lr=1e-3, precision="float32"),
    )  # these followed from the data
    assert config == replace(PRETRAIN, columns=replace(COLUMNS, positions=()), model=model, train=train)
    pretrain(config, SHUFFLED, tmp_path / "again")
    assert contents(tmp_path / "again") == contents(pretrained)


def test_a_table_with_a_column_per_band_is_one_of_bands_in_training_and_afterwards(tmp_path):
    """Bands are seen at times of their own, so that no row of the wide table has both."""
    wide = curves(6).pivot(index=["star", "mjd"], columns="band", values="flux").reset_index()
    columns = Columns(id="star", time="mjd", values=("g", "r"))
    with warned(UserWarning, "60 of 60 rows", "g, r"):
        config = replace(PRETRAIN, columns=columns, train=replace(TRAIN, epochs=1))
        run = pretrain(config, wide, tmp_path / "wide").model.parent
    job = load_config(PretrainConfig, run / "job.json")
    assert (job.columns.values, job.columns.channel, job.columns.tokens) == (("g", "r"), None, "scalars")
    pretrain(job, wide, run, resume=True)
    whole = wide.assign(g=wide["g"].fillna(100.0), r=wide["r"].fillna(600.0))  # no gap tells what tokens were
    long = whole.melt(id_vars=["star", "mjd"], value_vars=["g", "r"], var_name="channel")
    expected = embed_table(InferenceConfig(), long, run)
    for given in (Columns(), columns, replace(columns, values=("r", "g"))):
        pd.testing.assert_frame_equal(embed_table(InferenceConfig(columns=given), whole, run), expected)


def test_the_configuration_of_fine_tuning_says_what_followed_from_the_data(classifier, pretrained, tmp_path):
    config = load_config(FinetuneConfig, classifier / "job.json")
    assert (config.kind, config.columns.channel, config.columns.values) == ("classify", "band", ("flux",))
    finetune(config, SHUFFLED, pretrained, tmp_path / "again")
    assert contents(tmp_path / "again") == contents(classifier)


def test_every_setting_survives_the_way_through_json():
    config = replace(
        PRETRAIN,
        masking=Rows(ratio=0.3),
        scaling=ScalingConfig(values="asinh", origin=("min", 3.0), unit=("gap", 2.0)),
        model=ModelSettings(encoder="small", ladder="paper"),
    )
    assert from_dict(PretrainConfig, json.loads(json.dumps(to_dict(config)))) == config


def test_another_seed_makes_another_model(pretrained, tmp_path):
    again = pretrain(replace(PRETRAIN, train=replace(TRAIN, seed=1)), CURVES, tmp_path / "run").task
    weight = load_model(pretrained).encoder.projection.weight
    assert not torch.equal(again.encoder.projection.weight, weight)


def test_without_validation_the_last_model_is_the_model(tmp_path):
    trained = pretrain(replace(PRETRAIN, validation=SplitConfig(share=0)), CURVES, tmp_path / "run")
    assert trained.model == tmp_path / "run" / "last" and trained.n_validation == 0
    assert isinstance(load_model(tmp_path / "run"), MaskedReconstruction)


def test_a_table_is_written_whole_by_its_ending(tmp_path):
    table = CURVES[["star", "mjd", "flux"]]
    for name, read in {"a.csv": pd.read_csv, "a.csv.gz": pd.read_csv, "new/a.parquet": pd.read_parquet}.items():
        write_table(table, tmp_path / name)
        pd.testing.assert_frame_equal(read(tmp_path / name), table, check_dtype=False)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.csv", "a.csv.gz", "new"]
    with refused(ValueError, "a.xlsx", ".csv"):
        write_table(table, tmp_path / "a.xlsx")


FORMULAS = ["=1+1", "+x", "-5", "@a", "\tq", "\rx", "=a\nb", "'=z", "''@k", "'plain", "a", "-", "é=", '"=q"']


@pytest.mark.parametrize("ids", [FORMULAS, ["-5", "-7"], ["@é"]], ids=["all", "numbers", "one"])
def test_no_cell_of_a_table_is_a_formula_and_ids_come_back_as_they_were(tmp_path, ids):
    table = pd.DataFrame({"=id": ids, "time": -1.5, "value": -np.arange(len(ids)), "kind": pd.Categorical(ids)})
    kept = table.copy()
    for name in ("a.csv", "a.csv.gz"):
        write_table(table, tmp_path / name)
        again = romae.from_table(tmp_path / name, id="=id", time="time", values="value", label="kind")
        assert sorted(sample.id for sample in again) == sorted(ids) and sorted(again.schema.classes) == sorted(ids)
    pd.testing.assert_frame_equal(table, kept)
    with open(tmp_path / "a.csv", newline="") as file:
        cells = [cell for row in csv.reader(file) for cell in row]
    assert not any(cell[0] in "=+-@\t\r" and not re.fullmatch(r"-[0-9.]+", cell) for cell in cells)
    assert {"-1.5", "'=id"} <= set(cells), "numbers stay"
    write_table(table, tmp_path / "b.csv", escape=False)
    assert (tmp_path / "b.csv").read_text().lstrip('"').startswith("=id")
    write_table(table, tmp_path / "a.parquet")
    assert romae.from_table(tmp_path / "a.parquet", id="=id", time="time", values="value")[0].id in ids


def test_text_that_is_missing_stays_missing(tmp_path):
    write_table(pd.DataFrame({"id": ["a", None], "value": [1.0, 2.0]}), tmp_path / "a.csv")
    assert (tmp_path / "a.csv").read_text().splitlines() == ["id,value", "a,1.0", ",2.0"]


def test_apostrophes_of_others_are_letters_of_a_name(tmp_path):
    (tmp_path / "a.csv").write_text("id,time,value\n'=a,0,1\n=a,0,2\n'b,0,3\n")
    samples = romae.from_table(tmp_path / "a.csv", id="id", time="time", values="value")
    assert [sample.id for sample in samples] == ["'=a", "'b", "=a"]


# What is kept apart


def samples_of(table, label=None):
    return read_table(table, COLUMNS.schema(romae.Schema(label=label)), None)


def test_a_split_takes_each_id_once_and_follows_the_seed():
    samples = samples_of(CURVES)
    training, validation = validation_split(samples, SplitConfig(share=0.25, seed=3))
    ids = [[sample.id for sample in part] for part in (training, validation)]
    assert sorted(ids[0] + ids[1]) == [sample.id for sample in samples] and len(ids[1]) == 4
    assert ids == [
        [sample.id for sample in part]
        for part in validation_split(samples_of(SHUFFLED), SplitConfig(share=0.25, seed=3))
    ]
    assert ids[1] != [sample.id for sample in validation_split(samples, SplitConfig(share=0.25, seed=4))[1]]


@pytest.mark.parametrize(("columns", "kinds", "found"), [("band", True, 2), ("band", False, None), (None, True, None)])
def test_each_channel_of_a_table_is_a_kind_unless_told_otherwise(columns, kinds, found):
    samples = read_table(CURVES, replace(COLUMNS, channel=columns).schema(romae.Schema()), None)
    settings = replace(PRETRAIN.model, kinds=kinds)
    assert settings.config(samples, romae.fit_scaling(samples), "cpu").kinds == found


@pytest.mark.parametrize("moved", [{"origin": ("first", "min")}, {"unit": (1.0, 2.0)}])
def test_kinds_need_an_axis_of_channels_that_is_left_as_it_is(tmp_path, moved):
    config = replace(PRETRAIN, scaling=ScalingConfig(**moved))
    with refused(ValueError, "scaling", "last position axis"):
        pretrain(config, CURVES, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    pretrain(replace(config, model=replace(PRETRAIN.model, kinds=False)), CURVES, tmp_path / "run")


def test_a_run_of_a_version_without_kinds_is_resumed_without_them(tmp_path):
    config = replace(PRETRAIN, model=replace(PRETRAIN.model, kinds=False))
    pretrain(config, CURVES, tmp_path / "run")
    for name in ("job.json", "config.json"):
        path = tmp_path / "run" / name
        known = json.loads(path.read_text())
        known["model"] = {key: value for key, value in known["model"].items() if "kinds" not in key}
        path.write_text(json.dumps(known))
    pretrain(config, CURVES, tmp_path / "run", resume=True)
    with refused(ValueError, "other settings", "model.kinds"):
        pretrain(PRETRAIN, CURVES, tmp_path / "run", resume=True)
    (tmp_path / "run" / "job.json").write_text('{"hurry": true}')
    with refused(ValueError, "job.json", "newer version", "'hurry'"):
        pretrain(config, CURVES, tmp_path / "run", resume=True)


def test_the_only_id_of_a_class_is_trained_on():
    star = CURVES["star"].iloc[0]
    labelled = samples_of(CURVES.assign(kind=np.where(CURVES["star"] == star, "rare", "common")), label="kind")
    training, validation = validation_split(labelled, SplitConfig(share=0.25, seed=_seed_that_draws(CURVES, star)))
    assert {int(sample.target) for sample in training} == {0, 1}
    assert {int(sample.target) for sample in validation} == {0} and len(validation) == len(labelled) // 4


def test_a_job_that_is_refused_writes_nothing_to_the_run_of_another(tmp_path):
    """A job that runs has its notes to itself: it is resumed by them."""
    run = RunFolder(tmp_path / "run", notes={"job.json": {"train": {}}})
    run.claim()
    run.write_notes()
    without_validation = replace(PRETRAIN, validation=SplitConfig(share=0), train=replace(TRAIN, patience=2))
    for config, error, part in (
        (PRETRAIN, RuntimeError, "already writing"),
        (without_validation, ValueError, "give validation samples"),
    ):
        with refused(error, part):
            pretrain(config, CURVES, tmp_path / "run")
        assert json.loads((tmp_path / "run" / "job.json").read_text()) == {"train": {}}
        assert {path.name for path in (tmp_path / "run").iterdir()} <= {"states", "job.json", ".lock"}
    run.release()
    pretrain(PRETRAIN, CURVES, tmp_path / "run")


def test_an_id_with_a_channel_of_its_own_is_trained_on():
    held = [sample.id for sample in validation_split(samples_of(CURVES), SplitConfig(share=0.25))[1]]
    rare = CURVES.copy()
    rare.loc[rare.index[rare["star"] == held[0]][0], "band"] = "z"
    training, validation = validation_split(samples_of(rare), SplitConfig(share=0.25))
    assert held[0] in [sample.id for sample in training]
    assert {sample.id for sample in validation} > set(held[1:]) and len(validation) == len(held)
    alone = samples_of(CURVES.assign(band=CURVES["star"]))
    with refused(ValueError, "every id", "validation.share=0"):
        validation_split(alone, SplitConfig(share=0.25))


def _seed_that_draws(table, star: str) -> int:
    stars = sorted(table["star"].unique())
    return next(seed for seed in range(999) if stars[np.random.default_rng(seed).permutation(len(stars))[0]] == star)


def test_scaling_sees_the_training_part_alone(pretrained, tmp_path):
    """Other values and labels of the samples kept out change nothing about how data are scaled."""
    held = [sample.id for sample in validation_split(samples_of(CURVES), PRETRAIN.validation)[1]]
    is_held = CURVES["star"].isin(held)
    changed = CURVES.assign(flux=CURVES["flux"] + is_held * 1e4, freq=CURVES["freq"] + is_held * 1e4)
    scaling = load_model(pretrained).scaling
    assert pretrain(PRETRAIN, changed, tmp_path / "held").task.scaling == scaling
    assert pretrain(PRETRAIN, CURVES.assign(flux=CURVES["flux"] + 1), tmp_path / "all").task.scaling != scaling
    targets = [
        finetune(replace(FINETUNE, label="freq"), table, pretrained, tmp_path / f"{i}").task.scaling.target_mean
        for i, table in enumerate((CURVES, changed))
    ]
    assert targets[0] == targets[1]


def test_fine_tuning_keeps_the_scaling_of_pre_training(pretrained, classifier, regressor):
    before = load_model(pretrained).scaling
    assert load_model(classifier).scaling == before
    assert replace(load_model(regressor).scaling, target_mean=None, target_scale=None) == before


def test_a_frozen_encoder_keeps_its_weights_and_the_other_does_not(pretrained, classifier, tmp_path):
    frozen = finetune(replace(FINETUNE, label="kind", frozen=True), CURVES, pretrained, tmp_path / "run").task
    before, free = load_model(pretrained).encoder.state_dict(), load_model(classifier).encoder.state_dict()
    assert all(torch.equal(value, before[key]) for key, value in frozen.encoder.state_dict().items())
    assert not all(torch.equal(value, before[key]) for key, value in free.items())


def test_ladders_follow_the_data_or_the_paper(pretrained, tmp_path):
    ladders = load_model(pretrained).config.ladders
    assert ladders is not None and 0 < ladders[0].scale < 6
    paper = replace(PRETRAIN, model=replace(PRETRAIN.model, ladder="paper"))
    assert pretrain(paper, CURVES, tmp_path / "run").task.config.ladders is None
    samples = romae.from_table(CURVES, id="star", time="mjd", channel="band", values="flux")
    given = (romae.Ladder(shortest=0.5, longest=40.0),)
    for settings, expected in (
        ({"ladders": given}, (*given, romae.fit_ladders(samples)[1])),
        ({"ladders": given, "ladder": "paper"}, (*given, romae.Ladder())),
        ({"gaps": "sample"}, romae.fit_ladders(samples, per="sample")),
        ({}, romae.fit_ladders(samples)),
    ):
        assert replace(PRETRAIN.model, **settings).config(samples, romae.Scaling(), "cpu").ladders == expected


def test_a_run_of_a_version_that_centred_nothing_is_resumed_as_it_was(tmp_path):
    before = replace(
        PRETRAIN,
        scaling=replace(PRETRAIN.scaling, center="global"),
        model=replace(PRETRAIN.model, gaps="sample"),
    )
    pretrain(before, CURVES, tmp_path / "run")
    newer = {"model": ("gaps", "ladders"), "scaling": ("center", "n_channels", "within")}
    job, config = (json.loads((tmp_path / "run" / name).read_text()) for name in ("job.json", "config.json"))
    for part, names in newer.items():
        job[part] = {key: value for key, value in job[part].items() if key not in names}
    config["scaling"] = {key: value for key, value in config["scaling"].items() if key not in newer["scaling"]}
    (tmp_path / "run" / "job.json").write_text(json.dumps(job))
    (tmp_path / "run" / "config.json").write_text(json.dumps(config))
    again = read_job(PretrainConfig, tmp_path / "run" / "job.json")
    assert again.scaling == before.scaling
    assert again.model == replace(before.model, cls=False, pool="kinds")  # which followed from the data
    pretrain(before, CURVES, tmp_path / "run", resume=True)
    with refused(ValueError, "other settings", "model.gaps", "scaling.center"):
        pretrain(PRETRAIN, CURVES, tmp_path / "run", resume=True)


# Answers


@pytest.mark.parametrize("table", [CURVES, SHUFFLED], ids=["in order", "shuffled"])
def test_a_loaded_model_predicts_on_raw_tables_at_once(table, classifier, regressor):
    task = romae.load(classifier / "best")
    samples = romae.from_table_like(table, task.schema)
    answer = predict_table(InferenceConfig(), table, classifier)
    assert list(answer.columns) == ["star", "kind", "probability_fast", "probability_slow"]
    assert answer["star"].tolist() == sorted(set(CURVES["star"]))
    assert answer["kind"].tolist() == predict(task, samples).tolist()
    np.testing.assert_array_equal(answer.iloc[:, 2:], predict_proba(task, samples))
    number = predict_table(InferenceConfig(), table, regressor)
    assert list(number.columns) == ["star", "freq"] and number["freq"].between(1e3 - 2, 1e3 + 3).all()


def test_the_order_of_rows_changes_no_answer(pretrained, classifier):
    for model, answer in ((classifier, predict_table), (pretrained, embed_table)):
        tables = [answer(InferenceConfig(), table, model) for table in (CURVES, SHUFFLED)]
        pd.testing.assert_frame_equal(*tables, check_exact=True)
    tables = [interpolate_table(InterpolateConfig(), t, pretrained, at="59000:59006:3") for t in (CURVES, SHUFFLED)]
    pd.testing.assert_frame_equal(*tables, check_exact=True)


def test_labels_that_are_absent_unknown_or_missing_do_not_matter_to_predictions(classifier):
    want = predict_table(InferenceConfig(), CURVES, classifier)
    for table in (CURVES.drop(columns="kind"), CURVES.assign(kind="new"), CURVES.assign(kind=None)):
        pd.testing.assert_frame_equal(predict_table(InferenceConfig(), table, classifier), want)


def test_the_column_of_the_label_may_be_something_else_where_none_is_read(classifier):
    config = InferenceConfig(columns=Columns(id="kind"))
    assert set(embed_table(config, CURVES, classifier)["kind"]) == set(CURVES["kind"])
    with refused(ValueError, "column 'kind'", "something else"):
        predict_table(config, CURVES, classifier)


def test_a_table_with_other_column_names_is_answered_in_its_own(classifier, pretrained):
    renamed = CURVES.rename(columns={"star": "object", "mjd": "time", "flux": "value"})
    config = InterpolateConfig(columns=Columns(id="object", time="time", values=("value",)))
    got, want = predict_table(config, renamed, classifier), predict_table(InferenceConfig(), CURVES, classifier)
    pd.testing.assert_frame_equal(got, want.rename(columns={"star": "object"}))
    grid = interpolate_table(config, renamed, pretrained, at="59000:59001:2")
    assert list(grid.columns) == ["object", "time", "band", "value"]


def test_embeddings_have_one_row_per_id(pretrained):
    answer = embed_table(InferenceConfig(), CURVES, pretrained)
    assert answer.shape == (16, 1 + SMALL.width) and list(answer.columns)[:2] == ["star", "embedding_0"]


def test_a_grid_asks_every_id_and_channel_in_data_units(pretrained):
    answer = interpolate_table(InterpolateConfig(), CURVES, pretrained, at="59000:59006:4")
    assert list(answer.columns) == ["star", "mjd", "band", "flux"] and len(answer) == 16 * 2 * 4
    assert answer["mjd"].unique().tolist() == [59000, 59002, 59004, 59006]
    means = answer.groupby("band")["flux"].mean()
    assert 50 < means["g"] < 150 and 550 < means["r"] < 650


def test_some_channels_of_a_grid_are_those_of_the_whole(pretrained):
    whole = interpolate_table(InterpolateConfig(), CURVES, pretrained, at="59000:59006:3")
    for channels in (("r",), (1,), ("1",)):
        some = interpolate_table(InterpolateConfig(channels=channels), CURVES, pretrained, at="59000:59006:3")
        pd.testing.assert_frame_equal(some, whole[whole["band"] == "r"].reset_index(drop=True), rtol=1e-5)
    with refused(ValueError, "unknown channel 'z'", "g, r"):
        interpolate_table(InterpolateConfig(channels=("g", "z")), CURVES, pretrained, at="59000:59006:3")
    with refused(ValueError, "'band'", "leave channels out"):
        interpolate_table(InterpolateConfig(channels=("g",)), CURVES, pretrained, queries=whole)


def test_some_columns_of_values_are_written_alone(tmp_path):
    table = CURVES.assign(error=1.0 + CURVES["flux"] / 1000)
    columns = replace(COLUMNS, channel=None, values=("flux", "error"))
    run = pretrain(replace(PRETRAIN, columns=columns), table, tmp_path / "run").model
    whole = interpolate_table(InterpolateConfig(), table, run, queries=CURVES[["star", "mjd"]])
    some = interpolate_table(InterpolateConfig(channels=("error",)), table, run, queries=CURVES[["star", "mjd"]])
    pd.testing.assert_frame_equal(some, whole[["star", "mjd", "error"]])


def test_queries_are_answered_in_the_order_they_were_asked(pretrained):
    grid = interpolate_table(InterpolateConfig(), CURVES, pretrained, at="59000:59006:4")
    asked = grid.sample(n=30, random_state=2).reset_index(drop=True)
    answer = interpolate_table(InterpolateConfig(), CURVES, pretrained, queries=asked[["band", "mjd", "star"]])
    pd.testing.assert_frame_equal(answer, asked, rtol=1e-5)


def test_dates_come_back_as_dates(tmp_path):
    dates = pd.Timestamp("2024-03-01", tz="Europe/Oslo") + pd.to_timedelta(CURVES["mjd"] - 59000, unit="D")
    table = CURVES.assign(mjd=dates.dt.round("us"))
    config = replace(PRETRAIN, columns=replace(COLUMNS, time_unit="day"))
    run = pretrain(config, table, tmp_path / "run").model.parent
    answer = interpolate_table(InterpolateConfig(), table, run, at="2024-03-01T12:00:2024-03-03T12:00:3")
    wanted = pd.date_range("2024-03-01T12:00", periods=3, tz="Europe/Oslo")
    assert (answer["mjd"].iloc[:3].to_numpy() == wanted.to_numpy()).all()
    queries = answer[["star", "mjd", "band"]].iloc[::-1]
    again = interpolate_table(InterpolateConfig(), table, run, queries=queries)
    np.testing.assert_allclose(again["flux"], answer["flux"].iloc[::-1], rtol=1e-5)
    with refused(ValueError, "column 'mjd'", "numbers", "the day"):
        embed_table(InferenceConfig(), CURVES, run)
    for start in ("0", "yesterday", "2024-03-31T02:30"):  # the last does not exist: the clocks went forward
        with refused(ValueError, "cannot read", f"'{start}'", "date"):
            interpolate_table(InterpolateConfig(), table, run, at=f"{start}:{start}:3")


def test_integers_are_numbers_if_we_say_so(pretrained, tmp_path):
    config = replace(FINETUNE, label="count", kind="regress")
    run = finetune(config, CURVES, pretrained, tmp_path / "run").model.parent
    assert predict_table(InferenceConfig(), CURVES, run)["count"].between(7, 15).all()
    classes = finetune(replace(FINETUNE, label="count"), CURVES, pretrained, tmp_path / "classes").task
    assert classes.schema.classes == (10, 11, 12)


def test_a_model_without_names_is_told_them(tmp_path):
    """A checkpoint that knows no table, such as an imported one, takes the columns that it is given."""
    torch.manual_seed(0)
    MaskedReconstruction(ModelConfig(channels=1, position_dims=2, encoder=SMALL, decoder=SMALL)).save(tmp_path / "bare")
    table = CURVES.assign(mjd=CURVES["mjd"] - 59000)
    assert len(embed_table(InferenceConfig(columns=COLUMNS), table, tmp_path / "bare")) == 16
    config = replace(FINETUNE, columns=COLUMNS, label="freq")
    run = finetune(config, table, tmp_path / "bare", tmp_path / "run").model.parent
    assert predict_table(InferenceConfig(), table, run)["freq"].between(1e3 - 2, 1e3 + 3).all()


# Resuming


def test_a_finished_run_resumes_to_itself(pretrained, tmp_path):
    trained = pretrain(PRETRAIN, CURVES, tmp_path / "run")
    before = contents(tmp_path / "run")
    again = pretrain(PRETRAIN, SHUFFLED, tmp_path / "run", resume=True)
    assert contents(tmp_path / "run") == before and again.history.records == trained.history.records


@pytest.mark.parametrize(
    ("config", "table", "parts"),
    [
        (replace(PRETRAIN, masking=Rows()), CURVES, ["other settings", "(masking.axis, masking.kind, masking.ratio)"]),
        (replace(PRETRAIN, drop_tokens=0.2), CURVES, ["other settings", "(drop_tokens)"]),
        (PRETRAIN, CURVES.assign(flux=CURVES["flux"].round()), ["other settings", "data.training"]),
        (PRETRAIN, CURVES.replace({"band": {"r": "z"}}), ["other settings", "schema.channels"]),
    ],
    ids=["masking", "drop_tokens", "values", "channels"],
)
def test_a_run_is_not_resumed_as_another_one(pretrained, config, table, parts):
    before = contents(pretrained)
    with refused(ValueError, "started with", *parts, "leave them"):
        pretrain(config, table, pretrained, resume=True)
    assert contents(pretrained) == before


def test_fine_tuning_is_not_resumed_from_a_model_with_another_scaling(classifier, tmp_path):
    other = pretrain(PRETRAIN, CURVES.assign(flux=1000 * CURVES["flux"]), tmp_path / "other").model
    before = contents(classifier)
    with refused(ValueError, "other settings", "scaling"):
        finetune(replace(FINETUNE, label="kind"), CURVES, other, classifier, resume=True)
    assert contents(classifier) == before


def test_a_run_is_not_overwritten(pretrained):
    before = contents(pretrained)
    with refused(ValueError, "holds a run", "resume it", "another folder"):
        pretrain(replace(PRETRAIN, drop_tokens=0.2), CURVES, pretrained)
    assert contents(pretrained) == before


def test_an_unfinished_run_is_no_model_yet(tmp_path):
    (tmp_path / "run" / "states").mkdir(parents=True)
    with refused(ValueError, "not finished", "no model", "resume it"):
        load_model(tmp_path / "run")


# Bad input


@pytest.mark.parametrize(
    ("config", "parts"),
    [
        ({"columns": replace(COLUMNS, time="day")}, ["column 'day'", "'star', 'mjd'"]),
        ({"columns": Columns()}, ["column 'id'", "not there"]),
        ({"validation": SplitConfig(share=0.99)}, ["16 of 16 ids"]),
        ({"columns": replace(COLUMNS, positions=("freq", "count"))}, ["head size 4", "2 x 4"]),
        ({"masking": Rows(axis=5)}, ["axis 5", "2 position dimensions"]),
        ({"validation": SplitConfig(share=0), "train": replace(TRAIN, patience=2)}, ["validation samples"]),
    ],
    ids=["column", "defaults", "validation", "head size", "masking", "patience"],
)
def test_pretraining_says_what_is_wrong_and_leaves_nothing(tmp_path, config, parts):
    with refused(ValueError, *parts):
        pretrain(replace(PRETRAIN, **config), CURVES, tmp_path / "run")
    assert not list(tmp_path.iterdir())


def test_a_folder_that_was_there_is_left_as_it_was(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with refused(ValueError, "validation samples"):
        pretrain(replace(PRETRAIN, validation=SplitConfig(share=0), train=replace(TRAIN, patience=2)), CURVES, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_an_id_of_its_own_for_every_row_is_recognised(tmp_path):
    table = CURVES.assign(row=np.arange(len(CURVES)))
    with refused(ValueError, "single row", "'row'"):
        pretrain(replace(PRETRAIN, columns=replace(COLUMNS, id="row")), table, tmp_path / "run")


@pytest.mark.parametrize(
    ("config", "parts"),
    [
        ({}, ["label", "name its column"]),
        ({"label": "class"}, ["column 'class'", "the table has"]),
        ({"label": "freq", "kind": "classify"}, ["column 'freq'", "floats"]),
        ({"label": "kind", "kind": "regress"}, ["column 'kind'", "'fast'", "number"]),
        (
            {"label": "kind", "columns": Columns(values=("flux", "freq"), positions=("count",))},
            ["2 (flux, freq)", "3 (mjd, count, band)", "1 columns"],
        ),
    ],
    ids=["no label", "column", "floats", "text", "shape"],
)
def test_finetuning_says_what_is_wrong_and_leaves_nothing(pretrained, tmp_path, config, parts):
    with refused(ValueError, *parts):
        finetune(replace(FINETUNE, **config), CURVES, pretrained, tmp_path / "run")
    assert not list(tmp_path.iterdir())


def test_a_channel_that_the_model_does_not_know_is_named(pretrained):
    table = CURVES.replace({"band": {"r": "z"}})
    with refused(ValueError, "column 'band'", "'z'", "known are"):
        embed_table(InferenceConfig(), table, pretrained)


def test_a_model_that_was_only_pretrained_does_not_predict(pretrained):
    with refused(ValueError, "pre-trained", "finetune"):
        predict_table(InferenceConfig(), CURVES, pretrained)


def asked(**columns):
    return pd.DataFrame({"star": ["s00", "s01"], "mjd": [59000.0, 59001.0], "band": ["g", "r"]} | columns)


@pytest.mark.parametrize(
    ("where", "parts"),
    [
        ({}, ["where to interpolate"]),
        ({"at": "0:1:2", "queries": asked()}, ["where to interpolate"]),
        ({"at": "0:1"}, ["'0:1'", "start:stop:n"]),
        ({"at": "0:1:0"}, ["grid '0:1:0'"]),
        ({"at": "0:end:5"}, ["'end'", "number"]),
        ({"at": "0:inf:5"}, ["'inf'", "number"]),
        ({"queries": asked(star=["s00", "x"])}, ["queries", "row 1", "star 'x'"]),
        ({"queries": asked(star=["s00", None])}, ["queries", "row 1, column 'star'", "missing"]),
        ({"queries": asked(mjd=[1.0, np.nan])}, ["queries", "row 1, column 'mjd'", "missing"]),
        ({"queries": asked(band=["g", "z"])}, ["queries", "'band' 'z'", "row 1"]),
        ({"queries": asked().drop(columns="band")}, ["queries", "column 'band'", "the table has"]),
        ({"queries": asked()[:0]}, ["queries", "no rows"]),
        ({"queries": asked(mjd=pd.to_datetime(["2024", "2025"]))}, ["dates", "the second", "numbers"]),
    ],
)
def test_queries_that_cannot_be_answered_are_named(pretrained, where, parts):
    with refused(ValueError, *parts):
        interpolate_table(InterpolateConfig(), CURVES, pretrained, **where)


def test_a_grid_of_times_leaves_no_axis_open(tmp_path):
    config = replace(PRETRAIN, columns=Columns(id="star", time="mjd", values=("flux",), positions=("count",)))
    run = pretrain(config, CURVES, tmp_path / "run").model.parent
    with refused(ValueError, "positions", "['count']"):
        interpolate_table(InterpolateConfig(), CURVES, run, at="0:1:2")
    queries = pd.DataFrame({"star": ["s00"], "mjd": [59000.0], "count": [10.0]})
    assert np.isfinite(interpolate_table(InterpolateConfig(), CURVES, run, queries=queries)["flux"][0])


@pytest.mark.parametrize(
    ("make", "parts"),
    [
        (lambda: SplitConfig(share=1.0), ["share is", "validate on"]),
        (lambda: SplitConfig(seed=-1), ["validation.seed", "at least 0", "not -1"]),
        (
            lambda: from_dict(ModelSettings, {"encoder": {"width": 25, "heads": 2, "depth": 1}}),
            ["width 25", "2 heads"],
        ),
        (lambda: from_dict(ScalingConfig, {"origin": "foo"}), ["'none'", "'first'", "'min'"]),
        (lambda: ModelSettings(encoder="huge"), ["size 'huge'", "'tiny'"]),
        (lambda: from_dict(PretrainConfig, {"mask": {}}), ["key 'mask'", "PretrainConfig"]),
        (lambda: from_dict(FinetuneConfig, {"model": {}}), ["key 'model'", "FinetuneConfig"]),
    ],
)
def test_settings_are_checked(make, parts):
    with refused((ValueError, TypeError), *parts):
        make()


def test_answers_do_not_take_the_place_of_what_they_answer(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with refused(ValueError, "new.csv", "is read", "another one"):
        require_output("new.csv", tmp_path / "new.csv", None)
    require_output("answers.csv", tmp_path / "new.csv")


def test_a_model_that_is_fine_tuned_has_seen_the_data_of_both_trainings(pretrained, tmp_path):
    """So that predictions for data like those of the fine-tuning come without a warning."""
    before = load_model(pretrained).scaling.seen
    brighter = CURVES.assign(flux=CURVES["flux"] * 40)
    after = finetune(replace(FINETUNE, label="kind"), brighter, pretrained, tmp_path / "run").task.scaling.seen
    assert max(row[0] for row in after.highest) > 30 * max(row[0] for row in before.highest)
    assert after.lowest == before.lowest or min(after.lowest) < min(before.lowest)
    assert after.earliest == before.earliest

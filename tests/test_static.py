"""Static facts: tokens that are never hidden, never dropped, never asked for and never counted in a score."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_array_equal

import romae
from messages import refused, warned
from romae.config import from_dict, to_dict
from romae.data.queries import grid_of_times
from romae.data.schema import Fact
from romae.data.static import n_measured, without_static
from romae.tokens.masking import SampleKeys

SIZE = romae.Size(width=16, heads=2, depth=1)
SMALL = {"size": SIZE, "pretrain_epochs": 1, "batch_size": 32, "device": "cpu", "random_state": 0}
COLUMNS = {"id": "bed", "time": "hour", "channel": "sign", "values": "value"}
FACTS = pd.DataFrame(
    {"age": [70.0, 54.0, np.nan, 33.0], "sex": ["F", "M", "M", None]}, index=pd.Index([1, 2, 3, 4], name="bed")
)


def vitals(n=4):
    random = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "bed": np.repeat(np.arange(1, n + 1), 6),
            "hour": random.uniform(5, 30, 6 * n),
            "sign": np.tile(["pulse", "temperature"], 3 * n),
            "value": random.normal(size=6 * n),
        }
    )


TABLE = vitals()
PLAIN = romae.from_table(TABLE, **COLUMNS)
SAMPLES = romae.from_table(TABLE, **COLUMNS, static=FACTS)


def model(**settings):
    settings = {"kinds": 5, "static_from": 2} | settings
    return romae.ModelConfig(channels=1, position_dims=2, encoder=SIZE, decoder=SIZE, **settings)


def same(first, second):
    return first.schema == second.schema and all(
        torch.equal(a.values, b.values) and torch.equal(a.positions, b.positions)
        for a, b in zip(first, second, strict=True)
    )


def test_facts_are_tokens_of_kinds_of_their_own_at_the_first_time():
    assert SAMPLES.schema.channels == ("pulse", "temperature") and SAMPLES.schema.static_from == 2
    assert SAMPLES.schema.kind_names == ("pulse", "temperature", "age", "sex=F", "sex=M")
    first = SAMPLES[0]
    assert first.values[6:, 0].tolist() == [70.0, 1.0] and first.positions[6:, 1].tolist() == [2, 3]
    assert (first.positions[6:, 0] == first.positions[:6, 0].min()).all()
    assert [len(sample) for sample in SAMPLES] == [8, 8, 7, 7]  # what is missing is left out
    assert [n_measured(sample) for sample in SAMPLES] == [6] * 4
    assert all(torch.equal(a.values, b.values) for a, b in zip(without_static(SAMPLES), PLAIN, strict=True))


def test_every_form_of_facts_gives_the_same_samples():
    joined = TABLE.merge(FACTS.reset_index(), on="bed")
    forms = [FACTS.reset_index(), FACTS.reset_index().sample(frac=1, random_state=0), FACTS.to_dict("index")]
    for form in forms:
        assert same(romae.from_table(TABLE, **COLUMNS, static=form), SAMPLES)
    assert same(romae.from_table(joined, **COLUMNS, static=["age", "sex"]), SAMPLES)
    assert same(romae.from_table_like(joined, SAMPLES.schema), SAMPLES)
    wide = np.random.default_rng(0).normal(size=(4, 3, 2))
    by_row = romae.from_arrays(wide, tokens="scalars", ids=[1, 2, 3, 4], static=FACTS.reset_index(drop=True))
    for form in (FACTS, FACTS.reset_index(drop=True).to_dict("list"), FACTS.to_dict("records")):
        assert same(romae.from_arrays(wide, tokens="scalars", ids=[1, 2, 3, 4], static=form), by_row)


class Everything:
    """A masking of a user's own that hides all that it is shown."""

    def hidden(self, tokens, source=None):
        return torch.ones(tokens.layout.n_tokens, dtype=torch.bool)


STRATEGIES = [
    romae.UniformTokens(ratio=0.9),
    romae.Rows(ratio=0.5),
    romae.Channels(ratio=0.5),
    romae.Spans(ratio=0.5, axes=(0,)),
    romae.Future(ratio=0.5),
    Everything(),
]


@pytest.mark.parametrize("masking", STRATEGIES, ids=lambda masking: type(masking).__name__)
def test_no_masking_hides_them_and_measurements_are_hidden_as_without_them(masking):
    keys = [SampleKeys(0, 0, torch.arange(4)) for _ in range(2)]
    scaling = romae.fit_scaling(SAMPLES, origin="first")
    with_facts, without = (romae.collate([scaling.apply(x) for x in samples]) for samples in (SAMPLES, list(PLAIN)))
    task = romae.MaskedReconstruction(model(), masking=masking)
    prepared = task.prepare(with_facts, keys[0])
    assert prepared.hidden.layout.n_tokens > 0 and (prepared.hidden.positions[:, -1] < 2).all()
    assert (prepared.tokens.positions[:, -1] >= 2).sum() == 6  # all facts are seen
    plain = romae.MaskedReconstruction(model(static_from=None), masking=masking).prepare(without, keys[1])
    assert torch.equal(prepared.hidden.values, plain.hidden.values)
    if not isinstance(masking, Everything):
        hidden = romae.hide(SAMPLES, masking)
        assert all(not sample.hidden[sample.positions[:, -1] >= 2].any() for sample in hidden)
        wanted = romae.hide(PLAIN, masking)
        assert all(torch.equal(a.hidden[:6], b.hidden) for a, b in zip(hidden, wanted, strict=True))


def test_no_task_drops_them():
    task = romae.Classification(model(), n_classes=2, drop_tokens=0.9)
    scaling = romae.fit_scaling(SAMPLES, origin="first")
    batch = romae.collate([replace(scaling.apply(x), target=0) for x in SAMPLES])
    for seed in range(5):
        kept = task.prepare(batch, SampleKeys(seed, 0, torch.arange(4)), is_training=True).tokens
        assert (kept.positions[:, -1] >= 2).sum() == 6 and kept.layout.lengths.sum() < 30


def test_times_are_measured_as_without_them():
    with_facts, without = (romae.fit_scaling(samples, origin="first") for samples in (SAMPLES, PLAIN))
    assert with_facts.centre[:2] == without.centre and with_facts.scale[:2] == without.scale
    for name in ("shortest_gap", "shortest_span"):
        assert getattr(with_facts.seen, name) == getattr(without.seen, name)
    assert with_facts.seen.latest[0] == without.seen.latest[0] and with_facts.seen.highest[:2] == without.seen.highest
    assert romae.fit_ladders(SAMPLES, with_facts)[0] == romae.fit_ladders(PLAIN, without)[0]


def test_statistics_contain_them_as_they_are():
    with_facts, without = romae.summary_features(SAMPLES), romae.summary_features(PLAIN)
    assert with_facts.names == (*without.names, "age", "sex=F", "sex=M")
    assert_array_equal(with_facts.values[:, :-3], without.values)
    assert_array_equal(with_facts.values[:, -3:], [[70, 1, 0], [54, 0, 1], [np.nan, 0, 1], [33, 0, 0]])


def test_stores_keep_them_and_tables_do_not_show_them(tmp_path):
    store = romae.write_store(SAMPLES, tmp_path / "a.arrow")
    assert store.schema == SAMPLES.schema
    assert all(torch.equal(a.values, b.values) for a, b in zip(store, SAMPLES, strict=True))
    pd.testing.assert_frame_equal(romae.to_table(SAMPLES), romae.to_table(PLAIN))
    assert len(grid_of_times("0:1:3", SAMPLES.schema)) == 3 * 2
    assert from_dict(romae.Schema, to_dict(SAMPLES.schema)) == SAMPLES.schema
    old = {name: part for name, part in to_dict(PLAIN.schema).items() if name not in ("static", "durations")}
    assert from_dict(romae.Schema, old) == PLAIN.schema
    config = {name: part for name, part in to_dict(model(static_from=None)).items() if name != "static_from"}
    assert from_dict(romae.ModelConfig, config) == model(static_from=None)


def test_they_are_not_asked_for(without_shape_checks):
    task = romae.MaskedReconstruction(model())
    task.schema, task.scaling = SAMPLES.schema, romae.fit_scaling(SAMPLES, origin="first")
    assert romae.interpolate(task, SAMPLES, [[[6.0, 1.0]]] * 4)[0].shape == (1, 1)
    with refused(ValueError, "sample 0", "2.0 as its channel"):
        romae.interpolate(task, SAMPLES, [[[6.0, 2.0]]] * 4)
    with refused(ValueError, "static facts", "['age',", "none"):
        romae.interpolate(task, PLAIN, [[[6.0, 1.0]]] * 4)


def test_facts_that_cannot_be_used_get_a_sentence(without_shape_checks):
    joined = TABLE.merge(FACTS.reset_index(), on="bed")
    with refused(ValueError, "'age'", "changes within bed 1"):
        romae.from_table(joined.assign(age=range(24)), **COLUMNS, static="age")
    with refused(ValueError, "tokens='scalars'"):
        romae.from_arrays(np.zeros((2, 3, 1)), static={"age": [1.0, 2.0]})
    with refused(ValueError, "3 samples", "there are 2"):
        romae.from_arrays(np.zeros((2, 3, 1)), tokens="scalars", static={"age": [1.0, 2.0, 3.0]})
    with refused(ValueError, "'weight'", "is not there"):
        romae.from_table(TABLE, **COLUMNS, static=["weight"])
    with refused(ValueError, "'age'", "sample 1", "infinite"):
        romae.from_table(TABLE, **COLUMNS, static=FACTS.assign(age=np.inf))
    with refused(TypeError, "static facts", "int"):
        romae.from_table(TABLE, **COLUMNS, static=3)
    with refused(ValueError, "'sex'", "is not there"):
        romae.from_table_like(joined.drop(columns="sex"), replace(SAMPLES.schema, static=(Fact(column="sex"),)))
    hiding = replace(SAMPLES[0], hidden=SAMPLES[0].positions[:, -1] >= 2)
    with refused(ValueError, "hides a static fact"):
        romae.MaskedReconstruction(model()).prepare(romae.collate([hiding]))
    task = romae.MaskedReconstruction(model(static_from=None))
    with refused(ValueError, "static_from=samples.schema.static_from", "never hidden"):
        romae.train(task, SAMPLES, romae.TrainConfig(epochs=1, device="cpu"), quiet=True)


def test_a_category_that_training_did_not_have_is_told_and_left_out():
    strange = TABLE.merge(FACTS.assign(sex="X").reset_index(), on="bed")
    with warned(UserWarning, "4 static facts", "sex=X"):
        samples = romae.from_table_like(strange, SAMPLES.schema)
    assert samples.schema == SAMPLES.schema and [len(sample) for sample in samples] == [7, 7, 6, 7]


def test_an_estimator_learns_from_facts_and_answers_the_same_in_every_form(without_shape_checks, tmp_path):
    """Series of noise whose class is a fact."""
    random = np.random.default_rng(0)
    X = [(np.arange(5.0), random.normal(size=(5, 1))) for _ in range(40)]
    y = np.array(["a", "b"])[np.arange(40) % 2]
    facts = pd.DataFrame({"sex": np.array(["F", "M"])[np.arange(40) % 2], "age": random.normal(60, 9, 40)})
    classifier = romae.RoMAEClassifier(epochs=6, lr=1e-2, **SMALL).fit(X, y, static=facts)
    assert classifier.score(X, y, static=facts) > 0.9
    wanted = classifier.predict_proba(X, static=facts)
    samples = romae.from_arrays(
        [values for _, values in X], [times for times, _ in X], tokens="scalars", channels=[0], static=facts
    )
    assert_array_equal(classifier.predict_proba(samples), wanted)
    rows = [pd.DataFrame({"id": i, "time": t, "channel": 0, "value": v[:, 0]}) for i, (t, v) in enumerate(X)]
    table = pd.concat(rows).merge(facts.rename_axis("id").reset_index(), on="id")
    assert_array_equal(classifier.predict_proba(table), wanted)
    with pytest.warns(UserWarning, match="skipped 1 of 41"):
        bad = [*X, (np.arange(2.0), np.full((2, 1), np.nan))]
        found = classifier.predict_proba(bad, on_error="skip", static=pd.concat([facts, facts[:1]], ignore_index=True))
    assert_array_equal(found, wanted)
    classifier.save(tmp_path / "saved")
    assert_array_equal(romae.RoMAEClassifier.load(tmp_path / "saved").predict_proba(X, static=facts), wanted)
    with refused(ValueError, "static facts sex, age", "static="):
        classifier.predict(X)
    curves = romae.RoMAEInterpolator(**SMALL).fit(X, static=facts)
    assert curves.interpolate(X[:2], [0.5, 1.5], static=facts[:2]).shape == (2, 2, 1)
    assert np.isfinite(curves.score(X, static=facts))

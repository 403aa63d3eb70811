"""Loading: every sample once, in an order that seed and epoch decide, however it is divided."""

from multiprocessing.reduction import ForkingPickler

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from messages import refused
from romae.data.loader import Loader
from romae.data.sources import InMemory
from romae.data.store import write_store
from romae.tokens.sample import Sample

LENGTHS = st.lists(st.integers(1, 20), min_size=1, max_size=40)


def made(lengths: list[int]) -> list[Sample]:
    return [Sample(np.full((n, 1), i), np.arange(n)[:, None], id=i) for i, n in enumerate(lengths)]


def ids(loader: Loader, epoch: int = 0, start: int = 0) -> list[tuple]:
    return [() if batch is None else batch.ids for batch in loader.epoch(epoch, start)]


@given(LENGTHS, st.integers(1, 9), st.booleans(), st.booleans(), st.integers(0, 3))
def test_an_epoch_holds_every_sample_once(lengths, size, shuffle, group, epoch):
    loader = Loader(made(lengths), batch_size=size, shuffle=shuffle, group=group, seed=3)
    plan = loader.plan(epoch)
    assert loader.n_batches(epoch) == len(plan)
    assert sorted(np.concatenate(plan).tolist()) == list(range(len(lengths)))
    assert sorted(map(len, plan), reverse=True)[:-1] == [size] * (len(plan) - 1)


@given(LENGTHS, st.integers(20, 60), st.booleans(), st.booleans())
def test_a_token_budget_is_kept_and_used(lengths, budget, shuffle, group):
    loader = Loader(made(lengths), tokens_per_batch=budget, shuffle=shuffle, group=group)
    plan = loader.plan(1)
    totals = [sum(lengths[i] for i in batch) for batch in plan]
    assert max(totals) <= budget and sorted(np.concatenate(plan).tolist()) == list(range(len(lengths)))
    if not (shuffle and group):  # then batches keep their order, and each is full: the next sample would not fit
        for total, following in zip(totals, plan[1:], strict=False):
            assert total + lengths[following[0]] > budget


@given(LENGTHS, st.integers(1, 9), st.integers(1, 4))
def test_ranks_share_each_batch_without_overlap(lengths, size, n_ranks):
    samples = made(lengths)
    whole = ids(Loader(samples, batch_size=size, shuffle=True, seed=1))
    parts = [
        ids(Loader(samples, batch_size=size, shuffle=True, seed=1, rank=r, n_ranks=n_ranks)) for r in range(n_ranks)
    ]
    for batch, *shares in zip(whole, *parts, strict=True):
        assert sorted(i for share in shares for i in share) == sorted(batch)
        assert max(map(len, shares)) - min(map(len, shares)) <= 1


@given(LENGTHS, st.integers(1, 9), st.integers(1, 3), st.integers(1, 3))
def test_pieces_divide_a_ranks_share(lengths, size, n_ranks, pieces):
    samples = made(lengths)
    one = ids(Loader(samples, batch_size=size, shuffle=True, n_ranks=1, pieces=n_ranks * pieces))
    several = [
        ids(Loader(samples, batch_size=size, shuffle=True, rank=r, n_ranks=n_ranks, pieces=pieces))
        for r in range(n_ranks)
    ]
    per_batch = zip(*(zip(*[iter(rank)] * pieces, strict=True) for rank in several), strict=True)
    assert one == [piece for batch in per_batch for rank in batch for piece in rank]


def test_seed_and_epoch_decide_the_order():
    samples = made([3] * 50)
    first = ids(Loader(samples, batch_size=7, shuffle=True, seed=1), epoch=2)
    assert first == ids(Loader(samples, batch_size=7, shuffle=True, seed=1), epoch=2)
    assert first != ids(Loader(samples, batch_size=7, shuffle=True, seed=1), epoch=3)
    assert first != ids(Loader(samples, batch_size=7, shuffle=True, seed=2), epoch=2)
    assert ids(Loader(samples, batch_size=7))[0] == tuple(range(7))


def test_an_epoch_can_be_taken_up_anywhere():
    loader = Loader(made([3] * 50), batch_size=7, shuffle=True, seed=1)
    assert ids(loader, 2, start=4) == ids(loader, 2)[4:]
    assert len(loader.plan(2)) == 8 and ids(loader, 2, start=8) == []


@pytest.mark.parametrize(
    ("place", "parts"),
    [
        ({"start": -1}, ["start", "at least 0", "not -1"]),
        ({"start": 9}, ["epoch 0", "8 batches", "batch 9"]),
        ({"start": 1.0}, ["start", "whole number", "not 1.0"]),
        ({"epoch": -1}, ["epoch", "at least 0", "not -1"]),
        ({"epoch": 0.5}, ["epoch", "whole number", "not 0.5"]),
    ],
)
def test_a_place_outside_the_epochs_gets_a_sentence(place, parts, without_shape_checks):
    with refused(ValueError, *parts):
        Loader(made([3] * 50), batch_size=7).epoch(**place)


def test_iterating_goes_from_one_epoch_to_the_next():
    loader = Loader(made([3] * 9), batch_size=2, shuffle=True)
    assert len(loader) == 5
    passes = [[batch.ids for batch in loader] for _ in range(3)]
    assert passes == [[batch.ids for batch in loader.epoch(epoch)] for epoch in range(3)]
    assert passes[0] != passes[1] != passes[2]


@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_loading_draws_nothing_from_torchs_own_generator(workers):
    before = torch.get_rng_state()
    ids(Loader(made([3] * 9), batch_size=2, shuffle=True, workers=workers))
    assert torch.equal(torch.get_rng_state(), before)


class WithBatches(list):
    """A sequence whose attributes happen to have the names of a store's."""

    batch = lengths = "mine"


def test_only_a_store_is_asked_for_batches():
    assert ids(Loader(WithBatches(made([2, 3])), batch_size=2)) == [(0, 1)]


def test_a_store_makes_its_batches_itself(tmp_path, monkeypatch):
    store, asked = write_store(made([2, 3, 4]), tmp_path / "a.arrow"), []
    gather = type(store).batch
    monkeypatch.setattr(
        type(store), "batch", lambda self, indices: (asked.append(indices.tolist()), gather(self, indices))[1]
    )
    assert ids(Loader(store, batch_size=2)) == [(0, 1), (2,)] and asked == [[0, 1], [2]]


def test_grouping_brings_similar_lengths_together():
    lengths = np.random.default_rng(0).integers(1, 100, 2000).tolist()
    spread = {}
    for group in (False, True):
        plan = Loader(made(lengths), batch_size=16, shuffle=True, group=group).plan(0)
        spread[group] = np.mean([np.ptp([lengths[i] for i in batch]) for batch in plan])
    assert spread[True] < spread[False] / 10


@pytest.mark.slow
def test_workers_and_stores_change_nothing(tmp_path):
    samples = made([4, 2, 9, 1, 7, 7, 3] * 3)
    store = write_store(samples, tmp_path / "a.arrow")
    plain = list(Loader(samples, batch_size=4, shuffle=True, seed=5).epoch(1))
    for source in (samples, store):
        for workers in (0, 2):
            loaded = list(Loader(source, batch_size=4, shuffle=True, seed=5, workers=workers).epoch(1))
            for one, other in zip(loaded, plain, strict=True):
                assert one.ids == other.ids and torch.equal(one.tokens.values, other.tokens.values)
                assert torch.equal(one.tokens.layout.offsets, other.tokens.layout.offsets)


def test_lengths_stay_where_torch_moves_what_a_worker_gets():
    """Where processes are not forked (Macs, Windows, Python 3.14) samples are handed over in memory of another kind."""
    held = InMemory([Sample(np.zeros((n, 1)), np.zeros((n, 1))) for n in (3, 1, 2)])
    ForkingPickler.dumps(held)
    assert held.lengths.tolist() == [3, 1, 2]
    assert not np.shares_memory(held.lengths, held.all.layout.lengths.numpy())


@pytest.mark.cuda
def test_batches_can_be_pinned():
    batch = next(Loader(made([3, 4]), batch_size=2, pin=True).epoch())
    assert batch.tokens.values.is_pinned() and batch.tokens.layout.offsets.is_pinned()


@pytest.mark.parametrize(
    ("settings", "parts"),
    [
        ({}, ["either batch_size"]),
        ({"batch_size": 2, "tokens_per_batch": 9}, ["and not both"]),
        ({"batch_size": 0}, ["at least 1"]),
        ({"batch_size": 2.0}, ["batch_size", "whole number", "not 2.0"]),
        ({"batch_size": True}, ["batch_size", "whole number", "not True"]),
        ({"tokens_per_batch": 9.5}, ["tokens_per_batch", "whole number", "not 9.5"]),
        ({"batch_size": 2, "seed": -1}, ["seed", "at least 0", "not -1"]),
        ({"batch_size": 2, "seed": 0.5}, ["seed", "whole number", "not 0.5"]),
        ({"batch_size": 2, "workers": -1}, ["workers", "at least 0", "not -1"]),
        ({"batch_size": 2, "rank": -1}, ["rank", "at least 0", "not -1"]),
        ({"tokens_per_batch": 4}, ["sample 1", "5 tokens", "the 4"]),
        ({"batch_size": 2, "rank": 2, "n_ranks": 2}, ["rank 2", "0 to 1"]),
    ],
)
def test_settings_that_make_no_sense_get_a_sentence(settings, parts, without_shape_checks):
    with refused(ValueError, *parts):
        Loader(made([3, 5]), **settings)


def test_nothing_to_load_is_an_error():
    with refused(ValueError, "no samples"):
        Loader([], batch_size=1)

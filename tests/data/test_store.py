"""The store: what is written comes back, in a stream, at random, in other processes; damage is named."""

import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from romae.data import store as module
from romae.data.store import Store, write_store
from romae.tokens import Sample, collate

TARGETS = {
    "none": lambda i, n: None,
    "class": lambda i, n: i % 3,
    "number": lambda i, n: i / 7,
    "vector": lambda i, n: [float(i), -1.0],
    "rows": lambda i, n: np.full((n, 2), float(i)),
}


def made(lengths: list[int], target=TARGETS["none"], ids=lambda i: f"star {i}", hidden=lambda n: None) -> list[Sample]:
    random = np.random.default_rng(sum(lengths))
    return [
        Sample(random.random((n, 2)), random.random((n, 3)) * 1e5, target=target(i, n), id=ids(i), hidden=hidden(n))
        for i, n in enumerate(lengths)
    ]


def assert_same(one: Sample, other: Sample) -> None:
    assert torch.equal(one.values, other.values) and torch.equal(one.positions, other.positions)
    assert one.id == other.id
    for name in ("target", "hidden"):
        a, b = getattr(one, name), getattr(other, name)
        assert (a is None and b is None) or (a.dtype == b.dtype and torch.equal(a, b))


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS.keys())
def test_samples_and_batches_come_back_as_they_were(tmp_path, target, monkeypatch):
    monkeypatch.setattr(module, "CHUNK_TOKENS", 10)
    samples = made([3, 1, 7, 9, 2, 20, 4], target)
    store = write_store(samples, tmp_path / "a.arrow")
    assert len(store) == 7 and store.lengths.tolist() == [3, 1, 7, 9, 2, 20, 4]
    for one, other in zip(store, samples, strict=True):
        assert_same(one, other)
    assert_same(store[-1], samples[-1])
    assert [s.id for s in store[1:6:2]] == ["star 1", "star 3", "star 5"]
    order = [5, 0, 3, 3, 6]
    ours, expected = store.batch(order), collate([samples[i] for i in order])
    assert torch.equal(ours.tokens.values, expected.tokens.values)
    assert torch.equal(ours.tokens.positions, expected.tokens.positions)
    assert torch.equal(ours.tokens.layout.offsets, expected.tokens.layout.offsets)
    assert ours.ids == expected.ids
    assert (ours.target is None and expected.target is None) or torch.equal(ours.target, expected.target)


@settings(max_examples=25)
@given(st.lists(st.integers(1, 12), min_size=1, max_size=12), st.integers(1, 30))
def test_chunks_are_nobodys_business(tmp_path_factory, lengths, chunk_tokens):
    path = tmp_path_factory.mktemp("store") / "a.arrow"
    samples = made(lengths, TARGETS["class"], ids=lambda i: i)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "CHUNK_TOKENS", chunk_tokens)
        store = write_store(iter(samples), path)
    for one, other in zip(store, samples, strict=True):
        assert_same(one, other)


def test_masks_are_kept(tmp_path):
    samples = made([4, 5], hidden=lambda n: np.arange(n) % 2 == 0)
    store = write_store(samples, tmp_path / "a.arrow")
    assert_same(store[1], samples[1])
    assert torch.equal(store.batch([0, 1]).hidden.values, collate(samples).hidden.values)


def test_metadata_is_kept(tmp_path):
    write_store(made([2]), tmp_path / "a.arrow", metadata={"bands": ["g", "r"]})
    assert Store(tmp_path / "a.arrow").metadata == {"bands": ["g", "r"]}


def test_what_is_read_does_not_write_back(tmp_path):
    store = write_store(made([3, 3], TARGETS["rows"]), tmp_path / "a.arrow")
    sample = store[0]
    sample.values.zero_()
    sample.target.zero_()
    assert store[0].values.any() and store[1].target.any()


def test_pages_are_handed_back_beyond_the_budget(tmp_path):
    write_store(made([50] * 20), tmp_path / "a.arrow")
    store = Store(tmp_path / "a.arrow", memory_budget=10_000)
    first = store.batch([0, 7])
    for _ in range(10):
        store.batch(list(range(20)))
    assert store._n_touched <= 10_000 + 40_000
    assert torch.equal(store.batch([0, 7]).tokens.values, first.tokens.values)


def test_a_pickled_store_opens_its_file_again(tmp_path):
    store = write_store(made([2, 3]), tmp_path / "a.arrow")
    again = pickle.loads(pickle.dumps(store))
    assert_same(again[1], store[1])
    assert repr(again) == "Store('a.arrow': 2 samples, 5 tokens)"


def test_a_failed_write_leaves_what_was_there(tmp_path):
    write_store(made([2]), tmp_path / "a.arrow")

    def failing():
        yield from made([3, 4])
        raise RuntimeError("the source broke off")

    with pytest.raises(RuntimeError, match="broke off"):
        write_store(failing(), tmp_path / "a.arrow")
    assert [path.name for path in tmp_path.iterdir()] == ["a.arrow"]
    assert len(Store(tmp_path / "a.arrow")) == 1


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (Sample([[1.0]], [[0.0] * 3]), "sample 1 does not match sample 0: id is null .* values is"),
        (Sample([[1.0, 2.0]], [[0.0] * 3], id="b", target=1), "target is int64 instead of None"),
        (Sample([[1.0, 2.0]], [[0.0]], id="b"), "positions is"),
        (Sample([[1.0, 2.0]], [[0.0] * 3], id=3), "id is int64 instead of string"),
        (Sample([[1.0, 2.0]], [[0.0] * 3], id=(1, 2)), r"text or integers, not \(1, 2\)"),
    ],
)
def test_samples_of_another_kind_are_refused(tmp_path, other, message):
    with pytest.raises(ValueError, match=message):
        write_store([*made([2]), other], tmp_path / "a.arrow")
    assert not list(tmp_path.iterdir())


def test_damage_is_named(tmp_path):
    path = tmp_path / "a.arrow"
    write_store(made([40] * 50), path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match="a.arrow is damaged or no store"):
        Store(path)
    path.write_bytes(b"")
    with pytest.raises(ValueError, match="damaged or no store"):
        Store(path)
    with pytest.raises(ValueError, match="there is no store at .*absent"):
        Store(tmp_path / "absent.arrow")
    with pytest.raises(ValueError, match="there is none"):
        write_store([], path)
    with pytest.raises(IndexError, match="sample 9 of a store of 1"):
        write_store(made([2]), path)[9]
    with pytest.raises(ValueError, match="this one is empty"):
        Store(path).batch([])

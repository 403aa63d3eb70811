"""The store: what is written comes back, in a stream, at random, in other processes; damage is named."""

import mmap
import pickle
import re
import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from messages import refused, warned
from romae.data import checksums
from romae.data import store as module
from romae.data.checksums import checksum
from romae.data.schema import Schema
from romae.data.store import Store, write_store
from romae.tokens.sample import Sample
from romae.tokens.tokens import collate

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
    order = [5, 0, -4, 3, -1]
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


@pytest.mark.parametrize("metadata", [{"when": object()}, {(1, 2): "pair"}])
def test_metadata_that_json_cannot_hold_gets_a_sentence(tmp_path, metadata, without_shape_checks):
    with refused(ValueError, "metadata", "as JSON"):
        write_store(made([2]), tmp_path / "a.arrow", metadata=metadata)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_values_of_any_precision_and_with_gradients_are_kept(tmp_path, dtype):
    values = torch.tensor([[0.5], [2.0]], dtype=dtype, requires_grad=True)
    target = torch.tensor([1.5, 2.5], requires_grad=True)
    positions = torch.tensor([[0.0], [1.0]], dtype=torch.float64, requires_grad=True)
    store = write_store([Sample(values, positions, target=target)], tmp_path / "a.arrow")
    assert store[0].values.dtype == torch.float32 and store[0].values.tolist() == [[0.5], [2.0]]
    assert store[0].positions.tolist() == [[0.0], [1.0]] and store[0].target.tolist() == [1.5, 2.5]


@pytest.mark.parametrize("id", [np.int64(-7), np.uint8(7), 2**63 - 1, -(2**63), "naïve ★", ""])
def test_ids_that_are_integers_or_text_are_kept(tmp_path, id):
    store = write_store([Sample([[1.0]], [[0.0]], id=id)], tmp_path / "a.arrow")
    assert store[0].id == id and store.batch([0]).ids == (id,) and type(store[0].id) in (int, str)


def test_what_is_read_does_not_write_back(tmp_path):
    store = write_store(made([3, 3], TARGETS["rows"]), tmp_path / "a.arrow")
    sample = store[0]
    sample.values.zero_()
    sample.target.zero_()
    assert store[0].values.any() and store[1].target.any()


class _SpiedMap:
    """Stands for a mapped file and notes what the system is told about it."""

    def __init__(self) -> None:
        self.advice: list[int] = []

    def madvise(self, option: int) -> None:
        self.advice.append(option)


@pytest.mark.skipif(not hasattr(mmap, "MADV_DONTNEED"), reason="the system cannot be told")
def test_handing_back_tells_the_system(without_shape_checks):
    spied = _SpiedMap()
    module._hand_back(spied)
    assert spied.advice == [mmap.MADV_DONTNEED]


READERS = {
    "in batches": lambda store, indices: store.batch(indices),
    "one by one": lambda store, indices: [store[i] for i in indices],
}


@pytest.mark.parametrize("is_hidden", [False, True])
@pytest.mark.parametrize("read", READERS.values(), ids=READERS.keys())
def test_pages_are_handed_back_beyond_the_budget(tmp_path, monkeypatch, read, is_hidden):
    hidden = (lambda n: np.arange(n) % 2 == 0) if is_hidden else (lambda n: None)
    write_store(made([50] * 20, hidden=hidden), tmp_path / "a.arrow")
    store = Store(tmp_path / "a.arrow", memory_budget=100_000)
    handed_back, hand_back = [], module._hand_back
    monkeypatch.setattr(module, "_hand_back", lambda mapped: (handed_back.append(mapped), hand_back(mapped)))
    first = store[7].values
    read(store, [0, 7])
    assert not handed_back
    for _ in range(10):
        read(store, list(range(20)))
        assert store._n_touched <= 100_000
    assert len(handed_back) >= 2 and all(mapped is store._map for mapped in handed_back)
    assert torch.equal(store[7].values, first)


def resident_bytes(path: Path) -> int:
    """How much of a mapped file is in the memory of this process."""
    entries = re.split(r"^(?=[0-9a-f]+-[0-9a-f]+ )", Path("/proc/self/smaps").read_text(), flags=re.MULTILINE)
    sizes = [re.search(r"^Rss:\s+(\d+) kB", entry, re.MULTILINE) for entry in entries if str(path) in entry]
    return 1024 * sum(int(size[1]) for size in sizes)


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="needs Linux to look at the memory")
@pytest.mark.parametrize("read", READERS.values(), ids=READERS.keys())
def test_a_file_larger_than_the_budget_does_not_stay_in_memory(tmp_path, read):
    path = tmp_path / "a.arrow"
    write_store(made([2000] * 100), path)  # 6 MB
    grown = {}
    for budget in (1 << 30, 1 << 20):
        store = Store(path, memory_budget=budget)
        for i in range(100):
            read(store, [i])
        grown[budget] = resident_bytes(path)
        del store
    assert grown[1 << 30] > 5_000_000 and grown[1 << 20] < 3_000_000


def test_a_pickled_store_opens_its_file_again(tmp_path):
    write_store(made([2, 3]), tmp_path / "a.arrow")
    store = Store(tmp_path / "a.arrow", memory_budget=12_345)
    again = pickle.loads(pickle.dumps(store))
    assert_same(again[1], store[1])
    assert again.memory_budget == 12_345
    assert repr(again) == "Store('a.arrow': 2 samples, 5 tokens)"


def test_a_pickled_store_finds_its_file_from_another_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_store(made([2, 3]), "a.arrow")
    kept = pickle.dumps(Store("a.arrow"))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert len(pickle.loads(kept)) == 2


def test_positions_that_single_precision_would_merge_are_refused(tmp_path):
    days = 2_460_000.0 + np.arange(5)[:, None] / 86_400
    store = write_store([Sample(np.ones((5, 1)), days, id="star 7")], tmp_path / "a.arrow")
    assert store[0].positions.squeeze(-1).tolist() == days.squeeze(-1).tolist()
    with refused(ValueError, "'star 7'", "axis 0", "single precision"):
        store.batch([0])


def test_a_failed_write_leaves_what_was_there(tmp_path):
    write_store(made([2]), tmp_path / "a.arrow")

    def failing():
        yield from made([3, 4])
        raise RuntimeError("the source broke off")

    with refused(RuntimeError, "broke off"):
        write_store(failing(), tmp_path / "a.arrow")
    assert [path.name for path in tmp_path.iterdir()] == ["a.arrow"]
    assert len(Store(tmp_path / "a.arrow")) == 1


@pytest.mark.parametrize(
    ("other", "parts"),
    [
        (Sample([[1.0]], [[0.0] * 3]), ["sample 1", "id is null", "values is"]),
        (Sample([[1.0, 2.0]], [[0.0] * 3], id="b", target=1), ["target is int64", "None"]),
        (Sample([[1.0, 2.0]], [[0.0]], id="b"), ["positions is"]),
        (Sample([[1.0, 2.0]], [[0.0] * 3], id=3), ["id is int64", "string"]),
        (Sample([[1.0, 2.0]], [[0.0] * 3], id=(1, 2)), ["text or integers", "(1, 2)", "sample 1"]),
        (Sample([[1.0, 2.0]], [[0.0] * 3], id=True), ["text or integers", "not True", "str(id)"]),
        (Sample([[1.0, 2.0]], [[0.0] * 3], id=2**70), ["1180591620717411303424", "64 bits", "str(id)"]),
        (Sample([[1.0, 2.0]], [[0.0] * 3], id="a\ud800"), ["'a\\ud800'", "sample 1"]),
    ],
)
def test_samples_of_another_kind_are_refused(tmp_path, other, parts):
    with refused(ValueError, *parts):
        write_store([*made([2]), other], tmp_path / "a.arrow")
    assert not list(tmp_path.iterdir())


def test_what_is_no_sample_is_refused(tmp_path, without_shape_checks):
    with refused(TypeError, "Samples", "number 2", "ndarray"):
        write_store([*made([2, 2]), np.zeros(3)], tmp_path / "a.arrow")


def test_a_place_that_cannot_hold_a_store_is_refused_before_anything_is_read(tmp_path):
    def never():
        raise AssertionError("the samples were read")
        yield

    (tmp_path / "folder").mkdir()
    with refused(ValueError, "folder", "file", "samples.arrow"):
        write_store(never(), tmp_path / "folder")
    (tmp_path / "file").write_text("")
    with refused(ValueError, "file where", "file of the store"):
        write_store(made([2]), tmp_path / "file" / "a.arrow")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "folder"]


@pytest.mark.parametrize(
    ("indices", "error", "parts"),
    [
        ([0, 2], IndexError, ["sample 2", "store of 2"]),
        ([-3, 0], IndexError, ["sample -3", "store of 2"]),
        (np.array([7], dtype=np.uint64), IndexError, ["sample 7", "store of 2"]),
        (np.array([True, False]), TypeError, ["whole numbers"]),
        (np.array([0.0]), TypeError, ["whole numbers"]),
        (np.array([[0]]), TypeError, ["whole numbers"]),
        ([], ValueError, ["empty"]),
    ],
)
@pytest.mark.parametrize("hidden", [None, [True, False]])
def test_indices_of_a_batch_are_checked(tmp_path, indices, error, parts, hidden):
    store = write_store(made([2, 2], hidden=lambda n: hidden), tmp_path / "a.arrow")
    with refused(error, *parts):
        store.batch(indices)


def rewritten(path: Path, change) -> None:
    """Write a store's file again with its table changed, under the same header."""
    table = pa.ipc.open_file(path.read_bytes()).read_all()
    table = change(table)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        for batch in table.to_batches():
            writer.write_batch(batch)


def shortened(table: pa.Table) -> pa.Table:
    positions = table["positions"].to_pylist()
    return table.set_column(2, "positions", pa.array([p[:1] for p in positions], table["positions"].type))


def renumbered(table: pa.Table) -> pa.Table:
    return table.set_column(1, "values", table["id"])


def without_note(table: pa.Table, note: bytes) -> pa.Table:
    return table.replace_schema_metadata({k: v for k, v in table.schema.metadata.items() if k != note})


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        (lambda t: t.drop_columns(["values"]), ["no column values"]),
        (lambda t: t.drop_columns(["id", "positions"]), ["no column", "id and positions"]),
        (lambda t: t.slice(0, 0), ["no samples"]),
        (shortened, ["values and positions", "length"]),
        (renumbered, ["values", "int64"]),
        (lambda t: without_note(t, b"metadata"), ["Expecting value"]),
        (lambda t: without_note(t, b"romae_store"), ["version", "write_store"]),
    ],
)
def test_a_file_without_what_a_store_has_is_named(tmp_path, change, parts):
    write_store(made([2, 3], ids=lambda i: i), tmp_path / "a.arrow")
    rewritten(tmp_path / "a.arrow", change)
    with refused(ValueError, "a.arrow", "damaged", *parts):
        Store(tmp_path / "a.arrow")


def test_damage_is_named(tmp_path):
    path = tmp_path / "a.arrow"
    write_store(made([40] * 50), path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with refused(ValueError, "a.arrow", "damaged"):
        Store(path)
    path.write_bytes(b"")
    with refused(ValueError, "damaged"):
        Store(path)
    with refused(ValueError, "no store", "absent"):
        Store(tmp_path / "absent.arrow")
    with refused(ValueError, "there is none"):
        write_store([], path)
    with refused(IndexError, "no sample 9", "store of 1"):
        write_store(made([2]), path)[9]
    with refused(ValueError, "empty"):
        Store(path).batch([])


# Checksums


@pytest.fixture
def sealed(tmp_path, monkeypatch) -> Path:
    """A store of every kind of column, in several chunks, with names."""
    monkeypatch.setattr(module, "CHUNK_TOKENS", 12)
    samples = made([4, 5, 6, 7], TARGETS["rows"], hidden=lambda n: np.arange(n) % 2 == 0)
    named = [sample.with_schema(Schema(values=("flux", "error"), positions=("x", "y"))) for sample in samples]
    write_store(named, tmp_path / "a.arrow", metadata={"note": "text"})
    return tmp_path / "a.arrow"


def read_all(path: Path) -> None:
    store = Store(path)
    store.batch(range(len(store)))


def test_a_flipped_bit_anywhere_in_the_file_is_refused(sealed):
    whole = sealed.read_bytes()
    random = np.random.default_rng(0)
    # Some of everywhere, and all of the end, where the checksums and the footer are.
    for place in [*random.integers(0, len(whole), 60), *range(len(whole) - 40, len(whole))]:
        damaged = bytearray(whole)
        damaged[place] ^= 1 << random.integers(8)
        sealed.write_bytes(damaged)
        with refused(ValueError, "a.arrow", "damaged"):
            read_all(sealed)
    sealed.write_bytes(whole)
    read_all(sealed)


def test_numbers_are_checked_when_they_are_read_and_the_rest_before(sealed, monkeypatch):
    store, whole = Store(sealed), sealed.read_bytes()
    damaged = bytearray(whole)
    damaged[whole.rindex(store[3].values.numpy().tobytes())] ^= 1
    sealed.write_bytes(damaged)
    store = Store(sealed)
    assert_same(store[0], store[0])  # another chunk, which is whole
    for read in (lambda: store[3], lambda: store.batch([0, 3]), store.verify):
        with refused(ValueError, "a.arrow", "damaged", "values", "write it again"):
            read()
    sealed.write_bytes(whole.replace(b'"flux"', b'"flax"'))
    with refused(ValueError, "a.arrow", "damaged", "header"):
        Store(sealed)


@pytest.mark.parametrize("piece", [1, 7, 64, 1 << 18])
def test_each_piece_is_checked_once_whatever_its_size(tmp_path, monkeypatch, piece):
    monkeypatch.setattr(checksums, "PIECE", piece)
    store = write_store(made([3, 1, 4], TARGETS["class"]), tmp_path / "a.arrow")
    n_pieces, summed = store._pieces.n_left, []
    monkeypatch.setattr(checksums, "checksum", lambda *parts: (summed.append(parts), checksum(*parts))[1])
    for _ in range(2):
        store.batch([2, 0])
        store[1]
        store.verify()
    assert len(summed) == n_pieces and store._pieces.n_left == 0


def test_a_store_without_checksums_is_read_with_a_note(sealed):
    expected = list(Store(sealed))
    rewritten(sealed, lambda table: without_note(table, b"checksums"))
    with warned(UserWarning, "a.arrow", "no checksums", "write_store"):
        store = Store(sealed)
    for one, other in zip(store, expected, strict=True):
        assert_same(one, other)
    store.verify()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(pickle.loads(pickle.dumps(store))) == 4, "a worker process does not say it again"


def test_a_store_that_lost_its_checksums_is_refused(sealed):
    rewritten(sealed, lambda table: table)
    with refused(ValueError, "damaged", "checksums are missing"):
        Store(sealed)


def test_the_same_samples_make_the_same_file(tmp_path):
    for name in ("a", "b"):
        write_store(made([3, 4], TARGETS["number"]), tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def changed(table: pa.Table, name: str, change) -> pa.Table:
    rows = table[name].to_pylist()
    change(rows)
    table = table.set_column(table.column_names.index(name), name, pa.array(rows, table[name].type))
    return without_note(table, b"checksums")


@pytest.mark.parametrize(
    ("name", "change", "parts"),
    [
        ("values", lambda rows: rows[1][2].__setitem__(0, np.nan), ["values", "finite", "token 2 has nan"]),
        ("positions", lambda rows: rows[1][0].__setitem__(1, np.inf), ["positions", "finite", "token 0 has inf"]),
        ("target", lambda rows: rows.__setitem__(1, -np.inf), ["target", "finite"]),
        ("hidden", lambda rows: rows.__setitem__(1, [0, 0, 0]), ["hidden", "all or none"]),
        ("hidden", lambda rows: rows.__setitem__(1, [1, 1, 1]), ["hidden", "all or none"]),
    ],
)
@pytest.mark.filterwarnings("ignore:.*no checksums")
def test_a_batch_refuses_what_a_sample_refuses(tmp_path, name, change, parts):
    path = tmp_path / "a.arrow"
    write_store(made([2, 3, 2], TARGETS["number"], hidden=lambda n: np.arange(n) == 0), path)
    rewritten(path, lambda table: changed(table, name, change))
    store = Store(path)
    assert len(store.batch([0, 2])) == 2
    for read in (lambda: store[1], lambda: store.batch([0, 1]), lambda: store.packed([1])):
        with refused(ValueError, "'star 1'", "a.arrow", *parts):
            read()


@pytest.mark.filterwarnings("ignore:.*no checksums")
def test_a_batch_refuses_a_sample_without_tokens(tmp_path):
    path = tmp_path / "a.arrow"
    write_store(made([2, 3]), path)
    rewritten(
        path, lambda t: changed(changed(t, "values", lambda r: r[1].clear()), "positions", lambda r: r[1].clear())
    )
    for read in (lambda: Store(path)[1], lambda: Store(path).batch([0, 1])):
        with refused(ValueError, "'star 1'", "at least one token"):
            read()


def test_values_whose_sum_is_beyond_single_precision_are_read(tmp_path):
    store = write_store([Sample(np.full((4, 1), 3e38), np.arange(4.0)[:, None])], tmp_path / "a.arrow")
    assert store.batch([0]).tokens.values.tolist() == store[0].values.tolist()


@pytest.mark.usefixtures("without_shape_checks")
def test_names_of_files_that_no_system_has_and_samples_that_are_none_are_refused(tmp_path):
    for name in ("x" * 300, "a\0b"):
        with refused(ValueError, "no name of"):
            write_store([Sample([[1.0]], [[0.0]])], tmp_path / name)
        with refused(ValueError, "no name of"):
            Store(tmp_path / name)
    with refused(TypeError, "samples", "not from int"):
        write_store(3, tmp_path / "a.arrow")
    with refused(ValueError, "text or integers", "timedelta64", "str(id)"):
        write_store([Sample([[1.0]], [[0.0]], id=np.timedelta64(1, "s"))], tmp_path / "a.arrow")
    assert not list(tmp_path.iterdir())

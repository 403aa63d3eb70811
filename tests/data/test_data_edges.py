"""Edges of the data layer: the smallest, the odd and the last of what is read, and what goes by row."""

import numpy as np
import pandas as pd
import pytest
import torch
from torch.testing import assert_close

from messages import refused
from romae.data.audio import from_audio_folder
from romae.data.columns import in_order, require_one_label
from romae.data.export import to_sample_table, to_table
from romae.data.filterbank import dequantise, quantise
from romae.data.frames import read_frame
from romae.data.images import from_image, from_video
from romae.data.loader import _with_plain_errors
from romae.data.pixels import Pixels
from romae.data.queries import grid_of_times, read_queries
from romae.data.schema import Schema
from romae.data.series import from_arrays
from romae.data.sources import Lazy, as_source, common_schema
from romae.data.tables import from_table, from_table_like
from romae.tokens.sample import Sample


def test_one_number_over_and_over_is_written_in_8_bits():
    codes, low, step = quantise(torch.full((3,), 2.5))
    assert codes.tolist() == [0, 0, 0] and step > 0
    assert dequantise(codes, low, step).tolist() == [2.5, 2.5, 2.5]


def test_names_of_several_kinds_are_read_as_they_look(tmp_path):
    """Where a column may hold numbers, those written in a file are numbers; where it holds text alone, they are not."""
    (tmp_path / "table.csv").write_text("c\n7\n8\n")
    assert read_frame(tmp_path / "table.csv", ["c"], {"c": ("seven", 7)})["c"].tolist() == [7, 8]
    assert read_frame(tmp_path / "table.csv", ["c"], {"c": ("seven", "7")})["c"].tolist() == ["7", "8"]


def test_labels_follow_ids_that_are_numbers_and_no_places():
    y = pd.Series([3, 1, 2], index=[30, 10, 20])
    assert in_order([10, 20, 30], y).tolist() == [1, 2, 3]
    places = pd.Series([3, 1], index=[10, 99])  # not just the ids: as splitters of scikit-learn hand them over
    assert in_order([10, 20], places).tolist() == [3, 1]
    with refused(ValueError, "another order", "places"):
        in_order([0, 1, 2], pd.Series([3, 1, 2], index=[2, 0, 1]))


def test_an_id_with_several_labels_is_named():
    with refused(ValueError, "several labels", "'b'"):
        require_one_label(pd.Series([1, 2, 3], index=["a", "b", "b"]))


def test_an_image_smaller_than_its_patch_is_refused_with_its_own_size():
    with refused(ValueError, "size 3", "patch of 4"):
        from_image(torch.zeros(3, 8), (4, 4), fit="crop")
    assert len(from_image(torch.zeros(9, 8), (4, 4), fit="crop").values) == 4


@pytest.mark.parametrize("largest", [255, 256])
def test_a_colour_of_more_than_8_bits_begins_above_255(largest, tmp_path):
    pytest.importorskip("PIL")
    content = np.zeros((2, 2, 3), np.uint8 if largest < 256 else ">u2").tobytes()
    (tmp_path / "image.ppm").write_bytes(f"P6 2 2 {largest}\n".encode() + content)
    if largest == 255:
        assert from_image(tmp_path / "image.ppm", (2, 2)).values.shape == (1, 12)
    else:
        with refused(ValueError, "image.ppm", "more than 8 bits"):
            from_image(tmp_path / "image.ppm", (2, 2))


def test_the_fullest_schema_names_channels_wherever_it_stands():
    full, short = (Schema(channel="band", values=("flux",), channels=names) for names in (("g", "r"), ("g",)))
    samples = [Sample([[1.0]], [[0.0, 0.0]], schema=schema) for schema in (full, short)]
    assert common_schema(samples).channels == common_schema(samples[::-1]).channels == ("g", "r")
    named, unnamed = (
        Schema(channel="band", values=("flux",), channels=("g",), classes=names) for names in (("x",), None)
    )
    samples = [Sample([[1.0]], [[0.0, 0.0]], schema=schema) for schema in (named, unnamed)]
    assert common_schema(samples).classes == common_schema(samples[::-1]).classes == ("x",)


@pytest.mark.parametrize("time", ["nan", "inf", "soon"])
def test_a_grid_begins_and_ends_at_numbers(time):
    with refused(ValueError, f"cannot read {time!r}", "a number"):
        grid_of_times(f"{time}:3:4", Schema(time="t"))


def gathered(source, indices: np.ndarray) -> torch.Tensor:
    """The values of a batch that only names its rows."""
    packed = source.packed(indices, by_row=True)
    assert packed.values.shape[1] == 0
    return source.values_on(torch.device("cpu"))(packed.rows)


def test_what_goes_by_row_is_what_goes_by_value():
    samples = [Sample(np.full((n, 2), float(n)), np.arange(n, dtype=float)[:, None]) for n in (2, 3, 1)]
    indices = np.array([2, 0])
    source = as_source(samples)
    assert_close(gathered(source, indices), source.packed(indices).values)
    images = torch.arange(3 * 4 * 4 * 1, dtype=torch.uint8).reshape(3, 4, 4, 1)
    pixels = Pixels(images=images, targets=torch.arange(3), ids=(0, 1, 2), patch=(2, 2), mean=(0.5,), std=(0.2,))
    assert_close(gathered(pixels, indices), pixels.packed(indices).values)
    assert pixels.n_value_bytes == images.numel()


class Own:
    """A sequence as people write it, which notes what is read."""

    def __init__(self, schemas: list[Schema | None]) -> None:
        self.samples = [Sample([[1.0]], [[float(i)]], schema=schema) for i, schema in enumerate(schemas)]
        self.read: list[int] = []

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, i: int) -> Sample:
        self.read.append(i)
        return self.samples[i]


def test_a_sequence_of_ones_own_is_named_by_itself_or_by_its_first_sample():
    schema, other = Schema(time="t"), Schema(time="days")
    by_sample = Lazy(Own([schema, None]))
    assert by_sample.schema == schema and by_sample[1].schema == schema  # the others have its names as well
    assert Lazy(Own([schema, None]), other).schema == other
    assert Lazy(Own([None]))[0].schema is None


def test_a_sample_that_was_looked_at_is_not_read_twice_and_a_source_is_not_looked_at():
    own = Own([None, None])
    source = Lazy(own)
    assert own.read == [0] and source.lengths.tolist() == [1, 1] and own.read == [0, 1]
    own.read.clear()
    around = Lazy(source)
    assert own.read == [] and len(around) == 2


def test_predictions_have_a_row_per_token_and_nothing_more():
    samples = from_arrays([np.zeros((3, 1))])
    with refused(ValueError, "[3, 1]", "[3, 1, 1]"):
        to_table(samples, [np.zeros((3, 1, 1))])


def test_two_rows_of_unequal_length_are_no_times_and_values():
    with refused(ValueError, "sample 0", "cannot be read"):
        from_arrays([[[1.0, 2.0, 3.0, 4.0], [4.0, 2.0, 1.0]]])


def test_frames_may_have_any_index_where_times_are_handed_over():
    frame = pd.DataFrame({"a": [1.0, 2.0]}, index=[5, 9])
    samples = from_arrays([frame], times=[[0.0, 1.0]], channels=["a"])
    assert samples[0].positions.flatten().tolist() == [0.0, 1.0]
    with refused(ValueError, "sample 0", "index of its own"):
        from_arrays([frame], channels=["a"])


def test_times_of_another_kind_than_those_of_the_schema_are_named():
    numbers, dates = ({"id": [1, 1], "t": times, "v": [1.0, 2.0]} for times in ([0.0, 1.0], pd.to_datetime([0, 10**9])))
    schema = from_table(pd.DataFrame(numbers), id="id", time="t", values="v").schema
    with refused(ValueError, "holds dates", "expects numbers"):
        from_table_like(pd.DataFrame(dates), schema)


def test_a_row_of_predictions_has_as_many_names_as_numbers():
    samples = from_arrays(np.zeros((2, 3, 1)), y=[1.0, 2.0])
    with refused(ValueError, "2 columns", "['one']"):
        to_sample_table(samples, np.zeros((2, 2)), columns=["one"])
    assert list(to_sample_table(samples, np.zeros((2, 2)), columns=["a", "b"]).columns) == ["id", "a", "b"]


def test_queries_are_at_least_one_and_of_the_kind_of_the_data():
    frame = pd.DataFrame({"id": ["a"], "t": [0.0], "v": [1.0]})
    samples = from_table(frame, id="id", time="t", values="v")
    with refused(ValueError, "queries", "no rows"):
        read_queries(frame.iloc[:0], samples)
    with refused(ValueError, "queries", "holds dates", "numbers are expected"):
        read_queries(frame.assign(t=pd.to_datetime([0])), samples)


def test_a_film_is_called_by_its_path_or_as_it_is_told(tmp_path):
    pil = pytest.importorskip("PIL.Image")
    frames = [pil.fromarray(np.full((4, 4), level, np.uint8)) for level in (0, 200)]
    frames[0].save(tmp_path / "film.gif", save_all=True, append_images=frames[1:])
    assert from_video(tmp_path / "film.gif", patch=(1, 4, 4), mode="L").id == str(tmp_path / "film.gif")
    assert from_video(tmp_path / "film.gif", patch=(1, 4, 4), mode="L", id="film").id == "film"


def test_the_length_of_a_sound_is_that_at_the_rate_it_is_read_at(tmp_path):
    """1519 numbers at 16 kHz are a frame short of eight; at 4 kHz they are rounded up to 380, which make eight."""
    soundfile = pytest.importorskip("soundfile")
    soundfile.write(tmp_path / "a.wav", np.zeros(1519), 16_000)
    for rate, n_expected in ((4_000, 8), (16_000, 7)):
        assert from_audio_folder(tmp_path, patch=(1, 128), resample_to=rate).lengths.tolist() == [n_expected]


def test_an_error_of_a_worker_is_told_in_its_own_words_and_others_as_they_are():
    def failing(message: str):
        yield 1
        raise ValueError(message)

    told = "Caught in worker process 0.\nOriginal Traceback:\n  File x\nValueError: row 3 is empty\n"
    own = "two lines:\nValueError: is the second"
    for message, expected in ((told, "row 3 is empty"), (own, own)):
        pieces = _with_plain_errors(failing(message))
        assert next(pieces) == 1
        with pytest.raises(ValueError) as caught:
            next(pieces)
        assert str(caught.value) == expected


def test_an_index_that_pandas_kept_in_a_file_is_a_column(tmp_path):
    pd.DataFrame({"v": [1.0, 2.0]}, index=pd.Index(["a", "b"], name="id")).to_parquet(tmp_path / "table.parquet")
    frame = read_frame(tmp_path / "table.parquet", ["id", "v"], {})
    assert frame["id"].tolist() == ["a", "b"] and frame.index.tolist() == [0, 1]

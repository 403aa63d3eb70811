"""Images, stacks and video: what goes in comes out, positions are the patches' places, bad input is named."""

import pickle
import struct
import zlib
from datetime import date
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from messages import refused
from romae.data.images import from_image, from_image_folder, from_stack, from_video, read_image, to_image
from romae.tokens.tokens import collate

Image = pytest.importorskip("PIL.Image", reason="needs pillow: pip install 'romae[images]'")

MEAN, STD = (0.4, 0.5, 0.6), (0.2, 0.3, 0.25)


@pytest.fixture
def picture() -> np.ndarray:
    """A colour image of 12 x 20 pixels."""
    return np.random.default_rng(0).integers(0, 256, (12, 20, 3), dtype=np.uint8)


def test_tokens_hold_the_pixels_of_their_patch_and_positions_count_patches(picture):
    sample = from_image(picture, (4, 5), channels=-1)
    assert sample.values.shape == (12, 60)
    row, column = 2, 1
    token = 4 * row + column
    assert sample.positions[token].tolist() == [row, column]
    expected = picture[4 * row : 4 * row + 4, 5 * column : 5 * column + 5].reshape(-1) / 255
    assert_close(sample.values[token], torch.tensor(expected, dtype=torch.float32))


@pytest.mark.parametrize(
    "form", ["file", "pillow", "array", "channels first", "tensor", "float", "uint16", "FITS", "wide", "masked"]
)
def test_every_form_of_an_image_gives_the_same_tokens(form, picture, tmp_path):
    Image.fromarray(picture).save(tmp_path / "picture.png")
    image, channels = {
        "file": (tmp_path / "picture.png", None),
        "pillow": (Image.fromarray(picture), None),
        "array": (picture, -1),
        "channels first": (picture.transpose(2, 0, 1), 0),
        "tensor": (torch.from_numpy(picture), -1),
        "float": (picture / 255, -1),
        "uint16": (picture.astype(">u2") * np.uint16(257), 2),
        "FITS": ((picture / 255).astype(">f4"), -1),
        "wide": ((picture / 255).astype(np.longdouble), -1),
        "masked": (np.ma.array(picture, mask=False), -1),
    }[form]
    sample = from_image(image, (4, 4), channels=channels, mean=MEAN, std=STD)
    expected = from_image(picture, (4, 4), channels=-1, mean=MEAN, std=STD)
    assert_close(sample.values, expected.values)
    assert_close(sample.positions, expected.positions)


def test_normalisation_is_per_channel(picture):
    plain = from_image(picture, (1, 1), channels=-1).values
    scaled = from_image(picture, (1, 1), channels=-1, mean=MEAN, std=STD).values
    assert_close(scaled, (plain - torch.tensor(MEAN)) / torch.tensor(STD))


def test_to_image_gives_back_every_pixel(picture):
    sample = from_image(picture, (4, 5), channels=-1, mean=MEAN, std=STD)
    back = to_image(sample.values, (4, 5), (12, 20), mean=MEAN, std=STD, as_uint8=True)
    assert np.array_equal(back.numpy(), picture)
    first = to_image(sample.values, (4, 5), (12, 20), mean=MEAN, std=STD, channels=0)
    assert_close(first, torch.from_numpy(picture).permute(2, 0, 1) / 255)


def test_to_image_takes_what_predict_hands_back(picture):
    values = from_image(picture, (4, 5), channels=-1).values.numpy()
    for given in (values, values.astype(np.float64), np.flip(np.flip(values, 0).copy(), 0)):
        assert np.array_equal(to_image(given, (4, 5), (12, 20), as_uint8=True).numpy(), picture)


@pytest.mark.parametrize("channels", [5, 3, -4, -7])
def test_to_image_refuses_a_dimension_that_is_not_there(channels):
    with refused(ValueError, f"channels={channels}", "dimension"):
        to_image(torch.zeros(1, 48), (4, 4), (4, 4), channels=channels)


def test_to_image_refuses_what_is_no_array(without_shape_checks):
    with refused(TypeError, "numbers", "array or a tensor", "not list"):
        to_image([[0.0]], (1, 1), (1, 1))


def test_a_grey_image_has_one_channel_and_comes_back_without_it(tmp_path):
    grey = np.arange(64, dtype=np.uint8).reshape(8, 8)
    Image.fromarray(grey).save(tmp_path / "grey.png")
    sample = from_image(tmp_path / "grey.png", (2, 4))
    assert sample.values.shape == (8, 8)
    assert np.array_equal(to_image(sample.values, (2, 4), (8, 8), channels=None, as_uint8=True).numpy(), grey)
    assert from_image(tmp_path / "grey.png", (2, 4), mode="RGB").values.shape == (8, 24)


def test_a_16_bit_file_keeps_its_precision(tmp_path):
    wide = (np.arange(64, dtype=np.uint16) * 1000).reshape(8, 8)
    Image.fromarray(wide).save(tmp_path / "wide.png")
    assert_close(read_image(tmp_path / "wide.png")[..., 0], torch.tensor(wide / 65535, dtype=torch.float32))
    with refused(ValueError, "wide.png", "8 bits"):
        read_image(tmp_path / "wide.png", mode="RGB")


def write_wide_png(path: Path, colours: np.ndarray) -> None:
    """A PNG of 16 bits and three colours, which pillow cannot write."""
    height, width, _ = colours.shape
    rows = b"".join(b"\0" + row.tobytes() for row in colours.astype(">u2"))
    chunks = ((b"IHDR", struct.pack(">IIBBBBB", width, height, 16, 2, 0, 0, 0)), (b"IDAT", zlib.compress(rows)))
    whole = b"\x89PNG\r\n\x1a\n"
    for kind, data in (*chunks, (b"IEND", b"")):
        whole += struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    path.write_bytes(whole)


@pytest.mark.parametrize("mode", [None, "RGB", "L"])
def test_colours_of_16_bits_are_refused_rather_than_cut(mode, tmp_path):
    wide = np.full((8, 8, 3), 1000, np.uint16)
    write_wide_png(tmp_path / "wide.png", wide)
    (tmp_path / "wide.ppm").write_bytes(b"P6 8 8 65535\n" + wide.astype(">u2").tobytes())
    for image in (tmp_path / "wide.png", Image.open(tmp_path / "wide.png"), tmp_path / "wide.ppm"):
        with refused(ValueError, "8 bits", "as an array"):
            read_image(image, mode=mode)
    with refused(ValueError, "wide.png", "8 bits"):
        from_video(tmp_path / "wide.png", (1, 4, 4), mode=mode)


def test_16_bits_for_all_colours_of_a_pixel_are_read(tmp_path):
    header = struct.pack("<2sIHHI", b"BM", 98, 0, 0, 66) + struct.pack(
        "<IiiHHIIiiII", 40, 4, 4, 1, 16, 3, 32, 0, 0, 0, 0
    )
    masks = struct.pack("<III", 0xF800, 0x07E0, 0x001F)
    (tmp_path / "small.bmp").write_bytes(header + masks + struct.pack("<16H", *[0xF800] * 16))
    assert read_image(tmp_path / "small.bmp")[0, 0].tolist() == [1, 0, 0]


def test_only_the_first_page_is_never_taken_for_the_whole(tmp_path):
    pages = [Image.fromarray(np.full((4, 4), shade, np.uint8)) for shade in (0, 100, 200)]
    pages[0].save(tmp_path / "one.tif")
    pages[0].save(tmp_path / "pages.tif", save_all=True, append_images=pages[1:])
    assert from_image(tmp_path / "one.tif", (4, 4)).values.shape == (1, 16)
    with refused(ValueError, "pages.tif", "3 pages", "from_stack"):
        from_image(tmp_path / "pages.tif", (4, 4))


@pytest.mark.parametrize("kind", ["png", "tif", "webp"])
def test_a_file_is_turned_upright(kind, picture, tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # the top of the scene is on the right
    path = tmp_path / f"turned.{kind}"
    Image.fromarray(picture).save(path, exif=exif, **({"lossless": True} if kind == "webp" else {}))
    upright = from_image(np.rot90(picture, -1), (4, 4), channels=-1).values
    assert_close(from_image(path, (4, 4)).values, upright)
    assert_close(from_image(Image.open(path), (4, 4)).values, upright)


def test_arrays_that_run_backwards_are_read(picture):
    for back in (picture[..., ::-1], picture[::-1], picture[:, ::-1]):
        assert_close(from_image(back, (4, 4), channels=-1).values, from_image(back.copy(), (4, 4), channels=-1).values)
    stack = from_stack(picture[::-1], np.arange(12.0)[::-1], (1, 4, 3))
    assert stack.positions[0, 0] == 11 and stack.positions[-1, 0] == 0


def test_images_of_different_sizes_share_a_batch():
    sizes = [(8, 8), (16, 24), (4, 40)]
    batch = collate([from_image(np.zeros(size, np.uint8), (4, 4)) for size in sizes])
    assert batch.tokens.layout.lengths.tolist() == [4, 24, 10]


def test_a_size_that_the_patch_does_not_divide_is_refused_with_those_that_fit(picture):
    with refused(ValueError, "size 12", "patches of 8", "crop it to 8"):
        from_image(picture, (8, 4), channels=-1)
    with refused(ValueError, "smaller", "patch of 16"):
        from_image(picture, (16, 4), channels=-1, fit="crop")


def test_crop_keeps_the_centre_and_resize_the_whole(picture):
    cropped = from_image(picture, (8, 16), channels=-1, fit="crop")
    assert_close(cropped.values, from_image(picture[2:10, 2:18], (8, 16), channels=-1).values)
    resized = from_image(picture, (8, 8), channels=-1, fit="resize")
    assert len(resized) == 2 * 2  # 12 and 20 lie as near to 8 and 16 as to 16 and 24; halves go to the even number
    assert_close(resized.values.mean(), torch.tensor(picture / 255).mean().float(), atol=0.02, rtol=0)


def test_resizing_agrees_with_pillow(picture):
    sample = from_image(picture, (6, 5), channels=-1, size=(6, 10))
    ours = to_image(sample.values, (6, 5), (6, 10), as_uint8=True).numpy().astype(int)
    theirs = np.asarray(Image.fromarray(picture).resize((10, 6), Image.Resampling.BILINEAR)).astype(int)
    assert abs(ours - theirs).max() <= 1


def test_a_folder_is_read_lazily_in_order_with_classes(picture, tmp_path):
    for name in ("dog/b.png", "dog/a.PNG", "cat/deep/c.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture).save(tmp_path / name)
    (tmp_path / "dog/notes.txt").write_text("no image")
    (tmp_path / "dog/broken.png").write_bytes(b"not an image")
    folder = from_image_folder(tmp_path, (4, 4), has_classes=True)
    assert folder.class_names == ("cat", "dog")
    assert [path.name for path in folder.files] == ["c.png", "a.PNG", "b.png", "broken.png"]
    assert folder[0].id == "cat/deep/c.png" and int(folder[0].target) == 0
    assert int(folder[-2].target) == 1
    assert_close(folder[1].values, from_image(picture, (4, 4), channels=-1).values)
    assert len(list(folder[:3])) == 3 and len(folder[1:3]) == 2
    assert len(pickle.loads(pickle.dumps(folder))[0]) == len(folder[0])
    with refused(ValueError, "cannot read", "broken.png"):
        folder[3]
    with pytest.raises(IndexError):
        folder[4]
    assert from_image_folder(tmp_path / "dog", (4, 4))[0].target is None


def test_a_folder_without_what_it_needs_is_refused(picture, tmp_path):
    with refused(ValueError, ".jpg"):
        from_image_folder(tmp_path, (4, 4))
    with refused(ValueError, "not a folder"):
        from_image_folder(tmp_path / "absent", (4, 4))
    Image.fromarray(picture).save(tmp_path / "loose.png")
    with refused(ValueError, "loose.png", "no class"):
        from_image_folder(tmp_path, (4, 4), has_classes=True)


def test_a_folder_takes_the_classes_of_training(picture, tmp_path):
    (tmp_path / "bee").mkdir()
    Image.fromarray(picture).save(tmp_path / "bee/1.png")
    folder = from_image_folder(tmp_path, (4, 4), has_classes=True, classes=("ant", "bee"))
    assert folder.class_names == ("ant", "bee") and int(folder[0].target) == 1
    with refused(ValueError, "folder bee", "['ant']"):
        from_image_folder(tmp_path, (4, 4), has_classes=True, classes=["ant"])


def test_a_stack_has_its_own_times_and_comes_back_frame_by_frame():
    frames = np.random.default_rng(1).integers(0, 256, (3, 8, 12), dtype=np.uint8)
    times = [58000.25, 58000.75, 58007.5]
    sample = from_stack(frames, times, (1, 4, 6))
    assert sample.values.shape == (3 * 2 * 2, 24)
    assert sample.positions.dtype == torch.float64
    assert sample.positions[:, 0].tolist() == [t for t in times for _ in range(4)]
    assert sample.positions[5].tolist() == [58000.75, 0, 1]
    assert_close(sample.values[4:8], from_image(frames[1], (4, 6)).values)
    back = to_image(sample.values, (1, 4, 6), (3, 8, 12), channels=None, as_uint8=True)
    assert np.array_equal(back.numpy(), frames)


def test_a_stack_of_files_equals_the_stack_of_their_arrays(picture, tmp_path):
    frames = np.stack([picture, picture[::-1]])
    paths = [tmp_path / f"{i}.png" for i in range(2)]
    for path, frame in zip(paths, frames, strict=True):
        Image.fromarray(frame).save(path)
    assert_close(
        from_stack(paths, [0.0, 1.5], (1, 4, 4)).values,
        from_stack(torch.tensor(frames).permute(0, 3, 1, 2), [0.0, 1.5], (1, 4, 4), channels=0).values,
    )


@pytest.mark.parametrize(
    ("times", "patch", "parts"),
    [
        ([0.0], (1, 4, 4), ["2 images", "times", "[1]"]),
        ([0.0, float("nan")], (1, 4, 4), ["finite", "image 1"]),
        (["today", "tomorrow"], (1, 4, 4), ["days or seconds"]),
        (["1", "2"], (1, 4, 4), ["days or seconds"]),
        ([b"1", b"2"], (1, 4, 4), ["days or seconds"]),
        (np.array(["2020-01-01", "2020-01-02"], "datetime64[D]"), (1, 4, 4), ["days or seconds"]),
        (np.array([1, 2], "timedelta64[ns]"), (1, 4, 4), ["days or seconds"]),
        ([date(2020, 1, 1), date(2020, 1, 2)], (1, 4, 4), ["days or seconds"]),
        ([1 + 2j, 2 + 0j], (1, 4, 4), ["not complex128"]),
        ([[0.0], [1.0, 2.0]], (1, 4, 4), ["list of numbers"]),
        ([0.0, 1.0], (2, 4, 4), ["patch must be 1", "not 2"]),
        (
            [0.0, 1.0],
            (4, 4),
            ["(time, height, width)", "not (4, 4)"],
        ),
    ],
)
def test_a_stack_with_wrong_times_or_patch_is_refused(times, patch, parts):
    with refused((TypeError, ValueError), *parts):
        from_stack(np.zeros((2, 8, 8), np.uint8), times, patch)


def test_images_of_a_stack_must_agree_and_are_named():
    with refused(ValueError, "image 0", "[8, 8, 1]", "[8, 9, 1]"):
        from_stack([np.zeros((8, 8)), np.zeros((8, 9))], [0.0, 1.0], (1, 4, 4))
    with refused(TypeError, "image 1", "path"):
        from_stack([np.zeros((8, 8)), None], [0.0, 1.0], (1, 4, 4))
    with refused(ValueError, "no image"):
        from_stack([], [], (1, 4, 4))
    for images in ("x.tif", Path("x.tif"), Image.new("L", (8, 8))):
        with refused(TypeError, "list", "array"):
            from_stack(images, [0.0], (1, 4, 4))


def test_a_video_is_patched_in_time_too_and_comes_back():
    video = np.random.default_rng(2).random((4, 8, 8, 3), dtype=np.float32)
    sample = from_video(video, (2, 4, 4), channels=-1)
    assert sample.values.shape == (2 * 2 * 2, 2 * 4 * 4 * 3)
    assert sample.positions[-1].tolist() == [1, 1, 1]
    assert_close(to_image(sample.values, (2, 4, 4), (4, 8, 8)), torch.from_numpy(video))
    first = to_image(sample.values, (2, 4, 4), (4, 8, 8), channels=0)
    assert_close(first, torch.from_numpy(video).movedim(-1, 1))
    assert_close(from_video(first, (2, 4, 4), channels=0).values, sample.values)
    longer = np.concatenate([video, video[:1]])
    with refused(ValueError, "size 5"):
        from_video(longer, (2, 4, 4), channels=-1, fit="resize")
    assert_close(from_video(longer, (2, 4, 4), channels=-1, fit="crop").values, sample.values)
    assert len(from_video(video, (2, 4, 4), channels=-1, size=(16, 8))) == 2 * len(sample)


def test_masked_pixels_and_times_are_named():
    images = np.ma.array(np.ones((3, 8, 8)), mask=np.zeros((3, 8, 8), bool))
    images[1, :2, :2] = np.ma.masked
    with refused(ValueError, "image 1", "masked"):
        from_stack(images, [0.0, 1.0, 2.0], (1, 4, 4))
    with refused(ValueError, "image 1", "masked"):
        from_video(images, (1, 4, 4))
    with refused(ValueError, "finite", "image 2"):
        from_stack(images.filled(0), np.ma.array([0, 1, 2], mask=[0, 0, 1]), (1, 4, 4))
    with refused(ValueError, "values", "masked"):
        to_image(np.ma.masked_equal(np.eye(4, 16), 1), (4, 4), (8, 8))


def test_an_animation_is_read_frame_by_frame(tmp_path):
    frames = [Image.fromarray(np.full((4, 4), shade, np.uint8)) for shade in (0, 100, 200)]
    frames[0].save(tmp_path / "moving.gif", save_all=True, append_images=frames[1:])
    sample = from_video(tmp_path / "moving.gif", (1, 4, 4), mode="L")
    assert_close(sample.values.mean(1) * 255, torch.tensor([0.0, 100.0, 200.0]))
    assert sample.id == str(tmp_path / "moving.gif")
    (tmp_path / "film.mp4").write_bytes(b"\x00" * 100)
    with refused(ValueError, "cannot read", "film.mp4"):
        from_video(tmp_path / "film.mp4", (1, 4, 4))


@pytest.mark.parametrize(
    ("image", "options", "parts"),
    [
        (np.zeros((8, 8, 3), np.uint8), {}, ["where the channels"]),
        (np.zeros((8, 8), np.uint8), {"channels": 0}, ["channels in dimension 0"]),
        (np.zeros((8, 8), np.int64), {}, ["int64"]),
        (np.full((8, 8), "x"), {}, ["numbers"]),
        (np.full((8, 8), np.nan), {}, ["values", "finite"]),
        (np.ma.masked_equal(np.eye(8), 1), {}, ["masked", "fill them first"]),
        (np.zeros((8, 8)), {"mode": "RGB"}, ["array", "channels"]),
        (np.zeros((8, 8)), {"std": 0.0}, ["std", "above 0"]),
        (np.zeros((8, 8)), {"mean": (0.1, 0.2, 0.3)}, ["mean", "3 numbers", "1 channels"]),
        (
            np.zeros((8, 8)),
            {"size": (0, 8)},
            ["(height, width)", "not (0, 8)"],
        ),
        (np.zeros((0, 8)), {"size": (8, 8)}, ["[0, 8]", "no pixels"]),
        (Image.new("RGBA", (8, 8)), {}, ["'RGBA'", "mode='RGB'"]),
        (Path("absent.png"), {}, ["absent.png", "No such file"]),
        ([[0, 1], [1, 0]], {}, ["not list"]),
    ],
)
def test_bad_images_are_refused_with_a_sentence(image, options, parts):
    with refused((TypeError, ValueError), *parts):
        from_image(image, (4, 4), **options)


@pytest.mark.parametrize("kind", ["jpg", "png"])
def test_a_file_cut_short_is_named(kind, picture, tmp_path):
    path = tmp_path / f"short.{kind}"
    Image.fromarray(picture).save(path)
    path.write_bytes(path.read_bytes()[:-60])
    with refused(ValueError, "cannot read", f"short.{kind}"):
        from_image(path, (4, 4))
    with refused(ValueError, "cannot read"):
        from_image(Image.open(path), (4, 4))


def test_an_unknown_fit_is_refused(picture, without_shape_checks):
    with refused(ValueError, "fit must", "'crop' or 'resize'", "not 'stretch'"):
        from_image(picture, (4, 4), channels=-1, fit="stretch")


@pytest.mark.parametrize("options", [{}, {"fit": "crop"}, {"fit": "resize"}])
@pytest.mark.parametrize("pair", [16, None, (16,), (0, 4), (4, 4.5), (4.0, 4.0), "44"])
def test_a_patch_or_a_size_that_is_no_pair_is_refused(pair, options, picture, without_shape_checks):
    with refused(ValueError, "patch", "(height, width)", "whole numbers"):
        from_image(picture, pair, channels=-1, **options)
    if pair is not None:
        with refused(ValueError, "size", "(height, width)", "whole numbers"):
            from_image(picture, (4, 4), channels=-1, size=pair, **options)
    with refused(ValueError, "size", "(height, width)", "whole numbers"):
        to_image(torch.zeros(1, 48), (4, 4), pair)


@pytest.mark.usefixtures("without_shape_checks")
def test_sizes_without_end_and_statistics_that_are_no_numbers_are_refused(picture):
    with refused(ValueError, "(1000000000, 8)", "134,217,728 pixels", "smaller"):
        from_image(picture, (4, 4), channels=-1, size=(10**9, 8))
    with refused(TypeError, "mean", "each channel", "not 'grey'"):
        from_image(picture, (4, 4), channels=-1, mean="grey")
    with refused(ValueError, "channels in dimension", "-1.0"):
        from_image(picture, (4, 4), channels=-1.0)


def test_tokens_that_do_not_fit_the_image_are_refused(picture):
    values = from_image(picture, (4, 4), channels=-1).values
    with refused(ValueError, "15 tokens", "grid"):
        to_image(values, (4, 4), (12, 24))
    with refused(ValueError, "tokens", "3 channels"):
        to_image(values, (4, 4), (12, 20), channels=None)

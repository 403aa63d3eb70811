"""Files: CSV, Parquet, images, sounds, .ts files and the records of PhysioNet, damaged or written by other programs.

The oracles read the same file by other means: csv and float of Python, pillow, soundfile. What a damaged file holds
now is the right answer, if it is read at all.
"""

import contextlib
import csv
import gzip
import io
import math
import struct
import zlib
from collections import Counter, defaultdict
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import soundfile
import torch
from PIL import Image, ImageOps
from pyarrow import parquet

import romae
from fuzz import hostile
from fuzz.judging import Trial, answered, require
from fuzz.tables import numbers_of_samples, numbers_of_table, sound_arguments, sound_table
from romae.experiments.datasets import physionet2012, uea

NULLS = ("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "N/A", "NA", "NULL")
NULLS = (*NULLS, "NaN", "n/a", "nan", "null")


def attempt(trial: Trial) -> None:
    kinds = [_csv, _csv, _csv, _parquet, _image, _image, _image_folder, _sound, _sound, _ts, _ts, _stays, _stays]
    trial.choose(kinds)(trial)


# CSV and Parquet


def _csv(trial: Trial) -> None:
    frame, arguments = sound_table(trial), sound_arguments(trial)
    content = frame.to_csv(index=False).encode()
    trial.is_sound = trial.chance(0.1)
    if not trial.is_sound:
        content = trial.choose([_cells, _cells, _layout, hostile.damaged])(trial, content)
    is_packed = trial.chance(0.15)
    path = trial.folder / ("table.csv.gz" if is_packed else "table.csv")
    path.write_bytes(gzip.compress(content) if is_packed else content)
    if is_packed and trial.chance(0.5) and not trial.is_sound:
        path.write_bytes(hostile.damaged(trial, path.read_bytes()))
        with contextlib.suppress(OSError, EOFError, ValueError, zlib.error):
            content = gzip.decompress(path.read_bytes())
    samples = romae.from_table(str(path) if trial.chance(0.5) else path, **arguments)
    with answered("samples of a CSV file"):
        expected = _numbers_of_csv(content, arguments)
        found = Counter({(_word(i[1]), *rest): n for (i, *rest), n in _plain(samples, arguments).items()})
        trial.note(f"lacking {list(expected - found)[:2]}, too many {list(found - expected)[:2]}")
        require(expected == found, "the numbers of the samples are not those of the file")


def _plain(samples: Any, arguments: dict[str, Any]) -> Counter:
    """The numbers of samples with their channels as words."""
    numbers: Counter = Counter()
    for (name, place, band, column, value), n in numbers_of_samples(samples, arguments).items():
        numbers[(name, place, _word(band[1]), column, value)] += n
    return numbers


def _word(name: Any) -> str:
    """A name as text, in which 1, 1.0 and 01 are the same, as they may be for a CSV file."""
    word = str(name).strip().lower()
    try:
        return repr(float(word))
    except ValueError:
        return word


def _cells(trial: Trial, content: bytes) -> bytes:
    rows = list(csv.reader(io.StringIO(content.decode())))
    for _ in range(trial.number(1, 3)):
        row = trial.choose(rows)
        column = trial.number(0, len(row) - 1)
        row[column] = trial.choose(
            [hostile.text(trial), str(hostile.number(trial)), "", "12:30", "1.5e", "+3", "٣", " 4 "]
        )
        trial.note(f"cell {column}: {row[column]!r}"[:60])
    written = io.StringIO()
    csv.writer(written, lineterminator="\n").writerows(rows)
    return written.getvalue().encode(errors="surrogatepass")


def _layout(trial: Trial, content: bytes) -> bytes:
    text = content.decode()
    lines = text.splitlines()
    changes = {
        "empty": b"",
        "one line": lines[0].encode(),
        "newline": b"\n",
        "no header": "\n".join(lines[1:]).encode(),
        "header twice": "\n".join([lines[0], *lines]).encode(),
        "semicolons": text.replace(",", ";").encode(),
        "tabs": text.replace(",", "\t").encode(),
        "CRLF": text.replace("\n", "\r\n").encode(),
        "CR": text.replace("\n", "\r").encode(),
        "mark": b"\xef\xbb\xbf" + content,
        "UTF-16": text.encode("utf-16"),
        "latin-1": text.replace("value", "välue").encode("latin-1"),
        "ragged": "\n".join([*lines[:-1], lines[-1] + ",1"]).encode(),
        "short": "\n".join([*lines[:-1], lines[-1].rpartition(",")[0]]).encode(),
        "quote": text.replace(",", ',"', 1).encode(),
        "all quoted": "\n".join(",".join(f'"{word}"' for word in line.split(",")) for line in lines).encode(),
        "blank lines": text.replace("\n", "\n\n").encode(),
        "zeros": content + bytes(1000),
        "spaces": text.replace(",", ", ").encode(),
        "long": content + b"x" * 3_000_000,
        "comment": b"# made by hand\n" + content,
        "decimal commas": text.replace(".", ",").encode(),
    }
    name = trial.choose(sorted(changes))
    trial.note(name)
    return changes[name]


def _numbers_of_csv(content: bytes, arguments: dict[str, Any]) -> Counter:
    text = content.decode("utf-8-sig", errors="replace")  # of columns that are not read, any bytes will do
    header, *rows = [row for row in csv.reader(io.StringIO(text, newline=""))]
    rows = [row for row in rows if row]
    column = {name: i for i, name in enumerate(header)}
    listed = lambda name: [arguments[name]] if isinstance(arguments.get(name), str) else list(arguments.get(name, ()))  # noqa: E731
    numbers: Counter = Counter()
    for row in rows:
        name, time = row[column[arguments["id"]]], row[column[arguments["time"]]]
        axes = [row[column[axis]] for axis in listed("positions")]
        band = row[column[arguments["channel"]]] if "channel" in arguments else ""
        if (
            name in NULLS
            or any(x.strip() in NULLS for x in (time, *axes))
            or (arguments.get("channel") and band in NULLS)
        ):
            continue
        place = (_csv_time(time, arguments.get("time_unit", "second")), *map(_csv_number, axes))
        if "channel" in arguments and any(row[column[value]].strip() in NULLS for value in listed("values")):
            continue  # the values of a channel belong together; the warning counts such rows
        for value in listed("values"):
            if row[column[value]].strip() not in NULLS:
                single = float(np.float32(_csv_number(row[column[value]])))
                numbers[(_word(name), place, _word(band), value, single)] += 1
    return numbers


def _csv_number(word: str) -> float:
    truth = {"true": 1.0, "false": 0.0}
    return truth[word.strip().lower()] if word.strip().lower() in truth else float(word)


def _csv_time(word: str, unit: str) -> float:
    with contextlib.suppress(ValueError):
        return _csv_number(word)
    stamp = pd.Timestamp(word.strip())
    stamp = stamp.tz_convert("UTC").tz_localize(None) if stamp.tzinfo is not None else stamp
    microseconds = int(np.datetime64(stamp, "us").astype(np.int64))
    return microseconds / ({"second": 1, "minute": 60, "hour": 3600, "day": 86400}[unit] * 10**6)


def _named(arguments: dict[str, Any]) -> list[str]:
    """The columns that arguments name; of a damaged file, others may be beyond reading."""
    roles = ("id", "time", "channel", "values", "positions", "label")
    given = [arguments[role] for role in roles if role in arguments]
    return [name for names in given for name in ([names] if isinstance(names, str) else names)]


def _parquet(trial: Trial) -> None:
    frame, arguments = sound_table(trial), sound_arguments(trial)
    path = trial.folder / trial.choose(["table.parquet", "table.pq"])
    frame.to_parquet(path, index=False)
    trial.is_sound = trial.chance(0.1)
    if not trial.is_sound:
        path.write_bytes(hostile.damaged(trial, path.read_bytes()))
    samples = romae.from_table(path, **arguments)
    with answered("samples of a Parquet file"):
        frame = (
            parquet.read_table(path, columns=_named(arguments))
            .replace_schema_metadata(None)
            .to_pandas(date_as_object=False, ignore_metadata=True)
        )
        found, expected = numbers_of_samples(samples, arguments), numbers_of_table(frame, arguments)
        require(expected == found, "the numbers of the samples are not those of the file")


# Images


@cache
def _picture(kind: str) -> bytes:
    random = np.random.default_rng(0)
    grey = kind in ("PPM", "GIF")
    pixels = random.integers(0, 256, size=(16, 24) if grey else (16, 24, 3), dtype=np.uint8)
    written = io.BytesIO()
    Image.fromarray(pixels).save(written, format=kind)
    return written.getvalue()


ENDINGS = {"PNG": "png", "BMP": "bmp", "TIFF": "tif", "PPM": "pgm", "JPEG": "jpg", "GIF": "gif", "WEBP": "webp"}


def _image(trial: Trial) -> None:
    kind = trial.choose(sorted(ENDINGS))
    path = trial.folder / f"picture.{ENDINGS[kind]}"
    content = _picture(kind)
    mode: Any = "L" if kind == "GIF" else None
    trial.is_sound = trial.chance(0.1)
    trial.note(kind)
    if not trial.is_sound:
        content = hostile.damaged(trial, content) if trial.chance(0.8) else _huge(trial, kind, content)
    path.write_bytes(content)
    if trial.chance(0.3) and not trial.is_sound:
        mode = trial.choose(["L", "RGB", None])
    patch = (8, 8)
    sample = romae.from_image(path, patch, mode=mode, fit=None if trial.is_sound else "crop")
    with answered("an image"):
        with Image.open(path) as opened:
            image = ImageOps.exif_transpose(opened)
            pixels = np.asarray(image if mode is None else image.convert(mode)).astype(np.float32)
        scale = 255.0 if pixels.max(initial=0) <= 255 else 65535.0
        grid = torch.from_numpy(pixels / scale)
        grid = grid[..., None] if grid.ndim == 2 else grid
        height, width = (n // 8 * 8 for n in grid.shape[:2])
        top, left = ((n - m) // 2 for n, m in zip(grid.shape[:2], (height, width), strict=True))
        cut = grid[top : top + height, left : left + width]
        require(math.isclose(float(sample.values.sum()), float(cut.sum()), rel_tol=1e-4, abs_tol=1e-3), "other pixels")


def _huge(trial: Trial, kind: str, content: bytes) -> bytes:
    """A header that announces an image of many pixels."""
    size = trial.choose([9_000, 13_000, 40_000, 2**31 - 1])
    trial.note(f"{size} pixels wide")
    changed = bytearray(content)
    if kind == "PNG":
        changed[16:24] = struct.pack(">II", size, size)
        changed[29:33] = struct.pack(">I", zlib.crc32(bytes(changed[12:29])))
    elif kind == "BMP":
        changed[18:26] = size.to_bytes(4, "little") * 2
    elif kind == "PPM":
        return content.replace(b"24 16", f"{size} {size}".encode())
    else:
        return hostile.damaged(trial, content)
    return bytes(changed)


def _image_folder(trial: Trial) -> None:
    damaged = trial.chance(0.8)
    for i in range(4):
        kind = trial.choose(["PNG", "BMP", "JPEG"])
        place = trial.folder / f"class{i % 2}" / f"{i}.{ENDINGS[kind]}"
        place.parent.mkdir(exist_ok=True)
        is_bad = damaged and trial.chance(0.4)
        place.write_bytes(hostile.damaged(trial, _picture(kind)) if is_bad else _picture(kind))
    if damaged and trial.chance(0.3):
        odd = trial.choose(["stray.png", "class1/deep/x.png", "class1/.hidden.png", "class2/readme.txt", "empty/.x"])
        trial.note(odd)
        (trial.folder / odd).parent.mkdir(parents=True, exist_ok=True)
        (trial.folder / odd).write_bytes(_picture("PNG"))
    folder = romae.from_image_folder(trial.folder, patch=(8, 8), has_classes=True, fit="crop")
    lengths = folder.lengths
    for i in range(len(folder)):
        sample = folder[i]
        with answered("an image of a folder"):
            require(len(sample) == lengths[i], "another number of tokens than the header promised")
            require(folder.class_names[int(sample.target)] == str(sample.id).split("/")[0], "another class")


# Sounds


@cache
def _tone(kind: str) -> bytes:
    wave = (0.5 * np.sin(np.arange(8000) / 7)).astype(np.float32)
    written = io.BytesIO()
    soundfile.write(written, wave, 16000, format=kind, subtype=None if kind == "OGG" else "PCM_16")
    return written.getvalue()


def _sound(trial: Trial) -> None:
    kind = trial.choose(["WAV", "WAV", "FLAC", "AIFF", "OGG"])
    path = trial.folder / f"sound.{kind.lower()}"
    content = _tone(kind)
    trial.is_sound = trial.chance(0.1)
    trial.note(kind)
    if not trial.is_sound:
        # Most bytes are samples, whose change is not to be seen: half of the damage is done to the header.
        content = (
            hostile.damaged(trial, content[:60]) + content[60:]
            if trial.chance(0.6)
            else hostile.damaged(trial, content)
        )
    if not trial.is_sound and kind == "WAV" and trial.chance(0.3):
        rate = trial.choose([0, 1, 3, 7919, 2**31 - 1, 2**32 - 1])
        trial.note(f"{rate} Hz")
        content = content[:24] + rate.to_bytes(4, "little") + content[28:]
    path.write_bytes(content)
    sample = romae.from_audio(path, frames=32)
    with answered("a sound"):
        wave, rate = soundfile.read(path, dtype="float32", always_2d=True)
        again = romae.from_audio(wave, rate=rate, channels=-1, frames=32)
        require(torch.equal(sample.values, again.values), "another sound")
        require(bool(torch.isfinite(sample.values).all()), "no numbers")


# Data sets


TS = """@problemName Toy
@timeStamps false
@univariate false
@dimensions 2
@equalLength true
@seriesLength 4
@classLabel true up down
@data
1.0,2.0,3.0,4.0:5.0,6.0,7.0,8.0:up
0.5,0.25,-1.0,1e3:2.0,2.0,2.5,2.0:down
9.0,8.0,7.5,6.0:1.0,-1.0,1.0,-1.0:up
"""
TIMED = """@problemName Toy
@timeStamps true
@univariate true
@classLabel false
@data
(0.0,1.0),(1.5,2.0),(4.0,-1.0)
(2.0,1.0),(2.5,2.0)
"""


def _ts(trial: Trial) -> None:
    has_times = trial.chance(0.3)
    text = TIMED if has_times else TS
    trial.is_sound = trial.chance(0.1)
    if not trial.is_sound:
        text = _damaged_text(trial, text)
    missing = trial.choose(["error", "error", "drop", 0.0])
    read = uea.parse(text, missing=missing, where="toy.ts")
    with answered("a .ts file"):
        lines = text.splitlines()
        start = next(i for i, line in enumerate(lines) if line.split()[:1] and line.split()[0].lower() == "@data")
        cases = [line for line in lines[start + 1 :] if line.strip() and not line.startswith("#")]
        require(len(cases) == len(read.samples), "another number of cases")
        if has_times or missing != "error":
            return
        for line, sample in zip(cases, read.samples, strict=True):
            *channels, label = line.strip().split(":") if read.class_names else [*line.strip().split(":"), ""]
            values = np.array([[float(x) for x in channel.split(",")] for channel in channels], dtype=np.float32).T
            require(np.array_equal(values, sample.values.numpy()), "other values")
            require(not read.class_names or read.class_names[int(sample.target)] == label.strip(), "another class")


def _damaged_text(trial: Trial, text: str) -> str:
    lines = text.split("\n")
    kind = trial.choose(["word", "word", "word", "line", "twice", "bytes", "bytes"])
    trial.note(kind)
    i = trial.number(0, len(lines) - 1)
    if kind == "line":
        del lines[i]
    elif kind == "twice":
        lines.insert(i, lines[i])
    elif kind == "bytes":
        return hostile.damaged(trial, text.encode()).decode("latin-1")
    else:
        words = lines[i].replace(":", " : ").replace(",", " , ").split(" ")
        j = trial.number(0, len(words) - 1)
        words[j] = trial.choose(
            [hostile.text(trial), str(hostile.number(trial)), "?", "NaN", ",", ":", "true", "1e999"]
        )
        trial.note(f"line {i}: {words[j]!r}"[:60])
        lines[i] = " ".join(words).replace(" : ", ":").replace(" , ", ",")
    return "\n".join(lines)


RECORDS = {
    132539: "Time,Parameter,Value\n00:00,RecordID,132539\n00:00,Age,54\n00:07,HR,73\n00:07,HR,77\n01:37,Temp,35.6\n",
    132540: "Time,Parameter,Value\n00:00,RecordID,132540\n00:00,Age,76\n00:42,pH,7.45\n23:10,HR,-1\n47:59,HR,80\n",
}
OUTCOMES = "RecordID,SAPS-I,SOFA,Length_of_stay,Survival,In-hospital_death\n132539,6,1,5,-1,0\n132540,16,8,8,2,1\n"


def _stays(trial: Trial) -> None:
    texts = {f"set-a/{record}.txt": text for record, text in RECORDS.items()} | {"Outcomes-a.txt": OUTCOMES}
    trial.is_sound = trial.chance(0.1)
    if not trial.is_sound:
        victim = trial.choose(sorted(texts))
        trial.note(victim)
        texts[victim] = _damaged_record(trial, texts[victim])
    (trial.folder / "set-a").mkdir()
    for name, text in texts.items():
        (trial.folder / name).write_text(text, encoding="utf-8", errors="surrogatepass", newline="")
    if not trial.is_sound and trial.chance(0.1):
        odd = trial.choose(["set-a/x.txt", "set-a/１２.txt", "set-a/0132539.txt", "set-a/" + "9" * 40 + ".txt"])
        trial.note(odd)
        (trial.folder / odd).write_text(RECORDS[132539])
    samples = physionet2012.load("a", folder=trial.folder).samples()
    with answered("records of PhysioNet"):
        for sample in samples:
            text = texts[f"set-a/{sample.id}.txt"]
            found = {
                (a, int(b)): v for (a, b), [v] in zip(sample.positions.tolist(), sample.values.tolist(), strict=True)
            }
            expected = _measured(text)
            require(set(found) == set(expected), "other measurements")
            for place, value in expected.items():
                require(math.isclose(found[place], value, rel_tol=1e-6, abs_tol=1e-30), "another value")


def _damaged_record(trial: Trial, text: str) -> str:
    if trial.chance(0.4):
        return hostile.damaged(trial, text.encode()).decode("latin-1")
    lines = text.split("\n")
    i = trial.number(1, len(lines) - 2)
    words = lines[i].split(",")
    j = trial.number(0, len(words) - 1)
    times = [
        "24:60",
        "-1:00",
        "99999999999999999999:00",
        "1:2:3",
        "00:00:30",
        "1",
        ":",
        "4e1:00",
        "00:0x1",
        "10000000:00",
    ]
    words[j] = trial.choose([*times, hostile.text(trial), str(hostile.number(trial)), "HR", "1e40", "", '"', " 5"])
    trial.note(f"line {i}: {words[j]!r}"[:60])
    lines[i] = ",".join(words)
    return "\n".join(lines)


def _measured(text: str) -> dict[tuple[float, int], float]:
    """The mean of each variable in each minute."""
    found: dict[tuple[float, int], list[float]] = defaultdict(list)
    for line in text.replace("\r\n", "\n").strip("\n").split("\n")[1:]:
        time, parameter, value = line.split(",")
        if parameter in physionet2012.VARIABLES and float(value) != -1:
            hours, minutes, *seconds = time.split(":")
            minute = 60 * int(hours) + int(minutes) + (round(float(seconds[0]) / 60) if seconds else 0)
            found[(float(minute), physionet2012.VARIABLES.index(parameter))].append(float(value))
    return {place: sum(values) / len(values) for place, values in found.items()}

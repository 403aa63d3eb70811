"""What hostile inputs are made of: strange numbers and words, damaged bytes, and JSON that is not what it should be."""

import json
import math
from copy import deepcopy
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd

from fuzz.judging import Trial

NUMBERS: tuple[Any, ...] = (
    *(0, -0.0, -1, 1, 2, 0.5, 1e-3, 1e5, 1e30, 3e38, 3.5e38, 1e39, -1e39, 1e308, -1e308, 5e-324, 1e-46),
    *(math.nan, math.inf, -math.inf, 2**31, 2**53, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), 2**64, 10**19, 10**400),
)
TEXTS = (
    *("", " ", "a", "nan", "NaN", "None", "null", "true", "-", "=1+1", "@x", "0", "007", "1e5", "0x10", "1,5", "1_000"),
    *("\0", "\n", "a\r\nb", '"', "'", "\\", "\t", "é", "e\u0301", "🦉", "\u202e", "\ufeff", "１２", "\ud800"),
    *("../../x", "/", "~", ".", "-1", "</script><script>alert(1)</script>", "{{7*7}}", "%s%n", "x" * 5000),
    *("2024-03-01", "2024-02-30", "9999-12-31", "08:15", "inf", "1" * 400, "id", "time", "value"),
)


def number(trial: Trial) -> Any:
    """A number that programs stumble over."""
    drawn = trial.choose(NUMBERS)
    if trial.chance(0.2):
        return trial.choose([np.float32(1e30), np.float16(1.5), np.int8(-3), np.uint64(2**64 - 1), np.float64("nan")])
    return drawn


def text(trial: Trial) -> str:
    """A text that programs stumble over."""
    return trial.choose(TEXTS)


def thing(trial: Trial) -> Any:
    """Anything at all."""
    kind = trial.number(0, 9)
    if kind <= 3:
        return number(trial)
    if kind <= 6:
        return text(trial)
    others = [
        *(None, True, False, [], {}, (), [1, 2], {"a": 1}, b"bytes", {1, 2}, 1 + 2j, object(), print, int, range(3)),
        *(Decimal("1.5"), Decimal("sNaN"), Fraction(1, 3), Fraction(10**400, 3), pd.NA, pd.NaT, np.nan, np.ma.masked),
        *(date(2024, 3, 1), datetime(1, 1, 1), datetime(9999, 12, 31), timedelta(days=1), pd.Timestamp(0)),
        *(datetime(2024, 3, 1, tzinfo=UTC), np.datetime64("NaT"), np.timedelta64(1, "s"), pd.Period("2024")),
        *(np.array(1.0), np.array([]), np.zeros((2, 2)), np.array(["a"]), pd.Series([1.0]), pd.Interval(0, 1)),
        *(np.datetime64(10**11, "Y"), np.str_("a"), np.bytes_(b"a"), slice(0, 1), ..., [[1], [2, 3]], float),
    ]
    return trial.choose(others)


def damaged(trial: Trial, content: bytes) -> bytes:
    """Bytes that are not as they were: flipped, cut, filled, moved or added."""
    random, size = trial.random, len(content)
    kinds = ("flip", "flip", "flip", "flip", "flips", "cut", "zeros", "random", "doubled", "inserted", "swapped")
    for _ in range(20):
        kind = trial.choose(kinds)
        changed = bytearray(content)
        start = int(random.integers(size)) if size else 0
        width = min(int(2 ** random.integers(0, 9)), size - start)
        if kind == "flip":
            changed[start] ^= 1 << int(random.integers(8))
        elif kind == "flips":
            for i in random.integers(size, size=trial.number(2, 20)).tolist():
                changed[i] ^= 1 << int(random.integers(8))
        elif kind == "cut":
            del changed[start:]
        elif kind == "zeros":
            changed[start : start + width] = bytes(width)
        elif kind == "random":
            changed[start : start + width] = random.bytes(width)
        elif kind == "doubled":
            changed[start:start] = changed[start : start + width]
        elif kind == "inserted":
            changed[start:start] = random.bytes(width)
        else:
            other = int(random.integers(size))
            changed[start : start + width], changed[other : other + width] = (
                changed[other : other + width],
                changed[start : start + width],
            )
        if bytes(changed) != content:
            trial.note(f"{kind} at byte {start} of {size}")
            return bytes(changed)
    trial.note("cut to nothing")
    return b"" if content else b"\0"


JSON_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 3, 0.5, -0.5, 1e308, 2**31, 2**63, 2**64, 10**12, 10**400, "", "a", "nan", "tiny"),
    *([], {}, [0], [[]], {"a": {}}, ["a", 1], "x" * 5000, "\ud800", "🦉", "</script>", [None], [1e308, -1e308]),
)


def damaged_json(trial: Trial, body: Any) -> str:
    """The text of a JSON value with one thing in it changed, or a text that is no JSON."""
    if trial.chance(0.12):
        whole = json.dumps(body)
        odd = {
            "empty": "",
            "deep list": "[" * 100_000,
            "deep and closed": "[" * 5000 + "]" * 5000,
            "deep objects": '{"a":' * 100_000,
            "many digits": json.dumps(body).replace(": 1", ": " + "1" * 5000, 1) or "1" * 5000,
            "digits alone": "9" * 5000,
            "a list of it": f"[{whole}]",
            "its half": whole[: len(whole) // 2],
            "twice": whole + whole,
            "NaN": "NaN",
            "infinite": "1e999",
            "null": "null",
            "text": '"text"',
            "marked": "\ufeff" + whole,
            "keys twice": whole[:-1] + ", " + whole[1:],
        }
        name = trial.choose(sorted(odd))
        trial.note(f"JSON: {name}")
        return odd[name]
    changed = deepcopy(body)
    place, way = changed, []
    while isinstance(place, dict | list) and place:
        key = trial.choose(sorted(place) if isinstance(place, dict) else range(len(place)))
        way.append(str(key))
        if not (isinstance(place[key], dict | list) and place[key]) or trial.chance(0.25):  # type: ignore[call-overload]
            break
        place = place[key]  # type: ignore[call-overload]
    if not way:
        trial.note("JSON: another value")
        return json.dumps(trial.choose(JSON_VALUES))
    kind = trial.choose(["other", "other", "other", "removed", "added", "nested", "raw"])
    trial.note(f"JSON: {'.'.join(way)} {kind}")
    if kind == "removed":
        del place[key]  # type: ignore[arg-type]
    elif kind == "added" and isinstance(place, dict):
        place[trial.choose(["", "a", "__class__", "predict", "kind", "x" * 1000])] = trial.choose(JSON_VALUES)
    elif kind == "added":
        place.append(trial.choose(JSON_VALUES))
    elif kind == "nested":
        place[key] = {"a": place[key]} if trial.chance(0.5) else [place[key]]  # type: ignore[call-overload]
    elif kind == "raw":
        place[key] = "@@RAW@@"  # type: ignore[call-overload]
        raw = trial.choose(["NaN", "Infinity", "-Infinity", "1e999", "1" * 5000, "1.0", "-0.0", "1E400", "[" * 3000])
        trial.note(raw[:20])
        return json.dumps(changed).replace('"@@RAW@@"', raw)
    else:
        place[key] = trial.choose(JSON_VALUES)  # type: ignore[call-overload]
        trial.note(repr(place[key])[:60])  # type: ignore[call-overload]
    return json.dumps(changed)

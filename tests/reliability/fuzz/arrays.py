"""Arrays: series, samples, images and sounds in memory, with shapes, types and numbers that are not as they should be.

The oracle compares every number of the samples with the arrays, and holds the answers of a small model to what
answers are: finite numbers of the right shape that do not change when they are asked for again.
"""

from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import torch

import romae
from fuzz import hostile
from fuzz.judging import Trial, answered, require

DTYPES = ("float16", "float32", "int8", "uint64", "bool", "complex64", "object", "str", ">f8", "longdouble", "M8[s]")
ACCEPTED = (ValueError, TypeError, OverflowError)


def attempt(trial: Trial) -> None:
    trial.choose([_series, _series, _series, _sample, _sample, _image, _sound, _model, _model, _patches])(trial)


def _array(trial: Trial, *shape: int) -> Any:
    return np.round(trial.random.normal(size=shape), 4)


def _changed(trial: Trial, x: Any) -> Any:
    """An array that is not as it was."""
    kind = trial.choose(["entry", "entry", "entry", "dtype", "shape", "type", "thing", "empty", "gap"])
    trial.note(kind)
    try:
        array = np.asarray(x)
    except (ValueError, TypeError):  # changed before, so that numpy has no array of it
        return x
    if kind == "entry" and array.size:
        number = hostile.number(trial) if trial.chance(0.7) else hostile.thing(trial)
        trial.note(repr(number)[:60])
        changed = array.astype(object)
        changed.flat[trial.number(0, array.size - 1)] = number
        if trial.chance(0.7):
            try:
                return changed.astype(np.float64)
            except ACCEPTED:
                pass
        return changed
    if kind == "gap" and array.size:
        gaps = _plain(array) if array.dtype.kind in "biuf" else np.ones(array.shape)
        gaps[trial.random.random(array.shape) < 0.4] = np.nan
        return gaps
    if kind == "dtype":
        dtype = trial.choose(DTYPES)
        trial.note(dtype)
        try:
            return array.astype(dtype)
        except ACCEPTED:
            return array.astype(object)
    if kind == "shape":
        flat = np.atleast_1d(array)
        return trial.choose([array[None], array[..., None], array.ravel(), flat[:0], array.T, flat[..., :0], flat[0]])
    if kind == "type":
        masked = np.ma.array(array, mask=trial.random.random(array.shape) < 0.2)
        tensors = [torch.tensor(array), torch.tensor(array).bfloat16(), torch.tensor(array).to_sparse()]
        frame = pd.DataFrame(array) if array.ndim == 2 else pd.Series(list(np.atleast_1d(array)))
        return trial.choose(
            [
                masked,
                array.tolist(),
                tuple(np.atleast_1d(array)),
                frame,
                *tensors,
                np.flip(array),
                np.asfortranarray(array),
            ]
        )
    if kind == "empty":
        return trial.choose([[], None, np.zeros((0, 2)), np.zeros((3, 0)), {}, "", torch.zeros(0)])
    return hostile.thing(trial)


# from_arrays


def _series(trial: Trial) -> None:
    n_samples, c = trial.number(1, 4), trial.number(1, 3)
    lengths = [trial.number(1, 5) for _ in range(n_samples)]
    X: Any = [_array(trial, n, c) for n in lengths]
    arguments: dict[str, Any] = {}
    if trial.chance(0.6):
        arguments["times"] = [np.cumsum(trial.random.uniform(0.1, 2, size=n)) for n in lengths]
    if trial.chance(0.4):
        arguments["y"] = [trial.choose(["up", "down"]) for _ in lengths]
    elif trial.chance(0.3):
        arguments["y"] = trial.random.normal(size=n_samples)
    if trial.chance(0.3):
        arguments["tokens"] = "scalars"
    if trial.chance(0.2):
        arguments["ids"] = list(range(7, 7 + n_samples))
    if trial.chance(0.2):
        arguments["channels"] = ["flux", "error", "sky"][:c]
    trial.is_sound = trial.chance(0.1)
    if not trial.is_sound:
        for _ in range(trial.number(1, 2)):
            X = _spoilt(trial, X, arguments)
    samples = romae.from_arrays(X, **arguments)
    with answered("samples of arrays"):
        layout, scalars = arguments.get("layout", "bnc"), arguments.get("tokens") == "scalars"
        require(len(samples) == len(X), "another number of samples")
        for i, sample in enumerate(samples):
            values = _plain(X[i]).T if layout == "bcn" else _plain(X[i])
            clock = None if arguments.get("times") is None else arguments["times"]
            _compare(sample, values, clock, i, scalars=scalars)


def _spoilt(trial: Trial, X: Any, arguments: dict[str, Any]) -> Any:
    kind = trial.choose(["one", "one", "one", "all", "times", "times", "y", "argument", "argument", "pair"])
    trial.note(kind)
    if kind == "one" and isinstance(X, list) and X:
        i = trial.number(0, len(X) - 1)
        return [*X[:i], _changed(trial, X[i]), *X[i + 1 :]]
    if kind == "all":
        return hostile.thing(trial) if trial.chance(0.3) else _changed(trial, np.zeros((2, 3, 2)))
    if kind == "times" and isinstance(arguments.get("times"), list) and arguments["times"]:
        times = list(arguments["times"])
        times[0] = _changed(trial, times[0])
        arguments["times"] = times
    elif kind == "y" and "y" in arguments:
        y = list(arguments["y"]) if isinstance(arguments["y"], list | np.ndarray) else [0]
        y[0] = hostile.thing(trial)
        trial.note(repr(y[0])[:50])
        arguments["y"] = y
    elif kind == "pair":
        return [(np.arange(3.0), np.ones(3))]
    else:
        name = trial.choose(["times", "y", "tokens", "layout", "ids", "channels", "classes", "time_unit", "time_zone"])
        odd: list[Any] = [hostile.thing(trial), ["a"], [1, 2, 3], "bcn", "scalars", ["a", "a"], [[1.0, 2.0]], "day"]
        arguments[name] = trial.choose(odd)
        trial.note(f"{name}={arguments[name]!r}"[:80])
    return X


def _plain(x: Any) -> np.ndarray:
    """An array of numbers in double precision, with NaN for what is missing."""
    if isinstance(x, torch.Tensor):
        return x.detach().to_dense().double().numpy() if x.is_sparse else x.detach().double().numpy()
    if isinstance(x, np.ma.MaskedArray):
        return x.astype(np.float64).filled(np.nan)
    array = np.asarray(x)
    if array.dtype == object:
        flat = [np.nan if pd.isna(entry) or entry is np.ma.masked else float(entry) for entry in array.ravel()]
        return np.array(flat).reshape(array.shape)
    return array.astype(np.float64)


def _is_tensor(x: Any) -> bool:
    return isinstance(x, torch.Tensor)


def _compare(sample: Any, values: np.ndarray, clock: Any, i: int, *, scalars: bool) -> None:
    is_shared = clock is not None and np.ndim(clock[0]) == 0
    given = clock if is_shared or clock is None else clock[i]
    times = np.arange(len(values)) if clock is None else _plain(given) if _is_tensor(given) else np.asarray(given)
    is_date = times.dtype.kind == "M" or times.dtype == object
    single = values.astype(np.float32)
    if scalars:
        rows, columns = np.nonzero(~np.isnan(values))
        require(np.array_equal(sample.values.numpy().ravel(), single[rows, columns]), "other values")
        require(np.array_equal(sample.positions[:, -1].numpy(), columns), "other channels")
        expected = times[rows]
    else:
        keep = ~np.isnan(values).all(1)
        require(np.array_equal(sample.values.float().numpy(), single[keep]), "other values")
        expected = times[keep]
    if not is_date:
        require(np.array_equal(sample.positions[:, 0].numpy(), expected.astype(np.float64)), "other times")


# Samples and batches


def _sample(trial: Trial) -> None:
    n, c, d = trial.number(1, 5), trial.number(1, 3), trial.number(1, 2)
    arguments: dict[str, Any] = {"values": _array(trial, n, c), "positions": _array(trial, n, d)}
    if trial.chance(0.4):
        arguments["target"] = trial.choose([1, 0.5, [0.5, 1.5], _array(trial, n, 2)])
    if trial.chance(0.3) and n > 1:
        arguments["hidden"] = np.arange(n) == 0
    trial.is_sound = trial.chance(0.1)
    if not trial.is_sound:
        name = trial.choose(["values", "values", "positions", "positions", "target", "hidden", "id"])
        trial.note(name)
        arguments[name] = _changed(trial, arguments.get(name, 1.0))
    sample = romae.Sample(**arguments)
    with answered("a sample"):
        require(np.array_equal(sample.values.float().numpy(), _plain(arguments["values"]).astype(np.float32)), "values")
        require(np.array_equal(sample.positions.double().numpy(), _plain(arguments["positions"])), "positions")
        require(bool(torch.isfinite(sample.values).all() and torch.isfinite(sample.positions).all()), "not finite")
        repr(sample)
    batch = romae.collate([sample])
    with answered("a batch"):
        require(
            sample.hidden is not None or torch.equal(batch.tokens.values.float(), sample.values.float()),
            "a batch with other values",
        )


def _patches(trial: Trial) -> None:
    h, w = trial.number(1, 3) * 4, trial.number(1, 3) * 2
    x: Any = torch.tensor(_array(trial, h, w))
    patch: Any = (4, 2)
    trial.is_sound = trial.chance(0.1)
    if not trial.is_sound:
        if trial.chance(0.5):
            patch = trial.choose(
                [hostile.thing(trial), (0, 1), (3, 2), (-4, 2), (4,), (4, 2, 1), (10**9, 1), "42", (4.0, 2)]
            )
            trial.note(repr(patch)[:60])
        else:
            x = _changed(trial, x)
    tokens = romae.patchify(x, patch)
    with answered("patches"):
        require(np.isclose(float(tokens.double().sum()), float(_plain(x).sum()), equal_nan=True), "other numbers")


# Images and sounds in arrays


def _spoiled(trial: Trial, x: Any, share: float, arguments: dict[str, Any], names: list[str], odd: list[Any]) -> Any:
    """The array changed in a share of the trials, in others one of the arguments; one in ten is sound."""
    trial.is_sound = trial.chance(0.1)
    if trial.is_sound:
        return x
    if trial.chance(share):
        return _changed(trial, x)
    name = trial.choose(names)
    arguments[name] = trial.choose([hostile.thing(trial), *odd])
    trial.note(f"{name}={arguments[name]!r}"[:80])
    return x


def _image(trial: Trial) -> None:
    image: Any = trial.random.integers(0, 256, size=(8, 16, 3)).astype(np.uint8)
    arguments: dict[str, Any] = {"patch": (4, 4), "channels": -1}
    names = ["patch", "channels", "mode", "size", "fit", "mean", "std", "target", "id"]
    odd = [(0, 4), 7, "RGB", (10**9, 10**9), "crop", [1, 2], 0, -1.0, (4, 4, 4)]
    image = _spoiled(trial, image, 0.6, arguments, names, odd)
    sample = romae.from_image(image, **arguments)
    with answered("an image"):
        require(bool(torch.isfinite(sample.values).all()), "pixels that are no numbers")
        if set(arguments) == {"patch", "channels"}:
            pixels = _plain(image)
            kind = np.asarray(image).dtype if not isinstance(image, torch.Tensor) else image.dtype
            scale = {"uint8": 255, "torch.uint8": 255, "uint16": 65535, "torch.uint16": 65535}.get(str(kind), 1)
            require(np.isclose(float(sample.values.double().sum()), pixels.sum() / scale, rtol=1e-3), "other pixels")


def _sound(trial: Trial) -> None:
    sound: Any = (0.1 * trial.random.normal(size=3000)).astype(np.float32)
    arguments: dict[str, Any] = {"rate": 16000, "frames": 16}
    names = ["rate", "rate", "resample_to", "frames", "patch", "channels", "mean", "std", "fill"]
    odd = [0, 1, 10**9, 10**12, -1, 2.5, 44100, True, (0, 0), np.int32(8000)]
    sound = _spoiled(trial, sound, 0.5, arguments, names, odd)
    sample = romae.from_audio(sound, **arguments)
    with answered("a sound"):
        require(bool(torch.isfinite(sample.values).all()), "a spectrogram that is not all numbers")


# What a model answers


@cache
def _tasks() -> tuple[Any, Any]:
    torch.manual_seed(0)
    size = romae.Size(width=8, heads=1, depth=1)
    config = romae.ModelConfig(channels=1, position_dims=1, encoder=size, decoder=size)
    return romae.MaskedReconstruction(config).eval(), romae.Classification(config, n_classes=3).eval()


def _model(trial: Trial) -> None:
    masked, classifier = _tasks()
    lengths = [trial.number(1, 4) for _ in range(trial.number(1, 3))]
    samples: Any = [romae.Sample(_array(trial, n, 1), _array(trial, n, 1), id=i) for i, n in enumerate(lengths)]
    queries: Any = [np.sort(trial.random.normal(size=2)) for _ in lengths]
    verb = trial.choose(["predict_proba", "predict", "embed", "interpolate", "interpolate"])
    arguments: dict[str, Any] = {}
    trial.note(verb)
    trial.is_sound = trial.chance(0.1)
    if not trial.is_sound:
        kind = trial.choose(["samples", "queries", "queries", "numbers", "argument"])
        trial.note(kind)
        if kind == "samples":
            odd = [
                hostile.thing(trial),
                [],
                [None],
                samples[0],
                [romae.Sample([[1.0, 2.0]], [[0.0]])],
                [hostile.thing(trial)],
            ]
            samples = trial.choose([*odd, [romae.Sample([[1.0]], [[0.0, 1.0]])]])
        elif kind == "queries":
            queries = [_changed(trial, queries[0]), *queries[1:]] if trial.chance(0.7) else hostile.thing(trial)
        elif kind == "numbers":
            far, large = trial.choose([1e3, 1e6, 1e15, 1e38, 1e300]), trial.choose([1e3, 1e20, 3e38])
            samples = [romae.Sample([[large]] * n, np.arange(n)[:, None] * far, id=i) for i, n in enumerate(lengths)]
        else:
            arguments["tokens_per_batch"] = hostile.thing(trial)
            trial.note(repr(arguments)[:60])
    if verb == "interpolate":
        answers = romae.interpolate(masked, samples, queries, **arguments)
    elif verb == "embed":
        answers = romae.embed(masked, samples, **arguments)
    else:
        answers = getattr(romae, verb)(classifier, samples, **arguments)
    with answered("answers of a model"):
        require(len(answers) == len(samples), "another number of answers")
        for i, answer in enumerate(answers):
            numbers = np.asarray(answer, dtype=np.float64)
            require(np.isfinite(numbers).all(), "answers that are no numbers")
            if verb == "predict_proba":
                require(abs(numbers.sum() - 1) < 1e-4, "probabilities that do not sum to 1")
            if verb == "interpolate":
                require(
                    len(numbers) == len(_plain(queries[i]) if _is_tensor(queries[i]) else np.asarray(queries[i])),
                    "another number of answers than queries",
                )

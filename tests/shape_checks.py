"""The checker that runs on every signature during the tests; an int is welcome where a float is asked for.

jaxtyping's own wrapper binds the arguments of each call to names and checks them twice, which took a third of the time
of the whole suite. Here beartype checks a function itself: arguments before the call, the result after it, with the
letters of both shared, as there. A function without a shape in its signature needs no letters. Whether a kind of array
suits a hint is asked of jaxtyping once; after that only its sizes are looked at. The code that checks a function is
written at its first call, and once for all the functions that one within another becomes.
"""

import enum
import functools
import inspect
import types
import typing
from collections.abc import Callable
from typing import Any, NamedTuple

import jaxtyping
from beartype import BeartypeConf, beartype
from jaxtyping import _array_types, _decorator, _storage

check = beartype(conf=BeartypeConf(is_pep484_tower=True, violation_type=jaxtyping.TypeCheckError))
_wrapped_by_jaxtyping = jaxtyping.jaxtyped
_asked_of_jaxtyping = _array_types._MetaAbstractArray.__instancecheck__
_config, _calls = jaxtyping.config, _storage._shape_storage


class _Sizes(NamedTuple):
    """Letters, numbers, sums as code, and None for any size; more sizes, called `name`, may stand at `rest`."""

    dims: tuple[str | int | types.CodeType | None, ...]
    rest: int | None
    name: str | None


class _Kind(enum.Enum):
    NEVER = "no such array suits the hint, whatever its sizes"
    UNCLEAR = "jaxtyping is asked each time"


_suits: dict[tuple[Any, type, Any], _Sizes | _Kind] = {}  # by hint, type of the array and type of its numbers
_within_others: dict[tuple[Any, ...], types.FunctionType] = {}  # checks by the code of a function and its hints


def install(package: str) -> None:
    """Check all signatures of a package that is yet to be imported."""
    jaxtyping.jaxtyped = _decorator.jaxtyped = _jaxtyped
    _array_types._MetaAbstractArray.__instancecheck__ = _is_instance
    jaxtyping.install_import_hook(package, "shape_checks.check")


def _jaxtyped(fn: Any = None, *, typechecker: Any) -> Any:
    if fn is None:
        return functools.partial(_jaxtyped, typechecker=typechecker)
    if not isinstance(fn, types.FunctionType) or _runs_later(fn):
        return _wrapped_by_jaxtyping(fn, typechecker=typechecker)  # it comes back with the functions of a class
    hints = {name: _decorator._destring_annotation(hint, fn.__globals__) for name, hint in fn.__annotations__.items()}
    checked = functools.partial(_checked, fn, hints, typechecker)
    return (_with_letters if any(map(_has_shape, hints.values())) else _without_letters)(fn, checked)


def _is_instance(hint: Any, array: Any) -> bool:
    """What jaxtyping says of an array and a hint; the sizes of one that is known to suit are compared here."""
    kind = hint, type(array), getattr(array, "dtype", None)
    sizes = _suits.get(kind)
    if sizes is None:
        is_suited = _asked_of_jaxtyping(hint.dtype[hint.array_type, "..."], array)
        sizes = _suits[kind] = _sizes(hint) if is_suited else _Kind.NEVER
    if sizes is _Kind.NEVER:
        return False
    if sizes is _Kind.UNCLEAR:
        return _asked_of_jaxtyping(hint, array)
    stack = getattr(_calls, "memo_stack", None)
    letters, names = stack[-1][:2] if stack else ({}, {})
    dims, rest, name = sizes
    shape = array.shape
    if rest is None:
        if len(shape) != len(dims):
            return False
    else:
        end = rest + len(shape) - len(dims)
        if end < rest:
            return False
        if name is not None:
            inner = False, shape[rest:end]  # False, as in the letters of jaxtyping: they are not to be repeated
            if names.get(name, inner) != inner:
                return _asked_of_jaxtyping(hint, array)
        shape = shape[:rest] + shape[end:]
    n_known = len(letters)
    for dim, size in zip(dims, shape):  # noqa: B905 (their lengths are alike, and this runs a million times)
        if type(dim) is str:
            if letters.setdefault(dim, size) == size:
                continue
        elif dim is None or dim == size:
            continue
        elif type(dim) is types.CodeType:
            try:
                if eval(dim, {}, letters) == size:
                    continue
            except NameError:  # jaxtyping has the sentence for it
                return _asked_of_jaxtyping(hint, array)
        while len(letters) > n_known:
            letters.popitem()
        return False
    if rest is not None and name is not None:
        names[name] = inner
    return True


def _sizes(hint: Any) -> _Sizes | _Kind:
    dims, rest, name = list(hint.dims), hint.index_variadic, None
    if rest is not None and (inner := dims.pop(rest)) is not _array_types._anonymous_variadic_dim:
        if inner.broadcastable or inner.treepath:
            return _Kind.UNCLEAR
        name = inner.name
    known: list[str | int | types.CodeType | None] = []
    for dim in dims:
        if dim is _array_types._anonymous_dim:
            known.append(None)
        elif dim.broadcastable or getattr(dim, "treepath", None) or "{" in getattr(dim, "elem", ""):
            return _Kind.UNCLEAR
        elif type(dim) is _array_types._SymbolicDim:
            known.append(compile(dim.elem, hint.__name__, "eval"))
        else:
            known.append(dim.size if type(dim) is _array_types._FixedDim else dim.name)
    return _Sizes(tuple(known), rest, name)


def _checked(fn: types.FunctionType, hints: dict[str, Any], typechecker: Any) -> Callable[..., Any]:
    if "<locals>" not in fn.__qualname__:
        return typechecker(_with_annotations(fn, hints, fn.__closure__))
    key = fn.__code__, typechecker, repr(hints)  # the same hint, made twice, is no equal
    if key not in _within_others:
        empty = tuple(types.CellType() for _ in fn.__closure__ or ())  # the first call's variables would never be freed
        _within_others[key] = typechecker(_with_annotations(fn, hints, empty or None))
    known = _within_others[key]
    if "__beartype_func" not in (known.__kwdefaults__ or {}):
        return typechecker(_with_annotations(fn, hints, fn.__closure__))
    checked = types.FunctionType(known.__code__, known.__globals__, known.__name__, None, known.__closure__)
    checked.__kwdefaults__ = known.__kwdefaults__ | {"__beartype_func": fn}
    return checked


def _with_letters(fn: types.FunctionType, make_checked: Callable[[], Callable[..., Any]]) -> Callable[..., Any]:
    checked = None

    @functools.wraps(fn)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        nonlocal checked
        if _config.jaxtyping_disable:
            return fn(*args, **kwargs)
        checked = checked or make_checked()
        try:
            stack = _calls.memo_stack
        except AttributeError:  # the first call in this thread
            stack = _calls.memo_stack = []
        stack.append(({}, {}, {}, {}))
        try:
            return checked(*args, **kwargs)
        finally:
            stack.pop()

    return wrapped


def _without_letters(fn: types.FunctionType, make_checked: Callable[[], Callable[..., Any]]) -> Callable[..., Any]:
    checked = None

    @functools.wraps(fn)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        nonlocal checked
        if _config.jaxtyping_disable:
            return fn(*args, **kwargs)
        checked = checked or make_checked()
        return checked(*args, **kwargs)

    return wrapped


def _runs_later(fn: types.FunctionType) -> bool:
    """Whether a call only makes a generator or a coroutine; its arguments are checked at the call all the same."""
    return inspect.isgeneratorfunction(fn) or inspect.iscoroutinefunction(fn) or inspect.isasyncgenfunction(fn)


def _with_annotations(fn: types.FunctionType, hints: dict[str, Any], closure: Any) -> types.FunctionType:
    """The same function with the annotations that could be read; others are not told what was found."""
    copy = types.FunctionType(fn.__code__, fn.__globals__, fn.__name__, fn.__defaults__, closure)
    functools.update_wrapper(copy, fn)
    del copy.__wrapped__
    copy.__kwdefaults__, copy.__annotations__ = fn.__kwdefaults__, hints
    return copy


def _has_shape(hint: Any) -> bool:
    if isinstance(hint, list):  # the arguments of a Callable
        return any(map(_has_shape, hint))
    if isinstance(hint, typing.TypeVar):
        return any(map(_has_shape, (hint.__bound__, *hint.__constraints__)))
    is_shape = inspect.isclass(hint) and issubclass(hint, jaxtyping.AbstractArray)
    return is_shape or any(map(_has_shape, typing.get_args(hint)))

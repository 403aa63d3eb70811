"""The checker that runs on every signature during the tests; an int is welcome where a float is asked for.

jaxtyping's own wrapper binds the arguments of each call to names and checks them twice, which took a third of the time
of the whole suite. Here beartype checks a function itself: arguments before the call, the result after it, with the
letters of both shared, as there. A function without a shape in its signature needs no letters. Whether a kind of array
suits a hint is asked of jaxtyping once; after that only its sizes are looked at.
"""

import functools
import inspect
import types
import typing
from collections.abc import Callable
from typing import Any

import jaxtyping
from beartype import BeartypeConf, beartype
from jaxtyping import _array_types, _decorator, _storage

check = beartype(conf=BeartypeConf(is_pep484_tower=True, violation_type=jaxtyping.TypeCheckError))
_wrapped_by_jaxtyping = jaxtyping.jaxtyped
_asked_of_jaxtyping = _array_types._MetaAbstractArray.__instancecheck__
_suits: dict[tuple[Any, type, Any], tuple[str | int | None, ...] | None] = {}  # hint, types of array and numbers: sizes


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
    checked = typechecker(_with_annotations(fn, hints))
    return (_with_letters if any(map(_has_shape, hints.values())) else _without_letters)(fn, checked)


def _is_instance(hint: Any, array: Any) -> bool:
    """What jaxtyping says of an array and a hint; the sizes of one that is known to suit are compared here."""
    kind = hint, type(array), getattr(array, "dtype", None)
    if kind not in _suits:
        if is_one := _asked_of_jaxtyping(hint, array):
            _suits[kind] = _plain_dims(hint)
        return is_one
    if (dims := _suits[kind]) is None:
        return _asked_of_jaxtyping(hint, array)
    shape = array.shape
    if len(shape) != len(dims):
        return False
    letters, new = _storage.get_shape_memo()[0], []
    for dim, size in zip(dims, shape, strict=True):
        if type(dim) is str and dim not in letters:
            letters[dim] = size
            new.append(dim)
        elif dim is not None and (dim if type(dim) is int else letters[dim]) != size:
            for letter in new:
                del letters[letter]
            return False
    return True


def _plain_dims(hint: Any) -> tuple[str | int | None, ...] | None:
    """The letters and numbers of a shape, None for any size; nothing where it says more than that."""
    dims: list[str | int | None] = []
    for dim in hint.dims if hint.index_variadic is None else [...]:
        if dim is _array_types._anonymous_dim:
            dims.append(None)
        elif type(dim) is _array_types._FixedDim and not dim.broadcastable:
            dims.append(dim.size)
        elif type(dim) is _array_types._NamedDim and not dim.broadcastable and not dim.treepath:
            dims.append(dim.name)
        else:
            return None
    return tuple(dims)


def _with_letters(fn: Callable[..., Any], checked: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(fn)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        if jaxtyping.config.jaxtyping_disable:
            return fn(*args, **kwargs)
        _storage.push_shape_memo({})
        try:
            return checked(*args, **kwargs)
        finally:
            _storage.pop_shape_memo()

    return wrapped


def _without_letters(fn: Callable[..., Any], checked: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(fn)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        return (fn if jaxtyping.config.jaxtyping_disable else checked)(*args, **kwargs)

    return wrapped


def _runs_later(fn: types.FunctionType) -> bool:
    """Whether a call only makes a generator or a coroutine; its arguments are checked at the call all the same."""
    return inspect.isgeneratorfunction(fn) or inspect.iscoroutinefunction(fn) or inspect.isasyncgenfunction(fn)


def _with_annotations(fn: types.FunctionType, hints: dict[str, Any]) -> types.FunctionType:
    """The same function with the annotations that could be read; others are not told what was found."""
    copy = types.FunctionType(fn.__code__, fn.__globals__, fn.__name__, fn.__defaults__, fn.__closure__)
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

"""The checker that runs on every signature during the tests; an int is welcome where a float is asked for.

jaxtyping's own wrapper binds the arguments of each call to names and checks them twice, which took a third of the time
of the whole suite. Here beartype checks a function itself: arguments before the call, the result after it, with the
letters of both shared, as there. A function without a shape in its signature needs no letters.
"""

import functools
import inspect
import types
import typing
from collections.abc import Callable
from typing import Any

import jaxtyping
from beartype import BeartypeConf, beartype
from jaxtyping import _decorator, _storage

check = beartype(conf=BeartypeConf(is_pep484_tower=True, violation_type=jaxtyping.TypeCheckError))
_wrapped_by_jaxtyping = jaxtyping.jaxtyped


def install(package: str) -> None:
    """Check all signatures of a package that is yet to be imported."""
    jaxtyping.jaxtyped = _decorator.jaxtyped = _jaxtyped
    jaxtyping.install_import_hook(package, "shape_checks.check")


def _jaxtyped(fn: Any = None, *, typechecker: Any) -> Any:
    if fn is None:
        return functools.partial(_jaxtyped, typechecker=typechecker)
    if not isinstance(fn, types.FunctionType) or _runs_later(fn):
        return _wrapped_by_jaxtyping(fn, typechecker=typechecker)  # it comes back with the functions of a class
    hints = {name: _decorator._destring_annotation(hint, fn.__globals__) for name, hint in fn.__annotations__.items()}
    checked = typechecker(_with_annotations(fn, hints))
    return (_with_letters if any(map(_has_shape, hints.values())) else _without_letters)(fn, checked)


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

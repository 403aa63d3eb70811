"""The docstring of a public name is a page: every parameter is described, and its examples run.

Docstrings are in NumPy's style: a line, then sections under a row of dashes. Classes describe in theirs what they are
made with. Methods and properties that a class has from other libraries are theirs to describe.
"""

import ast
import dataclasses
import doctest
import inspect
import re
import textwrap
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch

import romae

SECTION = re.compile(r"^(?P<title>\w[\w ]*)\n-{3,}\n", re.MULTILINE)
SECTIONS = (
    "Parameters",
    "Attributes",
    "Returns",
    "Yields",
    "Raises",
    "Warns",
    "See Also",
    "Notes",
    "Examples",
)  # in this order
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


class Page(NamedTuple):
    """A docstring in its parts: the first line, and the text of each section by its title."""

    summary: str
    sections: dict[str, str]

    @property
    def parameters(self) -> list[str]:
        return described(self.sections.get("Parameters", ""))


def parsed(docstring: str) -> Page:
    titles = [found["title"] for found in SECTION.finditer(docstring)]
    introduction, *rest = SECTION.split(docstring)
    summary, _, more = introduction.strip().partition("\n")
    assert not more or more.startswith("\n"), f"one line, then an empty one: {summary}"
    return Page(summary, dict(zip(titles, rest[1::2], strict=True)))


def described(section: str) -> list[str]:
    """The names that a section of parameters describes: those of the lines that are not indented."""
    heads = [line for line in section.splitlines() if line and not line.startswith(" ")]
    return [name.strip() for head in heads for name in head.partition(" : ")[0].split(",")]


def expected_parameters(function: Callable[..., Any]) -> list[str]:
    """The parameters of a signature as they are written in a docstring."""
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    parameters = list(inspect.signature(function).parameters.values())
    if not isinstance(function, type) and parameters and parameters[0].name in ("self", "cls"):
        parameters = parameters[1:]
    return [stars.get(one.kind, "") + one.name for one in parameters]


def refuses(function: Callable[..., Any]) -> bool:
    """Whether a function raises an error itself, or has its input checked by another one."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(function))))
    except (OSError, TypeError):  # nobody wrote it, as with the __init__ of a dataclass
        return False
    calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    names = [call.id if isinstance(call, ast.Name) else getattr(call, "attr", "") for call in calls]
    is_checked = any(re.match(r"_?require_|check_types", name) for name in names)
    return is_checked or any(isinstance(node, ast.Raise) for node in ast.walk(tree))


PUBLIC = {name: getattr(romae, name) for name in romae.__all__ if callable(getattr(romae, name))}
CLASSES = {name: one for name, one in PUBLIC.items() if inspect.isclass(one)}
FUNCTIONS = {name: one for name, one in PUBLIC.items() if name not in CLASSES}


def members(cls: type) -> dict[str, Any]:
    """The public methods and properties of a class that are defined in romae; those of a public base are its own."""
    found = {}
    for name in dir(cls):
        raw = inspect.getattr_static(cls, name)
        owner = next(base for base in cls.__mro__ if name in vars(base))
        is_ours = owner.__module__.partition(".")[0] == "romae" and (owner is cls or owner not in CLASSES.values())
        is_method = inspect.isfunction(getattr(raw, "__func__", raw))
        is_property = isinstance(raw, property) or type(raw).__name__ == "cached_property"
        if is_ours and (not name.startswith("_") or name == "__call__") and (is_method or is_property):
            found[name] = raw
    return found


MEMBERS = {f"{name}.{own}": one for name, cls in CLASSES.items() for own, one in members(cls).items()}
METHODS = {name: getattr(one, "__func__", one) for name, one in MEMBERS.items() if not hasattr(one, "fget")}
METHODS = {name: one for name, one in METHODS.items() if inspect.isfunction(one)}


def page_of(name: str) -> Page:
    thing: Any = romae
    for part in name.split("."):
        thing = getattr(thing, part)
    docstring = inspect.getdoc(thing)
    assert docstring and not docstring.startswith(f"{name}("), f"{name} has no docstring"
    return parsed(docstring)


# Each of the next four looks at hundreds of names, which as tests of their own would take seconds to hand out.


def test_every_public_name_has_a_line():
    for name in [*PUBLIC, *MEMBERS]:
        cls, _, own = name.rpartition(".")
        docstring = inspect.getdoc(inspect.getattr_static(CLASSES[cls], own) if cls else PUBLIC[name])
        assert docstring, f"{name} has no docstring"
        page = parsed(docstring)
        assert page.summary.endswith((".", "?", ":")) or "." in page.summary, f"{name}: a sentence: {page.summary}"
        wrong = [title for title in page.sections if title not in SECTIONS]
        assert not wrong, f"{name} has the sections {wrong}"
        order = [SECTIONS.index(title) for title in page.sections]
        assert order == sorted(order), f"the sections of {name} are in the order {list(page.sections)}"


def test_exactly_the_parameters_are_described():
    for name in [*PUBLIC, *METHODS]:
        thing = PUBLIC.get(name) or METHODS[name]
        page = page_of(name)
        if isinstance(thing, type) and (issubclass(thing, Exception) or getattr(thing, "_is_protocol", False)):
            assert page.parameters == [], name
        elif hasattr(thing, "_fields"):  # a named tuple has no __init__ of its own; the site knows its attributes alone
            assert described(page.sections["Attributes"]) == expected_parameters(thing), name
        else:
            assert page.parameters == expected_parameters(thing), name


def test_what_comes_back_is_described():
    for name in [*FUNCTIONS, *METHODS]:
        function = FUNCTIONS.get(name) or METHODS[name]
        has_result = inspect.signature(function).return_annotation not in (None, "None")
        sections = page_of(name).sections
        assert ("Returns" in sections or "Yields" in sections) == has_result, name


def test_what_is_refused_is_described():
    for name in [*PUBLIC, *METHODS]:
        thing = PUBLIC.get(name) or METHODS[name]
        checks = [thing]
        if isinstance(thing, type):
            checks = [getattr(thing, one) for one in ("__init__", "__post_init__") if hasattr(thing, one)]
            checks = [one for one in checks if getattr(one, "__module__", "").startswith("romae.")]
        is_said = "Raises" in page_of(name).sections
        assert is_said or not any(map(refuses, checks)), f"{name} raises, and does not say so"


@pytest.mark.parametrize("name", PUBLIC)
def test_the_examples_run(name, tmp_path, monkeypatch, without_shape_checks):
    """Each in a namespace and a folder of its own, so that it can be copied as it stands."""
    for module in ("PIL", "soundfile"):
        pytest.importorskip(module, reason="the examples need pip install 'romae[audio,images]'")
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    example = page_of(name).sections.get("Examples", "")
    test = doctest.DocTestParser().get_doctest(example, {}, name, None, 0)
    assert test.examples, f"{name} has no example"
    assert any(one.want for one in test.examples), f"the example of {name} shows nothing"
    said: list[str] = []
    outcome = doctest.DocTestRunner(optionflags=OPTIONS).run(test, out=said.append)
    assert outcome.failed == 0, "".join(said)


def test_a_page_that_lacks_a_parameter_is_found():
    def area(width: float, height: float) -> float:
        """The area of a rectangle.

        Parameters
        ----------
        width : float
            In metres.

        Returns
        -------
        float
            In square metres.
        """
        return width * height

    page = parsed(inspect.getdoc(area) or "")
    assert page.summary == "The area of a rectangle."
    assert page.parameters == ["width"] != expected_parameters(area)
    assert list(page.sections) == ["Parameters", "Returns"]


def test_what_raises_is_seen():
    @dataclasses.dataclass
    class Share:
        ratio: float

        def __post_init__(self) -> None:
            if not 0 < self.ratio < 1:
                raise ValueError("a ratio lies between 0 and 1")

    assert refuses(Share.__post_init__) and not refuses(Share.__init__) and refuses(romae.Loader.plan)
    assert not refuses(romae.SampleSet.map)

"""What people install: a wheel that works alone, extras that say how to get them, and one list of public names."""

import ast
import inspect
import json
import os
import re
import runpy
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from importlib.metadata import packages_distributions
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import romae
from messages import refused
from romae.extras import EXTRAS

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "romae"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


REPOSITORY = "https://example.org/owner/romae"


# What a package index shows


def test_links_and_pictures_of_the_description_lead_to_the_repository():
    hook = SimpleNamespace(**runpy.run_path(str(ROOT / "hatch_build.py")))
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = hook.with_absolute_links(text, REPOSITORY, romae.__version__)
    relative = [found["path"] for found in hook.LINK.finditer(hook.CODE.sub("", text))]
    assert len(relative) > 20 and not hook.LINK.search(hook.CODE.sub("", shown))
    assert hook.CODE.findall(shown) == hook.CODE.findall(text)
    pictures = re.findall(r"!\[[^\]]*\]\((\S+)\)", shown)
    assert len(pictures) >= 2 and all(one.startswith(f"{REPOSITORY}/raw/v{romae.__version__}/") for one in pictures)
    assert hook.with_absolute_links(shown, REPOSITORY, "1") == shown
    assert hook.with_absolute_links("`[a](b)` [c](https://d) [e](#f)", REPOSITORY, "1") == (
        "`[a](b)` [c](https://d) [e](#f)"
    )


def test_no_addresses_are_made_up_where_the_repository_is_not_named():
    hook = SimpleNamespace(**runpy.run_path(str(ROOT / "hatch_build.py")))
    assert list(hook.addresses(None, "1")) == ["Paper"]
    assert all(one.startswith("https://") for one in hook.addresses(REPOSITORY, "1").values())


# Built and installed

# Prints where the package is, and what two commands say.
ALONE = """
import contextlib, io, json, sys
import romae
from romae.cli.main import main

said = [romae.__file__]
for words in (["data", "list", "--json"], ["list", "--json"]):
    sys.argv = ["romae", *words]
    with contextlib.redirect_stdout(io.StringIO()) as printed, contextlib.suppress(SystemExit):
        main()
    said.append(printed.getvalue())
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """A folder with an sdist and the wheel that is made from it."""
    for tool in ("build", "hatchling"):
        if find_spec(tool) is None:
            pytest.skip(f"needs {tool}: pip install 'romae[dev]'")
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    env = os.environ | {"ROMAE_REPOSITORY": REPOSITORY}
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.mark.slow
def test_the_wheel_holds_the_package_and_its_types_and_nothing_else(built):
    (wheel,) = built.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names} == {"romae", f"romae-{romae.__version__}.dist-info"}
    assert "romae/py.typed" in names and not [name for name in names if "test" in name]
    on_disk = [path for path in SOURCE.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert {f"romae/{path.relative_to(SOURCE).as_posix()}" for path in on_disk} <= set(names)


@pytest.mark.slow
def test_the_wheel_says_where_everything_is(built):
    (wheel,) = built.glob("*.whl")
    metadata = zipfile.ZipFile(wheel).read(f"romae-{romae.__version__}.dist-info/METADATA").decode()
    assert f"Project-URL: Source, {REPOSITORY}" in metadata and "License-Expression: MIT" in metadata
    assert f"]({REPOSITORY}/raw/v{romae.__version__}/docs/images/filled.png)" in metadata


@pytest.mark.slow
def test_the_sdist_holds_what_the_project_lists(built):
    (sdist,) = built.glob("*.tar.gz")
    found = {name.split("/")[1] for name in tarfile.open(sdist).getnames()}
    assert found >= {
        "src",
        "tests",
        "docs",
        "results",
        "mkdocs.yml",
        "README.md",
        "LICENSE",
        "CHANGELOG.md",
        "COMPARISON.md",
        "hatch_build.py",
        "pyproject.toml",
    }
    assert found <= {path.name for path in ROOT.iterdir()} | {"PKG-INFO"}
    assert not found & {"demo", "dist", ".git"}


@pytest.mark.slow
def test_the_wheel_alone_gives_a_working_command_line(built, tmp_path):
    """The environment has the wheel of its own; what it depends on is borrowed, which saves minutes."""
    (wheel,) = built.glob("*.whl")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    install = ["install", "--quiet", "--no-deps", "--no-index", str(wheel)]
    subprocess.run([sys.executable, "-m", "pip", "--python", python, *install], check=True)
    borrowed = sysconfig.get_path("purelib")
    (own,) = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    (own / "borrowed.pth").write_text(borrowed + "\n")  # a path alone: an editable romae there is not followed

    alone = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def said(*command: str | Path) -> str:
        return subprocess.run(command, check=True, capture_output=True, text=True, cwd=tmp_path, env=alone).stdout

    command = tmp_path / "venv" / "bin" / "romae"
    assert said(command, "--version") == f"romae {romae.__version__}\n"
    place, datasets, experiments = json.loads(said(python, "-c", ALONE))
    assert Path(place).is_relative_to(own)
    assert {"name", "here", "title", "licence"} == set(json.loads(datasets)["datasets"][0])
    assert len(json.loads(experiments)) > 10


# Dependencies


def imported(path: Path) -> set[str]:
    """The packages of others that a file imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add((node.module or "").split(".")[0])
    return found - set(sys.stdlib_module_names) - {"romae"}


def required(lines: list[str]) -> set[str]:
    return {re.match(r"[\w-]+", line)[0].lower().replace("_", "-") for line in lines}


def test_what_is_imported_is_declared():
    extras = PROJECT["optional-dependencies"]
    declared = required(PROJECT["dependencies"]) | {name for extra in EXTRAS for name in required(extras[extra])}
    declared |= {"triton", "scipy"}  # come with torch where there is a GPU, and with scikit-learn
    provided = packages_distributions()
    for path in SOURCE.rglob("*.py"):
        for module in imported(path):
            names = {name.lower().replace("_", "-") for name in provided.get(module, [module])}
            assert names & declared, f"{path.name} imports {module}, which pyproject.toml does not list"


def test_the_extras_in_the_code_are_those_of_the_project():
    extras = PROJECT["optional-dependencies"]
    for name, modules in EXTRAS.items():
        declared = required(extras[name])
        if "romae" in declared:  # the extra has others in it
            declared |= {
                one
                for other in re.findall(r"romae\[(.*?)\]", extras[name][0])[0].split(",")
                for one in required(extras[other])
            }
        assert {"pillow" if module == "PIL" else module for module in modules} <= declared, name


@pytest.mark.parametrize(
    ("module", "extra", "call"),
    [
        ("PIL", "images", lambda folder: romae.from_image(folder / "photo.png", (4, 4))),
        ("PIL", "images", lambda folder: romae.from_video(folder / "clip.gif", (1, 4, 4))),
        ("PIL", "images", lambda folder: romae.from_image_folder(folder, (4, 4))),
        ("soundfile", "audio", lambda folder: romae.from_audio(folder / "clip.wav")),
        ("soundfile", "audio", lambda folder: romae.from_audio_folder(folder)),
    ],
    ids=["image", "video", "images", "sound", "sounds"],
)
def test_an_extra_that_is_missing_says_how_to_get_it(tmp_path, monkeypatch, module, extra, call):
    (tmp_path / "kind").mkdir()
    for name in ("one.png", "one.wav"):
        (tmp_path / "kind" / name).touch()
    for name in [name for name in sys.modules if name.split(".")[0] == module]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    with refused(ImportError, f"pip install 'romae[{extra}]'") as caught:
        list(call(tmp_path))
    assert "\n" not in str(caught.value) and extra in PROJECT["optional-dependencies"]


def test_without_extras_arrays_still_work(monkeypatch):
    for module in ("PIL", "soundfile"):
        monkeypatch.setitem(sys.modules, module, None)
    assert len(romae.from_image(np.zeros((8, 8)), (4, 4))) == 4
    assert len(romae.from_audio(np.zeros(16000), 16000, frames=96)) == 6 * 8


# Public names


def test_type_checkers_see_the_public_names_and_no_others():
    tree = ast.parse((SOURCE / "__init__.py").read_text(encoding="utf-8"))
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    seen = {alias.asname: (node.module, alias.name) for node in block.body for alias in node.names}
    assert seen == {name: (f"romae.{home}", name) for name, home in romae._HOME.items()}
    assert romae.__all__ == ["__version__", *romae._HOME] and dir(romae) == sorted(romae.__all__)


def is_explained(found: object) -> bool:
    """Whether a class or function has a docstring of its own; a dataclass without one gets its signature."""
    text = vars(found).get("__doc__") if inspect.isclass(found) else inspect.getdoc(found)
    return bool(text) and not text.startswith(f"{found.__name__}(")


def test_every_public_name_has_a_docstring_and_a_place_in_the_documentation():
    pages = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "docs").rglob("*.md"))
    for name in set(romae.__all__) - {"__version__"}:
        found = getattr(romae, name)
        assert not callable(found) or is_explained(found), name
        assert re.search(rf"`[^`\n]*\b{name}\b|\bromae\.{name}\b", pages), f"{name} is on no page of docs/"


def test_a_name_that_is_not_there_is_refused_with_those_that_are():
    with refused(AttributeError, "'Token'", "Tokens"):
        romae.Token  # noqa: B018

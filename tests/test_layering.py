"""The architecture holds: a file imports only files above it, and the core needs torch and numpy alone."""

import ast
import builtins
import dis
import functools
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from types import CodeType

import pytest

import romae

SOURCE = Path(romae.__file__).parent
ARCHITECTURE = SOURCE.parents[1] / "docs" / "architecture.md"


@functools.cache
def table() -> list[str]:
    """The places of the table of layers, from the top: files, and folders whose files may import each other."""
    rows = ARCHITECTURE.read_text(encoding="utf-8").split("| file |")[1].split("\n\n")[0].splitlines()[2:]
    return [place for row in rows for place in re.findall(r"[\w/]+(?:\.py|/)", row.split("|")[1])]


def doors() -> set[tuple[str, str]]:
    """The imports that go back up and are explained below the table."""
    text = ARCHITECTURE.read_text(encoding="utf-8")
    return set(re.findall(r"([\w/]+\.py) imports ([\w/]+\.py) when", text))


def place_of(path: Path) -> str:
    """The entry of the table that a source file belongs to."""
    name = path.relative_to(SOURCE).as_posix()
    return next((place for place in table() if name == place or place.endswith("/") and name.startswith(place)), name)


def source_files() -> list[Path]:
    """All files but those that only name a package or start the program."""
    plain = [path for path in SOURCE.rglob("*.py") if path.name not in ("__init__.py", "__main__.py")]
    return plain + [path for path in SOURCE.rglob("__init__.py") if path.parent.name in ("datasets", "benchmark")]


def called(call: ast.Call) -> str:
    return getattr(call.func, "attr", "") or getattr(call.func, "id", "")


def imported_names(path: Path) -> Iterator[str]:
    """What a file imports, at its top or within a function, with the module before it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the layer"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and "import_module" in called(node) and node.args:
            name = str(getattr(node.args[0], "value", ""))  # one put together at run time is not followed
            if not SOURCE.parent.joinpath(*name.split(".")).is_dir():  # nor a folder, whose files are found by name
                yield name


def imported_files(path: Path) -> set[Path]:
    """The files of the package that a file imports, through the public names of `romae` as well."""
    imported = set()
    for name in imported_names(path):
        first, *rest = name.split(".")
        if first != "romae" or rest == ["__version__"]:
            continue
        if len(rest) == 1 and rest[0] in romae._HOME:
            rest = romae._HOME[rest[0]].split(".")
        for n in range(len(rest), -1, -1):  # the longest beginning that is a file; the rest are names in it
            place = SOURCE.joinpath(*rest[:n])
            if (file := place.with_suffix(".py")).is_file() or (file := place / "__init__.py").is_file():
                imported.add(file)
                break
    return imported


def steps_back() -> tuple[list[str], set[tuple[str, str]]]:
    """The imports that go against the order of the table, and those among the doors that are used."""
    order, allowed, used, back = {place: i for i, place in enumerate(table())}, doors(), set(), []
    for path in source_files():
        here = place_of(path)
        for other in map(place_of, imported_files(path)):
            if (here, other) in allowed:
                used.add((here, other))
            elif other not in order:
                back.append(f"{here} imports {other}, which the table does not name")
            elif order[other] >= order[here] and not (here == other and here.endswith("/")):
                back.append(f"{here} imports {other}, which stands below it in docs/architecture.md")
    return back, used


def test_the_table_names_every_file_once_and_no_other():
    places = table()
    assert len(places) == len(set(places)) > 40
    assert all((SOURCE / place).exists() for place in places)
    assert [path for path in source_files() if place_of(path) not in places] == []


def test_the_files_of_a_folder_stand_together():
    """So a folder imports only folders above it."""
    folders = [place.split("/")[0] for place in table() if "/" in place]
    assert [folder for folder, _ in groupby(folders)] == list(dict.fromkeys(folders))


def test_a_file_imports_only_files_above_it():
    back, used = steps_back()
    assert back == []
    assert used == doors()  # a door that nobody uses is closed


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("config.py", "def f():\n    from romae.cli import main\n"),
        ("tokens/packed.py", "import romae.cli.main\n"),
        ("tokens/layout.py", "from romae.tokens.packed import take_rows\n"),  # its next neighbour, in its own row
        ("tokens/layout.py", "from romae.tokens.layout import Layout\n"),
        ("data/store.py", "from romae import train\n"),  # a public name is where it lives
        ("data/store.py", "from romae.data import of_the_package\n"),
        ("data/store.py", "import romae\n"),
        ("data/store.py", "module = importlib.import_module('romae.training.loop')\n"),
    ],
)
def test_an_import_against_the_order_would_be_seen(file, text, tmp_path, monkeypatch):
    """The test above can fail, however the import is spelt."""
    for place in ["__init__.py", "data/__init__.py", *(place for place in table() if place.endswith(".py"))]:
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).touch()
    monkeypatch.setattr("test_layering.SOURCE", tmp_path)
    assert steps_back()[0] == []
    (tmp_path / file).write_text(text, encoding="utf-8")
    (seen,) = steps_back()[0]
    assert seen.startswith(f"{file} imports ")


def test_an_import_along_the_order_is_no_offence(tmp_path, monkeypatch):
    for place in (place for place in table() if place.endswith(".py")):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).touch()
    text = "from romae import train\nfrom romae.tokens import packed\nimport romae.tokens.layout\n"
    (tmp_path / "cli" / "main.py").write_text(text, encoding="utf-8")
    monkeypatch.setattr("test_layering.SOURCE", tmp_path)
    assert len(imported_files(tmp_path / "cli" / "main.py")) == 3 and steps_back()[0] == []


def looked_up(code: CodeType) -> Iterator[str]:
    """The names that the functions of a file look up beyond their own variables."""
    yield from (one.argval for one in dis.get_instructions(code) if one.opname == "LOAD_GLOBAL")
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from looked_up(inner)


def test_every_name_is_known_in_its_file():
    """The linters are told not to look, since the names of shapes in annotations would be unknown to them."""
    for path in SOURCE.rglob("*.py"):
        tree = ast.parse(path.read_text())
        tree.body = [
            one for one in tree.body if not (isinstance(one, ast.If) and "TYPE_CHECKING" in ast.dump(one.test))
        ]
        code = compile(tree, str(path), "exec")
        known = {one.argval for one in dis.get_instructions(code) if one.opname == "STORE_NAME"}
        assert set(looked_up(code)) - known - {*dir(builtins), "__file__", "__path__"} == set(), path


def test_the_core_imports_torch_numpy_and_jaxtyping_alone():
    """What torch loads by itself, as it does numpy, says nothing; of what is looked for here it loads nothing."""
    heavy = "accelerate pandas pyarrow sklearn scipy matplotlib rich typer safetensors huggingface_hub".split()
    code = f"""
import sys, torch
print(sorted(set({heavy}) & set(sys.modules)))
import romae.model.tasks
print(sorted(set({heavy}) & set(sys.modules)))
import romae.data.tables, safetensors
print(sorted(set({heavy}) & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    torch_alone, core, more = map(ast.literal_eval, done.stdout.splitlines())
    assert torch_alone == core == [] and "safetensors" in more  # which would have been seen
    own = {
        name.split(".")[0]
        for path in SOURCE.rglob("*.py")
        if path.relative_to(SOURCE).parts[0] in ("tokens", "model") and "kernels" not in path.parts
        for name in imported_at_the_top(path)
    }
    assert own - set(sys.stdlib_module_names) == {"torch", "numpy", "jaxtyping", "romae"}


def imported_at_the_top(path: Path) -> set[str]:
    """The modules that a file imports as soon as it is imported."""
    names = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
    return names


def test_answers_do_not_load_the_compiler_of_torch(tmp_path):
    """It takes longer than all of romae, and only training needs it (torch's optimisers load it)."""
    code = f"""
import sys, torch, romae
size = romae.Size(width=24, heads=2, depth=1)
config = romae.ModelConfig(channels=1, position_dims=2, encoder=size, decoder=size, kinds=2)
for made in (romae.Classification(config, 3), romae.MaskedReconstruction(config)):
    made.save("{tmp_path}/model")
    romae.load("{tmp_path}/model")
task = romae.Classification(romae.ModelConfig(channels=1, position_dims=1, encoder=size, decoder=size), 3)
romae.predict_proba(task, [romae.Sample(torch.zeros(n, 1), torch.arange(n).float()[:, None]) for n in (5, 7)])
import romae.cli.main, romae.experiments.report
print("torch._dynamo" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_no_file_is_named_after_nothing():
    assert not {path.stem for path in SOURCE.rglob("*.py")} & {"utils", "helpers", "misc", "common"}


def test_every_public_name_is_there():
    for name in romae.__all__:
        assert getattr(romae, name) is not None

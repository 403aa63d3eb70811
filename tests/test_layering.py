"""The architecture holds: a file imports only files above it, and the core needs torch alone."""

import ast
import builtins
import dis
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType

import romae

SOURCE = Path(romae.__file__).parent
ORDER = """
config writing layout ragged arrays tokens capacity patches augmentation rope alignment by_length ungraphed
fused_attention fused_rotation attention windowed model masking tasks data datasets metrics baselines minirocket seeds
train_config refusals optim checkpoint reference progress runs resuming guards preparation sharding steps evaluation
feeding training inference stages jobs answers views results recipe card estimators rows paper plots page charts
figure_charts result_blocks report run_page demo benchmark cli_tables cli_runs cli_data cli_jobs cli_recipes cli recipes
""".split()
# The one door downwards: a method that saves, found where people look for it.
DOORS = {("tasks", "checkpoint")}


def layer(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported_layers(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the layer"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        found |= {name.split(".")[1] for name in names if name.startswith("romae.")}
    return found - {"__version__"}


def test_every_file_has_its_layer():
    assert {layer(path) for path in SOURCE.rglob("*.py")} - {"__init__", "__main__"} <= set(ORDER)


def test_the_table_of_the_architecture_names_every_file():
    table = (SOURCE.parents[1] / "docs" / "architecture.md").read_text().split("| file |")[1].split("\n\n")[0]
    for name in ORDER:
        assert f"{name}.py" in table or f"{name}/" in table, name


def test_a_file_imports_only_files_above_it():
    for path in SOURCE.rglob("*.py"):
        here = layer(path)
        if here in ("__init__", "__main__"):
            continue
        for other in imported_layers(path):
            is_above = ORDER.index(other) < ORDER.index(here) or (other == here and path.parent != SOURCE)
            assert is_above or (here, other) in DOORS, f"{path.name} imports {other}, which stands below it"


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


def test_the_core_imports_torch_and_jaxtyping_alone():
    heavy = "numpy accelerate pandas pyarrow sklearn scipy matplotlib rich typer safetensors huggingface_hub".split()
    code = f"""
import sys, torch
before = set(sys.modules)
import romae.tasks
print(sorted(set({heavy}) & (set(sys.modules) - before)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_answers_do_not_load_the_compiler_of_torch():
    """It takes longer than all of romae, and only training needs it (torch's optimisers load it)."""
    code = """
import sys, torch, romae
size = romae.Size(width=24, heads=2, depth=1)
task = romae.Classification(romae.ModelConfig(channels=1, position_dims=1, encoder=size, decoder=size), 3)
romae.predict_proba(task, [romae.Sample(torch.zeros(n, 1), torch.arange(n).float()[:, None]) for n in (5, 7)])
import romae.cli, romae.report
print("torch._dynamo" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_no_file_is_named_after_nothing():
    assert not {path.stem for path in SOURCE.rglob("*.py")} & {"utils", "helpers", "misc", "common"}


def test_every_public_name_is_there():
    for name in romae.__all__:
        assert getattr(romae, name) is not None

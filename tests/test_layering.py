"""The architecture holds: a file imports only files above it, and the core needs torch alone."""

import ast
import subprocess
import sys
from pathlib import Path

import romae

SOURCE = Path(romae.__file__).parent
ORDER = """
config layout tokens capacity patches augmentation rope alignment fused_attention fused_rotation attention windowed
model masking tasks data datasets metrics baselines minirocket seeds train_config optim checkpoint reference progress
runs guards preparation sharding steps evaluation feeding training inference stages jobs answers views results recipe card
estimators rows paper plots page charts figure_charts result_blocks report run_page demo benchmark cli_tables cli_data
cli_recipes cli recipes
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


def test_a_file_imports_only_files_above_it():
    for path in SOURCE.rglob("*.py"):
        here = layer(path)
        if here in ("__init__", "__main__"):
            continue
        for other in imported_layers(path):
            is_above = ORDER.index(other) < ORDER.index(here) or (other == here and path.parent != SOURCE)
            assert is_above or (here, other) in DOORS, f"{path.name} imports {other}, which stands below it"


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


def test_no_file_is_named_after_nothing():
    assert not {path.stem for path in SOURCE.rglob("*.py")} & {"utils", "helpers", "misc", "common"}


def test_every_public_name_is_there():
    for name in romae.__all__:
        assert getattr(romae, name) is not None

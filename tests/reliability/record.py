"""Where the campaigns keep what they found: one section each of results/reliability.json."""

import json
import platform
from importlib.metadata import version
from pathlib import Path

from romae.files import write_whole_text

RESULTS = Path(__file__).resolve().parents[2] / "results" / "reliability.json"


def keep(campaign: str, figures: dict[str, object], file: Path = RESULTS) -> None:
    """Writes the figures of one campaign into the file and leaves those of the others as they are."""
    kept = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    where = {"machine": platform.machine(), "python": platform.python_version(), "torch": version("torch")}
    kept[campaign] = {**figures, "made_on": where}
    write_whole_text(file, json.dumps(kept, indent=2, sort_keys=True) + "\n")

"""Where the campaigns keep what they found: one section each of results/reliability.json.

Run by itself, it brings docs/reliability.md up to date.
"""

import json
import platform
import re
from importlib.metadata import version
from pathlib import Path
from typing import Any

from romae.files import write_whole_text

ROOT = Path(__file__).resolve().parents[2]
RESULTS, PAGE = ROOT / "results" / "reliability.json", ROOT / "docs" / "reliability.md"


def keep(campaign: str, figures: dict[str, object], file: Path = RESULTS) -> None:
    """Writes the figures of one campaign into the file and leaves those of the others as they are."""
    kept = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    where = {"machine": platform.machine(), "python": platform.python_version(), "torch": version("torch")}
    kept[campaign] = {**figures, "made_on": where}
    write_whole_text(file, json.dumps(kept, indent=2, sort_keys=True) + "\n")


def in_words(kept: dict[str, dict[str, Any]]) -> dict[str, str]:
    """What each campaign found, as docs/reliability.md says it; none that has not been run."""
    words = {}
    if fuzz := kept.get("fuzz"):
        words["make fuzz"] = f"{fuzz['inputs']:,} inputs, {fuzz['failures']:,} failures"
    if kill := kept.get("kill"):
        words["make kill"] = f"{kill['kills']:,} kills, {kill['mismatches']:,} mismatches"
    if mutate := kept.get("mutate"):
        n = mutate["mutants"] - mutate["equivalent"]
        words["make mutate"] = f"{mutate['killed']:,} of {n:,} noticed ({mutate['share_killed']:.1%})"
    return words


def write_page(page: Path = PAGE, file: Path = RESULTS) -> None:
    """Puts the figures of the campaigns into the last cells of their rows."""
    text = page.read_text(encoding="utf-8")
    for command, words in in_words(json.loads(file.read_text(encoding="utf-8"))).items():
        text = re.sub(rf"(?m)^(.*`{command}`.*\| )[^|]*\|$", lambda row, words=words: f"{row[1]}{words} |", text)
    write_whole_text(page, text)


if __name__ == "__main__":
    write_page()

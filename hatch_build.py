"""The description and the addresses that a package index shows.

Links and pictures of README.md are relative, as a repository wants them, and lead nowhere on PyPI. With the address of
the repository in ROMAE_REPOSITORY, such as https://github.com/OWNER/romae, they become absolute ones of this version:

    ROMAE_REPOSITORY=https://github.com/OWNER/romae python -m build
"""

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

REPOSITORY = "ROMAE_REPOSITORY"
PAPER = "https://arxiv.org/abs/2505.20535"
CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?P<picture>!?)\[(?P<text>[^\]]*)\]\((?![a-z]+:|#)(?P<path>[^)\s]+)\)")


def with_absolute_links(text: str, repository: str, version: str) -> str:
    """Markdown whose relative links and pictures lead to a version of a repository; code stays as it is."""

    def absolute(found: re.Match[str]) -> str:
        kind = "raw" if found["picture"] else "blob"
        return f"{found['picture']}[{found['text']}]({repository}/{kind}/v{version}/{found['path']})"

    parts, end = [], 0
    for code in CODE.finditer(text):
        parts += [LINK.sub(absolute, text[end : code.start()]), code[0]]
        end = code.end()
    return "".join([*parts, LINK.sub(absolute, text[end:])])


def addresses(repository: str | None, version: str) -> dict[str, str]:
    """What stands beside the description."""
    if repository is None:
        return {"Paper": PAPER}
    return {
        "Source": repository,
        "Documentation": f"{repository}/blob/v{version}/docs/index.md",
        "Changelog": f"{repository}/blob/v{version}/CHANGELOG.md",
        "Issues": f"{repository}/issues",
        "Paper": PAPER,
    }


class DescriptionHook(MetadataHookInterface):
    """Fills in what pyproject.toml calls dynamic: the readme and the addresses."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add them to the metadata of the project."""
        repository = os.environ.get(REPOSITORY, "").rstrip("/") or None
        if repository is not None and not repository.startswith("https://"):
            raise ValueError(f"{REPOSITORY} must be an address such as https://github.com/OWNER/romae")
        root = Path(self.root)
        source = (root / "src" / "romae" / "__init__.py").read_text(encoding="utf-8")
        version = re.findall(r'^__version__ = "(.*)"$', source, re.MULTILINE)[0]
        text = (root / "README.md").read_text(encoding="utf-8")
        text = text if repository is None else with_absolute_links(text, repository, version)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
        metadata["urls"] = addresses(repository, version)

"""Files that stand beside docs/ belong to the site too, in the one copy that there is.

A hook of MkDocs: some files become pages, measurements are handed out as they are, the page of the reproduction is
made, and links between all of them and the pages of docs/ go where they do in the repository.
"""

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.structure.files import Files

ROOT = Path(__file__).resolve().parents[1]
PAGES = {
    "REPRODUCTION.md": "numbers.md",
    "COMPARISON.md": "comparison.md",
    "CHANGELOG.md": "changes.md",
    "CONTRIBUTING.md": "contributing.md",
    "models/README.md": "models/index.md",
    "models/zero/README.md": "models/zero.md",
    "results/zero/README.md": "zero-numbers.md",
    "models/light-curves/README.md": "models/light-curves.md",
    "models/icu/README.md": "models/icu.md",
    "models/icu-mortality/README.md": "models/icu-mortality.md",
    "models/stays/README.md": "models/stays.md",
}
NOT_SEARCHED = ("log.md", "changes.md")  # lists of what once was, which would bury the pages that help
REPORT = "results/report.html"  # written by `romae report`, and in no repository
HOMES = {site: repository for repository, site in PAGES.items()}
LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)(?P<path>[^)#\s]+)(?P<anchor>#[^)\s]*)?(?=\))")


def on_files(files: "Files", config: Any) -> "Files":
    """The files of docs/ and those that stand beside it."""
    from mkdocs.structure.files import File

    from romae.experiments import report

    for name, page in PAGES.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / name)))
    measured = [*(ROOT / "results" / "benchmark").glob("*.*"), *(ROOT / "results" / "zero").glob("*.json")]
    for result in sorted(measured):
        files.append(File.generated(config, result.relative_to(ROOT).as_posix(), abs_src_path=str(result)))
    _, pages = report.rendered(ROOT / "results", posixpath.basename(REPORT))
    for name, page in pages.items():
        files.append(File.generated(config, f"{posixpath.dirname(REPORT)}/{name}", content=page))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """The text of a page with links as they are on the site, and whether the search knows it."""
    here = page.file.src_uri
    if here in NOT_SEARCHED:
        page.meta["search"] = {"exclude": True}
    home = HOMES.get(here, f"docs/{here}")

    def on_site(found: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(posixpath.dirname(home), found["path"]))
        target = PAGES.get(path, path.removeprefix("docs/"))
        return posixpath.relpath(target, posixpath.dirname(here) or ".") + (found["anchor"] or "")

    return LINK.sub(on_site, markdown)

"""Files that stand beside docs/ belong to the site too, in the one copy that there is.

A hook of MkDocs: some files become pages, measurements are handed out as they are, the page of the reproduction is
made, and links between all of them and the pages of docs/ go where they do in the repository.
"""

import os
import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.structure.files import Files

ROOT = Path(__file__).resolve().parents[1]
PAGES = {
    "REPRODUCTION.md": "numbers.md",
    "results/paper.md": "paper-tables.md",
    "results/runs.md": "runs.md",
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
    "models/weather/README.md": "models/weather.md",
}
NOT_SEARCHED = ("log.md", "changes.md")  # lists of what once was, which would bury the pages that help
VERSIONED = "MIKE_DOCS_VERSION"  # what mike sets while it builds
REPORT = "results/report.html"  # written by `romae report`, and in no repository
HOMES = {site: repository for repository, site in PAGES.items()}
TUTORIALS = "tutorials/"
NOT_RUN = re.compile(r"^<!-- not run: [^>]*-->\n```python\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
LINK_OR_PICTURE = re.compile(r"(?P<picture>!)?\[(?P<text>[^\]]*)\]\((?![a-z]+:)[^)]*\)")
LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)(?P<path>[^)#\s]+)(?P<anchor>#[^)\s]*)?(?=\))")


def on_config(config: Any) -> Any:
    """Every page says which version it is of; where mike builds the site, people can choose another."""
    from romae import __version__

    config.copyright = f"romae {__version__}"
    if VERSIONED in os.environ:
        config.extra["version"] = {"provider": "mike"}
    return config


def on_files(files: "Files", config: Any) -> "Files":
    """The files of docs/ and those that stand beside it."""
    from mkdocs.structure.files import File

    from romae.experiments import report

    for name, page in PAGES.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / name)))
    for tutorial in sorted((ROOT / "docs" / TUTORIALS).glob("*.md")):
        made = notebook(tutorial.read_text(encoding="utf-8"))
        files.append(File.generated(config, f"{TUTORIALS}{tutorial.stem}.ipynb", content=made))
    measured = [*(ROOT / "results" / "benchmark").glob("*.*"), *(ROOT / "results" / "zero").glob("*.json")]
    for result in sorted(measured):
        files.append(File.generated(config, result.relative_to(ROOT).as_posix(), abs_src_path=str(result)))
    contents = report.Contents.read(ROOT / "results")
    for name, page in report.to_pages(contents, posixpath.basename(REPORT)).items():
        files.append(File.generated(config, f"{posixpath.dirname(REPORT)}/{name}", content=page))
    return files


def notebook(text: str) -> str:
    """A page as a notebook: its Python in cells, all else as text, without what leads elsewhere in the repository."""
    import jupytext

    text = NOT_RUN.sub(lambda found: f"~~~python\n{found['code']}~~~", text)  # which is shown, and is no cell
    text = LINK_OR_PICTURE.sub(lambda found: "" if found["picture"] else found["text"], text)
    made = jupytext.reads(text, fmt="md")
    for number, cell in enumerate(made.cells):
        cell.id = f"cell-{number}"  # else drawn at random
    made.metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    return jupytext.writes(made, fmt="ipynb")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """The text of a page with links as they are on the site, and whether the search knows it."""
    here = page.file.src_uri
    if here in NOT_SEARCHED:
        page.meta["search"] = {"exclude": True}
    home = HOMES.get(here, f"docs/{here}")
    if here.startswith(TUTORIALS):
        title, _, rest = markdown.partition("\n")
        name = posixpath.basename(here).removesuffix(".md")
        markdown = f"{title}\n\n[This page as a notebook]({name}.ipynb){{ download }}\n{rest}"

    def on_site(found: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(posixpath.dirname(home), found["path"]))
        target = PAGES.get(path, path.removeprefix("docs/"))
        return posixpath.relpath(target, posixpath.dirname(here) or ".") + (found["anchor"] or "")

    return LINK.sub(on_site, markdown)

"""Pages of the papers on the shelf, which stand in the papers' own folders.

Each becomes a page of the site (docs/papers/, which git ignores), and links to its file lead there.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

from attnlab.shelf import shelf

DOCS = Path(__file__).parents[1]
PAGES = {
    known.folder / known.page: DOCS / "papers" / f"{known.name}.md"
    for known in shelf().papers
    if known.page and known.folder.is_relative_to(DOCS.parent)
}
LINK = re.compile(r"\]\((?!\w+:)([^)#\s]+)")


def moved(text: str, *, here: Path, there: Path) -> str:
    """Return a page's text with links that lead from the folder `there` where they led from `here`.

    Links to the page of a paper lead to its page of the site.
    """

    def link(found: re.Match[str]) -> str:
        target = Path(os.path.normpath(here / found[1]))
        if target.is_dir():  # which has no page on the site: its first file
            target = min(target.iterdir())
        return f"]({os.path.relpath(PAGES.get(target, target), there)}"

    return LINK.sub(link, text)


def _write(app: Sphinx) -> None:
    for page, shown in PAGES.items():
        shown.parent.mkdir(exist_ok=True)
        text = moved(page.read_text(encoding="utf-8"), here=page.parent, there=shown.parent)
        if not shown.exists() or shown.read_text(encoding="utf-8") != text:
            shown.write_text(text, encoding="utf-8")


def _read(app: Sphinx, name: str, source: list[str]) -> None:
    folder = Path(app.env.doc2path(name)).parent
    if "page.md" in source[0]:
        source[0] = moved(source[0], here=folder, there=folder)


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("builder-inited", _write)
    app.connect("source-read", _read)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

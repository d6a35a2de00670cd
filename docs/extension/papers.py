"""Pages of the papers on the shelf, which stand in the papers' own folders.

Each becomes a page of the site, and links to its file lead there.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

from attnlab.shelf import Paper, shelf

DOCS = Path(__file__).parents[1]
INCLUDED = """\
```{{include}} {page}
:relative-docs: ..
:relative-images:
```
"""


def papers_with_pages() -> list[Paper]:
    """Return the papers of this repository that have a page."""
    return [known for known in shelf().papers if known.page and _inside(known.folder)]


def _inside(folder: Path) -> bool:
    return folder.is_relative_to(DOCS.parent)


def _write(app: Sphinx) -> None:
    """Write docs/papers/NAME.md for each page; a folder that git ignores."""
    folder = DOCS / "papers"
    folder.mkdir(exist_ok=True)
    for known in papers_with_pages():
        page = os.path.relpath(known.folder / str(known.page), folder)
        path, text = folder / f"{known.name}.md", INCLUDED.format(page=page)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


class PaperLinks(SphinxTransform):
    default_priority = 869  # before files become source pages

    def apply(self, **_: Any) -> None:
        pages = {known.folder / str(known.page): known.name for known in papers_with_pages()}
        here = Path(self.env.doc2path(self.env.docname)).parent
        for link in list(self.document.findall(addnodes.download_reference)):
            target, _, anchor = link["reftarget"].partition("#")
            name = pages.get((here / target).resolve())
            if name is not None:
                uri = self.app.builder.get_relative_uri(self.env.docname, f"papers/{name}")
                uri += f"#{anchor}" if anchor else ""
                link.replace_self(nodes.reference("", "", *link.children, internal=True, refuri=uri))


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("builder-inited", _write)
    app.add_transform(PaperLinks)
    return {"parallel_read_safe": False, "parallel_write_safe": True}

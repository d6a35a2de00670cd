"""A Jupyter file of each notebook, for download and for Colab, with a link at the top of its page.

Colab opens files of GitHub only: the site's workflow pushes these to the branch `notebooks`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
from myst_nb.core.read import read_myst_markdown_notebook
from sphinx.application import Sphinx

FOLDER = "notebooks"
COLAB = "https://colab.research.google.com/github/attnlab/attnlab/blob/notebooks"
# Notebooks read files of the repository, which Colab's machines do not have.
SETUP = """\
!git clone --quiet --depth 1 https://github.com/attnlab/attnlab
%cd attnlab
%pip install --quiet '.[observe]'
"""


def _link(app: Sphinx, page: str, source: list[str]) -> None:
    folder, _, name = page.rpartition("/")
    if folder != FOLDER:
        return
    front, title, text = source[0].partition("\n# ")
    heading, _, body = text.partition("\n")
    badge = (
        f"[![Open in Colab](../images/open-in-colab.svg)]({COLAB}/{name}.ipynb) "
        f'<a href="{name}.ipynb" download>Download the notebook</a>'
    )
    source[0] = f"{front}{title}{heading}\n\n{badge}\n{body}"


def _write(app: Sphinx, problem: Exception | None) -> None:
    if problem is not None or app.builder.name != "html":
        return
    for page in sorted(Path(app.srcdir, FOLDER).glob("*.md")):
        notebook = read_myst_markdown_notebook(page.read_text(encoding="utf-8"))
        notebook.cells.insert(0, nbformat.v4.new_code_cell(SETUP, id="setup"))
        nbformat.write(notebook, Path(app.outdir, FOLDER, f"{page.stem}.ipynb"))


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("source-read", _link)
    app.connect("build-finished", _write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

"""The playground in the site: its page, and where a page of the docs plays one of its experiments.

    [Play: scan, then snap](https://attnlab.github.io/attnlab/playground/#x=snap)

on a line of its own is a link for readers of the file, and a frame with the experiment on the site.
Names are those of playground/page/experiments.js.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

import attnlab
from attnlab.playground.single_page import single_page

EXPERIMENTS = Path(attnlab.__file__).parent / "playground" / "page" / "experiments.js"
LINK = re.compile(r"^\[(.+)\]\(https://\S+/playground/#x=([\w-]+)\)$", re.MULTILINE)
FRAME = """\
<div class="playground">
<iframe src="{page}?embed#x={name}" loading="lazy" title="{title}"></iframe>
<p><a href="{page}#x={name}">Open it on a page of its own</a></p>
</div>
"""


def _embed(app: Sphinx, document: str, source: list[str]) -> None:
    known = EXPERIMENTS.read_text(encoding="utf-8")
    page = "../" * document.count("/") + "playground/index.html"

    def frame(link: re.Match[str]) -> str:
        title, name = link.groups()
        if f'name: "{name}"' not in known:
            raise ExtensionError(f"{document}: the playground has no experiment {name!r}")
        return FRAME.format(page=page, name=name, title=title)

    source[0] = LINK.sub(frame, source[0])


def _write(app: Sphinx, problem: Exception | None) -> None:
    if problem is None and app.builder.format == "html":
        folder = Path(app.outdir) / "playground"
        folder.mkdir(exist_ok=True)
        (folder / "index.html").write_text(single_page(), encoding="utf-8")


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("source-read", _embed)
    app.connect("build-finished", _write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

"""The playground in the site: its page, and a directive that embeds it.

    ```{playground} snap
    ```

opens it on one of its experiments, by the name in playground/page/experiments.js.
"""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

import attnlab
from attnlab.playground.single_page import single_page

EXPERIMENTS = Path(attnlab.__file__).parent / "playground" / "page" / "experiments.js"
FRAME = """\
<div class="playground">
<iframe src="{page}?embed#x={name}" loading="lazy" title="The playground: {name}"></iframe>
<p><a href="{page}#x={name}">Open it on a page of its own</a></p>
</div>
"""


class Playground(SphinxDirective):
    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        name = self.arguments[0]
        if f'name: "{name}"' not in EXPERIMENTS.read_text(encoding="utf-8"):
            raise self.error(f"the playground has no experiment {name!r}")
        page = "../" * self.env.docname.count("/") + "playground/index.html"
        return [nodes.raw("", FRAME.format(page=page, name=escape(name)), format="html")]


def _write(app: Sphinx, problem: Exception | None) -> None:
    if problem is None and app.builder.format == "html":
        folder = Path(app.outdir) / "playground"
        folder.mkdir(exist_ok=True)
        (folder / "index.html").write_text(single_page(), encoding="utf-8")


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("playground", Playground)
    app.connect("build-finished", _write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

"""The playground in the site: its files, and a directive that embeds it.

    ```{playground} snap
    ```

opens it on one of its experiments, by the name in playground/page/experiments.js.
"""

from __future__ import annotations

import shutil
from html import escape
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

import attnlab

PAGE = Path(attnlab.__file__).parent / "playground" / "page"
FRAME = """\
<div class="playground">
<iframe data-experiment="{name}" loading="lazy" title="The playground: {name}"></iframe>
<p><a href="{page}" data-experiment="{name}">Open it on a page of its own</a></p>
</div>
<script type="module" src="{script}"></script>
"""


class Playground(SphinxDirective):
    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        name = self.arguments[0]
        if f'name: "{name}"' not in (PAGE / "experiments.js").read_text(encoding="utf-8"):
            raise self.error(f"the playground has no experiment {name!r}")
        up = "../" * self.env.docname.count("/")
        text = FRAME.format(
            page=f"{up}playground/index.html",
            name=escape(name),
            script=f"{up}_static/playground.js",
        )
        return [nodes.raw("", text, format="html")]


def _copy(app: Sphinx, problem: Exception | None) -> None:
    if problem is None and app.builder.format == "html":
        shutil.copytree(PAGE, Path(app.outdir) / "playground", dirs_exist_ok=True)


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("playground", Playground)
    app.connect("build-finished", _copy)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

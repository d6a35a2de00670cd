"""Mathematics as MathML, which browsers typeset themselves, before anything is on the screen."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

from attnlab.files.mathematics import mathml


def _inline(writer: Any, node: nodes.math) -> None:
    writer.body.append(mathml(node.astext()))
    raise nodes.SkipNode


def _block(writer: Any, node: nodes.math_block) -> None:
    where = f' id="{node["ids"][0]}"' if node["ids"] else ""
    formula = mathml(node.astext()).replace("<math>", '<math display="block">', 1)
    writer.body.append(f'<div class="formula" tabindex="0"{where}>{formula}</div>\n')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_html_math_renderer(
        "mathml", inline_renderers=(_inline, None), block_renderers=(_block, None)
    )
    return {"parallel_read_safe": True, "parallel_write_safe": True}

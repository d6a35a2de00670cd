"""Mathematics by KaTeX, from _static/katex: its version 0.19.1, of whose fonts woff2 is kept.

The page has the LaTeX, which can be read and searched without JavaScript; render.js typesets it.
"""

from __future__ import annotations

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx


def _inline(writer: Any, node: nodes.math) -> None:
    writer.body.append(f'<span class="formula">{writer.encode(node.astext())}</span>')
    raise nodes.SkipNode


def _block(writer: Any, node: nodes.math_block) -> None:
    where = f' id="{node["ids"][0]}"' if node["ids"] else ""
    writer.body.append(f'<div class="formula"{where}>{writer.encode(node.astext())}</div>\n')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_html_math_renderer(
        "katex", inline_renderers=(_inline, None), block_renderers=(_block, None)
    )
    app.add_css_file("katex/katex.min.css")
    app.add_js_file("katex/katex.min.js", loading_method="defer")
    app.add_js_file("katex/render.js", loading_method="defer")
    return {"parallel_read_safe": True, "parallel_write_safe": True}

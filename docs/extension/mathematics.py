"""Mathematics as MathML, which browsers typeset themselves, before anything is on the screen."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging

from attnlab.files.errors import InputError
from attnlab.files.mathematics import mathml

LOG = logging.getLogger(__name__)


def _formula(writer: Any, node: nodes.Element) -> str:
    """Return a formula as MathML, or as it is, with a warning, where it is not LaTeX."""
    try:
        return mathml(node.astext())
    except InputError as error:
        LOG.warning("%s", error, location=node)
        return str(writer.encode(node.astext()))


def _inline(writer: Any, node: nodes.math) -> None:
    writer.body.append(_formula(writer, node))
    raise nodes.SkipNode


def _block(writer: Any, node: nodes.math_block) -> None:
    where = f' id="{node["ids"][0]}"' if node["ids"] else ""
    formula = _formula(writer, node).replace("<math>", '<math display="block">', 1)
    writer.body.append(f'<div class="formula" tabindex="0"{where}>{formula}</div>\n')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_html_math_renderer(
        "mathml", inline_renderers=(_inline, None), block_renderers=(_block, None)
    )
    return {"parallel_read_safe": True, "parallel_write_safe": True}

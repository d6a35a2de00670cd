"""Markup for keyboards and screen readers that the theme leaves out, as axe-core finds it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

BETTER = {
    '<p class="caption" role="heading">': '<p class="caption" role="heading" aria-level="2">',
    '<aside class="sidebar-drawer">': '<aside class="sidebar-drawer" aria-label="Site">',
    # what is wide is scrolled by itself
    '<div class="highlight"><pre>': '<div class="highlight"><pre tabindex="0">',
    '<div class="table-wrapper': '<div tabindex="0" class="table-wrapper',
    '<th class="head"><p></p></th>': "<td></td>",
}


def _write(app: Sphinx, problem: Exception | None) -> None:
    if problem is None and app.builder.name == "html":
        for page in Path(app.outdir).rglob("*.html"):
            text = page.read_text(encoding="utf-8")
            for found, better in BETTER.items():
                text = text.replace(found, better)
            page.write_text(text, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("build-finished", _write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

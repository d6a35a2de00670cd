"""Attributes for keyboards and screen readers that the theme leaves out, as axe-core finds."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

ADDED = {
    r'<p class="caption" role="heading"': 'aria-level="2"',
    r'<aside class="sidebar-drawer"': 'aria-label="Site"',
    # what is wide is scrolled by itself
    r'<div class="highlight"><pre': 'tabindex="0"',
    r'<div class="table-wrapper[^>]*"': 'tabindex="0"',
}
TAGS = re.compile("|".join(f"({tag})(?=>)" for tag in ADDED))


def _with_attributes(tag: re.Match[str]) -> str:
    return f"{tag[0]} {list(ADDED.values())[(tag.lastindex or 1) - 1]}"


def _write(app: Sphinx, problem: Exception | None) -> None:
    if problem is None and app.builder.name == "html":
        for page in Path(app.outdir).rglob("*.html"):
            text = TAGS.sub(_with_attributes, page.read_text(encoding="utf-8"))
            page.write_text(text, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("build-finished", _write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

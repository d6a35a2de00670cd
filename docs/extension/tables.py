"""Tables of docutils, from rows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from docutils import nodes

Cell = str | nodes.Node
CODE = re.compile(r"(`[^`]+`)")


def words(text: str) -> list[nodes.Node]:
    """Text in which `this` is code."""
    parts = [part for part in CODE.split(text) if part]
    return [
        nodes.literal("", part.strip("`")) if CODE.fullmatch(part) else nodes.Text(part)
        for part in parts
    ]


def paragraph(text: Cell) -> nodes.Node:
    return nodes.paragraph("", "", *words(text)) if isinstance(text, str) else text


def table(heading: Sequence[str], rows: Iterable[Sequence[Cell]]) -> nodes.table:
    """A table; cells are text in which `this` is code, or nodes."""
    group = nodes.tgroup(cols=len(heading))
    group += [nodes.colspec(colwidth=1) for _ in heading]
    group += nodes.thead("", _row(heading))
    group += nodes.tbody("", *[_row(row) for row in rows])
    return nodes.table("", group)


def _row(cells: Sequence[Cell]) -> nodes.row:
    return nodes.row("", *[nodes.entry("", paragraph(cell)) for cell in cells])


def section(title: str, *content: nodes.Node, code: bool = False) -> nodes.section:
    """A section under its title."""
    heading = nodes.title("", "", nodes.literal("", title) if code else nodes.Text(title))
    return nodes.section("", heading, *content, ids=[nodes.make_id(title)], names=[title])

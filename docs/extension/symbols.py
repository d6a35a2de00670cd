"""Symbols that plain text writes out: eta_Y, t_0', P(l|n), 10^6, as formulas.

What the code says of itself (verdicts, findings, docstrings) is plain text, so that a terminal can
show it. On the site its symbols are typeset, here and not by hand; code stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

GREEK = "alpha|beta|gamma|delta|eta|theta|iota|lambda|mu|nu|xi|rho|sigma|chi|omega|Delta|Gamma"
SYMBOL = re.compile(
    rf"""P\(l\|(?P<given>m,n|n)\)
    |\|(?P<norm>[pq])\|\^2
    |\b(?P<limit>T)\ to\ infinity\b
    |(?<![\w.])(?P<greek>{GREEK})_(?P<of_greek>\w{{1,2}}'?)(?!\w)
    |(?<![\w.])(?P<letter>[A-Za-z])_(?P<of_letter>\w{{1,2}}'?)(?!\w)
    |(?<![\w.])10\^(?P<power>-?\d+)
    |(?<=\s)(?P<much>>>|<<)(?=\s)""",
    re.VERBOSE,
)
LATEX: dict[str, Callable[[re.Match[str]], str]] = {  # by the last group that is there
    "given": lambda found: rf"P(l\mid {found['given']})",
    "norm": lambda found: rf"\lvert {found['norm']}\rvert^2",
    "limit": lambda found: r"T\to\infty",
    "of_greek": lambda found: rf"\{found['greek']}_{_index(found['of_greek'])}",
    "of_letter": lambda found: f"{found['letter']}_{_index(found['of_letter'])}",
    "power": lambda found: f"10^{{{found['power']}}}",
    "much": lambda found: {">>": r"\gg", "<<": r"\ll"}[found["much"]],
}
DASH = " -- "  # between a parameter and what it is
AS_IT_IS = (
    nodes.literal,
    nodes.literal_block,
    nodes.math,
    nodes.math_block,
    nodes.raw,
    nodes.title,
    nodes.comment,
    nodes.doctest_block,
    addnodes.pending_xref,
    addnodes.desc_signature,
)


class Symbols(SphinxTransform):
    default_priority = 860

    def apply(self, **_: Any) -> None:
        for text in list(self.document.findall(nodes.Text)):
            said = text.astext()
            if (SYMBOL.search(said) or DASH in said) and not _is_within(text, AS_IT_IS):
                text.parent.replace(text, typeset(said.replace(DASH, " \u2013 ")))


def typeset(text: str) -> list[nodes.Node]:
    """A text, its symbols as formulas."""
    found, done = [], 0
    for symbol in SYMBOL.finditer(text):
        found.append(nodes.Text(text[done : symbol.start()]))
        found.append(nodes.math("", LATEX[symbol.lastgroup or ""](symbol)))
        done = symbol.end()
    return [*found, nodes.Text(text[done:])]


def _index(text: str) -> str:
    return f"{{{text.rstrip(chr(39))}}}" + "'" * text.endswith("'")


def _is_within(node: nodes.Node, kinds: tuple[type, ...]) -> bool:
    above = node.parent
    while above is not None:
        if isinstance(above, kinds):
            return True
        above = above.parent
    return False


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_transform(Symbols)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

"""Results written down once, as Markdown: for a page, a terminal and the documentation.

A template writes the Markdown, and every text in it is escaped. Formulas stand between dollars. A
page sets them as MathML; a terminal (`attnlab.cli.printing.show`) prints them as plain text.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined, Template
from markdown_it import MarkdownIt
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token
from markupsafe import Markup, escape

from attnlab.files.errors import visible
from attnlab.files.mathematics import dollars, escaped, markdown, mathml, typeset, typeset_plain


def template(name: str, *, terminal: bool = False, **filters: Any) -> Template:
    """Read a template of Markdown, "package:file".

    In it every text is escaped; `text | symbols` sets the symbols of a plain text, which a
    terminal shows as they are, and `text | formulas` those between dollars.
    """
    made = Environment(
        loader=FunctionLoader(_source),
        autoescape=True,  # so that macros and filters tell what is Markdown from what is a text
        finalize=lambda value: value if isinstance(value, Markup) else words(value),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    symbols = words if terminal else lambda text: Markup(markdown(dollars(visible(text))))
    made.filters |= {"symbols": symbols, "formulas": lambda text: Markup(markdown(visible(text)))}
    made.filters |= filters
    return made.get_template(name)


def words(text: Any) -> Markup:
    """Return Markdown of a text that has no formulas in it."""
    return Markup(escaped(visible(str(text))))


def _source(name: str) -> str:
    package, _, file = name.partition(":")
    return resources.files(package).joinpath(file).read_text(encoding="utf-8")


def table(rows: Sequence[Sequence[str]]) -> str:
    """Return a table of Markdown, its heading first; lines within a cell stay apart."""
    heading, *below = rows
    lines = (
        " | ".join(cell.replace("|", "\\|") for cell in row)
        for row in [heading, ["---"] * len(heading), *below]
    )
    return "\n".join(f"| {line} |".replace("\n", "<br>") for line in lines)


Column = str | tuple[str, str]  # a heading, or one with the format of the cells


def table_of(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, Column] | None = None) -> str:
    """Return a table of Markdown with a row for each mapping.

    Numbers are shown in four digits, a tuple as its start and end; None, NaN and infinity are a
    dash; texts are escaped. Columns of numbers, and those with a format, are aligned to the right.

    Parameters
    ----------
    rows : sequence of mapping
        At least one. Columns whose key the first one lacks are left out.
    columns : mapping, optional
        The heading of each key, or the heading and a format of floats, such as ".3f"; by default
        the keys.
    """
    columns = {key: key for key in rows[0]} if columns is None else columns
    shown = {key: of for key, of in columns.items() if key in rows[0]}
    headings = {key: (of, "") if isinstance(of, str) else of for key, of in shown.items()}
    marks = [
        "---:" if form or any(type(row[key]) in (int, float) for row in rows) else "---"
        for key, (_, form) in headings.items()
    ]
    cells = [[_cell(row[key], form) for key, (_, form) in headings.items()] for row in rows]
    lines: list[Sequence[str]] = [[words(of) for of, _ in headings.values()], marks, *cells]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(value: Any, form: str) -> Markup:
    if isinstance(value, Markup):
        return value
    if isinstance(value, tuple):  # start and end
        return Markup(" → ").join(_cell(of, form) for of in value)
    if isinstance(value, bool):
        return Markup("yes" if value else "no")
    if isinstance(value, float) and math.isfinite(value):
        return words(format(value, form or ".4g"))
    if isinstance(value, list):
        return words(" ".join(value))
    return words("-" if value is None or isinstance(value, float) else value)


def tokens(text: str) -> list[Token]:
    """Parse Markdown; a formula between dollars is a token of the type "formula"."""
    return _parser().parse(text)


@cache
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark").enable("table")
    parser.inline.ruler.before("escape", "formula", _formula)
    parser.add_render_rule("formula", lambda _, found, i, *rest: mathml(found[i].content))
    parser.add_render_rule("table_open", lambda *_: '<div class="scroll" tabindex="0"><table>\n')
    parser.add_render_rule("table_close", lambda *_: "</table></div>\n")
    return parser


def _formula(state: StateInline, silent: bool) -> bool:
    end = state.src.find("$", state.pos + 1)
    if state.src[state.pos] != "$" or end < 0:
        return False
    if not silent:
        state.push("formula", "", 0).content = state.src[state.pos + 1 : end]
    state.pos = end + 1
    return True


def html(text: str) -> Markup:
    """Return HTML of Markdown; each cell of a table names its column, for narrow screens."""
    found, names, column = tokens(text), [""], 0
    for i, token in enumerate(found):
        if token.type == "table_open":
            names = []
        elif token.type == "tr_open":
            column = 0
        elif token.type == "th_open":
            names.append(found[i + 1].content)
            if names[-1]:
                token.attrSet("scope", "col")
            else:  # an empty cell is not a heading
                token.tag = found[i + 2].tag = "td"
        elif token.type == "td_open":
            token.attrSet("data-label", names[column])
            column += 1
    return Markup(_parser().renderer.render(found, _parser().options, {}))


def page(title: str, text: str, *, style: str = "") -> str:
    """Return a self-contained HTML page of Markdown; `style` is appended to the stylesheet."""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>
{stylesheet()}
{style}
</style>
</head>
<body>
{html(text)}</body>
</html>
"""


def raw_template(package: str, name: str, **filters: Any) -> Template:
    """Read a template of a package whose texts are Markdown already, or HTML.

    In HTML every text is escaped. `{{ stylesheet }}` is the one stylesheet; `text | typeset` sets
    formulas between dollars, and `text | symbols` the symbols of a plain text.
    """
    is_html = name.endswith(".html")
    made = Environment(
        autoescape=is_html,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=not is_html,
    )
    made.globals["stylesheet"] = stylesheet()
    made.filters |= {"typeset": typeset, "symbols": typeset_plain, **filters}
    return made.from_string(resources.files(package).joinpath(name).read_text(encoding="utf-8"))


def stylesheet() -> Markup:
    """Return the stylesheet of every page."""
    return Markup(resources.files("attnlab.files").joinpath("page.css").read_text(encoding="utf-8"))

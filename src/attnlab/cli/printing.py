"""Printing: words as they are, tables that cut nothing, numbers that JSON knows."""

from __future__ import annotations

import io
import math
import os
import re
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlab.files.names import visible

if TYPE_CHECKING:
    from markdown_it.token import Token
    from rich.console import Console
    from rich.text import Text

    Cell = str | Text | float | None

ONE_PIECE = 16  # characters of a cell that is not folded
# of verdicts, by the first word of each, as on a page
COLOURS = {
    "exact": "green",
    "holds": "cyan",
    "corrected": "yellow",
    "fails": "red",
    "premise": "magenta",
    "outside": "magenta",
    "we": "dim",
    "off": "red",
}


def open_streams() -> None:
    """Make stdout and stderr fit to be written to, whatever the terminal is.

    A character that the terminal's encoding lacks is written out, as \\u2192. A stream that the
    shell has closed (2>&-) goes to nowhere: else the first file that is opened would take its
    number, and get the messages of compiled code.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # which takes the lowest number that is free
    sys.stdin = sys.stdin or os.fdopen(0)
    sys.stdout, sys.stderr = sys.stdout or os.fdopen(1, "w"), sys.stderr or os.fdopen(2, "w")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def say(text: str, *, error: bool = False) -> None:
    """Print lines, without characters that a terminal would obey."""
    print(visible(text, lines=True), file=sys.stderr if error else sys.stdout)


def say_written(*paths: Path | None) -> None:
    """Print the names of the files that were written."""
    for path in paths:
        if path is not None:
            say(f"wrote {path}")


def plain_console(*, error: bool = False) -> Console:
    """Return a console that prints paths and words as they are.

    [b] and :on: may be a folder, or a word of a text. What a terminal would obey is written out.
    """
    from rich.console import Console

    class Plain(Console):
        def render_str(self, text: str, **options: Any) -> Text:
            return super().render_str(visible(text, lines=True), **options)

    return Plain(stderr=error, markup=False, emoji=False, highlight=False)


def finite(value: float | None) -> float | None:
    """Return the value, or None for NaN and infinity, which JSON lacks."""
    return value if value is not None and math.isfinite(value) else None


def or_dash(value: float | None, form: str = ".4g") -> str:
    """Return a number for a table; a dash where there is none."""
    return "-" if value is None else format(value, form)


def show(text: str) -> None:
    """Print Markdown: headings in bold, tables that cut nothing, formulas as plain text."""
    from attnlab.files.markdown import tokens

    console = plain_console()
    rows: list[list[Text]] | None = None  # of the table that is read
    right: set[int] = set()
    style = ""
    for token in tokens(text):
        if token.type == "heading_open":
            console.print()
            style = "bold"
        elif token.type == "table_open":
            rows, right = [], set()
        elif rows is None:
            if token.type == "inline":
                console.print(_styled(token), style=style)
                style = ""
        elif token.type == "tr_open":
            rows.append([])
        elif token.type == "th_open" and token.attrGet("style"):
            right.add(len(rows[0]))
        elif token.type == "inline":
            rows[-1].append(_styled(token))
        elif token.type == "table_close":
            columns = [name.plain for name in rows[0]]
            print_table(console, columns, rows[1:], right=[columns[i] for i in right])
            rows = None


def _styled(token: Token) -> Text:
    """Return the words of a part of Markdown, in colours by the classes of what is marked."""
    from rich.text import Text

    from attnlab.files.mathematics import plain_formula

    text, styles = Text(), [""]
    for part in token.children or ():
        if part.type == "formula":
            text.append(plain_formula(part.content), styles[-1])
        elif part.type == "softbreak":
            text.append(" ")
        elif part.type != "html_inline":  # words: a token of a text may look like a tag
            text.append(visible(part.content), styles[-1])
        elif part.content in ("<br>", "<small>"):
            text.append("\n")
        elif part.content.startswith("</"):
            styles = styles[:-1] if part.content != "</small>" else styles
        else:
            classes = re.findall(r"\w+", part.content)
            styles.append(next((COLOURS[name] for name in classes if name in COLOURS), ""))
    return text


def print_table(
    console: Console,
    columns: Sequence[str],
    rows: Sequence[Sequence[Cell]],
    *,
    right: Collection[str] = (),
    tight: bool = False,
) -> None:
    """Print a table that cuts nothing.

    Long cells are folded between their words, and short ones stay in one piece. On a terminal too
    narrow for that, each cell has a line of its own; elsewhere the table goes beyond the edge.
    Columns with a number in them, and those in `right`, are aligned to the right. tight: one space
    between columns.
    """
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    pairs = [pair for row in rows for pair in zip(columns, row, strict=True)]
    right = {*right, *(name for name, cell in pairs if isinstance(cell, float | int))}
    cells = [[_text(cell) for cell in row] for row in rows]
    by_column = list(zip(columns, zip(*cells, strict=True), strict=True))
    least = [max(cell_len(name), *map(_least, column)) for name, column in by_column]
    whole = [max(cell_len(name), *map(_whole, column)) for name, column in by_column]
    spare = console.width - (len(columns) - 1) * (2 - tight) - sum(least)
    if console.is_terminal and spare < 0:
        for row in cells:
            for name, cell in zip(columns, row, strict=True):
                console.print(Text.assemble((f"{name}: " if name else "", "bold"), cell))
            console.print()
        return
    table = Table(box=None, header_style="bold", pad_edge=False, collapse_padding=tight)
    for name, width in zip(columns, _widths(least, whole, spare), strict=True):
        justify: Any = "right" if name in right else "left"
        table.add_column(name, justify=justify, min_width=width, max_width=width)
    for row in cells:
        table.add_row(*row)
    console.print(table, crop=False)


def _widths(least: list[int], whole: list[int], spare: int) -> list[int]:
    """Return the columns' widths: spare width goes to the narrowest that are folded."""
    widths = list(least)
    while spare > 0 and (folded := [i for i, width in enumerate(widths) if width < whole[i]]):
        widths[min(folded, key=widths.__getitem__)] += 1
        spare -= 1
    return widths


def _text(cell: Cell) -> Text:
    from rich.text import Text

    if isinstance(cell, float) or cell is None:
        cell = or_dash(cell)
    return cell if isinstance(cell, Text) else Text(visible(str(cell)))


def _whole(cell: Text) -> int:
    """Return the width of a cell that is not folded."""
    return max(line.cell_len for line in cell.split(allow_blank=True))


def _least(cell: Text) -> int:
    """Return the least width of a cell: its own if it is short, else that of its longest word."""
    from rich.cells import cell_len

    lines = cell.plain.split("\n")
    words = [line.split() if cell_len(line) > ONE_PIECE else [line] for line in lines]
    return max(cell_len(word) for of_line in words for word in of_line)

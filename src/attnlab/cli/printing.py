"""Printing: words as they are, tables that cut nothing, numbers that JSON knows."""

from __future__ import annotations

import io
import math
import os
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from attnlab.files.names import visible

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    Cell = str | list[str] | Text | float | None


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


def print_table(
    console: Console,
    columns: Sequence[str],
    rows: Sequence[Sequence[Cell]],
    *,
    right: Collection[str] = (),
    tight: bool = False,
) -> None:
    """Print a table that cuts nothing.

    Lists and styled texts are folded between their words, the rest stays in one piece. On a
    terminal too narrow for that, each cell has a line of its own; elsewhere the table goes beyond
    the edge. Columns with a number in them, and those in `right`, are aligned to the right.
    tight: one space between columns.
    """
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    pairs = [pair for row in rows for pair in zip(columns, row, strict=True)]
    numbers = {name for name, cell in pairs if isinstance(cell, float | int)}
    cells = [[_cell(cell) for cell in row] for row in rows]
    by_column = list(zip(columns, zip(*cells, strict=True), strict=True))
    least = [max(cell_len(name), *(cell.least for cell in column)) for name, column in by_column]
    whole = [max(cell_len(name), *(cell.whole for cell in column)) for name, column in by_column]
    spare = console.width - (len(columns) - 1) * (2 - tight) - sum(least)
    if console.is_terminal and spare < 0:
        for row in cells:
            for name, cell in zip(columns, row, strict=True):
                console.print(Text.assemble((f"{name}: " if name else "", "bold"), cell.text))
            console.print()
        return
    table = Table(box=None, header_style="bold", pad_edge=False, collapse_padding=tight)
    for name, width in zip(columns, _widths(least, whole, spare), strict=True):
        justify: Any = "right" if name in right or name in numbers else "left"
        table.add_column(name, justify=justify, min_width=width, max_width=width)
    for row in cells:
        table.add_row(*(cell.text for cell in row))
    console.print(table, crop=False)


def _widths(least: list[int], whole: list[int], spare: int) -> list[int]:
    """Return the columns' widths: spare width goes to the narrowest that are folded."""
    widths = list(least)
    while spare > 0 and (folded := [i for i, width in enumerate(widths) if width < whole[i]]):
        widths[min(folded, key=widths.__getitem__)] += 1
        spare -= 1
    return widths


class _Cell(NamedTuple):
    """A cell's text, its width where it is folded between words, and where it is not."""

    text: Text
    least: int
    whole: int


def _cell(cell: Cell) -> _Cell:
    from rich.cells import cell_len
    from rich.text import Text

    if cell is None or isinstance(cell, float | int):
        cell = str(cell) if isinstance(cell, int) else or_dash(cell)
    if isinstance(cell, Text):
        text, words = cell, cell.plain.split()
    else:
        words = [visible(word) for word in ([cell] if isinstance(cell, str) else cell)]
        text = Text(" ".join(words))
    least = max(map(cell_len, words), default=0)
    return _Cell(text, least, max(map(cell_len, text.plain.split("\n"))))

"""What is printed: words as they are, tables that cut nothing, numbers that JSON knows."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


def plain_console() -> Console:
    """Prints paths and words as they are: [b] and :on: may be a folder, or a word of a text."""
    from rich.console import Console

    return Console(markup=False, emoji=False, highlight=False)


def finite(value: float | None) -> float | None:
    """The value as JSON can have it, which knows neither NaN nor infinity."""
    return value if value is not None and math.isfinite(value) else None


def print_table(
    console: Console, columns: Sequence[str], rows: Sequence[Sequence[str | list[str]]],
    *, right: Collection[str], tight: bool = False,
) -> None:  # fmt: skip
    """A table that cuts nothing: where it does not fit, lists are folded between their words, and
    the rest goes beyond the edge. `tight`: one space between columns."""
    from rich.cells import cell_len
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False, collapse_padding=tight)
    for name, cells in zip(columns, zip(*rows, strict=True), strict=True):
        unbroken = [word for cell in cells for word in ([cell] if isinstance(cell, str) else cell)]
        table.add_column(
            name, justify="right" if name in right else "left",
            min_width=max(map(cell_len, (name, *unbroken))),
        )  # fmt: skip
    for row in rows:
        table.add_row(*(cell if isinstance(cell, str) else " ".join(cell) for cell in row))
    console.print(table, crop=False)

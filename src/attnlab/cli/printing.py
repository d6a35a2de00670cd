"""Printing: words as they are, tables that cut nothing, numbers that JSON knows."""

from __future__ import annotations

import io
import json
import math
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlab.files.errors import visible

if TYPE_CHECKING:
    import xarray as xr
    from markdown_it.token import Token
    from rich.console import Console
    from rich.text import Text

    from attnlab.simulation import Simulation

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


def say_json(document: Any) -> None:
    """Print a document as JSON, with null for NaN and infinity, which JSON lacks."""

    def finite(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: finite(of) for key, of in value.items()}
        if isinstance(value, list | tuple):
            return [finite(of) for of in value]
        return None if isinstance(value, float) and not math.isfinite(value) else value

    print(json.dumps(finite(document), indent=2, allow_nan=False))


def show(text: str) -> None:
    """Print Markdown: headings in bold, notes dimmed, tables that cut nothing, formulas as text."""
    from rich.console import Console

    from attnlab.files.markdown import tokens

    console = Console()
    rows: list[list[Text]] | None = None  # of the table that is read
    right: list[bool] = []
    style = ""
    for token in tokens(text):
        if token.type == "heading_open":
            console.print()
            style = "bold"
        elif token.type == "table_open":
            rows, right = [], []
        elif rows is None:
            if token.type == "inline":
                console.print(_styled(token), style=style)
                style = ""
        elif token.type == "tr_open":
            rows.append([])
        elif token.type == "th_open":
            right.append(bool(token.attrGet("style")))
        elif token.type == "inline":
            rows[-1].append(_styled(token))
        elif token.type == "table_close":
            _print_table(console, rows[0], rows[1:], right)
            rows = None


def show_table(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, Any] | None = None) -> None:
    """Print a table of plain values: `attnlab.files.markdown.table_of`."""
    from attnlab.files.markdown import table_of

    show(table_of(rows, columns))


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
        elif part.type == "em_open":
            styles.append("dim")
        elif part.type == "em_close":
            styles.pop()
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


def _print_table(
    console: Console, columns: list[Text], rows: list[list[Text]], right: list[bool]
) -> None:
    """Print a table that cuts nothing.

    Long cells are folded between their words, and short ones stay in one piece. Columns stand close
    where they must. On a terminal too narrow for that, each cell has a line of its own; elsewhere
    the table goes beyond the edge.
    """
    from rich.table import Table
    from rich.text import Text

    by_column = list(zip(columns, *rows, strict=True))
    least = [max(name.cell_len, *map(_least, cells)) for name, *cells in by_column]
    whole = [max(map(_whole, cells)) for cells in by_column]
    tight = sum(least) + 2 * (len(columns) - 1) > console.width
    spare = console.width - (len(columns) - 1) * (2 - tight) - sum(least)
    if console.is_terminal and spare < 0:
        for row in rows:
            for name, cell in zip(columns, row, strict=True):
                console.print(Text.assemble((f"{name}: " if name else "", "bold"), cell))
            console.print()
        return
    table = Table(box=None, header_style="bold", pad_edge=False, collapse_padding=tight)
    for name, width, numeric in zip(columns, _widths(least, whole, spare), right, strict=True):
        justify: Any = "right" if numeric else "left"
        table.add_column(name, justify=justify, min_width=width, max_width=width)
    apart = any("\n" in cell.plain for row in rows for cell in row)
    for i, row in enumerate(rows):
        if apart and i:
            table.add_row()
        table.add_row(*row)
    console.print(table, crop=False)


def _widths(least: list[int], whole: list[int], spare: int) -> list[int]:
    """Return the columns' widths: spare width goes to the narrowest that are folded."""
    widths = list(least)
    while spare > 0 and (folded := [i for i, width in enumerate(widths) if width < whole[i]]):
        widths[min(folded, key=widths.__getitem__)] += 1
        spare -= 1
    return widths


def _whole(cell: Text) -> int:
    """Return the width of a cell that is not folded."""
    return max(line.cell_len for line in cell.split(allow_blank=True))


def _least(cell: Text) -> int:
    """Return the least width of a cell: its own if it is short, else that of its longest word."""
    from rich.cells import cell_len

    lines = cell.plain.split("\n")
    words = [line.split() if cell_len(line) > ONE_PIECE else [line] for line in lines]
    return max(cell_len(word) for of_line in words for word in of_line)


MOST_ROWS = 40


def about(result: xr.Dataset, *names: str) -> dict[str, Any]:
    """Return what a result says about how it was made, as plain data: these attributes as well."""
    said = {name: json.loads(result.attrs[name]) for name in ("spec", "versions")}
    return said | {name: result.attrs[name] for name in names}


def in_a_line(run: Simulation) -> str:
    """Return the classes, data and motion of a run in a line."""
    task, size = run.task, run.gradient.size
    length = "T to infinity" if task.infinite else f"T = {task.length}"
    drawn = "" if task.training_set is None else f" of a training set of {task.training_set}"
    gradient = f"population{drawn}" if size is None else f"batches of {size}{drawn}"
    names = ", ".join(dict.fromkeys(of.name for of in run.optimizers.values()))
    motion = f"{run.last:g} steps of {names}" if names else f"gradient flow to time {run.last:g}"
    return f"{run.sets[0].origin}: {length}, {gradient}, {motion}"


def records(result: xr.Dataset, dims: Sequence[str], **columns: xr.DataArray) -> list[Any]:
    """Return a row for each point of these dims: their coords and the value of each column."""
    import xarray as xr

    table = xr.Dataset(
        {name: of.reset_coords(drop=True) for name, of in columns.items()},
        {dim: result[dim] for dim in dims},
    )
    frame = table.to_dataframe(dim_order=dims).reset_index()
    rows: list[Any] = frame[[*dims, *columns]].to_dict("records")
    return rows


def summarise(result: xr.Dataset, classes: Any, times: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Return a row per learning rates, head and class: means over seeds of what was recorded.

    times: names of predicted times, which have no seeds.
    """
    import xarray as xr

    from attnlab import measures
    from attnlab.measures.motion import FEWEST_RECORDS

    clock = measures.clock_of(result)
    tokens = {"query": classes.query, "next": classes.next_token}
    columns = {name: xr.DataArray(of, dims="sequence_class") for name, of in tokens.items()}
    if "attention" in result:
        last = result["attention"].isel({clock: -1}, drop=True).mean("seed")
        columns |= {"dominant_token": last.argmax("token"), "dominant_attention": last.max("token")}
    if "entropy" in result:
        for name in ("entropy", "common_mass"):
            for end, at in (("start", 0), ("end", -1)):
                columns[f"{name}_{end}"] = result[name].isel({clock: at}, drop=True).mean("seed")
    if "attention" in result and result.sizes[clock] >= FEWEST_RECORDS:
        snap = measures.snap_time(result)
        columns[f"snap_{clock}"] = snap.mean("seed")
        columns["moved_since_snap"] = measures.moved_since(result, snap).mean("seed")
    columns |= {name: result[name] for name in times}
    several = [dim for dim in ("eta_y", "eta_z", "head") if dim in result.dims]
    rows = records(result, [*several, "sequence_class"], **columns)
    names = [name for name in ("query", "next", "dominant_token") if name in columns]
    return [row | {name: classes.token_name(row[name]) for name in names} for row in rows]


def show_summary(summary: Sequence[dict[str, Any]], clock: str, times: Sequence[str] = ()) -> None:
    """Print the rows as a table; what is absent in them has no column.

    times: names of predicted times, which have columns of their own.
    """
    snap = f"snap_{clock}"
    # As many digits as are the same on every machine; --json has all of them.
    columns = {
        "eta_y": "eta_y",
        "eta_z": "eta_z",
        "head": "head",
        "sequence_class": "class",
        "query": "query",
        "next": "next",
        "dominant_token": ("winner", ">"),
        "dominant_attention": ("attention", ".3g"),
        "entropy": ("entropy", ".2f"),
        "common_mass": ("common mass", ".2f"),
        snap: (f"snap {clock}", ".4g"),
        "moved_since_snap": ("moved since", ".2g"),
        **{name: (name, ".4g") for name in times},
    }
    rows = [
        {
            **row,
            **{
                name: (row[f"{name}_start"], row[f"{name}_end"])
                for name in ("entropy", "common_mass")
                if f"{name}_start" in row
            },
        }
        for row in summary[:MOST_ROWS]
    ]
    show_table(rows, columns)
    if len(summary) > MOST_ROWS:
        say(f"... {len(summary) - MOST_ROWS} more rows; --json prints them all")
    if any(math.isnan(row.get(snap, 0)) for row in summary):
        show(
            f"*snap {clock}: - where attention still moves at the end, or records are too unequal*"
        )

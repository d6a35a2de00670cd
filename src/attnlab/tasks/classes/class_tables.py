"""Sequence classes as a table of weights (CSV), as a spreadsheet or the playground has them.

The first row has a word for the next word of each class, the first column the words. `was -> won`
in the first row names the query too; without it, it is the first cell, or "is" where that is
"word". The playground's page has the same rules (`playground/page/tables.js`); a test compares
the two.
"""

from __future__ import annotations

import math
import re
from typing import Any

from attnlab.files.documents import shown
from attnlab.files.errors import InputError

# the first of them in the first row, outside quotes, separates all cells
_FIRST_MARK = re.compile(r'[ \r\n]*(?:[^;\t,"\r\n]|"(?:[^"]|"")*")*([;\t,])')
_ARROW = re.compile(r"(.*?)[ \t]*(?:→|->)[ \t]*(.*)", re.DOTALL)
_NUMBER = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")
_BREAK = re.compile(r"\r\n|\r|\n")
_EXPECTED = "expected a first row with the next words and a row of weights for each word"


def parse_table(text: str) -> dict[str, Any]:
    """The document of classes that a table stands for."""
    rows = _rows(text)
    if len(rows) < 2 or len(rows[0][1]) < 2:
        raise InputError(f"table: {_EXPECTED}")
    (_, (corner, *heads)), *rest = rows
    usual = "is" if corner.lower() in ("", "word", "words") else corner
    pairs = [found.groups() if (found := _ARROW.fullmatch(h)) else (usual, h) for h in heads]
    classes: list[dict[str, Any]] = [{"query": m, "next": n, "probs": {}} for m, n in pairs]
    words: dict[str, None] = {}
    for line, (word, *weights) in rest:
        where = f"table: line {line}"
        if not word:
            raise InputError(f"{where}: a row without a word; its first cell is the word")
        if word in words:
            raise InputError(f"{where}: {word!r} has a row already; keep one")
        if len(weights) > len(classes):
            raise InputError(
                f"{where}: {len(weights)} weights for {len(classes)} kinds of sentences; "
                f"{_EXPECTED}"
            )
        words[word] = None
        for of, weight in zip(classes, weights, strict=False):
            if not weight:
                continue
            if not _NUMBER.fullmatch(weight) or not 0 <= float(weight) < math.inf:
                raise InputError(
                    f"{where}: expected a number of at least 0 for {word!r}, got {shown(weight)}"
                )
            if float(weight) > 0:
                of["probs"][word] = float(weight)
    for pair in pairs:
        words.update(dict.fromkeys(pair))
    return {"vocabulary": list(words), "normalize": True, "classes": classes}


def _rows(text: str) -> list[tuple[int, list[str]]]:
    """The rows that have something in them, as cells, each with its line."""
    first = _FIRST_MARK.match(text)
    mark = first[1] if first else ","
    cell = re.compile(rf' *"((?:[^"]|"")*)" *|([^{mark}"\r\n][^{mark}\r\n]*)?')
    rows: list[tuple[int, list[str]]] = []
    cells: list[str] = []
    at, line, began = 0, 1, 1
    while True:
        found = cell.match(text, at)
        assert found is not None
        quoted, bare = found.groups()
        cells.append((bare or "" if quoted is None else quoted.replace('""', '"')).strip(" \t"))
        line += len(_BREAK.findall(found[0]))
        at = found.end()
        sign = text[at : at + 1]
        if sign == mark:
            at += 1
            continue
        if sign not in ("", "\r", "\n"):
            raise InputError(
                f"table: line {line}: a quote is not closed, or closes before the end; double a "
                "quote that is meant"
            )
        if any(cells):
            rows.append((began, cells))
        if not sign:
            return rows
        at += 2 if text.startswith("\r\n", at) else 1
        line += 1
        began, cells = line, []

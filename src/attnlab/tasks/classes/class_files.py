"""Sequence classes in YAML, JSON and CSV files. The schema is in docs/sequence-classes.md.

A token is written as its name or its id. A reference that is one of the names is that name, even
where YAML reads it as a number (the word ``1987``); otherwise a whole number is an id, also in
quotes, since JSON has no other keys. A vocabulary in which some names are numbers takes no ids,
because a reader could not tell them apart.
"""

import difflib
import json
import math
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from attnlab.files import documents
from attnlab.files.atomic import atomic_path
from attnlab.files.documents import (
    SUFFIXES,
    check_keys,
    document_suffix,
    dump_json,
    dump_yaml,
    parse_document,
    read_document,
    shown,
    within,
)
from attnlab.files.errors import InputError, check_name
from attnlab.files.memory import size_words
from attnlab.tasks.classes.classes import SUM_TOLERANCE, SequenceClasses

NOUN = "sequence classes"
ADVICE = "see docs/sequence-classes.md, or make such classes in Python"
# Token ids are 32-bit on an accelerator.
MAX_VOCABULARY = 2**31 - 1

_FILE_KEYS = ("vocabulary", "normalize", "classes")
_CLASS_KEYS = ("query", "next", "prior", "probs")

_ID = re.compile(r"0|[1-9][0-9]*")

# the first of them in the first row, outside quotes, separates all cells
_FIRST_MARK = re.compile(r'[ \r\n]*(?:[^;\t,"\r\n]|"(?:[^"]|"")*")*([;\t,])')
_ARROW = re.compile(r"(.*?)[ \t]*(?:→|->)[ \t]*(.*)", re.DOTALL)
_NUMBER = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")
_BREAK = re.compile(r"\r\n|\r|\n")
_EXPECTED = "expected a first row with the next words and a row of weights for each word"


def read_classes(path: str | os.PathLike[str]) -> SequenceClasses:
    """Read sequence classes from a .yaml, .yml, .json or .csv file; its path becomes their origin.

    Parameters
    ----------
    path : str or path
        The file.

    Returns
    -------
    SequenceClasses
        The classes.
    """
    path = Path(path)
    document = read_document(path, noun=NOUN, advice=ADVICE, others=TABLES)
    try:
        return classes_from_document(document, origin=str(path))
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def parse_classes(text: str, *, suffix: str = ".json", origin: str = "text") -> SequenceClasses:
    """Return sequence classes from the text of a file; `suffix` is its format."""
    return classes_from_document(parse_document(text, suffix=suffix, advice=ADVICE), origin=origin)


def format_classes(classes: SequenceClasses, *, suffix: str = ".json") -> str:
    """Return sequence classes as the text of a file; parsing it gives equal ones."""
    document = classes_document(classes)
    return dump_json(document) if suffix == ".json" else dump_yaml(document)


def write_classes(classes: SequenceClasses, path: str | os.PathLike[str]) -> None:
    """Write sequence classes to a .yaml, .yml or .json file, so that reading gives equal ones.

    Probabilities keep every bit. The file appears complete or not at all.

    Parameters
    ----------
    classes : SequenceClasses
        What to write.
    path : str or path
        The file.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from attnlab.tasks.classes import read_classes, write_classes
    >>> from attnlab.papers.scan_and_snap.classes import syn_small
    >>> path = Path(tempfile.mkdtemp()) / "classes.json"
    >>> write_classes(syn_small(), path)
    >>> read_classes(path) == syn_small()
    True
    """
    path = Path(path)
    text = format_classes(classes, suffix=document_suffix(path, noun=NOUN))
    most = documents.MAX_BYTES
    if len(data := text.encode()) > most:
        raise InputError(
            f"{path}: would be {size_words(len(data))}, more than the {size_words(most)} that can "
            "be read back; make such classes in Python"
        )
    try:
        with atomic_path(path) as temporary:
            temporary.write_bytes(data)
    except OSError as error:
        raise InputError(
            f"{path}: cannot be written: {error.strerror}" if error.strerror else str(error)
        ) from error


# -- from a document to classes -----------------------------------------------------------------


def classes_from_document(document: Any, *, origin: str = "document") -> SequenceClasses:
    """Return sequence classes from the content of a file."""
    if document is None:
        raise InputError("the file is empty; it needs the keys vocabulary and classes")
    check_keys("", document, _FILE_KEYS, needed=("vocabulary", "classes"))
    vocabulary = _Vocabulary(document["vocabulary"])
    normalize = document.get("normalize", False)
    if not isinstance(normalize, bool):
        raise InputError(f"normalize: expected true or false, got {shown(normalize)}")
    items = document["classes"]
    if not isinstance(items, list) or not items:
        raise InputError(f"classes: expected a list of at least one class, got {shown(items)}")

    query, next_token, rows = [], [], []
    for k, item in enumerate(items):
        where = f"classes[{k}]"
        check_keys(where, item, _CLASS_KEYS, needed=("query", "next", "probs"))
        query.append(vocabulary.token(f"{where}.query", item["query"]))
        next_token.append(vocabulary.token(f"{where}.next", item["next"]))
        rows.append(_row(f"{where}.probs", item["probs"], vocabulary, normalize))
    return SequenceClasses(
        probs=rows,
        query=query,
        next_token=next_token,
        prior=_prior(items, normalize),
        vocab_size=vocabulary.size,
        names=vocabulary.names,
        origin=origin,
    )


class _Vocabulary:
    """The tokens of a file: their number, names if any, and the ids of references."""

    def __init__(self, vocabulary: Any) -> None:
        self.names: list[str] | None = None
        if isinstance(vocabulary, list):
            if not vocabulary:
                raise InputError("vocabulary: empty; give at least one token name")
            self.names = [_name(f"vocabulary[{i}]", name) for i, name in enumerate(vocabulary)]
            self.size = len(self.names)
        elif _is_whole(vocabulary) and 1 <= vocabulary <= MAX_VOCABULARY:
            self.size = vocabulary
        else:
            raise InputError(
                f"vocabulary: expected a list of token names or a size from 1 to {MAX_VOCABULARY}, "
                f"got {shown(vocabulary)}"
            )
        self._ids: dict[str, int] = {}
        for i, name in enumerate(self.names or ()):
            if self._ids.setdefault(name, i) != i:
                raise InputError(f"vocabulary[{i}]: {name!r} is listed twice")
        self._number_name = next((name for name in self._ids if _ID.fullmatch(name)), None)

    def token(self, where: str, reference: Any) -> int:
        """Return the id of a token given by name or id."""
        if not isinstance(reference, str) and not _is_whole(reference):
            raise InputError(f"{where}: expected a token name or id, got {_quoted(reference)}")
        name = str(reference)
        if name in self._ids:
            return self._ids[name]
        if _is_whole(reference) or _ID.fullmatch(reference):
            if self._number_name is not None:
                raise InputError(
                    f"{where}: no token is named {name!r}, and ids are refused where names are "
                    f"numbers (here {self._number_name!r}); give the name"
                )
            if not 0 <= (token := int(reference)) < self.size:
                raise InputError(f"{where}: token id {token} is outside 0..{self.size - 1}")
            return token
        if self.names is None:
            raise InputError(
                f"{where}: {name!r} is not a token id; list the names under vocabulary to use them"
            )
        near = difflib.get_close_matches(name, self.names[:10_000], n=1)
        hint = f"did you mean {near[0]!r}?" if near else "add it to the vocabulary"
        raise InputError(f"{where}: no token is named {name!r}; {hint}")


def _row(where: str, probs: Any, vocabulary: _Vocabulary, normalize: bool) -> dict[int, float]:
    if not isinstance(probs, dict) or not probs:
        raise InputError(
            f"{where}: expected a mapping of at least one token to its probability, "
            f"got {shown(probs)}"
        )
    row: dict[int, float] = {}
    for reference, value in probs.items():
        here = within(where, reference)
        token = vocabulary.token(here, reference)
        if token in row:
            raise InputError(f"{here}: token {token} is listed twice, by name and by id")
        row[token] = _weight(here, value)
    total = _divisor(where, row.values(), normalize, "sums to {}; it must")
    return {token: value / total for token, value in row.items()}


def _prior(items: list[dict[str, Any]], normalize: bool) -> list[float] | None:
    given = ["prior" in item for item in items]
    if not any(given):
        return None
    if not all(given):
        k = given.index(False)
        raise InputError(f"classes[{k}].prior: missing; give a prior to every class or to none")
    prior = [_weight(f"classes[{k}].prior", item["prior"]) for k, item in enumerate(items)]
    total = _divisor("classes[*].prior", prior, normalize, "the priors sum to {}; they must")
    return [value / total for value in prior]


def _divisor(where: str, weights: Iterable[float], normalize: bool, words: str) -> float:
    """Return what weights are to be divided by; refuse those that do not sum to 1."""
    try:
        total = math.fsum(weights)
    except OverflowError:
        total = math.inf
    if normalize:
        if not 0 < total < math.inf:
            raise InputError(f"{where}: the weights sum to {total}, which cannot be normalised")
        return total
    if abs(total - 1) > SUM_TOLERANCE:
        raise InputError(
            f"{where}: {words.format(f'{total:.9g}')} sum to 1 "
            "(or set `normalize: true` at the top of the file)"
        )
    return 1.0  # rows are kept to the last bit


def _weight(where: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InputError(f"{where}: expected a number, got {shown(value)}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not 0 <= number < math.inf:
        raise InputError(f"{where}: expected a finite number of at least 0, got {number}")
    return number


def _name(where: str, name: Any) -> str:
    if not isinstance(name, str) and not _is_whole(name):
        raise InputError(f"{where}: expected a token name, got {_quoted(name)}")
    name = str(name)
    check_name(where, name)
    return name


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _quoted(value: Any) -> str:
    if value is None or isinstance(value, (bool, float)):
        return f"{json.dumps(value)}; if that is a name, put it in quotes"
    return shown(value)


# -- from classes to a document -----------------------------------------------------------------


def classes_document(classes: SequenceClasses) -> dict[str, Any]:
    """Return the content of a file of classes."""
    names = classes.names
    label: Any = range(classes.vocab_size) if names is None else names
    uniform = np.all(classes.prior == 1.0 / classes.num_classes)
    items = []
    for k in range(classes.num_classes):
        item = {"query": label[int(classes.query[k])], "next": label[int(classes.next_token[k])]}
        if not uniform:
            item["prior"] = float(classes.prior[k])
        support, values = classes.support(k).tolist(), classes.probabilities(k).tolist()
        item["probs"] = {label[token]: value for token, value in zip(support, values, strict=True)}
        items.append(item)
    return {"vocabulary": classes.vocab_size if names is None else list(names), "classes": items}


# -- tables of weights ---------------------------------------------------------------------------


def parse_table(text: str) -> dict[str, Any]:
    """Return the document of classes that a table of weights (CSV) stands for.

    The first row has a word for the next word of each class, the first column the words. `was ->
    won` in the first row names the query too; without it, it is the first cell, or "is" where that
    is "word". The playground's page has the same rules (`playground/page/tables.js`); a test
    compares the two.
    """
    rows = _rows(text)
    if len(rows) < 2 or len(rows[0][1]) < 2:
        raise InputError(f"table: {_EXPECTED}")
    (_, (corner, *heads)), *rest = rows
    query = "is" if corner.lower() in ("", "word", "words") else corner
    pairs = [found.groups() if (found := _ARROW.fullmatch(h)) else (query, h) for h in heads]
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
    """Return the rows that are not empty as cells, each with its line."""
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


TABLES = {".csv": parse_table}
CLASS_SUFFIXES = (*SUFFIXES, *TABLES)  # of files that are read

"""Sequence classes in YAML, JSON and CSV files. The schema is in docs/sequence-classes.md.

A token is written as its name or its id. A reference that is one of the names is that name, even
where YAML reads it as a number (the word ``1987``); otherwise a whole number is an id, also in
quotes, since JSON has no other keys. A vocabulary in which some names are numbers takes no ids,
because a reader could not tell them apart.
"""

from __future__ import annotations

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
from attnlab.files.errors import InputError
from attnlab.files.memory import size_words
from attnlab.files.names import check_name
from attnlab.tasks.classes.class_tables import parse_table
from attnlab.tasks.classes.classes import SUM_TOLERANCE, SequenceClasses

NOUN = "sequence classes"
ADVICE = "see docs/sequence-classes.md, or make such classes in Python"
TABLES = {".csv": parse_table}
CLASS_SUFFIXES = (*SUFFIXES, *TABLES)  # of files that are read
# Token ids are 32-bit on an accelerator.
MAX_VOCABULARY = 2**31 - 1

_FILE_KEYS = ("vocabulary", "normalize", "classes")
_CLASS_KEYS = ("query", "next", "prior", "probs")

_ID = re.compile(r"0|[1-9][0-9]*")


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
    """Sequence classes from the text of such a file; `suffix` says its format."""
    return classes_from_document(parse_document(text, suffix=suffix, advice=ADVICE), origin=origin)


def format_classes(classes: SequenceClasses, *, suffix: str = ".json") -> str:
    """Sequence classes as the text of a file, so that parsing gives equal ones."""
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
    """Sequence classes from the content of a file."""
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
    """The tokens of a file: how many, their names if any, and what a reference stands for."""

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
        """The id of a token given by name or id."""
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
    total = _total(row.values())
    if normalize:
        _check_total(where, total)
        return {token: value / total for token, value in row.items()}
    if abs(total - 1) > SUM_TOLERANCE:
        raise InputError(
            f"{where}: sums to {total:.9g}; it must sum to 1 "
            "(or set `normalize: true` at the top of the file)"
        )
    return row


def _prior(items: list[dict[str, Any]], normalize: bool) -> list[float] | None:
    given = ["prior" in item for item in items]
    if not any(given):
        return None
    if not all(given):
        k = given.index(False)
        raise InputError(f"classes[{k}].prior: missing; give a prior to every class or to none")
    prior = [_weight(f"classes[{k}].prior", item["prior"]) for k, item in enumerate(items)]
    total = _total(prior)
    if normalize:
        _check_total("classes[*].prior", total)
        return [value / total for value in prior]
    if abs(total - 1) > SUM_TOLERANCE:
        raise InputError(
            f"classes[*].prior: the priors sum to {total:.9g}; they must sum to 1 "
            "(or set `normalize: true` at the top of the file)"
        )
    return prior


def _total(weights: Iterable[float]) -> float:
    try:
        return math.fsum(weights)
    except OverflowError:
        return math.inf


def _check_total(where: str, total: float) -> None:
    if not 0 < total < math.inf:
        raise InputError(f"{where}: the weights sum to {total}, which cannot be normalised")


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
    """The content of a file of classes."""
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

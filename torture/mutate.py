"""Mutations: of bytes, blindly; and of a document, knowing what must be refused."""

from __future__ import annotations

import copy
import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from random import Random
from typing import Any

# Bytes that mean something to some reader.
MORSELS = (
    b"\0",
    b"\xff",
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    b"\xed\xa0\x80",
    b"\r",
    b"\t",
    b"\x1b[31m",
    b"\xe2\x80\xa8",
    b"&a [*a, *a]",
    b"*a",
    b"<<: ",
    b"!!python/object:os.system ",
    b"!!binary ",
    b"---\n",
    b"? ",
    b"|\n",
    b"[" * 60,
    b"{a: " * 60,
    b"'",
    b'"',
    b"\\ud800",
    b"\\u0000",
    b": ",
    b"- ",
    b"# ",
    b"%",
    b"&s=",
    b",",
    b"=",
    b"null",
    b"true",
    b"NaN",
    b".nan",
    b"-.inf",
    b"1e400",
    b"-1",
    b"0x10",
    b"1_000",
    b"9" * 400,
    b"../../x",
)
HOSTILE_TEXT = (
    "",
    " ",
    "\0",
    "\ud800",
    "\x1b[2J",
    "\u202e",
    "x" * 300,
    "../../../etc/passwd",
    "/dev/zero",
    "nan",
    "1e400",
    "true",
    "no",
    "١٢",
    "a:b=c,d",
    "%s%n",
    "\n",
    "loop.yaml",
)
EXTREMES = (
    0,
    -0.0,
    0.5,
    1e-320,
    1e-300,
    1e-30,
    1e30,
    1e300,
    2**31,
    2**32,
    2**53 + 1,
    2**63,
    2**64,
    10**400,
)


def mutate_bytes(data: bytes, draw: Random) -> bytes:
    """The bytes after one to four blind changes."""
    out = bytearray(data)
    for _ in range(draw.choice((1, 1, 1, 2, 4))):
        at, size = draw.randrange(len(out) + 1), draw.choice((1, 1, 2, 8, 64))
        change = draw.randrange(7)
        if change == 0 and at < len(out):
            out[at] ^= 1 << draw.randrange(8)
        elif change == 1:
            out[at : at + size] = draw.randbytes(size)
        elif change == 2:
            out[at : at + size] = b""
        elif change == 3:
            out[at:at] = out[at : at + size] * draw.choice((1, 3))
        elif change == 4 and draw.random() < 0.3:
            del out[at:]
        elif change == 5:
            start = draw.randrange(len(out) + 1)
            out[at : at + size] = out[start : start + size]
        else:
            out[at : at + draw.choice((0, 0, 1, 8))] = draw.choice(MORSELS)
    return bytes(out)


Change = tuple[bool, Callable[[Random], Any]]


@dataclass(frozen=True)
class Mutation:
    """A changed document, what was done to it and where, and whether it has to be refused."""

    document: Any
    words: str
    must: bool


def mutate(document: Any, draw: Random, may: tuple[str, ...] = ()) -> Mutation:
    """Change one place of a document.

    may: patterns of "PATH CHANGE" (`seeds list`) that may be accepted here. Anything else of which
    `_changes` says so must be refused.
    """
    path = draw.choice(list(_paths(document)))
    old = document
    for key in path:
        old = old[key]
    changes = _changes(old)
    name = draw.choice(list(changes))
    must, change = changes[name]
    words = f"{'.'.join(map(str, path)) or '.'} {name}"
    exempt = any(fnmatchcase(words, pattern) for pattern in may)
    return Mutation(_with(document, path, change(draw)), words, must and not exempt)


def _with(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    """A copy of the document with another value in one place."""
    if not path:
        return value
    changed = copy.copy(document)
    changed[path[0]] = _with(document[path[0]], path[1:], value)
    return changed


def _paths(document: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    items: Any = ()
    if isinstance(document, dict):
        items = document.items()
    elif isinstance(document, list):
        items = enumerate(document)
    for key, value in items:
        yield from _paths(value, (*path, key))


def _changes(old: Any) -> dict[str, Change]:
    """What can be done to a value: by name, whether it must be refused, and what comes of it."""
    changes: dict[str, Change] = {
        "null": (True, lambda draw: None),
        "list": (True, lambda draw: [old]),
        "mapping": (True, lambda draw: {"x": old}),
        "deep": (True, lambda draw: f"@{draw.choice((25, 300, 5000))}@"),  # see `as_text`
    }
    if isinstance(old, bool):
        changes["number"] = (True, lambda draw: int(old))
        changes["text"] = (True, lambda draw: str(old).lower())
    elif isinstance(old, (int, float)):
        changes["not-finite"] = (True, lambda draw: draw.choice((math.nan, math.inf, -math.inf)))
        changes["negative"] = (True, lambda draw: -draw.choice((abs(old) or 1, 1e-3, 1, 2**40)))
        changes["bool"] = (True, lambda draw: draw.random() < 0.5)
        changes["text"] = (True, lambda draw: str(old))
        changes["extreme"] = (False, lambda draw: draw.choice(EXTREMES))
    elif isinstance(old, str):
        changes["bool"] = (True, lambda draw: draw.random() < 0.5)
        changes["number"] = (True, lambda draw: draw.choice((0, 1.5, -1, 10**30)))
        changes["hostile"] = (False, lambda draw: draw.choice(HOSTILE_TEXT))
        changes["longer"] = (False, lambda draw: old + draw.choice(HOSTILE_TEXT))
    elif isinstance(old, dict):
        changes["unknown"] = (True, lambda draw: {**old, draw.choice(("etaz", "", "\0", "é")): 1})
        changes["text"] = (True, lambda draw: "x")
        changes["empty"] = (False, lambda draw: {})
        if old:
            changes["less"] = (False, lambda draw: _without(old, draw.choice(list(old))))
            changes["renamed"] = (True, lambda draw: _renamed(old, draw.choice(list(old))))
    elif isinstance(old, list):
        changes["text"] = (True, lambda draw: "x")
        changes["bool"] = (True, lambda draw: True)
        changes["empty"] = (False, lambda draw: [])
        changes["shorter"] = (False, lambda draw: old[:-1])
        changes["twice"] = (False, lambda draw: [*old, draw.choice(old or [1])])
        changes["mixed"] = (True, lambda draw: [*old, draw.choice((None, True, [], {"x": 1}))])
    return changes


def _without(mapping: dict[Any, Any], key: Any) -> dict[Any, Any]:
    return {name: value for name, value in mapping.items() if name != key}


def _renamed(mapping: dict[Any, Any], key: Any) -> dict[Any, Any]:
    return {f"{name}_" if name == key else name: value for name, value in mapping.items()}


def as_text(document: Any, suffix: str) -> bytes:
    """A document as JSON, or as YAML that says the same.

    "@300@" stands for 300 lists in each other, which Python's own tools could not carry.
    """
    text = json.dumps(document, indent=1)
    text = re.sub(r'"@(\d+)@"', lambda n: "[" * int(n[1]) + "1" + "]" * int(n[1]), text)
    if suffix != ".json":  # JSON is YAML but for its words for what is not finite
        for name, word in {"NaN": ".nan", "-Infinity": "-.inf", "Infinity": ".inf"}.items():
            text = text.replace(f" {name}", f" {word}")
    return text.encode()

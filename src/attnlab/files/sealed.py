"""Sealed JSON: an object in one line, whose last key is the SHA-256 of its text without it.

Any tool reads it, and a change of any byte is noticed.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from typing import Any

from attnlab.files.atomic import atomic_path
from attnlab.files.netcdf import DamagedFile
from attnlab.files.regular import open_regular

_SEALED = re.compile(rb'(\{.*), "sha256": "([0-9a-f]{64})"\}\n', re.DOTALL)


def seal(content: Mapping[str, Any]) -> bytes:
    """Return a line of JSON with its checksum."""
    text = json.dumps(content).encode()
    return text[:-1] + b', "sha256": "%b"}\n' % _sha256(text)


def unseal(line: bytes) -> dict[str, Any]:
    """Return the content of a sealed line; raise ValueError if a byte of it changed."""
    found = _SEALED.fullmatch(line)
    if found is None:
        raise ValueError("no checksum at its end: cut off, edited, or not from attnlab")
    text = found[1] + b"}"
    if found[2] != _sha256(text):
        raise ValueError("its content does not match its checksum")
    content: dict[str, Any] = json.loads(text)
    return content


def write_sealed(
    path: str | os.PathLike[str],
    content: Mapping[str, Any],
    *,
    inside: str | os.PathLike[str] | None = None,
) -> None:
    """Write a sealed line atomically as a file.

    inside: the output folder, where `path` is in one.
    """
    with atomic_path(path, inside=inside) as temporary:
        temporary.write_bytes(seal(content))


def read_sealed(path: str | os.PathLike[str], *, remedy: str) -> dict[str, Any]:
    """Return the content of a sealed file; raise DamagedFile with the remedy if it changed."""
    with open_regular(path) as file:
        data = file.read()
    try:
        return unseal(data)
    except ValueError as problem:
        raise DamagedFile(path, str(problem), remedy) from None


def _sha256(text: bytes) -> bytes:
    return hashlib.sha256(text).hexdigest().encode()

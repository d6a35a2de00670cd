"""Digests: of plain values, and of the code of what is made again whenever its code changes."""

from __future__ import annotations

import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


@cache
def code_digest(*folders: str) -> str:
    """The SHA-256 of all files of these folders.

    For words and drawings, which take seconds; what takes long has a version (`numerics`).
    """
    sha = hashlib.sha256()
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                sha.update(f"{path.relative_to(ROOT)}\n".encode() + path.read_bytes())
    return sha.hexdigest()


def digest_of(values: Any) -> str:
    """The SHA-256 of plain values, independent of the order of keys."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()

"""Digests: of plain values, and of the code of what is made again whenever its code changes."""

from __future__ import annotations

import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LEFT_OUT = {"__pycache__", "recipes", "expected.json"}


@cache
def code_digest(*folders: str) -> str:
    """The SHA-256 of the files of these folders of attnlab, or of others by their whole path.

    For words and drawings, which take seconds; what takes long has a version (`numerics`). A
    paper's recipes, recorded results and page decide nothing by lying there, and are left out.
    """
    sha = hashlib.sha256()
    for folder in folders:
        base = ROOT / folder
        for path in sorted(base.rglob("*")):
            inside = path.relative_to(base)
            aside = not LEFT_OUT.isdisjoint(inside.parts) or path.suffix == ".md"
            if path.is_file() and not aside:
                sha.update(f"{base.name}/{inside.as_posix()}\n".encode() + path.read_bytes())
    return sha.hexdigest()


def digest_of(values: Any) -> str:
    """The SHA-256 of plain values, independent of the order of keys."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()

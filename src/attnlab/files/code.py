"""Which code made a result: a digest of the source, so that a change of code is noticed."""

from __future__ import annotations

import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

from attnlab.files.provenance import versions

ROOT = Path(__file__).resolve().parents[1]
# Other versions of these may round differently, or draw other random numbers.
LIBRARIES = ("jax", "jaxlib", "numpy", "scipy", "optax", "diffrax")


@cache
def code_digest(*folders: str) -> str:
    """The SHA-256 of all files of these folders, the defaults and the libraries' versions."""
    sha = hashlib.sha256()
    installed = versions()
    for library in LIBRARIES:  # a bare accelerator machine has not all of them
        sha.update(f"{library} {installed.get(library)}\n".encode())
    for place in ("defaults.py", *folders):
        for path in sorted([ROOT / place, *(ROOT / place).rglob("*")]):
            if path.is_file() and "__pycache__" not in path.parts:
                sha.update(f"{path.relative_to(ROOT)}\n".encode() + path.read_bytes())
    return sha.hexdigest()


def digest_of(values: Any) -> str:
    """The SHA-256 of plain values, independent of the order of keys."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()

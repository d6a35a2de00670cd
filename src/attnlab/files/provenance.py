"""Provenance: what a result was made from and by."""

from __future__ import annotations

import hashlib
import json
import platform
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

LIBRARIES = ("attnlab", "jax", "jaxlib", "numpy", "scipy", "optax", "diffrax", "xarray")


def versions() -> dict[str, str]:
    """Return the versions of Python and of the libraries that compute results."""
    found = {library: _version(library) for library in LIBRARIES}
    known = {library: version for library, version in found.items() if version is not None}
    return {"python": platform.python_version(), **known}


@cache  # looking them up takes a good part of a small run
def _version(library: str) -> str | None:
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:  # run from a source tree, or an absent extra
        return None


def provenance(spec: dict[str, Any], **measured: Any) -> dict[str, Any]:
    """Return attributes for a dataset: settings and versions as JSON, and plain values."""
    return {
        "made_by": "attnlab",
        "made_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "spec": json.dumps(spec, sort_keys=True),
        "versions": json.dumps(versions(), sort_keys=True),
        **measured,
    }


ROOT = Path(__file__).resolve().parents[1]
LEFT_OUT = {"__pycache__", "recipes", "expected.json"}


@cache
def code_digest(*folders: str) -> str:
    """Return the SHA-256 of the files in folders of attnlab, or in others by their absolute path.

    For texts and drawings, which take seconds; longer work has a version (`numerics`). A paper's
    recipes, recorded results and page are left out.
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
    """Return the SHA-256 of plain values, independent of the order of keys."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()

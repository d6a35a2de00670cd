"""Provenance: what a result was made from and by."""

from __future__ import annotations

import json
import platform
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from typing import Any

LIBRARIES = ("attnlab", "jax", "jaxlib", "numpy", "scipy", "optax", "diffrax", "xarray")


def versions() -> dict[str, str]:
    """Versions of Python and of the libraries that make results."""
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
    """Attributes for a dataset: the full spec and versions as JSON, and plain values beside."""
    return {
        "made_by": "attnlab",
        "made_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "spec": json.dumps(spec, sort_keys=True),
        "versions": json.dumps(versions(), sort_keys=True),
        **measured,
    }

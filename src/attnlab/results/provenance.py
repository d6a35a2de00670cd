"""Provenance: what a result was made from and by."""

from __future__ import annotations

import json
import platform
from datetime import UTC, datetime
from importlib import metadata
from typing import Any

LIBRARIES = ("attnlab", "jax", "jaxlib", "numpy", "scipy", "optax", "diffrax", "xarray")


def versions() -> dict[str, str]:
    """Versions of Python and of the libraries that make results."""
    found = {"python": platform.python_version()}
    for library in LIBRARIES:
        try:
            found[library] = metadata.version(library)
        except metadata.PackageNotFoundError:  # run from a source tree, or an absent extra
            continue
    return found


def provenance(spec: dict[str, Any], **measured: Any) -> dict[str, Any]:
    """Attributes for a dataset: the full spec and versions as JSON, and plain values beside."""
    return {
        "made_by": "attnlab",
        "made_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "spec": json.dumps(spec, sort_keys=True),
        "versions": json.dumps(versions(), sort_keys=True),
        **measured,
    }

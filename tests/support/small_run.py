"""A run that is quick everywhere, as a page has it."""

from __future__ import annotations

from typing import Any

PATIENCE = 300_000  # ms: a busy machine is slow
LIMIT: dict[str, Any] = {
    "task": {"name": "sequences", "classes": "syn-small", "length": "inf"},
    "gradient": {"name": "population"},
    "motion": {"name": "steps", "steps": 50, "optimizer": {"name": "sgd", "momentum": 0.9}},
    "eta_y": 1.0,
    "eta_z": 1.0,
    "init": "zero",
    "seeds": [0],
    "record": {"geometric": 20},
}


def of_page(**parts: Any) -> dict[str, Any]:
    """Return `LIMIT` with other settings of its parts: task={"classes": "family"}, eta_y=2.0."""
    changed = {
        name: {**LIMIT[name], **of} if isinstance(of, dict) and name in LIMIT else of
        for name, of in parts.items()
    }
    return {**LIMIT, **changed}

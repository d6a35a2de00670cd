"""A run that is quick everywhere, as a page has it."""

from __future__ import annotations

from typing import Any

PATIENCE = 300_000  # ms: a busy machine is slow
LIMIT: dict[str, Any] = {
    "classes": "syn-small", "engine": {"name": "limit"}, "eta_y": 1.0, "eta_z": 1.0, "steps": 50,
    "optimizer": {"name": "sgd", "momentum": 0.9}, "init": "zero", "seeds": [0],
    "save": {"geometric": 20},
}  # fmt: skip

"""A sweep of runs on text that takes no time."""

from typing import Any

import numpy as np
import xarray as xr

from attnlab.models import text_transformer
from attnlab.sweeping import Plan, SweepRecipe, make_plan
from attnlab.sweeping.driver import run_plan
from attnlab.sweeping.index import whole
from attnlab.sweeping.store import Memory
from attnlab.tasks.text import Corpus, Text


def counting_text() -> Text:
    """Return a text in which every token follows from the one before."""
    ids = 1 + (np.arange(4000) * 3 % 17).astype(np.int32)
    vocabulary = ("<unk>", *(f"w{i}" for i in range(17)))
    corpus = Corpus("counting", "word", vocabulary, ids[:3000], ids[3000:], "counting")
    return Text(corpus, length=8, validation_tokens=160)


SAME: dict[str, Any] = {
    "model": text_transformer(heads=2, dim=16, mlp=16),
    "seeds": 2,
    "batch_size": 4,
    "clip": 0.5,
    "every": 20,
    "precision": "highest",
}


def tiny(**changes: Any) -> SweepRecipe:
    """Return two settings with two learning rates and two seeds each."""
    grid = changes.pop("grid", {"steps": (40, 60), "learning_rate": (0.5, 2.0)})
    return SweepRecipe(grid=grid, given={"task": counting_text(), **SAME, **changes})


def plan() -> Plan:
    """Return four groups, of one learning rate each."""
    memory = max(shape.cost.memory for shape in make_plan(tiny()).shapes)
    return make_plan(tiny(), memory_budget=2.1 * memory)


def here() -> xr.Dataset:
    """Return what the plan gives in this process."""
    store = Memory()
    return whole(run_plan(plan(), store).index, store.read).load()

"""A sweep of trainings that takes no time; run as a script, its driver, with two workers."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from attnlab.sweeping import Local, Plan, SweepRecipe, make_plan, run_in
from attnlab.sweeping.driver import run_plan
from attnlab.sweeping.store import Memory
from attnlab.sweeping.whole import whole
from attnlab.text import Corpus, TransformerSpec

# the program of tests/text/test_train.py
SPEC = TransformerSpec(layers=1, heads=2, dim=16, feed_forward=16, context=8)


def counting_corpus() -> Corpus:
    """A text in which every token follows from the one before."""
    ids = 1 + (np.arange(4000) * 3 % 17).astype(np.int32)
    vocabulary = ("<unk>", *(f"w{i}" for i in range(17)))
    return Corpus("counting", "word", vocabulary, ids[:3000], ids[3000:], "counting")


def tiny(**changes: Any) -> SweepRecipe:
    """Two settings with two rates and two seeds each."""
    given = {
        "corpus": counting_corpus(), "model": SPEC, "seeds": 2, "batch": 4, "measure_every": 20,
        "validation_tokens": 160,
    }  # fmt: skip
    grid = changes.pop("grid", {"steps": (40, 60), "rate": (0.5, 2.0)})
    return SweepRecipe(grid=grid, given={**given, **changes})


def plan() -> Plan:
    """Four groups, of one rate each."""
    memory = max(shape.cost.memory for shape in make_plan(tiny()).shapes)
    return make_plan(tiny(), memory_budget=2.1 * memory)


def here() -> xr.Dataset:
    """What the plan gives in this process."""
    store = Memory()
    return whole(run_plan(plan(), store).index, store.read).load()


if __name__ == "__main__":
    run_in(Path(sys.argv[1]), plan(), executor=Local(workers=2))

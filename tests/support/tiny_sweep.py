"""A sweep that takes no time, and the same program in every test, so that it is compiled once."""

from typing import Any

from attnlab.dynamics import Limit, Optimizer, Save
from attnlab.sweeping import Plan, SweepRecipe, make_plan

CELLS, SEEDS = 2, 2  # of each setting


def tiny(**changes: Any) -> SweepRecipe:
    """Four settings of one shape, two cells and two seeds each."""
    given = {
        "classes": "single-common:num_classes=2,distinct=2,vocab_size=20",
        "ratio": 2.0,
        "engine": Limit(),
        "optimizer": Optimizer(momentum=0.0),
        "steps": 10,
        "seeds": SEEDS,
        "save": Save(what=("attention", "loss", "statistics"), every=5),
    }
    grid = changes.pop("grid", {"common_prob": (0.1, 0.2, 0.3, 0.4), "eta_z": (0.5, 1.0)})
    return SweepRecipe(about=changes.pop("about", None), grid=grid, given={**given, **changes})


def in_groups(recipe: SweepRecipe, runs: int = CELLS * SEEDS) -> Plan:
    """The plan whose groups have at most so many runs; by default a setting each."""
    whole = make_plan(recipe)
    return make_plan(recipe, memory_budget=runs * max(s.cost.memory for s in whole.shapes))

"""A sweep that takes no time, and the same program in every test, so that it is compiled once."""

from typing import Any

from attnlab import Population, Record
from attnlab.sweeping import Plan, SweepRecipe, make_plan

CELLS, SEEDS = 2, 2  # of each setting


def tiny(**changes: Any) -> SweepRecipe:
    """Return four settings of one shape, two cells and two seeds each; None drops a field."""
    given = {
        "task": "single-common:num_classes=2,distinct=2,vocab_size=20",
        "ratio": 2.0,
        "gradient": Population(),
        "momentum": 0.0,
        "steps": 10,
        "seeds": SEEDS,
        "record": Record(what=("attention", "loss", "statistics"), every=5),
    }
    grid = changes.pop("grid", {"common_prob": (0.1, 0.2, 0.3, 0.4), "eta_z": (0.5, 1.0)})
    about = changes.pop("about", None)
    given = {name: of for name, of in {**given, **changes}.items() if of is not None}
    return SweepRecipe(about=about, grid=grid, given=given)


def in_groups(recipe: SweepRecipe, runs: int = CELLS * SEEDS) -> Plan:
    """Return the plan whose groups have at most `runs` runs; by default a setting each."""
    whole = make_plan(recipe)
    return make_plan(recipe, memory_budget=runs * max(s.cost.memory for s in whole.shapes))

"""Plans: what is grouped, how it is cut, and that a plan counts what will happen."""

import numpy as np
import pytest
from tiny_sweep import in_groups, tiny

from attnlab.dynamics import Embedded, Extended, Flow, Limit, Optimizer, Sampled, Save, program
from attnlab.files.recipe import read_recipe
from attnlab.shelf import recipe_file
from attnlab.sweeping import SweepRecipe, make_plan
from attnlab.sweeping.driver import run_plan
from attnlab.sweeping.plan import plan_document
from attnlab.sweeping.store import Memory

CLASSES = "single-common:num_classes=2,vocab_size=20"


def covered(plan):
    """How often each run is in a group, over (setting, cell, seed)."""
    recipe = plan.recipe
    count = np.zeros((len(recipe.settings()), recipe.points["eta_z"].size, len(recipe.seeds)))
    for group in plan.groups:
        place = group.place
        count[np.ix_(place.settings, range(*place.cells), range(*place.seeds))] += 1
    return count


@pytest.mark.parametrize("runs", [1, 3, 4, 9, 10**6])
def test_every_run_is_in_one_group_of_the_right_size(runs):
    plan = in_groups(tiny(seeds=3), runs)
    assert (covered(plan) == 1).all()
    assert max(group.runs for group in plan.groups) <= runs
    assert sum(group.runs for group in plan.groups) == plan.runs == 4 * 2 * 3
    assert plan.memory <= plan.memory_budget


def test_settings_of_one_shape_share_a_group_and_others_do_not():
    assert len(make_plan(tiny()).groups) == 1
    grid = {"distinct": (2, 3), "common_prob": (0.1, 0.2)}
    plan = make_plan(tiny(classes=CLASSES, grid=grid, eta_z=1.0))
    assert [shape.settings for shape in plan.shapes] == [(0, 1), (2, 3)]
    assert (covered(plan) == 1).all()


def test_what_sequences_are_drawn_from_counts_for_each_setting():
    recipe = tiny(engine=Sampled(length=64, batch_size=4))
    (shape,) = make_plan(recipe).shapes
    of_setting = 4 * shape.cost.memory + shape.cost.tables
    assert shape.cost.tables > 0 and shape.memory == 4 * of_setting
    plan = make_plan(recipe, memory_budget=2 * of_setting)
    assert [len(group.value.classes) for group in plan.groups] == [2, 2]
    assert (covered(plan) == 1).all()


def test_fig6_is_four_compilations_of_160_runs():
    document = plan_document(make_plan(read_recipe(recipe_file("fig6"), SweepRecipe)))
    assert (document["cells"], document["runs"], document["compilations"]) == (64, 640, 4)
    assert [shape["runs_per_group"] for shape in document["shapes"]] == [160] * 4
    assert document["seconds"] > 0


def test_the_plan_counts_the_compilations_that_happen():
    fresh = Optimizer(momentum=0.125)  # which no other test has compiled
    recipe = tiny(grid={"common_prob": (0.15, 0.25)}, eta_z=1.0, seeds=3, optimizer=fresh)
    plan = in_groups(recipe, 2)
    assert len(plan.groups) == 4  # of two classes: two seeds, then one
    before = program.advance.on("cpu")._cache_size()
    run_plan(plan, Memory())
    assert program.advance.on("cpu")._cache_size() - before == plan.compilations == 2


def test_a_group_is_named_by_what_decides_its_numbers():
    (group,) = make_plan(tiny()).groups
    (same,) = make_plan(tiny(about="Other words.")).groups
    assert group.key == same.key
    for changes in (
        {"steps": 11}, {"seeds": 3}, {"ratio": 3.0}, {"dtype": "float64"}, {"init": "uniform"},
        {"engine": Limit(batch_size=2)},
    ):  # fmt: skip
        assert all(other.key != group.key for other in make_plan(tiny(**changes)).groups)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"grid": {"engine.name": ("limit", "flow")}}, "the flow has times, other engines steps"),
        ({"steps": 1.5}, "steps: expected a whole number of at least 1, got 1.5"),
        ({"steps": 1e300}, "steps: expected at most 2,147,483,647, got 1e+300"),
        (
            {"engine": Flow(), "optimizer": Optimizer(momentum=0.5)},
            "optimizer: the flow is that of plain gradient descent",
        ),
        ({"engine": Flow(rtol=1e-9)}, "rtol: expected a number of at least 1"),
        ({"model": Extended(position="learned")}, "use the engine Sampled"),
        (
            {
                "model": Extended(position="learned"),
                "engine": Sampled(length=2**31 - 1),
            },
            "would need",
        ),
        ({"grid": {"steps": (5, 0)}}, "grid: at steps = 0: steps: expected a whole number"),
        (
            {"steps": 2e9, "save": Save("loss", every=1)},
            "save.every: would record each run 2e+09 times; record it at most 10,000,000 times",
        ),
        (
            {"steps": 5, "save": Save("loss", geometric=10**12)},
            "save.geometric: would record each run 1e+12 times",
        ),
        (
            {"model": Embedded(10**9)},
            "would need 80 EB; this machine has",
        ),
        (
            {"engine": Sampled(batch_size=10**12)},
            "take fewer tokens, classes, sequences, dims or records",
        ),
        (
            {"engine": Sampled(sequences=10**12)},
            "would need",
        ),
        (
            {"steps": 10**6, "save": Save(every=1), "grid": {"distinct": (1000,)},
             "classes": "single-common:num_classes=9"},
            "single-common:num_classes=9,distinct=1000,common_prob=0.1: would need",
        ),
    ],
)  # fmt: skip
def test_what_a_plan_refuses_before_anything_is_allocated(changes, message):
    with pytest.raises(ValueError) as caught:
        make_plan(tiny(**{"grid": {}, "eta_z": 1.0, **changes}))
    assert message in str(caught.value)


@pytest.mark.parametrize("budget", [0, -1, float("nan"), float("inf"), True, 10**400])
def test_what_is_no_memory_budget(budget):
    with pytest.raises(ValueError, match="memory_budget: expected a"):
        make_plan(tiny(), memory_budget=budget)

"""Plans: what is grouped, how it is cut, and that a plan counts what will happen."""

import numpy as np
import pytest
from tiny_sweep import in_groups, tiny

from attnlab import Batches, Embedded, Extended, Flow, MarkovChains, Record, Transformer
from attnlab.files.recipe import read_recipe
from attnlab.shelf import recipe_file
from attnlab.simulation.trainer import PACES
from attnlab.sweeping import SweepRecipe, make_plan
from attnlab.sweeping.driver import run_plan
from attnlab.sweeping.plan import plan_document
from attnlab.sweeping.store import Memory

CLASSES = "single-common:num_classes=2,vocab_size=20"


def covered(plan):
    """Return how often each run is in a group, over (setting, cell, seed)."""
    recipe = plan.recipe
    count = np.zeros((len(recipe.settings()), recipe.cells, len(recipe.seeds)))
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
    plan = make_plan(tiny(task=CLASSES, grid=grid))
    assert [shape.settings for shape in plan.shapes] == [(0, 1), (2, 3)]
    assert (covered(plan) == 1).all()


def test_the_tables_that_sequences_are_drawn_from_count_for_each_setting():
    recipe = tiny(length=64, gradient=Batches(4))
    (shape,) = make_plan(recipe).shapes
    of_setting = 4 * shape.cost.memory + shape.cost.tables
    assert shape.cost.tables > 0 and shape.memory == 4 * of_setting
    plan = make_plan(recipe, memory_budget=2 * of_setting)
    assert [len(group.simulation.sets) for group in plan.groups] == [2, 2]
    assert (covered(plan) == 1).all()


def test_fig6_is_four_compilations_of_160_runs():
    document = plan_document(make_plan(read_recipe(recipe_file("fig6"), SweepRecipe)))
    assert (document["cells"], document["runs"], document["compilations"]) == (64, 640, 4)
    assert [shape["runs_per_group"] for shape in document["shapes"]] == [160] * 4
    assert document["seconds"] > 0


def test_the_plan_counts_the_compilations_that_happen():
    # which no other test has compiled
    recipe = tiny(grid={"common_prob": (0.15, 0.25)}, seeds=3, momentum=0.125)
    plan = in_groups(recipe, 2)
    assert len(plan.groups) == 4  # of two classes: two seeds, then one
    before = len(PACES)  # of all programs
    run_plan(plan, Memory())
    assert len(PACES) - before == plan.compilations == 2


def test_a_group_is_named_by_what_decides_its_numbers():
    (group,) = make_plan(tiny()).groups
    (same,) = make_plan(tiny(about="Other words.")).groups
    assert group.key == same.key
    for changes in (
        {"steps": 11},
        {"seeds": 3},
        {"ratio": 3.0},
        {"dtype": "float64"},
        {"init": "uniform"},
        {"gradient": Batches(2), "length": "inf"},
    ):
        assert all(other.key != group.key for other in make_plan(tiny(**changes)).groups)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"steps": None, "momentum": None, "grid": {"motion": ("steps", "flow")}},
            "grid.motion: a flow has times and others have steps; make two sweeps",
        ),
        ({"steps": 1.5}, "steps: expected a whole number of at least 1, got 1.5"),
        ({"steps": 10**300}, "steps: expected at most 2,147,483,647, got 1000"),
        (
            {"steps": None, "momentum": None, "motion": Flow(rtol=1e-9)},
            "rtol: expected a number of at least 1",
        ),
        ({"model": Extended(position="learned")}, "position: for T to infinity"),
        (
            {"model": Extended(position="learned"), "gradient": Batches(), "length": 2**31 - 1},
            "would need",
        ),
        (
            {"steps": None, "grid": {"steps": (5, 0)}},
            "grid: at steps = 0: steps: expected a whole number",
        ),
        (
            {"steps": 2 * 10**9, "record": Record("loss", every=1)},
            "record.every: would record each run 2e+09 times; record it at most 10,000,000 times",
        ),
        (
            {"steps": 5, "record": Record("loss", geometric=10**12)},
            "record.geometric: would record each run 1e+12 times",
        ),
        ({"model": Embedded(10**9)}, "would need 80 EB; this machine has"),
        ({"gradient": Batches(10**12)}, "take fewer tokens, classes, sequences, dims or records"),
        ({"gradient": Batches(), "training_set": 10**12}, "would need"),
        (
            {
                "steps": 10**6,
                "record": Record(every=1),
                "grid": {"distinct": (1000,)},
                "task": "single-common:num_classes=9",
            },
            "single-common:num_classes=9,distinct=1000,common_prob=0.1: would need",
        ),
        (
            {
                "task": MarkovChains(3, 8),
                "model": Transformer(dim=10**7),
                "ratio": None,
                "learning_rate": 0.1,
                "gradient": Batches(),
                "record": None,
            },
            "MarkovChains: would need",
        ),
    ],
)
def test_what_a_plan_refuses_before_anything_is_allocated(changes, message):
    with pytest.raises(ValueError) as caught:
        make_plan(tiny(**{"grid": {}, **changes}))
    assert message in str(caught.value)


@pytest.mark.parametrize("budget", [0, -1, float("nan"), float("inf"), True, 10**400])
def test_a_wrong_memory_budget_is_refused(budget):
    with pytest.raises(ValueError, match="memory_budget: expected a"):
        make_plan(tiny(), memory_budget=budget)

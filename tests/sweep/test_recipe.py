"""Sweep recipes: any parameter can be swept, and what cannot be is refused in one line."""

import re

import numpy as np
import pytest
from tiny_sweep import tiny

from attnlab.data import classes_from
from attnlab.dynamics import AlibiPosition, Embedded, Extended, LearnedPosition, Sampled
from attnlab.files.recipe import as_value, read_recipe
from attnlab.shelf import recipe_file
from attnlab.sweeping import SweepRecipe

SMALL = {"classes": "syn-medium", "eta_y": 1, "eta_z": 1, "steps": 5}


def test_a_figures_recipe_is_a_sweep_and_a_sweep_needs_no_lab_note():
    recipe = read_recipe(recipe_file("fig6"), SweepRecipe)
    assert recipe.about.startswith("Attention over distinct tokens")
    assert len(recipe.settings()) == 4
    assert as_value("", SMALL, SweepRecipe).about is None
    assert as_value("", {**SMALL, "seeds": [4, 2]}, SweepRecipe).seeds == (4, 2)


def test_every_kind_of_parameter_can_be_swept():
    grid = {
        "num_last": [1, 2],
        "engine.length": [8, 16],
        "optimizer.momentum": [0.0, 0.9],
        "model.heads": [1, 2],
        "init": ["zero", "uniform"],
        "steps": [5, 10],
        "eta_z": [0.5, 1],
    }
    document = {
        "classes": "syn-medium", "grid": grid, "ratio": 2, "steps": 1,
        "engine": {"name": "sampled"}, "model": {"name": "extended", "residual": True},
    }  # fmt: skip
    recipe = as_value("", document, SweepRecipe)
    assert list(recipe.dims()) == [
        "num_last", "length", "momentum", "heads", "init", "steps", "eta_z",
    ]  # fmt: skip
    settings = recipe.settings()
    assert len(settings) == 2**6
    last, classes = settings[-1]
    assert classes == classes_from("syn-medium:num_last=2")
    assert last.engine == Sampled(length=16)
    assert last.optimizer.momentum == 0.9
    assert last.model == Extended(residual=True, heads=2)
    assert (last.init, last.steps) == ("uniform", 10)
    np.testing.assert_array_equal(recipe.points["eta_y"], [1, 2])
    np.testing.assert_array_equal(recipe.points["eta_z"], [0.5, 1])


def test_names_and_classes_can_be_swept_and_parameters_keep_all_their_digits():
    recipe = tiny(grid={"classes": ("syn-small", "syn-medium"), "optimizer.name": ("sgd", "adam")},
                  eta_z=1.0)  # fmt: skip
    assert list(recipe.dims()) == ["classes", "optimizer"]
    assert [way.optimizer.name for way, _ in recipe.settings()] == ["sgd", "adam"] * 2
    ((_, classes),) = tiny(grid={"common_prob": (0.1234567890123,)}, eta_z=1.0).settings()
    assert "common_prob=0.1234567890123" in classes.origin


def test_what_is_usual_for_one_optimiser_is_not_carried_to_another():
    recipe = tiny(grid={"optimizer.name": ("adam", "adamw")}, eta_z=1.0)
    assert [way.optimizer.weight_decay for way, _ in recipe.settings()] == [0.0, 0.01]


def test_a_parameter_of_the_grid_replaces_that_of_the_name():
    recipe = tiny(classes="syn-medium:num_last=3, next_per_last=2", eta_z=1.0,
                  grid={"num_last": (1, 2)})  # fmt: skip
    made = [classes for _, classes in recipe.settings()]
    assert made == [classes_from(f"syn-medium:num_last={n},next_per_last=2") for n in (1, 2)]


def test_whole_parts_and_what_is_deep_inside_can_be_swept():
    models = (Embedded(7), {"name": "extended", "heads": 2})
    recipe = tiny(grid={"model": models}, eta_z=1.0)
    assert [way.model for way, _ in recipe.settings()] == [Embedded(7), Extended(heads=2)]
    assert recipe.axes()[0] == {"model": ("embedded:dim=7", "extended:heads=2")}
    model = Extended(position=AlibiPosition(0.1))
    for name, values, expected in (
        ("model.position.slope", (0.5,), AlibiPosition(0.5)),
        ("model.position", ({"name": "alibi", "slope": 0.5},), AlibiPosition(0.5)),
        ("model.position", (LearnedPosition(),), LearnedPosition()),
        ("model.position", ("alibi:0.25",), AlibiPosition(0.25)),
    ):
        recipe = tiny(grid={name: values}, eta_z=1.0, model=model, engine=Sampled(8, 4))
        ((way, _),) = recipe.settings()
        assert way.model == Extended(position=expected)


def test_a_recipe_reads_as_it_was_written():
    recipe = tiny(grid={"model": (Extended(heads=2),), "eta_z": (0.5, 1.0)})
    assert as_value("", recipe.to_document(), SweepRecipe).to_document() == recipe.to_document()
    assert as_value("", recipe.to_document(), SweepRecipe).base == recipe.base


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"grid": {"eta_y": (1.0,)}, "ratio": None}, "grid: give eta_z, and either eta_y or ratio"),
        ({"grid": {"eta_z": (1.0,), "eta_y": (1.0,)}}, "either eta_y or ratio"),
        ({"grid": {"eta_z": (1.0, 1.0)}}, "grid.eta_z: expected a list of different values"),
        ({"grid": {"eta_z": ()}}, "grid.eta_z: expected a list"),
        ({"eta_z": 1.0}, "eta_z: is swept in the grid"),
        ({"steps": 0}, "steps: expected a positive number"),
        ({"seeds": 0}, "seeds: expected at least 1"),
        ({"seeds": (1, 1)}, "seeds: expected at least 1, or a list"),
        ({"init": "one"}, "init: expected one of"),
    ],
)
def test_what_a_recipe_refuses(changes, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        tiny(**changes)


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        ({"engine.batch_size": ("a",)}, "engine.batch_size: expected a whole number, got 'a'"),
        ({"engine.length": (8,)}, "engine.length: belongs to the engine 'sampled', not to 'limit'"),
        ({"optimizer.momentum": (1.5,)}, "optimizer.momentum: expected a number in [0, 1)"),
        ({"model.name": ("embedded",)}, "model.dim: missing; the model 'embedded' needs it"),
    ],
)
def test_what_a_grid_refuses(grid, message):
    recipe = tiny(grid=grid, eta_z=1.0)
    with pytest.raises(ValueError, match=re.escape(message)):
        recipe.settings()


NAN, INFINITE = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"grid": {"etaz": [1]}}, "grid.etaz: unknown key; did you mean 'eta_z'?"),
        ({"grid": {"engine.lenght": [3]}}, "grid.engine.lenght: unknown key; did you mean"),
        ({"grid": {"save.every": [1]}}, "grid.save.every: unknown key; known: eta_y, eta_z, ratio"),
        ({"grid": {"num_lst": [1]}}, "grid.num_lst: unknown key; did you mean 'num_last'?"),
        (
            {"grid": {"num_last": [1]}, "classes": "syn-mediun"},
            "grid.num_last: unknown key; known: eta_y, eta_z, ratio, init, steps, classes, ",
        ),
        (
            {"grid": {"num_last": [1]}, "classes": "mine.yaml"},
            "'mine.yaml' has no parameters of its own",
        ),
        ({"eta_z": "nan"}, "eta_z: expected a number, got 'nan'"),
        ({"eta_z": NAN}, "eta_z: expected a finite number, got nan"),
        ({"eta_z": -1}, "eta_z: expected a number of at least 0 that is finite in float32, got -1"),
        ({"eta_z": None, "grid": {"eta_z": ["nan"]}}, "eta_z[0]: expected a number, got 'nan'"),
        ({"eta_z": None, "grid": {"eta_z": [1, NAN]}}, "grid.eta_z[1]: expected a finite number"),
        ({"eta_z": None, "grid": {"eta_z": [INFINITE]}}, "grid.eta_z[0]: expected a finite number"),
        ({"eta_z": None, "grid": {"eta_z": [-0.5]}}, "eta_z[0]: expected a number of at least"),
        ({"eta_z": None, "grid": {"eta_z": [True]}}, "grid.eta_z[0]: expected a number, got True"),
        ({"eta_z": None, "grid": {"eta_z": [10**400]}}, "eta_z[0]: expected a whole number of"),
        ({"eta_z": None, "grid": {"eta_z": [[1]]}}, "a number or text, got a list"),
        ({"eta_z": None, "grid": {"eta_z": 1}}, "grid.eta_z: expected a list, got 1"),
        ({"eta_y": None, "ratio": 1e20, "eta_z": 1e20}, "ratio: eta_y = ratio * eta_z: expected a"),
        (
            {"eta_y": None, "ratio": 1e200, "eta_z": 1e200, "dtype": "float64"},
            "ratio: eta_y = ratio * eta_z: expected a finite number, got inf",
        ),
        ({"eta_z": 1e39}, "eta_z: expected a number of at least 0 that is finite in float32"),
        ({"grid": {"num_last": ["x"]}}, "grid.num_last[0]: expected a number, got 'x'"),
        ({"grid": {"num_last": [True]}}, "grid.num_last[0]: expected a number, got True"),
        ({"grid": {"num_last": [2**63]}}, "grid.num_last[0]: expected a whole number of 64 bits"),
        ({"grid": {"steps": [True]}}, "grid.steps[0]: expected a number, got True"),
        ({"grid": {"init": ["one"]}}, "grid.init[0]: 'one' is not among the choices"),
        ({"grid": {"classes": ["a\0b"]}}, "grid.classes[0]: 'a\\x00b' has a character"),
        ({"steps": True}, "steps: expected a number, got True"),
        ({"steps": INFINITE}, "steps: expected a finite number, got inf"),
        ({"seeds": True}, "seeds: expected a whole number or a list, got True"),
        ({"seeds": -1}, "seeds: expected at least 1, or a list of them, got -1"),
        ({"seeds": 2**33}, "seeds: expected at least 1, or a list of them, got 8589934592"),
        ({"seeds": [2**32]}, "seeds[0]: expected a number from 0 to 2^32 - 1, got 4294967296"),
        ({"seeds": [-1]}, "seeds[0]: expected a number from 0 to 2^32 - 1, got -1"),
        ({"seeds": [10**30]}, "seeds[0]: expected a whole number of 64 bits"),
        ({"seeds": []}, "seeds: expected at least 1, or a list of different ones"),
        ({"model": {"name": "embedded"}}, "model.dim: missing; the model 'embedded' needs it"),
        ({"engine": {"name": "limit", "batch_size": 2**70}}, "batch_size: expected a whole number"),
        ({"engine": {"name": "sampled", "length": 2**31}}, "length: expected at most 2,147,483"),
        ({"optimizer": {"epsilon": -1}}, "optimizer.epsilon: expected a number of at least 0, got"),
        ({"classes": "\ud800"}, "classes: '\\ud800' has a character that no file keeps"),
        ({"dtype": "float16"}, "dtype: 'float16' is not among the choices"),
        (
            {"eta_z": None, "grid": {"eta_z": list(range(1, 2001)), "steps": list(range(1, 6001))}},
            "grid.steps: 2,000 x 6,000 = 12,000,000 runs, and a sweep has at most 10,000,000; give",
        ),
        ({"seeds": 10**9}, "seeds: 1,000,000,000 = 1,000,000,000 runs, and a sweep has at most"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_recipe_is_told_when_it_is_made(changes, message):
    with pytest.raises(ValueError) as caught:
        as_value("", {**SMALL, **changes}, SweepRecipe)
    assert message in str(caught.value)


def test_a_grid_is_counted_before_it_is_laid_out():
    """1000^5 combinations take no time, because there are none of them."""
    values = list(range(1, 1001))
    names = ("num_last", "next_per_last", "steps", "engine.batch_size", "optimizer.epsilon")
    with pytest.raises(ValueError) as caught:
        as_value("", {**SMALL, "grid": dict.fromkeys(names, values)}, SweepRecipe)
    assert "grid.num_last: 1,000 x 1,000 x 1,000 x 1,000 x 1,000 = " in str(caught.value)
    assert "settings, and a sweep has at most 100,000; give fewer values" in str(caught.value)


def test_two_names_may_not_give_one_dim():
    with pytest.raises(ValueError, match="two of its names give the same dim"):
        tiny(grid={"vocab_size": (20,), "classes.vocab_size": (30,)}, eta_z=1.0)

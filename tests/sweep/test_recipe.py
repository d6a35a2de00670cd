"""Sweep recipes: any setting can be swept, and what cannot be is refused in one line."""

import re
from itertools import product

import numpy as np
import pytest
import xarray as xr
from tiny_sweep import tiny

import attnlab
from attnlab import (
    AlibiPosition,
    Batches,
    Embedded,
    Extended,
    LearnedPosition,
    MarkovChains,
    Optimizer,
    Record,
    Sequences,
    Simulation,
    Steps,
    Transformer,
)
from attnlab.files.recipe import as_value, read_recipe
from attnlab.shelf import recipe_file
from attnlab.sweeping import SweepRecipe
from attnlab.tasks.classes import classes_from

SMALL = {"task": "syn-medium", "motion": {"name": "steps", "steps": 5}}
RATES = {"ratio": None, "grid": {}}


def read(document):
    """Return the recipe of a file with these fields."""
    return as_value("", document, SweepRecipe)


def test_a_figures_recipe_is_a_sweep_and_a_sweep_needs_no_lab_note():
    recipe = read_recipe(recipe_file("fig6"), SweepRecipe)
    assert recipe.about.startswith("Attention over distinct tokens")
    assert len(recipe.settings()) == 4
    assert read(SMALL).about is None
    assert read({**SMALL, "seeds": [4, 2]}).seeds == (4, 2)


def test_fig6_means_the_runs_that_it_meant():
    recipe = read_recipe(recipe_file("fig6"), SweepRecipe)
    run, classes = recipe.settings()[1]
    assert classes == classes_from("syn-medium:num_last=3")
    eta_z, ratio = (
        xr.DataArray(values, {name: values}, name)
        for name, values in (("eta_z", [0.5, 1.0, 2.0, 3.0]), ("ratio", [1.0, 2.0, 5.0, 10.0]))
    )
    expected = Simulation(
        Sequences("syn-medium:num_last=1", length=128),
        motion=Steps(100, Optimizer("sgd", momentum=0.9)),
        gradient=Batches(128),
        eta_y=eta_z * ratio,
        eta_z=xr.broadcast(eta_z, ratio)[0],
        init="uniform",
        seeds=10,
        record=Record(("statistics", "logits"), at=[100]),
    )
    assert run == expected


def test_every_kind_of_setting_can_be_swept():
    grid = {
        "num_last": [1, 2],
        "length": [8, 16],
        "momentum": [0.0, 0.9],
        "model.heads": [1, 2],
        "init": ["zero", "uniform"],
        "motion.steps": [5, 10],
        "eta_z": [0.5, 1],
    }
    recipe = read({"task": "syn-medium", "grid": grid, "ratio": 2, "model": {"name": "extended"}})
    assert list(recipe.dims()) == [
        "num_last",
        "length",
        "momentum",
        "heads",
        "init",
        "steps",
        "eta_z",
    ]
    settings = recipe.settings()
    assert len(settings) == 2**6
    last, classes = settings[-1]
    assert classes == classes_from("syn-medium:num_last=2")
    assert (last.task.length, last.momentum, last.model) == (16, 0.9, Extended(heads=2))
    assert (last.init, last.motion.steps) == ("uniform", 10)
    np.testing.assert_array_equal(last.eta_y, [1, 2])
    np.testing.assert_array_equal(last.eta_z, [0.5, 1])


@pytest.mark.parametrize(
    ("name", "values", "dim", "found"),
    [
        ("task.length", (8, "inf"), "length", lambda run: run.task.length),
        ("training_set", (20, 30), "training_set", lambda run: run.task.training_set),
        ("gradient.size", (4, 8), "size", lambda run: run.gradient.size),
        ("batch_size", (4, 8), "batch_size", lambda run: run.gradient.size),
        ("optimizer.beta_2", (0.5, 0.9), "beta_2", lambda run: run.motion.optimizer.beta_2),
        ("motion.optimizer.beta_2", (0.5, 0.9), "beta_2", lambda run: run.motion.optimizer.beta_2),
        ("clip", (0.5, 1), "clip", lambda run: run.motion.clip),
        ("heads", (1, 2), "heads", lambda run: run.model.heads),
        ("every", (2, 5), "every", lambda run: run.record.every),
        ("dtype", ("float32", "float64"), "dtype", lambda run: run.dtype),
        ("independent", (True, False), "independent", lambda run: run.independent),
    ],
)
def test_a_setting_is_swept_by_its_flat_name_or_its_path(name, values, dim, found):
    recipe = SweepRecipe(
        given={"task": "syn-small", "length": 16}
        if "length" not in name
        else {"task": "syn-small"},
        grid={name: values},
    )
    expected = [np.inf if value == "inf" else value for value in values]
    assert [found(run) for run, _ in recipe.settings()] == expected
    assert list(recipe.axes()[0]) == [dim]


def test_end_times_and_recorded_times_of_flows_are_swept():
    recipe = SweepRecipe(given={"task": "syn-small"}, grid={"time": (1.0, 10.0)})
    assert list(recipe.dims()) == ["motion_time"]
    assert [run.last for run, _ in recipe.settings()] == [1.0, 10.0]


def test_other_tasks_models_and_their_learning_rates_are_swept():
    recipe = read(
        {
            "task": {"name": "markovchains", "vocab_size": 3, "length": 8},
            "model": {"name": "transformer", "heads": 2},
            "grid": {"layers": [1, 2], "vocab_size": [3, 4], "learning_rate": [0.1, 0.2, 0.3]},
        }
    )
    settings = recipe.settings()
    assert [classes for _, classes in settings] == [None] * 4
    last = settings[-1][0]
    assert (last.task, last.model) == (MarkovChains(4, 8), Transformer(2, 2))
    assert last.grid.points == recipe.cells == 3
    assert recipe.base.learning_rate == 0.1
    by_group = SweepRecipe(
        given={"task": "syn-small", "learning_rate": {"decoder": 2.0}},
        grid={"learning_rate.attention": (0.5, 1.0)},
    )
    assert by_group.axes() == ({}, {"learning_rate_attention": (0.5, 1.0)})
    ((run, _),) = by_group.settings()
    np.testing.assert_array_equal(run.eta_y, [2.0, 2.0])
    np.testing.assert_array_equal(run.eta_z, [0.5, 1.0])


@pytest.mark.parametrize("names", [("eta_z", "ratio"), ("ratio", "eta_z")])
def test_cells_are_counted_in_the_order_of_the_grid(names):
    values = {"eta_z": (1.0, 2.0, 3.0), "ratio": (5.0, 10.0)}
    recipe = SweepRecipe(given={"task": "syn-small"}, grid={name: values[name] for name in names})
    assert list(recipe.axes()[1]) == list(names)
    cells = list(product(*(values[name] for name in names)))
    found = recipe.rates_at(slice(None))
    for i, cell in enumerate(dict(zip(names, of, strict=True)) for of in cells):
        assert float(found["eta_z"][i]) == cell["eta_z"]
        assert float(found["eta_y"][i]) == cell["eta_z"] * cell["ratio"]


def test_learning_rates_that_are_lists_are_dims_too():
    recipe = SweepRecipe(given={"task": "syn-small", "eta_y": [1, 2]}, grid={"eta_z": (3.0,)})
    assert recipe.axes() == ({}, {"eta_z": (3.0,), "eta_y": (1.0, 2.0)})
    ((run, _),) = recipe.settings()
    np.testing.assert_array_equal(run.eta_y, [[1, 2]])


def test_classes_and_tasks_can_be_swept_and_parameters_keep_all_their_digits():
    recipe = tiny(
        grid={"classes": ("syn-small", "syn-medium"), "optimizer": ("sgd", "adam")}, momentum=None
    )
    assert list(recipe.dims()) == ["classes", "optimizer"]
    settings = recipe.settings()
    assert [run.motion.optimizer.name for run, _ in settings] == ["sgd", "adam"] * 2
    assert settings[0][0] is settings[2][0]  # they differ in their classes alone
    assert settings[2][1] == classes_from("syn-medium")
    ((_, classes),) = tiny(grid={"common_prob": (0.1234567890123,)}).settings()
    assert "common_prob=0.1234567890123" in classes.origin
    whole = {"name": "sequences", "classes": "syn-small", "length": 8}
    recipe = SweepRecipe(grid={"task": ("syn-small", whole)})
    assert [run.task.length for run, _ in recipe.settings()] == [128, 8]


def test_the_default_decay_of_one_optimizer_is_not_carried_to_another():
    recipe = tiny(grid={"optimizer": ("adam", "adamw")}, momentum=None)
    decays = [run.motion.optimizer.weight_decay for run, _ in recipe.settings()]
    assert decays == [0.0, 0.01]


def test_a_parameter_of_the_grid_replaces_that_of_the_name():
    recipe = tiny(task="syn-medium:num_last=3, next_per_last=2", grid={"num_last": (1, 2)})
    made = [classes for _, classes in recipe.settings()]
    assert made == [classes_from(f"syn-medium:num_last={n},next_per_last=2") for n in (1, 2)]
    recipe = tiny(task="random:vocab=30,queries=1", grid={"classes": (2, 3)})  # a parameter, too
    assert [len(classes) for _, classes in recipe.settings()] == [2, 3]


def test_whole_parts_and_what_is_deep_inside_can_be_swept():
    models = (Embedded(7), {"name": "extended", "heads": 2})
    recipe = tiny(grid={"model": models})
    assert [run.model for run, _ in recipe.settings()] == [Embedded(7), Extended(heads=2)]
    assert recipe.axes()[0] == {"model": ("embedded:dim=7", "extended:heads=2")}
    model = Extended(position=AlibiPosition(0.1))
    for name, values, expected in (
        ("model.position.slope", (0.5,), AlibiPosition(0.5)),
        ("model.position", ({"name": "alibi", "slope": 0.5},), AlibiPosition(0.5)),
        ("position", (LearnedPosition(),), LearnedPosition()),
        ("model.position", ("alibi:0.25",), AlibiPosition(0.25)),
    ):
        recipe = tiny(grid={name: values}, model=model, gradient=Batches(4), length=8)
        ((run, _),) = recipe.settings()
        assert run.model == Extended(position=expected)


def test_a_recipe_reads_as_it_was_written():
    for recipe in (
        tiny(grid={"model": (Extended(heads=2),), "eta_z": (0.5, 1.0)}),
        tiny(ratio=None, eta_y=[1.0, 2.0], grid={"motion.steps": (3, 4)}),
        SweepRecipe(
            given={"task": MarkovChains(3, 8), "model": Transformer(), "learning_rate": 0.1},
            grid={"layers": (1, 2)},
        ),
    ):
        document = recipe.to_document()
        again = read(document)
        assert again.to_document() == document
        assert again.base == recipe.base
        assert again.axes() == recipe.axes()


def test_recipes_of_version_0_1_are_refused_with_what_changed():
    for name, value in (("classes", "syn-small"), ("engine", "limit"), ("corpus", "builtin")):
        with pytest.raises(ValueError, match=f"{name}: was a field of version 0.1; now "):
            read({name: value, "grid": {"eta_z": [1]}})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"grid": {"eta_z": (1.0,), "eta_y": (1.0,)}}, "ratio: stands for eta_y = ratio * eta_z"),
        ({"grid": {"learning_rate": (1.0,)}}, "ratio: stands for eta_y = ratio * eta_z"),
        ({"eta_z": lambda step: 1.0, "grid": {}}, "ratio: expected a number, and one for eta_z"),
        ({"grid": {"eta_z": (1.0, 1.0)}}, "grid.eta_z: expected a list of different values"),
        ({"grid": {"eta_z": ()}}, "grid.eta_z: expected a list"),
        ({"eta_z": 1.0}, "eta_z: is swept in the grid; leave it out here"),
        ({"task": None}, "task: missing"),
        ({"task": ["syn-small", "syn-small"]}, "sweep `classes` to have several"),
        ({"seeds": 0}, "seeds: expected at least 1"),
        ({"seeds": (1, 1)}, "seeds: expected different whole numbers"),
        ({"seeds": 2.5}, "seeds: expected a number of seeds or a list of whole numbers"),
        ({"seeds": None, "grid": {"seeds": (1, 2)}}, "grid.seeds: every run has all seeds"),
        (
            {"ratio": None, "learning_rate": 1.0, "grid": {"learning_rate.decoder": (1.0,)}},
            "learning_rate: give it by group; learning_rate.decoder is swept in the grid",
        ),
    ],
)
def test_what_a_recipe_refuses(changes, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        tiny(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"steps": 0}, "steps: expected a whole number of at least 1, got 0"),
        ({"init": "one"}, "init: expected"),
        ({"dtype": "float16"}, "dtype: expected one of 'float32', 'float64', got 'float16'"),
        ({"grid": {"time": (8.0,)}}, "time: belongs to Flow, and the motion here is Steps"),
        ({"grid": {"beta_1": (1.5,)}}, "grid: at beta_1 = 1.5: beta_1: expected a number"),
        ({"grid": {"model.dim": (0,)}}, "grid: at model.dim = 0: dim: expected a whole number"),
        ({"eta_z": 1e39, "grid": {}}, "expected numbers of at least 0 that are finite in float32"),
        (
            {"model": Extended(), "grid": {"model.position.slope": (0.5,)}},
            "slope: NoneType has no such setting",
        ),
    ],
)
def test_what_a_setting_refuses(changes, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        tiny(**changes).settings()


NAN, INFINITE = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"grid": {"etaz": [1]}}, "grid.etaz: unknown setting; did you mean 'eta_z'?"),
        ({"grid": {"lenght": [3]}}, "grid.lenght: unknown setting; did you mean 'length'?"),
        ({"grid": {"task.lenght": [3]}}, "grid.task.lenght: unknown setting; did you mean"),
        ({"grid": {"model.position.slop": [3]}}, "did you mean 'slope'?"),
        ({"grid": {"num_lst": [1]}}, "grid.num_lst: unknown setting; did you mean 'num_last'?"),
        ({"grid": {"num_last": [1]}, "task": "syn-mediun"}, "grid.num_last: unknown setting"),
        (
            {"grid": {"num_last": [1]}, "task": "mine.yaml"},
            "'mine.yaml' has no parameters of its own",
        ),
        (
            {"grid": {"num_last": [1]}, "task": {"name": "sequences"}},
            "grid.num_last: unknown setting",
        ),
        ({"stepps": 3}, "stepps: unknown key; known: "),
        ({"task": {"name": "sequence"}}, "task.name: 'sequence' is not among the choices; did you"),
        ({"eta_z": "nan"}, "eta_z: expected a number or a list, got 'nan'"),
        ({"eta_z": NAN}, "eta_z: expected a finite number, got nan"),
        ({"eta_z": -1}, "eta_z: expected numbers of at least 0 that are finite"),
        ({"grid": {"eta_z": ["nan"]}}, "eta_z[0]: expected a number, got 'nan'"),
        ({"grid": {"eta_z": [1, NAN]}}, "grid.eta_z[1]: expected a finite number"),
        ({"grid": {"eta_z": [INFINITE]}}, "grid.eta_z[0]: expected a finite number"),
        ({"grid": {"eta_z": [-0.5]}}, "eta_z: expected numbers of at least 0"),
        ({"grid": {"eta_z": [True]}}, "grid.eta_z[0]: expected a number, got True"),
        ({"grid": {"eta_z": [10**400]}}, "eta_z[0]: expected a whole number of"),
        ({"grid": {"eta_z": [[1]]}}, "a number or text, got a list"),
        ({"grid": {"eta_z": 1}}, "grid.eta_z: expected a list, got 1"),
        ({"grid": {"num_last": ["x"]}}, "grid.num_last[0]: expected a number, got 'x'"),
        ({"grid": {"num_last": [True]}}, "grid.num_last[0]: expected a number, got True"),
        ({"grid": {"num_last": [2**63]}}, "grid.num_last[0]: expected a whole number of 64 bits"),
        ({"grid": {"steps": [True]}}, "grid.steps[0]: expected a whole number, got True"),
        ({"grid": {"batch_size": ["a"]}}, "grid.batch_size[0]: expected a whole number, got 'a'"),
        ({"grid": {"length": ["long"]}}, "grid.length[0]: 'long' is not among the choices"),
        ({"grid": {"init": ["unifrom"]}}, "'unifrom' is not among the choices; did you mean"),
        ({"grid": {"classes": ["a\0b"]}}, "grid.classes[0]: 'a\\x00b' has a character"),
        ({"motion": {"name": "steps", "steps": True}}, "motion.steps: expected a whole number"),
        ({"seeds": True}, "seeds: expected a whole number or a list, got True"),
        ({"seeds": -1}, "seeds: expected at least 1, got -1"),
        ({"seeds": [2**32]}, "seeds: expected different whole numbers from 0 to 2^32 - 1"),
        ({"seeds": [10**30]}, "seeds[0]: expected a whole number of 64 bits"),
        ({"seeds": []}, "seeds: expected a number of seeds or a list of whole numbers"),
        ({"model": {"name": "embedded", "dim": 0}}, "model.dim: expected a whole number"),
        ({"task": 3}, "task: expected the name of classes, or a mapping with vocabulary"),
        ({"task": ["syn-small", "syn-small"]}, "sweep `classes` to have several"),
        ({"gradient": {"name": "batches", "size": 2**70}}, "gradient.size: expected a whole"),
        ({"record": 3}, "record: expected a mapping with any of what, every, geometric"),
        ({"dtype": "float16"}, "dtype: 'float16' is not among the choices"),
        ({"init": "unifrom"}, "init: 'unifrom' is not among the choices; did you mean 'uniform'?"),
        (
            {"grid": {"eta_z": list(range(1, 2001)), "steps": list(range(1, 6001))}},
            "grid.steps: 2,000 x 6,000 = 12,000,000 runs, and a sweep has at most 10,000,000; give",
        ),
        (
            {"grid": {"eta_z": list(range(1, 2001)), "eta_y": list(range(1, 6001))}},
            "grid.eta_y: 2,000 x 6,000 = 12,000,000 runs, and a sweep has at most 10,000,000; give",
        ),
    ],
)
def test_a_wrong_recipe_is_refused_when_it_is_read(changes, message):
    with pytest.raises(ValueError) as caught:
        read({**SMALL, **changes})
    assert message in str(caught.value)


def test_a_grid_is_counted_before_it_is_laid_out():
    """1000^5 combinations are refused at once."""
    values = list(range(1, 1001))
    names = ("num_last", "next_per_last", "steps", "batch_size", "optimizer.epsilon")
    with pytest.raises(ValueError) as caught:
        read({**SMALL, "grid": dict.fromkeys(names, values)})
    assert "grid.num_last: 1,000 x 1,000 x 1,000 x 1,000 x 1,000 = " in str(caught.value)
    assert "settings, and a sweep has at most 100,000; give fewer values" in str(caught.value)


def test_two_names_may_not_give_one_dim():
    with pytest.raises(ValueError, match="two of its names give the same dim"):
        tiny(grid={"vocab_size": (20,), "classes.vocab_size": (30,)})


def test_a_sweep_takes_the_names_that_simulate_takes():
    recipe = SweepRecipe(
        given={"task": "syn-small", "length": 8, "steps": 3, "heads": 2, "init": "uniform"}
    )
    expected = attnlab.simulation.as_simulation(
        "syn-small", length=8, steps=3, heads=2, init="uniform"
    )
    assert recipe.base == expected

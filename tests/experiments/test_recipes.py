"""The recipes that come with attnlab, and the runs that they stand for."""

import dataclasses

import pytest

from attnlab.dynamics import Sampled
from attnlab.experiments import SimulationRecipe, experiment, names_of, recipe_for
from attnlab.files.recipe import read_recipe
from attnlab.files.shipped import recipe_folder


@pytest.mark.parametrize("name", names_of("figure"))
def test_every_recipe_states_hardware_minutes_and_regression_bounds(name):
    recipe = recipe_for(name)
    assert recipe.figure == name
    assert recipe.hardware
    assert recipe.minutes < 5
    assert recipe.regression_bounds
    assert recipe.about.endswith(".")
    text = (recipe_folder() / f"{name}.yaml").read_text()
    assert f"./lab reproduce {name}" in text
    assert text.startswith("# Fig. " if name.startswith("fig") else "# JoMA, ")


def test_there_is_no_recipe_without_a_figure():
    found = [
        path.stem for kind in ("fig*", "joma*") for path in recipe_folder().glob(f"{kind}.yaml")
    ]
    assert set(found) == set(names_of("figure"))


def test_an_unknown_key_is_refused_with_the_nearest(tmp_path):
    text = (recipe_folder() / "fig6.yaml").read_text()
    path = tmp_path / "fig6.yaml"
    path.write_text(text.replace("seeds: 10", "seed: 10"))
    with pytest.raises(ValueError, match=r"fig6.yaml: seed: unknown key; did you mean 'seeds'"):
        recipe_for("fig6", tmp_path)
    path.write_text(text.replace("momentum: 0.9", "momentum: 1.9"))
    with pytest.raises(ValueError, match=r"optimizer.momentum: expected a number in \[0, 1\)"):
        recipe_for("fig6", tmp_path)


def test_a_figure_needs_the_whole_lab_note(tmp_path):
    text = (recipe_folder() / "fig6.yaml").read_text()
    (tmp_path / "fig6.yaml").write_text(text.replace("hardware: two CPU cores\n", ""))
    with pytest.raises(ValueError, match=r"fig6.yaml: hardware: missing"):
        recipe_for("fig6", tmp_path)


@pytest.mark.parametrize(
    ("recipe", "changes", "where"),
    [
        (lambda: recipe_for("fig7"), {"vocab_size": -1000}, "vocab_size"),
        (lambda: recipe_for("heads"), {"heads": (1, -2)}, r"heads\[1\]"),
        (
            lambda: recipe_for("residual"),
            {"tokens": {"everywhere": -2, "within": 2, "across": 2, "own": 2}},
            "tokens.everywhere",
        ),
    ],
)
def test_nothing_that_a_figure_is_made_with_is_negative(recipe, changes, where):
    with pytest.raises(ValueError, match=rf"{where}: expected at least 0, got -"):
        dataclasses.replace(recipe(), **changes)


def test_nor_is_anything_inside_it():
    recipe = recipe_for("optimizers")
    (name, choice), *_ = recipe.choices.items()
    backwards = dataclasses.replace(choice, etas=(-0.1,))
    with pytest.raises(
        ValueError, match=rf"choices.{name}.etas\[0\]: expected at least 0, got -0.1"
    ):
        dataclasses.replace(recipe, choices={name: backwards})


def test_a_recipe_under_another_name_is_refused(tmp_path):
    (tmp_path / "fig8.yaml").write_text((recipe_folder() / "fig9.yaml").read_text())
    with pytest.raises(ValueError, match=r"fig8.yaml"):
        recipe_for("fig8", tmp_path)
    with pytest.raises(ValueError, match="did you mean 'fig6'"):
        experiment("fig66")


def test_fig6_is_the_protocol():
    recipe = read_recipe(recipe_folder() / "fig6.yaml", SimulationRecipe)
    assert recipe.grid == {
        "num_last": (1, 3, 5, 10),
        "eta_z": (0.5, 1, 2, 3),
        "ratio": (1, 2, 5, 10),
    }
    base = recipe.base
    assert base.engine == Sampled(128, 128)
    assert (base.optimizer.name, base.optimizer.momentum) == ("sgd", 0.9)
    assert (base.init, base.steps, len(base.seeds)) == ("uniform", 100, 10)
    sizes = [classes.vocab_size for _, classes in recipe.settings()]
    assert sizes == [33, 79, 125, 240]


def test_select_must_be_on_the_grid():
    with pytest.raises(ValueError, match=r"select.eta_z: 7 is not in the grid of the runs"):
        dataclasses.replace(recipe_for("fig11"), select={"eta_z": 7.0})

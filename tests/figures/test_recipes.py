"""The recipes that come with attnlab, and the runs that they stand for."""

import dataclasses
import re

import numpy as np
import pytest
import xarray as xr
from small_recipes import small

from attnlab.data.recipe import read_recipe
from attnlab.dynamics import Flow, Limit, Sampled
from attnlab.figures import NAMES, figure, recipe_folder, recipe_for, simulations
from attnlab.figures.simulations import EngineRecipe, SimulationRecipe


@pytest.mark.parametrize("name", NAMES)
def test_every_recipe_states_hardware_minutes_and_what_to_expect(name):
    recipe = recipe_for(name)
    assert recipe.figure == name
    assert recipe.hardware
    assert recipe.minutes < 5
    assert recipe.expect
    assert recipe.about.endswith(".")
    text = (recipe_folder() / f"{name}.yaml").read_text()
    assert f"./lab reproduce {name}" in text
    assert text.startswith("# Fig. ")


def test_there_is_no_recipe_without_a_figure():
    found = {path.stem for path in recipe_folder().glob("fig*.yaml")}
    assert found == set(NAMES)


def test_an_unknown_key_is_refused_with_the_nearest(tmp_path):
    text = (recipe_folder() / "fig6.yaml").read_text()
    path = tmp_path / "fig6.yaml"
    path.write_text(text.replace("seeds: 10", "seed: 10"))
    with pytest.raises(ValueError, match=r"fig6.yaml: seed: unknown key; did you mean 'seeds'"):
        recipe_for("fig6", tmp_path)
    path.write_text(text.replace("momentum: 0.9", "momentum: 1.9"))
    with pytest.raises(ValueError, match=r"optimizer.momentum: expected a number in \[0, 1\)"):
        recipe_for("fig6", tmp_path)


def test_a_recipe_under_another_name_is_refused(tmp_path):
    (tmp_path / "fig8.yaml").write_text((recipe_folder() / "fig9.yaml").read_text())
    with pytest.raises(ValueError, match=r"fig8.yaml"):
        recipe_for("fig8", tmp_path)
    with pytest.raises(ValueError, match="did you mean 'fig6'"):
        figure("fig66")


def test_fig6_is_the_protocol():
    recipe = read_recipe(recipe_folder() / "fig6.yaml", SimulationRecipe)
    assert recipe.grid == {
        "num_last": (1, 3, 5, 10),
        "eta_z": (0.5, 1, 2, 3),
        "ratio": (1, 2, 5, 10),
    }
    assert recipe.engine.engine() == Sampled(128, 128)
    assert (recipe.optimizer.name, recipe.optimizer.momentum) == ("sgd", 0.9)
    assert (recipe.init, recipe.steps, recipe.seeds) == ("uniform", 100, 10)
    assert [classes.vocab_size for _, classes in recipe.groups()] == [33, 79, 125, 240]
    eta_y, eta_z = recipe.rates()
    assert float(eta_y.sel(eta_z=3, ratio=10)) == 30
    assert eta_z.dims == ("eta_z",)


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        ({"eta_y": (1.0,)}, "grid: give eta_z, and either eta_y or ratio"),
        ({"eta_z": (1.0,), "eta_y": (1.0,), "ratio": (1.0,)}, "either eta_y or ratio"),
        ({"eta_z": (1.0, 1.0), "ratio": (1.0,)}, "grid.eta_z: expected a list of different values"),
        ({"eta_z": (), "ratio": (1.0,)}, "grid.eta_z: expected a list"),
    ],
)
def test_bad_grids_are_refused(grid, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        dataclasses.replace(recipe_for("fig6"), grid=grid)


def test_engines_by_name():
    assert EngineRecipe("limit").engine() == Limit()
    assert EngineRecipe("flow").engine() == Flow()
    with pytest.raises(ValueError, match="length: belongs to the engine 'sampled'"):
        EngineRecipe("limit", length=3)
    with pytest.raises(ValueError, match="batch_size: the flow has no batches"):
        EngineRecipe("flow", batch_size=3)
    with pytest.raises(ValueError, match="length: expected a whole number of at least 2"):
        EngineRecipe("sampled", length=1)


def test_runs_are_kept_and_a_damaged_one_is_made_again(tmp_path, monkeypatch):
    calls = []

    def counted(classes, engine, **given):
        calls.append(classes.origin)
        given["progress"](1.0)
        return xr.Dataset({"loss": ("seed", np.arange(given["seeds"], dtype=float))})

    monkeypatch.setattr(simulations, "simulate", counted)
    recipe = small("fig4")
    heard = []
    (first,) = simulations.run(recipe, keep=tmp_path, progress=heard.append)
    assert heard[-1] == 1.0
    (again,) = simulations.run(recipe, keep=tmp_path)
    assert len(calls) == 1
    assert again.result.identical(first.result)
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:-100])
    simulations.run(recipe, keep=tmp_path)
    assert len(calls) == 2
    simulations.run(dataclasses.replace(recipe, about="Other words."), keep=tmp_path)
    assert len(calls) == 2  # words do not matter to a simulation
    simulations.run(dataclasses.replace(recipe, seeds=2), keep=tmp_path)
    assert len(calls) == 3


def test_select_must_be_on_the_grid():
    with pytest.raises(ValueError, match=r"select.eta_z: 7 is not in the grid of the runs"):
        dataclasses.replace(recipe_for("fig11"), select={"eta_z": 7.0})

"""Sweeps of runs on text: what simulate() gives, through the same plans, groups and drivers."""

import csv

import numpy as np
import pytest
import tiny_text_sweep
from tiny_text_sweep import SAME, counting_text, tiny

import attnlab
from attnlab.files.recipe import as_value, read_recipe
from attnlab.files.shipped import recipe_folder
from attnlab.models import text_transformer
from attnlab.sweeping import SweepRecipe, make_plan, open_sweep, run_in
from attnlab.tasks.text import Source

SMALL = {"task": {"name": "text", "corpus": "builtin"}, "learning_rate": 1}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("sweep")
    assert run_in(made, tiny_text_sweep.plan()).computed == 4
    return made


@pytest.fixture(scope="module")
def expected(folder):
    return open_sweep(folder).load()


@pytest.mark.slow
def test_a_cell_is_what_simulate_gives(expected):
    assert expected.entropy.dims == ("steps", "learning_rate", "seed", "step", "layer", "head")
    for steps in (40, 60):
        alone = attnlab.simulate(
            counting_text(), learning_rate=2.0, steps=steps, progress=False, **SAME
        )
        same = expected.sel(steps=steps, learning_rate=2.0, step=alone["step"])
        for name in ("attention", "validation_loss", "entropy", "snap_step", "probe_word"):
            np.testing.assert_array_equal(same[name], alone[name])
        for name in ("validation_loss", "perplexity", "train_loss"):
            np.testing.assert_array_equal(same[f"final_{name}"], alone[name].isel(step=-1))
        heads = alone["entropy"].isel(step=-1).mean(["layer", "head"])
        np.testing.assert_allclose(same["final_entropy"], heads, rtol=1e-6)
    assert expected.validation_loss.sel(steps=40, step=60).isnull().all()
    assert expected.finished.all()


@pytest.mark.slow
def test_the_learning_rates_of_a_simulation_are_a_dim_too(expected):
    run = attnlab.simulation.as_simulation(
        counting_text(), learning_rate=[0.5, 2.0], steps=60, **SAME
    )
    made = attnlab.sweep(run, grid={"steps": [40, 60]})
    np.testing.assert_allclose(made["entropy"], expected["entropy"], rtol=1e-5)
    alone = attnlab.sweep(run, grid={"learning_rate": [2.0]})
    np.testing.assert_array_equal(alone["learning_rate"], [2.0])


def test_the_table_has_a_row_for_each_cell(folder):
    rows = list(csv.DictReader((folder / "table.csv").read_text().splitlines()))
    assert len(rows) == 4
    assert float(rows[0]["final_perplexity_mean"]) > 1


@pytest.mark.slow
def test_a_run_that_leaves_the_finite_numbers_fails_alone():
    made = attnlab.sweep(tiny().base, grid={"learning_rate": [0.5, 1e38]})
    assert made.finished.sel(learning_rate=0.5).all()
    assert not made.finished.sel(learning_rate=1e38).any()
    assert made.attrs["failed_runs"] == 2


@pytest.mark.slow
def test_the_recipe_that_comes_with_attnlab():
    recipe = read_recipe(recipe_folder() / "text-rates.yaml", SweepRecipe)
    plan = make_plan(recipe)
    assert plan.runs == 2 * 4 * 3
    assert {group.simulation.model.layers for group in plan.groups} == {1, 3}
    assert recipe.base == attnlab.simulation.text_run(
        Source("builtin", vocab_size=1000),
        dim=64,
        mlp=64,
        learning_rate=0.5,
        seeds=3,
        steps=500,
        every=25,
    )
    assert as_value("", recipe.to_document(), SweepRecipe).base == recipe.base


def test_corpora_and_their_settings_can_be_swept():
    models = ({"name": "transformer", "heads": 1}, text_transformer(heads=2))
    recipe = as_value("", {**SMALL, "grid": {"task.corpus.vocab_size": [200, 300]}}, SweepRecipe)
    recipe = SweepRecipe(given=recipe.given, grid={**recipe.grid, "model": models})
    runs = [run for run, _ in recipe.settings()]
    assert [run.task.vocab_size for run in runs] == [200, 200, 300, 300]
    assert [run.model.heads for run in runs] == [1, 2, 1, 2]
    assert list(recipe.dims()) == ["vocab_size", "model"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"grid": {"learning_rates": [1]}}, "grid.learning_rates: unknown setting; did you mean"),
        ({"grid": {"model.layer": [1]}}, "grid.model.layer: unknown setting; did you"),
        ({"grid": {"learning_rate": [1]}}, "learning_rate: is swept in the grid; leave it out"),
        ({"task": {"name": "text", "lenght": 3}}, "task.lenght: unknown key; did you mean"),
        (
            {"task": {"name": "text", "corpus": {"name": "builtin", "vocab_size": 1}}},
            "task.corpus.vocab_size: expected at least 2",
        ),
        ({"model": {"name": "transformer", "heads": 3}}, "model.heads: 3 heads do not divide dim"),
        ({"seeds": 0}, "seeds: expected at least 1"),
    ],
)
def test_wrong_recipes_on_text_are_refused(changes, message):
    with pytest.raises(ValueError) as caught:
        as_value("", {**SMALL, **changes}, SweepRecipe).settings()
    assert message in str(caught.value)


@pytest.mark.slow
def test_a_model_that_this_machine_has_no_memory_for_is_refused():
    with pytest.raises(ValueError, match="Text: would need .*; take a smaller model"):
        make_plan(tiny(model=text_transformer(mlp=10**9)))

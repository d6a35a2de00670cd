"""Sweeps of trainings on text: what train() gives, through the same plans, groups and drivers."""

import csv
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import tiny_trainings
import xarray as xr
from tiny_trainings import SPEC, counting_corpus, tiny

import attnlab
from attnlab.files.recipe import as_value, read_recipe
from attnlab.files.shipped import recipe_folder
from attnlab.sweeping import SweepRecipe, make_plan, open_sweep, run_in, status
from attnlab.text import Source, Training, TransformerSpec

SMALL = {"corpus": "builtin", "steps": 5}


@pytest.fixture(scope="module")
def expected():
    return tiny_trainings.here()


def test_a_cell_is_what_train_gives(expected):
    assert expected.entropy.dims == ("steps", "rate", "seed", "step", "layer", "head")
    assert len(tiny_trainings.plan().groups) == 4
    for steps in (40, 60):
        alone = attnlab.train(
            counting_corpus(), SPEC, rates=2.0, seeds=2, steps=steps, batch=4, measure_every=20,
            validation_tokens=160, progress=False,
        )  # fmt: skip
        same = expected.sel(steps=steps, rate=2.0, step=alone["step"])
        for name in ("attention", "validation_loss", "entropy", "snap_step", "probe_word"):
            one = alone[name].isel(rate=0) if "rate" in alone[name].dims else alone[name]
            np.testing.assert_array_equal(same[name], one)
        np.testing.assert_array_equal(
            same["final_validation_loss"], alone["validation_loss"].isel(rate=0, step=-1)
        )
    assert expected.validation_loss.sel(steps=40, step=60).isnull().all()
    assert expected.finished.all()


def test_a_training_is_swept_as_a_simulation_is(expected):
    training = Training(
        counting_corpus(), SPEC, rates=(0.5, 2.0), seeds=2, steps=60, batch=4, measure_every=20,
        validation_tokens=160,
    )  # fmt: skip
    made = attnlab.sweep(training, grid={"steps": [40, 60]})  # its own rates are a dim, too
    np.testing.assert_allclose(made["entropy"], expected["entropy"], rtol=1e-5)
    alone = attnlab.sweep(training, grid={"rate": [2.0]})
    np.testing.assert_array_equal(alone["rate"], [2.0])


def test_a_killed_driver_of_two_workers_is_resumed(tmp_path, expected):
    folder, support = tmp_path / "sweep", Path(tiny_trainings.__file__).parent
    path = os.pathsep.join([str(support), os.environ.get("PYTHONPATH", "")])
    driver = subprocess.Popen(
        [sys.executable, tiny_trainings.__file__, str(folder)],
        env={**os.environ, "PYTHONPATH": path},
    )
    try:
        deadline = time.monotonic() + 600
        while not list((folder / "groups").glob("[!.]*.nc")):
            assert time.monotonic() < deadline
            assert driver.poll() is None
            time.sleep(0.01)
    finally:
        os.kill(driver.pid, signal.SIGKILL)
        driver.wait()
    before = status(folder)
    assert 1 <= before.done <= 4
    ran = run_in(folder, tiny_trainings.plan())  # here, where its programs are compiled
    assert (ran.kept, ran.computed) == (before.done, 4 - before.done)
    xr.testing.assert_identical(open_sweep(folder).load().drop_attrs(), expected)
    rows = list(csv.DictReader((folder / "table.csv").read_text().splitlines()))
    assert len(rows) == 4
    assert float(rows[0]["final_perplexity_mean"]) > 1


def test_a_run_that_leaves_the_finite_numbers_fails_alone():
    made = attnlab.sweep(tiny().base, grid={"rate": [0.5, 1e38]})
    assert made.finished.sel(rate=0.5).all()
    assert not made.finished.sel(rate=1e38).any()
    assert made.attrs["failed_runs"] == 2


def test_the_recipe_that_comes_with_attnlab():
    recipe = read_recipe(recipe_folder() / "text-rates.yaml", SweepRecipe)
    plan = make_plan(recipe)
    assert plan.runs == 2 * 4 * 3
    layers = {group.value.model.layers for group in plan.groups}
    assert layers == {1, 3}
    assert recipe.base.corpus == Source("builtin", vocab_size=1000)
    assert as_value("", recipe.to_document(), SweepRecipe).base == recipe.base


def test_corpora_and_what_is_inside_them_can_be_swept():
    grid = {"corpus.vocab_size": (200, 300), "model": ({"heads": 1}, TransformerSpec(heads=2))}
    recipe = as_value("", {**SMALL, "rates": 1}, SweepRecipe)
    recipe = SweepRecipe(given=recipe.given, grid=grid)
    assert [corpus.vocab_size for _, corpus in recipe.settings()] == [200, 200, 300, 300]
    assert [way.model.heads for way, _ in recipe.settings()] == [1, 2, 1, 2]
    assert list(recipe.dims()) == ["vocab_size", "model"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"stepps": 3}, "stepps: unknown key; did you mean 'steps'?"),
        ({"grid": {"rates": [1]}}, "grid.rates: unknown key; did you mean 'rate'"),
        ({"grid": {"model.layer": [1]}}, "grid.model.layer: unknown key; did you mean"),
        ({"grid": {"rate": [0]}}, "grid.rate[0]: expected a positive number, got 0"),
        ({"grid": {"rate": [1]}, "rates": [2]}, "rates: rate is swept in the grid; leave it out"),
        (
            {"corpus": {"name": "builtin", "vocab_size": 1}},
            "corpus.vocab_size: expected at least 2",
        ),
        ({"model": {"heads": 3}}, "model.heads: 3 heads do not divide dim 200"),
        ({"seeds": 0}, "seeds: expected at least 1"),
    ],
)
def test_what_is_wrong_with_a_recipe_is_told_when_it_is_made(changes, message):
    with pytest.raises(ValueError) as caught:
        as_value("", {**SMALL, **changes}, SweepRecipe)
    assert message in str(caught.value)


def test_a_training_that_this_machine_has_no_memory_for_is_refused():
    with pytest.raises(ValueError, match="take a smaller model, batch or context"):
        make_plan(tiny(model=TransformerSpec(dim=2 * 10**7)))

"""A sweep gives the same numbers as simulate(), however its runs are grouped."""

from dataclasses import replace

import numpy as np
import pytest
import xarray as xr
from tiny_sweep import in_groups, tiny

import attnlab
from attnlab import Extended, MarkovChains, Record, Transformer
from attnlab.sweeping import group as module
from attnlab.sweeping import run_apart
from attnlab.sweeping.driver import run_plan
from attnlab.sweeping.index import whole
from attnlab.sweeping.store import Memory
from attnlab.tasks.classes import classes_from

RECIPE = tiny()
CLASSES = RECIPE.given["task"]
SAME = {name: of for name, of in RECIPE.given.items() if name not in ("task", "ratio")}


def run(plan):
    store = Memory()
    index = run_plan(plan, store).index
    return whole(index, store.read).load()


@pytest.fixture(scope="module")
def result():
    return run(in_groups(RECIPE))


def call(**given):
    """Return attnlab.sweep() with the settings of the recipe, but for those given."""
    return attnlab.sweep(CLASSES, **{**SAME, "ratio": 2.0, "grid": dict(RECIPE.grid), **given})


def test_a_cell_is_what_simulate_gives(result):
    assert result.attention.dims == (
        "common_prob",
        "eta_z",
        "seed",
        "step",
        "sequence_class",
        "token",
    )
    for cell in ({"common_prob": 0.2, "eta_z": 1.0}, {"common_prob": 0.4, "eta_z": 0.5}):
        alone = attnlab.simulate(
            f"{CLASSES},common_prob={cell['common_prob']}",
            eta_y=[0.5, 2 * cell["eta_z"]],
            eta_z=cell["eta_z"],
            **SAME,
        ).isel(eta_y=1)
        same = result.sel(cell)
        for name in ("attention", "loss", "entropy", "probability", "query_token"):
            np.testing.assert_array_equal(same[name], alone[name])
        end = alone.isel(step=-1)
        np.testing.assert_allclose(result.final_loss.sel(cell), end["loss"])
        mean = end["entropy"].mean("sequence_class")
        np.testing.assert_allclose(result.final_entropy.sel(cell), mean, rtol=1e-6)
    assert result.finished.all()


def test_the_function_and_the_recipe_agree(result):
    made = call()
    assert made.attrs["failed_runs"] == 0
    assert '"common_prob": [0.1, 0.2, 0.3, 0.4]' in made.attrs["spec"]
    xr.testing.assert_identical(made.drop_attrs(), result)


def test_arrays_are_lists_and_what_is_neither_is_refused(result):
    grid = {name: np.asarray(values) for name, values in RECIPE.grid.items()}
    made = call(grid=grid, seeds=np.int64(2))
    xr.testing.assert_identical(made.drop_attrs(), result)
    with pytest.raises(ValueError, match="grid.eta_z: expected a list, got 1"):
        call(grid={"eta_z": 1})
    with pytest.raises(ValueError, match="seeds: expected a number of seeds or a list"):
        call(seeds=2.5)


def test_grouping_and_order_do_not_matter(result):
    backwards = replace(RECIPE, grid={name: values[::-1] for name, values in RECIPE.grid.items()})
    same = run(in_groups(backwards)).sortby(["common_prob", "eta_z"])
    xr.testing.assert_identical(same[list(result)], result)
    # All together or cut into single runs, the arrays of a program have other sizes, and XLA may
    # add in another order: in float32 the last digit differs.
    together = run(in_groups(RECIPE, 10**6))
    apart = run(in_groups(replace(RECIPE, grid={**RECIPE.grid, "common_prob": (0.3,)}), 1))
    for other in (together, apart):
        for name in ("attention", "loss", "final_entropy", "final_common_mass", "snap_step"):
            expected = result[name].sel(common_prob=other["common_prob"])
            np.testing.assert_allclose(other[name], expected, rtol=1e-6)


def test_settings_in_which_tokens_have_other_roles_are_summed_up_apart(tmp_path):
    files = []
    for common in (0, 1, 0):
        probs = np.full((2, 6), 0.0)
        probs[:, common] = 0.4 + 0.1 * len(files)
        probs[0, [2, 3]] = probs[1, [4, 5]] = (1 - probs[0, common]) / 2
        classes = attnlab.SequenceClasses(probs=probs, query=[0, 0], next_token=[0, 1])
        files.append(str(tmp_path / f"{len(files)}.yaml"))
        attnlab.tasks.classes.write_classes(classes, files[-1])
    recipe = tiny(task=files[0], grid={"classes": tuple(files)})
    together = run(in_groups(recipe, 10**6))
    for name in ("final_common_mass", "final_distinct_entropy", "snap_step"):
        np.testing.assert_allclose(together[name], run(in_groups(recipe))[name], rtol=1e-6)


def test_settings_of_different_sizes_are_padded_and_apart_they_are_not():
    recipe = tiny(
        task="syn-medium",
        grid={"num_last": (1, 2)},
        steps=2,
        seeds=1,
        record=Record(what=("attention", "logits"), every=1),
    )
    result = run(in_groups(recipe))
    apart = run_apart(recipe)
    assert [int(alone["num_last"]) for alone in apart] == [1, 2]
    for alone in apart:
        sizes = alone.sizes
        padded = result.sel(num_last=alone["num_last"])
        own = padded.isel(
            sequence_class=slice(sizes["sequence_class"]), token=slice(sizes["token"])
        ).sel(query=alone["query"])
        np.testing.assert_array_equal(own["attention"], alone["attention"])
        np.testing.assert_array_equal(own["attention_logits"], alone["attention_logits"])
        assert not alone["attention"].isnull().any()
    small = result.sel(num_last=1)
    assert small["attention"].isel(sequence_class=slice(2, None)).isnull().all()
    assert (small["query_token"].isel(sequence_class=slice(2, None)) == -1).all()


def test_heads_and_steps_as_dims():
    result = call(
        grid={"heads": [1, 2], "motion.steps": [2, 4]},
        seeds=1,
        model=Extended(),
        init="uniform",
        record=Record("attention", every=2),
    )
    assert result.attention.sel(heads=1, steps=4).isel(head=1).isnull().all()
    assert not result.attention.sel(heads=2, steps=4).isnull().any()
    assert result.step.values.tolist() == [0, 2, 4]
    assert result.attention.sel(steps=2, step=4).isnull().all()


def test_classes_given_as_an_object(result):
    classes = classes_from(f"{CLASSES},common_prob=0.2")
    made = attnlab.sweep(classes, grid={"eta_z": RECIPE.grid["eta_z"]}, ratio=2.0, **SAME)
    np.testing.assert_array_equal(made["attention"], result["attention"].sel(common_prob=0.2))
    own = attnlab.SequenceClasses(classes.probs, classes.query, classes.next_token, origin="mine")
    with pytest.raises(ValueError, match="'mine' has no parameters of its own"):
        attnlab.sweep(own, grid={"distinct": [2]}, steps=1)


def test_a_simulation_is_swept_over_any_of_its_fields(result):
    simulation = attnlab.simulation.as_simulation(f"{CLASSES},common_prob=0.2", eta_z=7.0, **SAME)
    grid = {"common_prob": RECIPE.grid["common_prob"], "eta_z": RECIPE.grid["eta_z"]}
    made = attnlab.sweep(simulation, grid=grid, ratio=2.0)
    xr.testing.assert_identical(made.drop_attrs(), result)
    deep = attnlab.sweep(simulation, grid={"dtype": ["float32", "float64"]})
    np.testing.assert_array_equal(
        deep["attention"].sel(dtype="float64"),
        attnlab.simulate(simulation, eta_y=[1, 2], eta_z=7.0, dtype="float64")["attention"][0],
    )


@pytest.mark.slow
def test_any_task_is_swept_over_its_settings_and_those_of_its_model():
    settings = {"model": Transformer(dim=8), "steps": 4, "batch_size": 4, "seeds": 2, "every": 2}
    grid = {"layers": [1, 2], "learning_rate": [0.1, 1.0], "task.length": [6, 8]}
    made = attnlab.sweep(MarkovChains(3, 8), grid=grid, **settings)
    assert made.entropy.dims == (
        "layers",
        "length",
        "learning_rate",
        "seed",
        "step",
        "layer",
        "head",
    )
    alone = attnlab.simulate(
        MarkovChains(3, 6), layers=2, learning_rate=[0.1, 1.0], progress=False, **settings
    )
    same = made.sel(layers=2, length=6)
    for name in ("probe_loss", "entropy", "bigram_kl"):
        np.testing.assert_allclose(same[name], alone[name], rtol=1e-5)
    end = alone["entropy"].isel(step=-1).mean(["layer", "head"])
    np.testing.assert_allclose(same["final_entropy"], end, rtol=1e-5)
    assert made.entropy.sel(layers=1, layer=1).isnull().all()
    assert made.finished.all()


def test_runs_without_the_exact_path_are_swept_and_give_its_numbers(result):
    cells = {"common_prob": [0.2, 0.4], "eta_z": [0.5, 1.0]}
    general = call(grid=cells, exact=False, record=Record("loss", every=5))
    np.testing.assert_allclose(general["loss"], result["loss"].sel(cells), rtol=1e-5)


def test_schedules_and_fixed_groups_are_the_same_in_all_cells():
    stages = attnlab.Piecewise([0, 5], [1.0, 0.0])
    grid = {"common_prob": [0.2, 0.4]}
    made = attnlab.sweep(CLASSES, eta_y=stages, eta_z=None, grid=grid, **SAME)
    alone = attnlab.simulate(f"{CLASSES},common_prob=0.4", eta_y=stages, eta_z=None, **SAME)
    np.testing.assert_array_equal(made["loss"].sel(common_prob=0.4), alone["loss"])


def test_tokens_keep_their_names():
    classes = "recipes/classes-two-words.yaml"
    given = {"gradient": "population", "steps": 4, "every": 2}
    made = attnlab.sweep(classes, grid={"eta_z": [1, 2], "heads": [1, 2]}, **given)
    alone = attnlab.simulate(classes, eta_z=2, **given)
    cell = made.attention.sel(token="president", eta_z=2, heads=1, head=0)
    np.testing.assert_array_equal(cell, alone.attention.sel(token="president"))
    np.testing.assert_array_equal(made["token_id"], alone["token_id"])
    both = attnlab.sweep(classes, grid={"classes": [classes, "syn-small"]}, **given)
    assert both["token"].dtype.kind == "i"  # names that differ between settings are no labels
    assert both["token_name"].sel(classes=classes, token=3).item() == "hospital"


def test_a_diverged_run_is_recorded_with_its_cause_and_the_rest_goes_on():
    recipe = tiny(
        grid={"common_prob": (0.1, 0.2), "eta_z": (1.0, 1e38)},
        momentum=0.9,
        steps=40,
        record=Record(what=("loss", "attention"), every=10),
    )
    store = Memory()
    index = run_plan(in_groups(recipe), store).index
    result = whole(index, store.read).load()
    assert not result.finished.sel(eta_z=1e38).any()
    assert result.finished.sel(eta_z=1.0).all()
    assert result.loss.sel(eta_z=1e38, step=40).isnull().all()
    assert not result.loss.sel(eta_z=1.0).isnull().any()
    assert index.failed_runs == 4
    assert all("became non-finite at step" in group.cause for group in index.groups)
    with pytest.raises(attnlab.Diverged, match="became non-finite"):
        run_apart(recipe)


def test_a_group_that_raises_does_not_stop_the_others(monkeypatch):
    real = module.simulate

    def sometimes(simulation, **given):
        if "common_prob=0.3" in simulation.sets[0].origin:
            raise MemoryError("no room")
        return real(simulation, **given)

    monkeypatch.setattr(module, "simulate", sometimes)
    store = Memory()
    index = run_plan(in_groups(RECIPE), store).index
    (failed,) = [entry for entry in index.groups if entry.schema is None]
    assert failed.cause == "MemoryError: no room"
    result = whole(index, store.read)
    assert not result.finished.sel(common_prob=0.3).any()
    assert result.finished.sum() == 3 * 2 * 2
    assert result.loss.sel(common_prob=0.3).isnull().all()
    monkeypatch.setattr(module, "simulate", real)
    assert run_plan(in_groups(RECIPE), store).computed == 1  # only what is missing

"""Learning rates: numbers, lists, DataArrays, schedules and None, by symbol or by group."""

import numpy as np
import pytest
import xarray as xr
from bowl import Bowl

from attnlab import Flow, Piecewise, Population, Record, Simulation, Steps, simulate
from attnlab.files.errors import InputError

BOWL = Simulation(
    Bowl(),
    motion=Steps(6),
    learning_rate=0.1,
    dtype="float64",
    record=Record("parameters", every=1),
)
WHOLE = {"gradient": Population()}


def test_a_list_becomes_a_dim_of_its_name():
    assert Simulation("syn-small", eta_y=[1, 2], eta_z=[3, 4, 5]).grid.dims() == (
        "eta_y",
        "eta_z",
        "seed",
    )
    one = simulate(BOWL, learning_rate=[0.1, 0.2], seeds=2)
    assert one["parameters.x"].dims[:3] == ("learning_rate", "seed", "step")
    by_group = Simulation(Bowl(), learning_rate={"x": [0.1, 0.2], "y": 0.3}).grid
    assert by_group.dims() == ("learning_rate_x", "seed")
    np.testing.assert_array_equal(by_group.rates()["y"], [0.3, 0.3])


def test_data_arrays_keep_their_dims_and_are_aligned():
    ratio = xr.DataArray([1.0, 4.0], dims="ratio", coords={"ratio": [1.0, 4.0]})
    eta_z = xr.DataArray([0.5, 1.0], dims="eta_z", coords={"eta_z": [0.5, 1.0]})
    grid = Simulation("syn-small", eta_y=ratio * eta_z, eta_z=eta_z, seeds=[3, 5]).grid
    assert grid.dims() == ("ratio", "eta_z", "seed")
    assert (grid.points, grid.runs) == (4, 8)
    np.testing.assert_array_equal(grid.rates()["decoder"], [0.5, 1.0, 2.0, 4.0])
    np.testing.assert_array_equal(grid.rates()["attention"], [0.5, 1.0, 0.5, 1.0])
    assert grid.describe(1, 3) == "eta_y = 4, eta_z = 1, seed 5"


def test_learning_rate_may_name_groups_of_sequence_models():
    by_group = Simulation("syn-small", learning_rate={"decoder": 2.0, "attention": [1.0, 3.0]})
    assert by_group == Simulation("syn-small", eta_y=2.0, eta_z=[1.0, 3.0])
    assert Simulation("syn-small", learning_rate=2.0) == Simulation(
        "syn-small", eta_y=2.0, eta_z=2.0
    )


def test_a_group_without_a_learning_rate_is_fixed():
    run = Simulation("syn-small", **WHOLE, motion=Steps(20), eta_z=None, record=Record(every=10))
    result = simulate(run)
    assert run.grid.moving == ("decoder",)
    np.testing.assert_array_equal(result.attention_logits, 0.0)
    assert float(result.loss[0, -1]) < float(result.loss[0, 0])
    decay = simulate(BOWL, learning_rate={"x": None, "y": 0.1}, weight_decay=0.5)
    np.testing.assert_array_equal(decay["parameters.x"], 1.0)  # no decay either


def halving(step):
    return 0.2 * 0.5**step


def test_a_schedule_is_a_function_of_the_step_or_time():
    """With x fixed and far from y_0 nothing, the second entry of y moves by its own force alone."""
    result = simulate(BOWL, learning_rate={"x": None, "y": halving})
    y = result["parameters.y"].isel(seed=0).values[:, 1]
    np.testing.assert_allclose(y[1:] / y[:-1], 1 - halving(np.arange(6)), rtol=1e-9)
    pieces = {"x": None, "y": Piecewise((0, 2.0), (1.0, 0.25))}
    flow = simulate(BOWL, motion=Flow(6.0), learning_rate=pieces, at=(0.0, 2.0, 6.0))
    y = flow["parameters.y"].isel(seed=0).values[:, 1]
    np.testing.assert_allclose(y, 0.5 * np.exp([0.0, -2.0, -3.0]), rtol=1e-5)


def test_piecewise_schedules_follow_seeds_and_other_rates():
    swept = simulate(BOWL, learning_rate={"x": [0.1, 0.3], "y": Piecewise((0, 3), (0.1, 0.0))})
    assert swept["parameters.y"].dims[0] == "learning_rate_x"
    still = swept["parameters.y"].isel(step=slice(3, None))
    assert (still == still.isel(step=0)).all()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Simulation("syn-small", eta_y=-1.0), "eta_y: expected numbers of at least 0"),
        (lambda: Simulation("syn-small", eta_z=float("nan")), "eta_z: expected numbers"),
        (lambda: Simulation("syn-small", eta_z=1e39), "eta_z: expected .* finite in float32"),
        (lambda: Simulation("syn-small", eta_z=[]), "eta_z: expected numbers"),
        (lambda: Simulation("syn-small", eta_z="fast"), "eta_z: expected a number, a list"),
        (lambda: Simulation("syn-small", eta_z=np.ones((2, 2))), "eta_z: give arrays of more dims"),
        (
            lambda: Simulation("syn-small", eta_z=xr.DataArray([1.0], dims="seed")),
            "eta_z: a learning rate cannot depend on the seed",
        ),
        (lambda: Piecewise((1, 2), (0.1, 0.2)), "at: expected increasing numbers from 0 on"),
        (lambda: Piecewise((0, 2), (0.1,)), "at: expected increasing numbers"),
        (lambda: Piecewise((0,), (-0.1,)), "values: expected numbers of at least 0"),
        (lambda: Simulation("syn-small", seeds=0), "seeds: expected at least 1"),
        (lambda: Simulation("syn-small", seeds=[1, 1]), "seeds: expected different"),
        (lambda: Simulation("syn-small", seeds=[-1]), "seeds: expected different"),
        (lambda: Simulation("syn-small", seeds=[0.5]), "seeds: expected a number of seeds"),
    ],
)
def test_bad_learning_rates_and_seeds_are_refused(make, words):
    with pytest.raises(InputError, match=f"^{words}"):
        make()

"""Runs together are runs one by one: over seeds, learning rates, sets of classes and groups."""

from dataclasses import replace

import jax
import numpy as np
import pytest
import xarray as xr
from plain import plain

from attnlab import (
    Batches,
    Embedded,
    Extended,
    Flow,
    MarkovChains,
    Population,
    Record,
    Sequences,
    Simulation,
    Steps,
    Transformer,
    simulate,
)
from attnlab.papers.scan_and_snap.classes import syn_small
from attnlab.simulation import groups
from attnlab.tasks.classes import single_common

pytestmark = pytest.mark.slow

SHORT = {"length": 16, "batch_size": 8}
CHAINS = Simulation(
    MarkovChains(2, 8),
    Transformer(layers=1, dim=4, dropout=0.1),
    motion=Steps(12, "adam"),
    gradient=Batches(4),
    learning_rate=[0.1, 0.5],
    seeds=2,
    dtype="float64",
    record=Record(("loss", "entropy", "parameters"), every=4),
)


def test_sequence_classes_together_are_one_by_one():
    ratio = xr.DataArray([1.0, 4.0], dims="ratio", coords={"ratio": [1.0, 4.0]})
    eta_z = xr.DataArray([0.5, 1.0, 2.0], dims="eta_z", coords={"eta_z": [0.5, 1.0, 2.0]})
    common = {"steps": 12, "momentum": 0.9, "init": "uniform", "what": "attention", "at": [0, 12]}
    together = simulate(
        syn_small(), eta_y=ratio * eta_z, eta_z=eta_z, seeds=[3, 5], **SHORT, **common
    )
    assert together.attention.dims == ("ratio", "eta_z", "seed", "step", "sequence_class", "token")
    for cell in ({"ratio": 4.0, "eta_z": 2.0, "seed": 5}, {"ratio": 1.0, "eta_z": 0.5, "seed": 3}):
        alone = simulate(
            syn_small(),
            eta_y=cell["ratio"] * cell["eta_z"],
            eta_z=cell["eta_z"],
            seeds=[cell["seed"]],
            **SHORT,
            **common,
        )
        np.testing.assert_allclose(
            together.attention.sel(cell), alone.attention.isel(seed=0), rtol=2e-5, atol=1e-7
        )


def test_transformers_together_are_one_by_one():
    together = simulate(CHAINS)
    assert together["loss"].dims == ("learning_rate", "seed", "step")
    assert together["entropy"].dims == ("learning_rate", "seed", "step", "layer", "head")
    assert together["parameters.attention.qkv"].shape == (2, 2, 4, 1, 4, 12)
    for seed, rate in ((0, 0.5), (1, 0.1)):
        alone = simulate(CHAINS, seeds=[seed], learning_rate=rate).isel(seed=0)
        found = together.sel(seed=seed, learning_rate=rate)
        for name in alone.data_vars:  # Adam magnifies the rounding of small gradients
            np.testing.assert_allclose(found[name], alone[name], rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize(
    "run",
    [
        replace(CHAINS, learning_rate=0.1),
        Simulation(
            Sequences("syn-small", length=16),
            gradient=Batches(8),
            motion=Steps(12),
            init="uniform",
            dtype="float64",
            record=Record(every=4),
        ),
        Simulation("syn-small", motion=Flow(20.0), init="uniform", dtype="float64"),
    ],
    ids=["transformer", "sequence classes", "flow"],
)
def test_a_seed_is_the_same_run_among_1_and_among_16(run):
    sixteen, one = simulate(run, seeds=16), simulate(run, seeds=[15])
    rtol = 1e-6 if run.clock == "time" else 1e-8  # the solver's own tolerance
    for name in one.data_vars:
        found = sixteen[name].sel(seed=15) if "seed" in sixteen[name].dims else sixteen[name]
        expected = one[name].isel(seed=0) if "seed" in one[name].dims else one[name]
        np.testing.assert_allclose(found, expected, rtol=rtol, atol=1e-8, err_msg=name)
    varied = sixteen["loss"].isel({run.clock: -1})
    assert np.unique(varied).size == 16


@pytest.mark.parametrize(
    "run",
    [
        Simulation(
            Sequences("syn-small", length=16),
            gradient=Batches(8),
            eta_y=[0.5, 1.0, 2.0],
            seeds=5,
            init="uniform",
            motion=Steps(5),
            record=Record(("attention", "loss")),
        ),
        replace(CHAINS, learning_rate=[0.1, 0.2, 0.5], seeds=3),
    ],
    ids=["sequence classes", "transformer"],
)
def test_groups_of_any_size_give_the_same(run, monkeypatch):
    whole = simulate(run)
    monkeypatch.setitem(groups.RUNS_AT_ONCE, "cpu", 2)
    assert len(list(next(groups.stacks(run))[0].groups())) > 5
    pieces = simulate(run)
    for name in whole.data_vars:
        np.testing.assert_allclose(whole[name], pieces[name], rtol=2e-5, atol=1e-7)


def test_little_memory_makes_small_groups(monkeypatch):
    run = Simulation("syn-small", eta_y=[0.5, 1.0, 2.0], seeds=5)
    assert len(list(next(groups.stacks(run))[0].groups())) == 1
    monkeypatch.setitem(groups.WORKING_BYTES, "cpu", 200_000)
    assert len(list(next(groups.stacks(run))[0].groups())) > 1


@pytest.mark.parametrize(
    "settings",
    [
        {"gradient": Population(), "momentum": 0.0},
        {**SHORT, "init": "uniform"},
        {"time": 10.0, "dtype": "float64"},  # whose solver is exact to less than is compared
        {"length": "inf", "batch_size": 4, "model": Embedded(20)},
        {**SHORT, "model": Extended(position="learned", heads=2), "init": "uniform"},
        {"gradient": Population(), "exact": False},
    ],
    ids=["population", "batches", "flow", "embedded", "extended", "general path"],
)
def test_sets_of_classes_together_are_each_alone(settings):
    # more than 16 runs: two groups side by side, the second filled up
    sets = [single_common(2, 3, p, vocab_size=20) for p in (0.1, 0.2, 0.3, 0.4, 0.5)]
    arguments = {"eta_y": [0.5, 1.0], "seeds": 2, **settings}
    if "time" not in settings:
        arguments["steps"] = 10
    together = simulate(sets, **arguments)
    for i in (0, 4):  # of the first group and of the second
        alone = simulate(sets[i], **arguments)
        same = together.isel(setting=i)
        assert set(same.variables) == set(alone.variables)
        for name in alone.variables:
            assert same[name].dims == alone[name].dims
            np.testing.assert_allclose(same[name], alone[name], rtol=1e-5, atol=1e-6)


def test_cells_may_draw_data_of_their_own_whatever_they_run_with():
    common = {"steps": 5, "seeds": 5, "record": Record("attention"), **SHORT}
    nearly = [1.0, 1.0 + 1e-6]
    shared = plain(syn_small(), eta_y=nearly, **common).attention
    np.testing.assert_allclose(shared[0], shared[1], atol=1e-5)
    sets = [syn_small(), syn_small().with_prior([0.6, 0.4])]
    own = plain(sets, eta_y=nearly, independent=True, **common).attention
    assert abs(own[0, 0] - own[0, 1]).max("token")[:, -1].min() > 1e-3  # in every seed and class
    alone = plain(syn_small(), eta_y=nearly[1], independent=True, **common).attention
    np.testing.assert_allclose(own[0, 1], alone, rtol=2e-5, atol=1e-7)
    # so may those of other tasks
    shared, own = (
        simulate(CHAINS, learning_rate=nearly, independent=of, what="loss", at=(0,))["loss"]
        for of in (False, True)
    )
    assert (shared[0] == shared[1]).all() and (own[0] != own[1]).all()


def test_the_same_seed_gives_the_same_run_and_another_seed_another():
    arguments = {"steps": 8, "length": 16, "batch_size": 4, "what": "attention"}
    first, again, other = (plain(syn_small(), seeds=[of], **arguments) for of in (7, 7, 8))
    np.testing.assert_array_equal(first.attention, again.attention)
    assert float(abs(first.attention - other.attention.values).max()) > 1e-3


def test_precision_is_that_of_the_run_alone():
    assert not jax.config.jax_enable_x64
    result = simulate(syn_small(), gradient=Population(), steps=2, dtype="float64")
    assert result.attention.dtype == np.float64
    assert not jax.config.jax_enable_x64
    assert simulate(syn_small(), gradient=Population(), steps=2).loss.dtype == np.float32
    assert simulate(CHAINS, dtype="float32", steps=4)["loss"].dtype == np.float32

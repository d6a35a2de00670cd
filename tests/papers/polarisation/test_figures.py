"""Judgements of the figures on made-up data; `attnlab check-paper` makes each from its recipe."""

import numpy as np
import xarray as xr

from attnlab.experiments import Standing
from attnlab.papers.polarisation.figures import dilution, evolution, switch, tied


def test_evolution_needs_a_winner_and_the_order():
    weights = np.tile([[0.5, 0.3, 0.2], [0.9, 0.06, 0.04]], (4, 1, 1))
    weights[1:, 1, 0] += [0.001, 0.002, 0.003]
    scores = np.tile([[0.3, 0.2, 0.1], [5.0, 1.0, 0.5]], (4, 1, 1))
    tau = np.geomspace(1, 1e4, 5)
    dims = ("seed", "time", "token")
    found = xr.Dataset(
        {
            "weights": (dims, weights),
            "scores": (dims, scores),
            "predicted": (dims[1:], weights[0]),
            "left": (("tokens", "tau"), np.ones((1, 5))),
        },
        {"time": [0.0, 10.0], "tokens": [3], "tau": tau},
    )
    judged = evolution.judge(found)
    assert judged.standing is Standing.HOLDS
    assert judged.numbers["law_exponent"] == -2 and judged.numbers["path_error"] == 0
    crossed = found.assign(scores=found["scores"].isel(token=[1, 0, 2]))
    assert evolution.judge(crossed).standing is Standing.PARTLY
    even = found.assign(weights=xr.full_like(found["weights"], 1 / 3))
    assert evolution.judge(even).standing is Standing.FAILS


def test_tied_needs_attention_and_a_massive_column():
    ones = xr.DataArray(np.ones((1, 3, 2)), {"dim": [5]}, ("dim", "seed", "step"))
    found = xr.Dataset({"loss": ones, "top": 0.99 * ones, "largest": 6 * ones, "median": ones})
    assert tied.judge(found).standing is Standing.HOLDS
    assert tied.judge(found.assign(largest=2 * ones)).standing is Standing.PARTLY
    assert tied.judge(found.assign(largest=ones, top=0.5 * ones)).standing is Standing.FAILS


def test_the_switch_has_to_switch():
    dims = ("norm", "ratio", "time", "token")
    values = np.zeros((2, 1, 2, 4))
    values[:, :, 0] = [0.2, 0.2, 0.4, 0.2]
    values[0, 0, 1], values[1, 0, 1] = [0, 0, 0.995, 0.005], [0.1, 0.1, 0.55, 0.25]
    of = xr.DataArray(values, {"norm": ["none", "l2"], "ratio": [1.0], "time": [1.0, 1e10]}, dims)
    found = xr.Dataset({"attention": of, "alone": of})
    judged = switch.judge(found)
    assert judged.standing is Standing.HOLDS
    assert judged.numbers["held_ratio"] == 0.55 / 0.25
    both = found.assign(attention=of.sel(norm=["none", "none"]).assign_coords(norm=of["norm"]))
    assert switch.judge(both).standing is Standing.FAILS
    assert [row["ratio"] for row in switch.table(found).rows] == [1.0, 1.0]


def test_cycles_without_end_need_something_left_to_learn():
    path = np.tile(
        [[0.75, 0.75, 0.75, 0.75], [1.0, 0.77, 0.75, 0.75], [1.0, 0.4, 0.3, 0.2]], (4, 1, 1)
    )
    attention = xr.DataArray(path, dims=("seed", "time", "query"))
    late = attention.isel(seed=[0, 1]).rename(seed="late_seed", time="late_time")
    loss = xr.DataArray(np.ones((4, 3)), dims=("seed", "time"))
    found = xr.Dataset(
        {
            "attention": attention,
            "late_attention": late,
            "loss": loss,
            "late_loss": loss.isel(seed=[0, 1]).rename(seed="late_seed", time="late_time"),
            "level": ("name", [2.0, 1.5, 1.2, 1.0]),
        }
    )
    assert dilution.judge(found).standing is Standing.PARTLY
    assert (
        dilution.judge(found.assign(late_loss=found["late_loss"] + 0.1)).standing is Standing.HOLDS
    )
    still = found.assign(attention=attention.isel(time=[0, 0, 0]))
    assert dilution.judge(still).standing is Standing.FAILS

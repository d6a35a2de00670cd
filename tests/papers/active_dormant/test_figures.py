"""Judgements of the figures on made-up data; `attnlab check-paper` makes each from its recipe."""

import numpy as np
import pytest
import xarray as xr

from attnlab.experiments import Standing, published, recipe_for
from attnlab.papers.active_dormant import evidence, runs
from attnlab.papers.active_dormant.figures import dynamics, flow, layers


def series(*values, seeds=3):
    noise = 1e-6 * np.arange(seeds)[:, None]
    return (("seed", "step"), np.tile(values, (seeds, 1)) + noise)


def test_a_sink_has_to_come_with_one_context_too():
    def of(one, many):
        noise = 1e-6 * np.arange(3)[:, None]
        return (("contexts", "seed", "time"), np.array([one + noise, many + noise]))

    found = xr.Dataset(
        {
            "sink_logit": of([0.0, 1.0, 1.0], [0.0, 4.0, 8.0]),
            "late": of([1.0, 1.0, 1.0], [0.0, 4.0, 8.1]),
            "sink_mass": of([0.01, 0.02, 0.03], [0.01, 0.4, 0.99]),
            "value_size": of([0.0, 3.0, 3.0], [0.0, 3.0, 0.01]),
        },
        {"contexts": ["one", "many"], "time": [0.0, 1e5, 1e9]},
    )
    judged = flow.judge(found)
    assert judged.standing is Standing.PARTLY
    assert judged.numbers["height_at"] == 1e5
    assert abs(judged.numbers["late_error"] - 0.1) < 1e-9
    both = found.copy(deep=True)
    for name in ("sink_mass", "value_size"):
        both[name].loc[{"contexts": "one"}] = found[name].sel(contexts="many")
    assert flow.judge(both).standing is Standing.HOLDS
    none = found.assign(sink_mass=0 * found["sink_mass"])
    assert flow.judge(none).standing is Standing.FAILS


def test_the_value_has_to_drain_after_the_sink():
    found = xr.Dataset(
        {
            "copy_risk": series(3.0, 0.2, 0.01, 0.01),
            "bigram_kl": series(1.0, 0.1, 0.01, 0.01),
            "bigram_kl_without_attention": series(1.0, 0.1, 0.01, 0.012),
            "sink_at_others": series(0.05, 0.3, 0.6, 0.8),
            "sink_at_triggers": series(0.05, 0.0, 0.0, 0.0),
            "relu_sink": series(0.05, 0.0, 0.0, 0.0),
            "drain": series(1.0, 1.5, 0.8, 0.2),
            "first_value": series(2.0, 5.0, 3.0, 1.0),
        },
        {"step": [0, 50, 200, 800]},
    )
    judged = dynamics.judge(found)
    assert judged.standing is Standing.HOLDS
    times = [judged.numbers[name] for name in ("copied_at", "sink_at", "drained_at")]
    assert times == [50, 200, 800]
    full = found.assign(drain=found["drain"] + 1)
    assert dynamics.judge(full).standing is Standing.PARTLY
    assert (
        dynamics.judge(found.assign(sink_at_others=found["sink_at_others"] / 4)).standing
        is Standing.FAILS
    )


def test_adam_alone_has_to_have_a_peak():
    dims = ("run", "seed", "step", "layer")
    peak = np.ones((3, 2, 2, 3))
    peak[0, :, -1, 1] = 5.0
    found = xr.Dataset(
        {
            "peak": (dims, peak),
            "first_residual": (dims, 10 * peak),
            "sink_at_others": (dims, 0.5 * np.ones_like(peak)),
            "second_logit": (("model", "seed"), [[8.0, 9.0], [1.0, 2.0]]),
        },
        {"run": list(runs.THREE), "step": [0, 2000], "model": ["whole", "cut"]},
    )
    judged = layers.judge(found)
    assert judged.standing is Standing.HOLDS and "2000 steps" in judged.headline
    assert judged.numbers["logit"] == 8.5 and judged.numbers["logit_cut"] == 1.5
    assert layers.judge(found.assign(peak=found["peak"] + 3)).standing is Standing.PARTLY
    turned = found.assign(peak=found["peak"].roll(run=1))
    assert layers.judge(turned).standing is Standing.PARTLY  # ReLU still has none


def test_published_values_are_those_of_the_notes():
    rows = {row["step"]: row for row in published(flow.__file__, "one_layer")}
    assert rows[200]["first_value"] == 8.73 and rows[10_000]["sink_logit"] == 16.8
    assert published(flow.__file__, "residual")[-1]["adam"] == 140.7


@pytest.mark.parametrize("figure", [dynamics, layers])
def test_recipes_of_published_size_read_what_is_on_file(monkeypatch, figure):
    def trained(run, **_):
        raise AssertionError(f"{run.title} is trained")

    monkeypatch.setattr(evidence, "simulate", trained)
    name = figure.EXPERIMENT.name
    found = figure.data(recipe_for(f"active_dormant/{name}", "published"))
    assert found.sizes["seed"] == 4 and found["step"].values[-1] == 10_000

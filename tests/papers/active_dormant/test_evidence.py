"""Numbers on file: of which runs they are, what they show, and a run that gives some again."""

import numpy as np
import pytest

from attnlab import predict, simulate
from attnlab.papers.active_dormant import runs
from attnlab.papers.active_dormant.evidence import EVIDENCE, measured, numbers


@pytest.mark.parametrize("name", [name for name in EVIDENCE.runs if name != "flow"])
def test_numbers_on_file_are_of_their_runs(name):
    run, found = EVIDENCE.runs[name](), EVIDENCE.read(name)
    assert numbers(run).identical(found)  # nothing is trained
    layers = run.model.layers
    assert found.sizes == {"seed": len(run.seeds), "step": len(run.record_steps), "layer": layers}
    assert found.to_dataarray().notnull().all()


def test_a_recorded_seed_is_trained_again():
    """To step 100, when the sink forms where the head is not needed, and there alone."""
    short = runs.transformer(at=(0, 50, 100), seeds=1)
    found, kept = measured(short, simulate(short, progress=False)), EVIDENCE.read("one-softmax")
    risks = ["copy_risk", "bigram_kl"]
    risks += [f"{risk}_without_{part}" for risk in risks for part in ("attention", "mlp")]
    for name in (*risks, "sink_at_others", "drain", "sink_logit"):
        expected = kept[name].isel(seed=[0], step=[0, 1, 2], layer=0)
        np.testing.assert_allclose(found[name].squeeze(), expected[0], rtol=0.02, atol=2e-3)
    start, last = (found["active_score"].squeeze()[at] for at in (0, 2))
    assert start < 0.05 < 0.1 < last


@pytest.mark.parametrize(
    ("name", "measure", "at"),
    [
        ("one-softmax", "sink_at_others", {0: (0.04, 0.05), 1500: (1.00, 0.70)}),
        ("one-softmax", "previous_at_triggers", {1500: (0.99, 0.97)}),
        ("one-softmax", "drain", {0: (1.05, 1.18), 200: (0.25, 0.45), 1500: (0.11, 0.26)}),
        ("one-softmax", "first_value", {0: (2.52, 2.63), 50: (4.92, 5.81), 1500: (1.26, 2.10)}),
        ("one-softmax", "copy_risk", {1500: (0.0024,)}),
        ("one-softmax", "bigram_kl", {1500: (0.0064,)}),
        ("one-relu", "copy_risk", {1500: (0.0022,)}),
        ("one-relu", "bigram_kl", {1500: (0.0068,)}),
        ("one-relu", "sink_at_others", {200: (0.012,), 800: (0.0,)}),
        ("one-bare", "sink_at_others", {800: (0.015, 0.030)}),
        ("one-bare", "on_triggers_at_others", {500: (0.72, 0.53)}),
        ("one-bare", "bigram_kl", {800: (0.010, 0.010)}),
    ],
)
def test_seeds_measured_before_are_like_ours(name, measure, at):
    """Measured before by other code: within three deviations of ten seeds, and rounding."""
    of = EVIDENCE.read(name)[measure].isel(layer=0)
    for step, values in at.items():
        seeds = of.sel(step=step).values
        assert (abs(seeds.mean() - np.array(values)) <= 3 * seeds.std(ddof=1) + 5e-3).all()


def test_softmax_is_dormant_where_the_head_is_not_needed():
    """Sinks at other tokens than triggers, by seed from weak to complete; drained values."""
    of = EVIDENCE.read("one-softmax").isel(layer=0)
    last = of.isel(step=-1)
    assert (last["sink_at_triggers"] < 0.001).all() and (last["previous_at_triggers"] > 0.9).all()
    sink = last["sink_at_others"]
    assert 0.5 < sink.mean() < 0.85 and (sink > 0.04).all()
    assert (sink > 0.9).sum() >= 1 and (sink < 0.5).sum() >= 1
    assert (last["drain"] < 0.9).all() and last["drain"].mean() < 0.4
    assert (last["peak"] < 1.1).all()  # one layer has no residual peak
    size = of["first_value"]
    assert (size.argmax("step") > 0).all()
    assert (size.max("step") > 1.3 * size.isel(step=[0, -1])).all()  # a hump
    spread = (of["sink_logit_spread"] / of["sink_logit"]).median("seed")
    assert spread[-1] < spread[3]  # the sink logits concentrate


def test_relu_and_no_start_token_have_no_sink_and_learn_as_well():
    last = {name: EVIDENCE.read(f"one-{name}").isel(layer=0, step=-1) for name in ("relu", "bare")}
    for of in last.values():
        assert (of["sink_at_others"] < 0.05).all()
        assert of["copy_risk"].mean() < 0.02 and of["bigram_kl"].mean() < 0.015
    peak = last["relu"]["peak"]
    assert peak.max() > 3 and peak.min() < 1.2  # by seed: a peak can stand without a sink


def test_three_layers_sink_and_relu_peaks_without_a_sink():
    last = {name: EVIDENCE.read(f"three-{name}").isel(step=-1) for name in runs.THREE}
    assert all((of["copy_risk"] < 0.1).all() for of in last.values())
    most = {name: of["sink_at_others"].max("layer") for name, of in last.items()}
    assert (most["adam"] > 0.2).all() and most["adam"].mean() > 0.6 and (most["relu"] < 0.05).all()
    peak = {name: of["peak"].max("layer") for name, of in last.items()}
    assert (peak["adam"] < 2).all() and peak["relu"].max() > 10 > 2 > peak["relu"].min()
    logit = last["adam"].isel(layer=1)
    assert logit["sink_logit_without_first"].mean() < logit["sink_logit"].mean() / 2


def test_a_text_at_the_published_width():
    """One layer sinks at <s> in two seeds of four, at triggers in the others; three layers sink,
    and peak with Adam more than with SGD."""
    one = EVIDENCE.read("wide-softmax").isel(layer=0, step=-1)
    sink = one["sink_at_others"]
    assert ((sink > 0.95) | (one["on_triggers_at_others"] > 0.6)).all() and (sink > 0.95).sum() == 2
    assert (one["drain"] < 0.3).all() and (one["sink_at_triggers"] < 1e-3).all()
    three = {name: EVIDENCE.read(f"wide-three-{name}").isel(step=-1) for name in runs.THREE}
    most = {name: of["sink_at_others"].max("layer") for name, of in three.items()}
    peak = {name: of["peak"].max("layer") for name, of in three.items()}
    assert all((most[name] > 0.9).all() for name in ("adam", "sgd")) and (most["relu"] < 0.3).all()
    assert (peak["adam"] > 4).all() and (peak["sgd"] < 2.6).all()
    cut = three["adam"].isel(layer=1)["sink_logit_without_first"]
    assert (cut < 1).all()  # without the first block the second has no sink


def test_the_flow_on_file_is_solved_again_without_the_trainer():
    """Contexts that differ, a seed, to t = 10^10: the value grows, then a sink drains it."""
    run, kept = runs.flow(seeds=1), EVIDENCE.read("flow")
    assert kept.sizes == {"seed": 10, "record": len(runs.TIMES)}
    solved = predict(run, theory="dormant-flow").isel(seed=0)
    alpha = solved["parameters.sink"]
    expected = {
        "sink_logit": alpha.mean("parameters.sink_0"),
        "range": alpha.max("parameters.sink_0") - alpha.min("parameters.sink_0"),
        "sink_mass": solved["sink_mass"].mean("query"),
        "value_size": solved["value_size"],
    }
    for name, value in expected.items():
        np.testing.assert_allclose(kept[name][0], value, atol=2e-3)
    size, late = kept["value_size"], kept.isel(record=-1)
    assert (size.max("record") > 1).all() and (late["value_size"] < 0.01).all()
    assert (late["late_error"] < 0.3).all() and (late["sink_mass"] > 0.995).all()

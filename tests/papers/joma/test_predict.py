"""JoMA's levels against runs of Joint: predictions, and the assumptions that they measure."""

from dataclasses import replace

import numpy as np
import pytest
import xarray as xr

from attnlab import Flow, Population, Record, Simulation, Steps, predict, simulate
from attnlab.papers.joma.classes import joma_toy
from attnlab.papers.joma.invariants import joint_invariants
from attnlab.papers.joma.model import Joint
from attnlab.papers.joma.predict import JOMA_LEVELS
from attnlab.tasks.classes import SequenceClasses

# Classes that differ in how often they have their tokens; all tokens are common.
CLASSES = SequenceClasses(
    [
        [0.4, 0.3, 0.2, 0.1, 0, 0, 0, 0],
        [0.1, 0.4, 0.3, 0.2, 0, 0, 0, 0],
        [0.3, 0.1, 0.2, 0.4, 0, 0, 0, 0],
    ],
    query=[4, 4, 4],
    next_token=[5, 6, 7],
)
TWO_QUERIES = SequenceClasses(
    [
        [0.4, 0.3, 0.2, 0.1, 0, 0, 0, 0],
        [0.1, 0.4, 0.3, 0.2, 0, 0, 0, 0],
        [0.3, 0.1, 0.2, 0.4, 0, 0, 0, 0],
    ],
    query=[4, 4, 3],
    next_token=[5, 6, 7],
)
AT = [0.0, *np.linspace(1.0, 60.0, 60)]


def run_of(classes=CLASSES, **model):
    return Simulation(
        classes,
        Joint(temperature=0.8, **{"scale": 0.0, **model}),
        motion=Flow(60.0),
        eta_y=0.8,
        eta_z=0.6,
        record=Record(("attention", "logits"), at=AT),
        dtype="float64",
    )


def off(said, measured, at=-1):
    """The largest error of z at one time, over how far z has moved."""
    z = measured["attention_logits"]
    moved = abs(z - z.isel(time=0)).isel(time=at).max()
    return float(abs(said - z).isel(time=at).max() / moved)


@pytest.fixture(scope="module")
def softmax():
    run = run_of()
    return run, simulate(run, progress=False)


@pytest.fixture(scope="module")
def two_queries():
    run = run_of(TWO_QUERIES, attention="exp")
    return run, simulate(run, progress=False)


def test_each_level_comes_nearer(softmax):
    run, measured = softmax
    said = {of.name: predict(run, theory=of) for of in JOMA_LEVELS}
    for dataset in said.values():
        assert dataset["attention_logits"].dims == measured["attention_logits"].dims
        xr.align(dataset["attention"], measured["attention"], join="exact")
        assert dataset["mlp_weights"].sizes["token"] == CLASSES.vocab_size
    errors = [off(of["attention_logits"], measured) for of in said.values()]
    assert errors[0] > 2 * errors[1] > 4 * errors[2]
    assert errors[2] < 0.1
    v = said["joma-moving"]["mlp_weights"].isel(seed=0, time=-1)
    np.testing.assert_allclose(v, measured["mlp_weights"].isel(seed=0, time=-1), atol=0.1)
    apart = abs(said["joma-moving"]["attention"] - measured["attention"]).max()
    assert apart < 0.05


def test_assumptions_are_measured(softmax):
    run, measured = softmax
    found = predict(run, theory="joma").set_index(assumption="assumption")
    value = {
        str(name): float(found["assumption_value"].sel(assumption=name))
        for name in found["assumption"].values
    }
    along = joint_invariants(measured)
    drift = value["b-bar is constant: its drift"]
    assert drift > 0.1
    seen = float(along["mean_attention_drift"].max())
    assert 0.5 * seen < drift < 2 * seen  # along the path that is predicted, which runs ahead
    assert not bool(found["assumption_holds"].sel(assumption="b-bar is constant: its drift"))
    assert value["orthonormal embeddings: overlaps in the model"] == 0
    assert value["one query for all classes"] == 1
    still = predict(run, theory="joma-stationary")
    says = "incoming gradients are stationary: their change"
    assert float(still["assumption_value"].sel(assumption=says)) > 0.1
    moving = predict(run, theory="joma-moving")
    assert "b-bar is constant: its drift" not in moving["assumption"].values
    says = "E[S b] = E[S] b-bar: residual of the factorisation"
    residual = float(moving["assumption_value"].sel(assumption=says))
    seen = float(np.nanmax(along["factorisation_residual"]))  # from time 1 on
    assert seen == pytest.approx(residual, rel=0.5)


def test_a_correlation_does_not_see_what_the_size_shows(softmax):
    _, measured = softmax
    implied = joint_invariants(measured)["implied_logits"]
    assert implied.sel(level="joma").dims == measured["attention_logits"].dims
    fixed, moving = (off(implied.sel(level=level), measured) for level in ("joma", "joma-moving"))
    assert fixed > 3 * moving
    last = [
        of.isel(seed=0, time=-1, query=0, token=slice(4)).values
        for of in (implied.sel(level="joma"), measured["attention_logits"])
    ]
    assert np.corrcoef(*last)[0, 1] > 0.97


def test_one_of_several_sets_of_classes_can_be_selected():
    """As the message about several of them advises."""
    sets = [joma_toy(4, seed=seed) for seed in range(3)]
    settings = {
        "model": Joint(),
        "time": 4.0,
        "what": "logits",
        "at": [0.0, 4.0],
        "dtype": "float64",
        "progress": False,
    }
    together = simulate(sets, **settings)
    with pytest.raises(ValueError, match=r"give one set of classes at a time"):
        joint_invariants(together)
    for i in (2, 1):
        one = joint_invariants(together.isel(setting=i))["implied_logits"]
        alone = joint_invariants(simulate(sets[i], **settings))["implied_logits"]
        np.testing.assert_allclose(one, alone, atol=1e-7)
    unknown = together.isel(setting=1).drop_vars("probability")
    with pytest.raises(ValueError, match="not known which of several sets"):
        joint_invariants(unknown)


def test_exp_attention_of_several_queries_needs_the_shares(two_queries):
    run, measured = two_queries
    implied = joint_invariants(measured)["implied_logits"]
    alone, shared = (off(implied.sel(level=level), measured) for level in ("joma", "joma-moving"))
    assert alone > 0.2 > 1e-2 > shared  # the second is exact but for the trapezoidal rule
    assert off(predict(run, theory="joma-moving")["attention_logits"], measured) < 1e-5
    z = measured["attention_logits"].sum("query").isel(seed=0, token=slice(4))
    squares = (measured["mlp_weights"] ** 2).sum("unit").isel(seed=0, token=slice(4))
    np.testing.assert_allclose(z, 0.6 / (2 * 0.8 * 0.8) * squares, atol=1e-7)


def test_a_stationary_gradient_blows_up_when_the_law_says():
    run = run_of(attention="exp", stationary=True)
    end = float(predict(run, theory="joma")["blow_up_time"])
    assert 0 < end < np.inf
    late = 0.95 * end
    record = Record(("attention", "logits"), at=[0.0, late])
    run = replace(run, motion=Flow(late), record=record)
    measured = simulate(run, progress=False)
    for level in ("joma", "joma-stationary"):
        assert off(predict(run, theory=level)["attention_logits"], measured) < 1e-6
    late = predict(run, theory="joma", at=[0.5 * end, 0.9 * end])
    assert np.isfinite(late["attention_logits"]).all()


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (Simulation(CLASSES, motion=Flow()), "give model=Joint"),
        (run_of(hidden=4), "model.hidden"),
        (run_of(activation="relu", scale=0.1), "a ReLU does not move"),
        (
            Simulation(CLASSES, Joint(), motion=Steps(optimizer="adam"), gradient=Population()),
            "gradient descent alone",
        ),
    ],
)
def test_runs_that_it_does_not_cover_are_refused(run, message):
    with pytest.raises(ValueError, match=message):
        predict(run, theory="joma")


def test_claim_2_is_about_a_linear_activation_and_one_query():
    with pytest.raises(ValueError, match="take 'linear'"):
        predict(run_of(activation="gelu"), theory="joma-stationary")
    with pytest.raises(ValueError, match="one query"):
        predict(run_of(TWO_QUERIES), theory="joma-stationary")


def test_a_result_must_have_what_an_invariant_relates(softmax):
    _, measured = softmax
    with pytest.raises(ValueError, match="weights are not recorded"):
        joint_invariants(measured.drop_vars("mlp_weights"))
    with pytest.raises(ValueError, match="count from the start"):
        joint_invariants(measured.isel(time=slice(1, None)))
    with pytest.raises(ValueError, match="give model=Joint"):
        joint_invariants(predict(CLASSES, time=2.0))

"""JoMA's model written out: against the slope of its loss, and what its reduction leaves out."""

import numpy as np
import pytest
from brute_joint import PHI, Brute
from scipy.optimize import approx_fprime

from attnlab.formulas import Setting
from attnlab.papers.joma.theory import (
    blow_up_time,
    cosh_law,
    delta,
    discriminancy,
    erf_law,
    joint_gradient,
    reduced_joint_flow,
)

KINDS = ("softmax", "exp", "linear")


@pytest.mark.parametrize("attention", KINDS)
@pytest.mark.parametrize("activation", PHI)
@pytest.mark.parametrize("upper", [False, True], ids=["labels", "upper"])
def test_it_is_minus_the_slope_of_the_loss(random_classes, attention, activation, upper):
    rng = np.random.default_rng(0)
    brute = Brute(
        random_classes(2, K=4),
        psi=[0, 1, 1, 0],
        target=[0, 1, 2, 1],
        weight=[0.4, 0.3, 0.2, 0.1],
        attention=attention,
        activation=activation,
        temperature=0.7,
    )
    J, H = 3, 5 if upper else 3
    v, z = rng.normal(size=(H, brute.L)), rng.normal(1.0, 0.5, (2, brute.L))
    r = rng.normal(size=(H, 2))
    V = rng.normal(size=(H, J)) if upper else None
    found = joint_gradient(brute.setting(), v, z, r=r, upper=V, **brute.model)

    def slope(of, at):
        moved = approx_fprime(at.ravel(), lambda x: of(x.reshape(at.shape)), 1e-7)
        return -moved.reshape(at.shape)

    close = {"atol": 3e-6}
    np.testing.assert_allclose(
        found.shares.sum(0), slope(lambda x: brute.loss(x, r, z, V), v), **close
    )
    np.testing.assert_allclose(
        found.query_weights, slope(lambda x: brute.loss(v, x, z, V), r), **close
    )
    np.testing.assert_allclose(found.logits, slope(lambda x: brute.loss(v, r, x, V), z), **close)
    two = joint_gradient(brute.setting(), [v, v], [z, z], r=[r, r], upper=V, **brute.model)
    np.testing.assert_allclose(two.shares, [found.shares] * 2)
    np.testing.assert_allclose(two.logits, [found.logits] * 2)


def test_hidden_units_without_an_upper_layer_are_the_labels(random_classes):
    P = random_classes(0, K=3)
    with pytest.raises(ValueError, match="2 hidden units for 3 labels"):
        joint_gradient(P, np.zeros((2, P.shape[1])), np.zeros((1, P.shape[1])))
    with pytest.raises(ValueError, match="attention must be one of"):
        joint_gradient(P, np.zeros((3, P.shape[1])), np.zeros((1, P.shape[1])), attention="max")


# -- Delta ----------------------------------------------------------------------------------------


def test_common_and_distinct_tokens_are_the_two_ends_of_discriminancy():
    P = np.array([[0.5, 0.5, 0.0, 0.0], [0.5, 0.0, 0.3, 0.2], [0.5, 0.0, 0.3, 0.2]])
    common, distinct, between, same = discriminancy(P)[0]
    assert common == pytest.approx(0.0, abs=1e-15)
    assert distinct == pytest.approx(1.0)
    assert 0 < between < 1
    assert between == pytest.approx(same)
    lengths = np.linalg.norm(delta(P)[0], axis=0)
    assert lengths[0] == pytest.approx(0.0, abs=1e-15)
    assert lengths[2] / lengths[3] == pytest.approx(1.5)  # equally discriminative: by frequency


def test_delta_is_the_first_velocity_and_sums_to_nothing(random_classes):
    P, psi = random_classes(1, K=4), [0, 0, 1, 1]
    D = delta(Setting(P, psi=psi))
    zeros = np.zeros((4, P.shape[1])), np.zeros((2, P.shape[1]))
    found = joint_gradient(Setting(P, psi=psi), *zeros, attention="exp")
    np.testing.assert_allclose(D, found.shares, atol=1e-15)
    np.testing.assert_allclose(D.sum(1), 0.0, atol=1e-15)


# -- the reduced dynamics -------------------------------------------------------------------------


@pytest.mark.parametrize("activation", ["linear", "gelu"])
@pytest.mark.parametrize(("attention", "moving"), [("exp", False), ("linear", False)])
def test_for_one_query_exp_and_linear_attention_are_eliminated_exactly(
    random_classes, attention, moving, activation
):
    P = random_classes(3, K=4)
    brute = Brute(P, attention=attention, activation=activation, temperature=0.8)
    rates = {"eta_w": 0.7, "eta_z": 0.4}
    found = reduced_joint_flow(brute.setting(**rates), [20.0, 0.0], moving=moving, **brute.model)
    v, r, z = brute.flow(20.0, **rates)
    np.testing.assert_allclose(found.weights[0], v, atol=2e-6)
    np.testing.assert_allclose(found.query_weights[0], r, atol=2e-6)
    np.testing.assert_allclose(found.logits[0], z, atol=2e-6)
    assert not found.weights[1].any()


@pytest.mark.parametrize("attention", ["exp", "linear"])
def test_with_its_own_velocity_z_is_exact_for_several_queries(random_classes, attention):
    P, psi = random_classes(3, K=4), [0, 1, 1, 0]
    brute = Brute(P, psi=psi, attention=attention)
    rates = {"eta_w": 0.7, "eta_z": 0.4}
    moved = reduced_joint_flow(brute.setting(**rates), 20.0, moving=True, **brute.model)
    printed = reduced_joint_flow(brute.setting(**rates), 20.0, **brute.model)
    z = brute.flow(20.0, **rates)[2]
    np.testing.assert_allclose(moved.logits, z, atol=2e-6)
    assert np.abs(printed.logits - z).max() > 0.2 * np.abs(z - z.mean()).max()


def test_without_a_correlation_of_pull_and_attention_softmax_is_exact_too():
    """Two classes that are mirror images pull equally hard."""
    P = np.array([[0.4, 0.3, 0.2, 0.1], [0.4, 0.3, 0.1, 0.2]])
    brute = Brute(P)
    rates = {"eta_w": 1.0, "eta_z": 1.0}
    z = brute.flow(100.0, **rates)[2]
    moving = reduced_joint_flow(brute.setting(**rates), 100.0, moving=True).logits
    np.testing.assert_allclose(moving, z, atol=2e-6)
    fixed = reduced_joint_flow(brute.setting(**rates), 100.0).logits
    assert np.abs(fixed - z).max() > 0.1 * np.abs(z).max()  # b-bar has moved


def test_a_relu_does_not_start():
    with pytest.raises(ValueError, match="ReLU has no slope"):
        reduced_joint_flow(Setting(np.eye(2), eta_y=1.0, eta_z=1.0), 1.0, activation="relu")


# -- stationary gradients -------------------------------------------------------------------------


@pytest.mark.parametrize(("attention", "law"), [("exp", erf_law), ("linear", cosh_law)])
def test_closed_forms_solve_the_flow_at_a_stationary_gradient(random_classes, attention, law):
    P, z0 = random_classes(5, K=3), np.linspace(0.5, 1.0, 9)
    rates = {"eta_w": 0.7, "eta_z": 0.3, "temperature": 0.6}
    D = delta(P)[0]
    end = 0.95 * blow_up_time(D, z0=z0, **rates)
    t = np.array([0.0, 0.3, 1.0]) * end
    flow = reduced_joint_flow(
        Setting(P, eta_y=0.7, eta_z=0.3),
        t,
        temperature=0.6,
        attention=attention,
        stationary=True,
        z0=z0,
        rtol=1e-11,
        atol=1e-13,
    )
    found = law(D, t, z0=z0, **rates)
    np.testing.assert_allclose(found.weights, flow.weights, atol=1e-7)
    np.testing.assert_allclose(found.logits, flow.logits[:, 0], atol=1e-7)

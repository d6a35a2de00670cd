"""Where theories meet: one kernel of two papers, and one identity of three."""

import numpy as np
import pytest

from attnlab.formulas.chains import stationary
from attnlab.papers.active_dormant import theory as sinks
from attnlab.papers.causal_structure import theory as causal
from attnlab.papers.joma import theory as joma
from attnlab.papers.linear_icl import theory as regression
from attnlab.papers.polarisation import theory as polarisation
from attnlab.papers.statistical_induction import theory as induction


def dependence(P, distance, weight):
    """E of the sum over a, y of w(a, y) P(a, y) (P(s_j = a, s_i = y) - mu_a mu_y)."""
    mu = stationary(P)
    joint = mu[..., None] * np.linalg.matrix_power(P, distance)
    independent = mu[..., None] * mu[..., None, :]
    return (weight(mu) * P * (joint - independent)).sum((-1, -2)).mean()


@pytest.mark.parametrize("prior", ["dirichlet", "doubly"])
def test_two_papers_have_one_kernel(prior):
    P = induction.PRIORS[prior](np.random.default_rng(0), 500, 3)
    lags = induction.lag_kernel(P, 6)
    relatives = causal.expected_kernel(P, np.arange(6) - 1)[5, 5::-1]  # a chain, by distance
    for distance in range(6):
        counts = dependence(P, distance, lambda mu: mu[..., None])
        mixture = dependence(P, distance, lambda mu: 1 / mu[..., None, :])
        assert lags[distance] == pytest.approx(counts, abs=1e-12)
        assert relatives[distance] == pytest.approx(mixture, rel=1e-8, abs=1e-10)
    assert lags.argmax() == relatives[1:].argmax() + 1 == 1


def test_polarisation_has_the_identity_of_joma_with_its_own_weights():
    u, a = np.random.default_rng(0).normal(size=(2, 5))
    path = polarisation.one_direction(u, a, np.linspace(0, 5, 4001), rho=0.7)
    moving = joma.moving_invariant(
        path.scores[:, None], path.weights, z0=a, eta_z=0.7
    )  # one unit in the MLP, and mean attention that is sigma itself
    np.testing.assert_allclose(moving, path.logits, atol=1e-6)


def test_the_sink_flow_has_the_identity_of_joma_with_one_token():
    rng = np.random.default_rng(1)
    V, N, rates = 4, 9.0, (0.8, 0.3)
    P, pi = rng.dirichlet(np.ones(V), V), np.full(V, 1 / V)
    W, alpha, beta = rng.normal(size=(3, V))
    t = np.linspace(0, 60, 6001)
    path = sinks.joint_flow(t, P, pi, W, alpha=alpha, beta=beta, visible=N, rates=rates)
    mass = sinks.sink_mass(path.sink_logits, N)  # time query
    v = path.values - W / N  # time unit
    logits = np.log(P) + (mass[..., None] * path.values[:, None] + (1 - mass)[..., None] * W / N)
    q = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    shares = (pi * mass)[..., None] * (P - q)  # time query unit: each query's part of beta'
    said = joma.shared_invariant(
        v[..., None], shares[..., None], mass[..., None], t, z0=alpha[:, None], eta_z=rates[0]
    )
    np.testing.assert_allclose(said[..., 0], path.sink_logits, atol=2e-5)


def test_what_the_sink_flow_conserves_is_that_identity_summed_over_queries():
    rng = np.random.default_rng(2)
    V, N, rates = 5, 7.0, (0.8, 0.3)
    P, pi = rng.dirichlet(np.ones(V), V), rng.dirichlet(np.ones(V))
    W, alpha, beta = rng.normal(size=(3, V))
    path = sinks.joint_flow(
        [0.0, 10.0, 1e3], P, pi, W, alpha=alpha, beta=beta, visible=N, rates=rates
    )
    # (1 - s) takes the mean off, as b-bar does: dividing by it makes alpha + e^alpha / N of alpha
    odds = path.sink_logits + np.exp(path.sink_logits) / N
    grown = joma.exp_invariant(
        (path.values - W / N)[:, None], v0=beta - W / N, eta_w=rates[1], eta_z=rates[0]
    )
    left = (odds - odds[0]).sum(-1)
    np.testing.assert_allclose(left, grown.sum(-1), atol=1e-6)
    kept = sinks.conserved(path.sink_logits, path.values, W, visible=N, rates=rates)
    np.testing.assert_allclose(kept, kept[0], rtol=1e-6)


def test_linear_attention_in_context_has_the_linear_invariant_of_joma():
    one = regression.Regression((0.6, 0.4), examples=8)
    start = regression.Merged(np.array([0.3]), np.random.default_rng(3).normal(size=(1, 2, 2)))
    path = regression.population_flow(one, start, [0.0, 1.0, 30.0])
    squares = joma.linear_invariant(
        path.v[:, None], v0=start.v, z0=np.linalg.norm(start.U, axis=(1, 2))
    )
    np.testing.assert_allclose(squares[:, 0], (path.U**2).sum((1, 2, 3)), rtol=1e-7)

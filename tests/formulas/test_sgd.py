"""Attention under SGD's decoder: against the full update, its limits and its order."""

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from attnlab.formulas import Setting, sample_gradient, sgd_flow, unit_attention
from attnlab.formulas.sgd import Motion
from attnlab.formulas.tokens import log_scores
from attnlab.papers.scan_and_snap.theory import (
    assumption_2,
    attention_flow,
    correlation,
    gradient_coefficients,
    plain_decoder,
    transition_times,
)


def full_flow(P, t, *, psi, M, eta_y, eta_z, target, weight, frozen=False):
    """Lemma 1 written out, with the whole Y (L, M); `frozen`: the decoder sees z = 0."""
    K, L = P.shape
    Q = max(psi) + 1

    def velocity(_, state):
        Y, z = state[: L * M].reshape(L, M), state[L * M :].reshape(Q, L)
        Ydot, zdot = np.zeros_like(Y), np.zeros_like(z)
        for k in range(K):
            seen = np.zeros(L) if frozen else z[psi[k]]
            Ydot += weight[k] * sample_gradient(P[k], seen, Y, target=target[k]).decoder
            zdot[psi[k]] += weight[k] * sample_gradient(P[k], z[psi[k]], Y, target=target[k]).logits
        return np.concatenate([eta_y * Ydot.ravel(), eta_z * zdot.ravel()])

    start = np.zeros(L * M + Q * L)
    last = solve_ivp(velocity, (0, t), start, method="LSODA", rtol=1e-9, atol=1e-12).y[:, -1]
    return last[: L * M].reshape(L, M), last[L * M :].reshape(Q, L)


@pytest.mark.parametrize("target", [(0, 1, 2, 3), (0, 1, 1, 2)], ids=["own", "shared"])
def test_it_is_lemma_1_with_a_decoder_that_sees_the_start(random_classes, target):
    P, psi, weight = random_classes(3, K=4), [0, 1, 1, 0], np.array([0.4, 0.3, 0.2, 0.1])
    common = {"psi": psi, "M": 9, "eta_y": 0.9, "eta_z": 0.5, "target": target}
    found = sgd_flow(Setting(P, prior=weight, **common), [30.0, 0.0])
    Y, z = full_flow(P, 30.0, frozen=True, weight=weight, **common)
    np.testing.assert_allclose(found.logits[0], z, atol=1e-7)
    assert not found.logits[1].any()
    outside = max(target) + 1
    np.testing.assert_allclose(
        found.outputs[0], (unit_attention(P) @ Y)[:, [*range(outside), outside]], atol=1e-7
    )


def test_states_together_move_as_each_alone(random_classes):
    """A solver takes its Jacobian from the velocity of many states at once."""
    P, rows = random_classes(3, K=4), np.array([0, 1, 1, 0])
    start = np.zeros((2, P.shape[1]))
    motion = Motion(
        log_p=log_scores(P),
        rows=rows,
        start=start,
        f0=unit_attention(P),
        share=np.array([0.4, 0.3, 0.2, 0.1]),
        wanted=np.eye(4)[[0, 1, 1, 2]],
        count=np.array([1.0, 1.0, 1.0, 6.0]),
        eta_y=0.9,
        eta_z=0.5,
    )
    states = np.random.default_rng(0).normal(size=(5, motion.wanted.size + start.size))
    np.testing.assert_allclose(motion.push(states), [motion.push(of) for of in states], rtol=1e-13)


def test_its_decoder_is_that_of_remark_1_corrected(one_common):
    P, at = one_common(3, 2, 0.5), {"M": 200, "eta_y": 0.9}
    f = unit_attention(P)
    t = np.array([1.0, 50.0, 1e5])
    found = sgd_flow(Setting(P, eta_z=0.0, **at), t)
    exact = plain_decoder(t, K=3, rho=float(f[0] @ f[1]), **at)
    np.testing.assert_allclose(found.outputs[:, 0, 0], exact.own, rtol=1e-6)
    np.testing.assert_allclose(found.outputs[:, 0, 1], exact.other, rtol=1e-6)
    np.testing.assert_allclose(found.outputs[:, 0, 3], exact.outside, rtol=1e-6)
    assert not found.logits.any()


@pytest.mark.slow
def test_xi_is_positive_for_the_decoder_that_sgd_trains_at_a_fixed_attention():
    """So that the signs of Theorem 2 survive SGD: random classes within Assumption 2, from t_0/10
    to 1e6 t_0."""
    rng, tried = np.random.default_rng(3), 0
    while tried < 30:
        K, M = int(rng.integers(2, 5)), int(10 ** rng.uniform(3.2, 4.0))
        own = np.kron(np.eye(K), np.ones(2)) * rng.uniform(0.05, 1.0, 2 * K)
        P = np.hstack([rng.dirichlet(np.full(4, 0.4), K) * rng.uniform(0.1, 0.6), own])
        E = correlation(P)
        if not assumption_2(E, M=M).holds:
            continue
        tried += 1
        t = np.array([0.1, 1.0, 10.0, 1e6]) * transition_times(K=K, M=M, eta_y=0.9).t0
        for w in sgd_flow(Setting(P, M=M, eta_y=0.9, eta_z=0.0), t).outputs:
            W = np.hstack([w[:, :-1], np.repeat(w[:, -1:], M - K, axis=1)])
            g = gradient_coefficients(W, E)
            assert np.all((np.diagonal(g) - (g * (np.eye(K) + E)).sum(1)) > 0)


def test_its_error_is_of_the_order_of_the_rates_ratio(random_classes):
    """Where Eq. 10 is off by a factor at any ratio."""
    P, M, eta_y = random_classes(1, K=3), 60, 0.9
    t0 = float(transition_times(K=3, M=M, eta_y=eta_y).t0)
    common = {"psi": [0, 0, 0], "M": M, "eta_y": eta_y}
    ratios, errors = np.array([10.0, 30.0, 100.0]), []
    for ratio in ratios:
        rates = {**common, "eta_z": eta_y / ratio}
        _, z = full_flow(P, t0, target=(0, 1, 2), weight=[1 / 3] * 3, **rates)
        found = [
            np.linalg.norm(flow.logits - z) / np.linalg.norm(z)
            for flow in (sgd_flow(Setting(P, **rates), t0), attention_flow(Setting(P, **rates), t0))
        ]
        assert found[0] < 1 / ratio < 1 < found[1]
        errors.append(found[0])
    slope = np.polyfit(np.log(ratios), np.log(errors), 1)[0]
    assert slope == pytest.approx(-1.0, abs=0.1)

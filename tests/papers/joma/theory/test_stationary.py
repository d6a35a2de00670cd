"""The erf law: against its equation, its ends, ties and several hidden units."""

import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.special import erfinv

from attnlab.papers.joma.theory import blow_up_time, cosh_law, erf_law, frozen_weights

DELTA = np.array([1.0, -0.6, 0.3, 0.0])


def test_it_starts_as_delta_t_with_a_cubic_correction():
    t = np.array([1e-3, 2e-3])
    v = erf_law(DELTA, t).weights[:, 0]
    beyond = v[:, 0] - t
    assert np.log2(beyond[1] / beyond[0]) == pytest.approx(3.0, abs=1e-3)
    np.testing.assert_allclose(v, DELTA * t[:, None], rtol=1e-5)
    assert not erf_law(DELTA, 0.0).weights.any()


def test_the_winner_takes_all_at_the_blow_up():
    end = blow_up_time(DELTA)
    assert end == pytest.approx(np.sqrt(np.pi / 2))
    near = erf_law(DELTA, end * (1 - 1e-9))
    frozen = frozen_weights(DELTA)
    assert np.isinf(frozen[0])
    np.testing.assert_allclose(np.abs(near.weights[0, 1:]), frozen[1:], rtol=1e-7)
    assert frozen[1] == pytest.approx(np.sqrt(2) * erfinv(0.6))
    assert near.logits[0] > 15  # and grows as the logarithm of the time left
    assert np.isnan(erf_law(DELTA, end).weights).all()
    tied = frozen_weights([1.0, -1.0, 0.5])
    assert np.isinf(tied[:2]).all()
    assert blow_up_time([0.0, 0.0]) == np.inf


def test_several_hidden_units_follow_the_length_of_delta():
    rng = np.random.default_rng(0)
    D = rng.normal(size=(3, 5))
    rates = {"eta_w": 0.5, "eta_z": 2.0, "temperature": 1.5}
    t = 0.9 * blow_up_time(D, **rates)

    def velocity(_, state):
        v = state.reshape(3, 5)
        z = 2.0 / (2 * 0.5 * 1.5) * (v**2).sum(0)
        return (0.5 * D * np.exp(z / 1.5)).ravel()

    done = solve_ivp(velocity, (0, t), np.zeros(15), method="LSODA", rtol=1e-10, atol=1e-12)
    found = erf_law(D, t, **rates)
    np.testing.assert_allclose(found.weights.ravel(), done.y[:, -1], atol=1e-6)


def test_both_rates_count_alike_for_the_blow_up():
    times = [blow_up_time(DELTA, eta_w=w, eta_z=z) for w, z in ((4.0, 1.0), (1.0, 4.0), (2.0, 2.0))]
    np.testing.assert_allclose(times, np.sqrt(np.pi / 2) / 2)
    assert blow_up_time(DELTA, temperature=3.0) == pytest.approx(3 * np.sqrt(np.pi / 2))


def test_linear_attention_keeps_its_invariant_and_grows_for_ever():
    found = cosh_law(DELTA, [1.0, 30.0], eta_w=2.0, eta_z=0.5, z0=1.5)
    kept = found.logits**2 / 0.5 - found.weights[:, 0] ** 2 / 2.0
    np.testing.assert_allclose(kept[0], 1.5**2 / 0.5)
    assert np.isfinite(found.logits).all()
    assert found.logits[1, 0] > 1e10 > found.logits[1, 3] == 1.5

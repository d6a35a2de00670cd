"""Salient tokens first: the flow, its ratios at finite time, and the dip of entropy."""

import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.special import softmax

from attnlab.papers.joma.theory import (
    entropy_dip,
    salient_entropy,
    salient_flow,
    salient_lag,
    salient_ratio,
    stable_rank,
)

MU = np.array([1.0, 1.7, 2.4])


@pytest.mark.parametrize(("sharpness", "normalised"), [(0.5, False), (1 / 3, True), (0.0, False)])
def test_it_solves_its_equation(sharpness, normalised):
    def velocity(_, v):
        lift = sharpness * v**2
        return (MU - v) * (softmax(lift) if normalised else np.exp(lift))

    t = np.array([0.0, 0.1, 0.5, 1.0])
    path = solve_ivp(
        velocity, (0, 1), np.full(3, 0.05), t_eval=t, method="LSODA", rtol=1e-11, atol=1e-13
    ).y.T
    found = salient_flow(MU, t, v0=0.05, sharpness=sharpness, normalised=normalised)
    np.testing.assert_allclose(found.weights, path, atol=1e-8)
    np.testing.assert_allclose(found.closeness, -np.log(1 - path / MU), rtol=1e-6)


def test_the_ratio_is_reached_as_one_over_time():
    t = np.array([100.0, 200.0, 400.0])
    y = salient_flow(MU, t, v0=0.05).closeness
    limit = salient_ratio(MU[2], MU[0])
    assert limit == pytest.approx(np.exp((MU[2] ** 2 - MU[0] ** 2) / 2))
    off = y[:, 2] / y[:, 0] - limit
    slope = np.polyfit(np.log(t), np.log(np.abs(off)), 1)[0]
    assert slope == pytest.approx(-1.0, abs=0.02)


def test_what_it_stays_behind_is_the_lag():
    t = 50.0
    y = salient_flow(MU, t, v0=0.05).closeness
    straight = np.exp(MU**2 / 2) * t - np.log(1 - 0.05 / MU)
    np.testing.assert_allclose(y, straight - salient_lag(MU, v0=0.05), rtol=1e-8)


def test_without_attention_all_are_equally_fast():
    y = salient_flow(MU, [1.0, 10.0], sharpness=0.0).closeness
    np.testing.assert_allclose(y, [[1.0] * 3, [10.0] * 3])


def test_softmax_attention_is_the_same_path_on_another_clock():
    """Ratios as a function of how far the first token is are those of exp attention."""
    plain = salient_flow(MU, np.linspace(0.0, 2.0, 400), v0=0.05).closeness
    shared = salient_flow(MU, [0.7, 3.0], v0=0.05, normalised=True).closeness
    for y in shared:
        at = [np.interp(y[0], plain[:, 0], plain[:, i]) for i in (1, 2)]
        np.testing.assert_allclose(y[1:], at, rtol=1e-4)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("normalised", [False, True])
def test_entropy_dips_from_an_equal_start_below_every_mu(seed, normalised):
    mu = np.random.default_rng(seed).uniform(1.0, 3.0, 6)
    found = entropy_dip(mu, v0=0.05, normalised=normalised)
    assert found.start == pytest.approx(np.log(6), abs=1e-12)
    assert found.end == pytest.approx(salient_entropy(mu))
    assert found.lowest < found.end - 1e-6 < found.start
    assert 0 < found.time < np.inf


def test_entropy_rises_in_the_end():
    late = salient_flow(MU, [3.0, 5.0, 8.0], v0=0.05).weights
    H = salient_entropy(late)
    assert H[0] < H[1] < H[2] < salient_entropy(MU)


def test_from_a_start_above_the_smallest_centre_there_need_be_no_dip():
    """So that 0 <= v(0) < min mu is asked for; `entropy_dip` refuses any other start."""
    mu, start = np.array([1.0, 2.0]), 1.9
    path = solve_ivp(
        lambda _, v: (mu - v) * np.exp(v**2 / 2), (0, 20), [start] * 2, rtol=1e-10, atol=1e-12
    )
    H = salient_entropy(path.y.T)
    assert np.all(np.diff(H) < 1e-9)
    assert H[-1] == pytest.approx(salient_entropy(mu), abs=1e-6)
    with pytest.raises(ValueError, match="v0 must be below every mu"):
        entropy_dip(mu, v0=start)


def test_equal_centres_have_no_dip():
    found = entropy_dip([2.0, 2.0, 2.0], v0=0.1)
    assert found.lowest == pytest.approx(found.start)
    assert found.end == pytest.approx(np.log(3))


def test_a_start_beyond_the_centre_is_refused():
    with pytest.raises(ValueError, match="v0 must be below every mu"):
        salient_flow([1.0, 2.0], 1.0, v0=1.5)


def test_stable_rank_of_known_matrices():
    assert stable_rank(np.eye(4)) == pytest.approx(4.0)
    assert stable_rank(np.outer([1, 2], [3, 4, 5])) == pytest.approx(1.0)
    np.testing.assert_allclose(stable_rank([np.diag([2.0, 1.0]), np.diag([1.0, 1.0])]), [1.25, 2])
    assert np.isnan(stable_rank(np.zeros((2, 2))))

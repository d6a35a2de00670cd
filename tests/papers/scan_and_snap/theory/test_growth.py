"""h and h* (Lemmas 5 to 7, Remark 2)."""

import mpmath
import numpy as np
import pytest

from attnlab.papers.scan_and_snap.theory import h, h_gap_bound, h_inverse, h_lead, h_star


def root_of_eq_45(t: float, M: int, eta_y: float) -> float:
    with mpmath.workdps(60):
        target = mpmath.mpf(M) * mpmath.mpf(eta_y) * mpmath.mpf(t)
        x = mpmath.mpf(float(h(t, M=M, eta_y=eta_y))) * M
        for _ in range(50):
            x -= (mpmath.expm1(x) + (M - 1) * x - target) / (M - 1 + mpmath.exp(x))
        return float(x / M)


@pytest.mark.parametrize("M", [2, 10, 1000, 10**9])
@pytest.mark.parametrize("t", [1e-12, 1e-3, 1.0, 1e3, 1e15])
@pytest.mark.parametrize("eta_y", [1e-3, 0.5, 10.0])
def test_h_solves_eq_45(M, t, eta_y):
    assert h(t, M=M, eta_y=eta_y) == pytest.approx(root_of_eq_45(t, M, eta_y), rel=1e-14)


def test_h_obeys_its_differential_equation():
    t = np.geomspace(0.01, 1e4, 60)
    M, eta_y, d = 100, 0.3, 1e-5
    slope = (h(t * (1 + d), M=M, eta_y=eta_y) - h(t * (1 - d), M=M, eta_y=eta_y)) / (2 * d * t)
    expected = eta_y / (M - 1 + np.exp(M * h(t, M=M, eta_y=eta_y)))
    np.testing.assert_allclose(slope, expected, rtol=1e-8)


def test_limits_and_shapes():
    assert h(0.0, M=10, eta_y=1.0) == 0.0
    assert h(np.inf, M=10, eta_y=1.0) == np.inf
    assert isinstance(h(1.0, M=10, eta_y=1.0), float)
    assert h([1.0, 2.0], M=10, eta_y=1.0).shape == (2,)
    assert h(np.ones((3, 1)), M=np.array([10.0, 20.0]), eta_y=1.0).shape == (3, 2)


def test_inverse():
    t = np.geomspace(1e-6, 1e12, 40)
    np.testing.assert_allclose(h_inverse(h(t, M=500, eta_y=0.2), M=500, eta_y=0.2), t, rtol=1e-12)


def test_h_star_is_the_recursion_of_eq_33_in_any_order():
    M, eta_y = 7, 0.4
    value, path = 0.0, [0.0]
    for _ in range(50):
        value += eta_y / (M - 1 + np.exp(M * value))
        path.append(value)
    steps = np.array([[50, 3], [0, 3]])
    np.testing.assert_allclose(h_star(steps, M=M, eta_y=eta_y), np.array(path)[steps], rtol=1e-14)
    assert isinstance(h_star(3, M=M, eta_y=eta_y), float)


def test_h_star_does_not_overflow_at_large_rates():
    assert h_star(5, M=1000, eta_y=1e6) == pytest.approx(1e3, rel=1e-12)


def test_many_small_steps_are_the_flow():
    flow = h(20.0, M=100, eta_y=1.0)
    count = np.array([200, 400, 800, 1600])
    error = [h_star(int(n), M=100, eta_y=20.0 / n) - flow for n in count]
    slope = np.polyfit(np.log(count), np.log(error), 1)[0]
    # Euler's method has order 1; the band allows for its next order.
    assert -1.02 < slope < -0.98


@pytest.mark.parametrize("M", [4, 100, 10**5])
@pytest.mark.parametrize("eta_y", [0.1, 1.0, 10.0])
def test_lemma_7_and_its_tighter_bound(M, eta_y):
    s = np.arange(1, 2000)
    gap = h_star(s, M=M, eta_y=eta_y) - h(s, M=M, eta_y=eta_y)
    assert np.all(gap > 0)
    assert np.all(gap <= h_gap_bound(M=M, eta_y=eta_y))
    assert h_gap_bound(M=M, eta_y=eta_y, form="printed") == 2 * h_gap_bound(M=M, eta_y=eta_y)


def test_lemma_7_gap_is_eta_over_2e_m_for_small_rates():
    s = np.arange(1, 3000)
    gap = h_star(s, M=1000, eta_y=0.01) - h(s, M=1000, eta_y=0.01)
    assert gap.max() * 1000 / 0.01 == pytest.approx(1 / (2 * np.e), rel=2e-3)


def test_lemma_7b_gap_vanishes_like_ln_s_over_s():
    s = np.array([10**4, 10**5, 10**6])
    gap = 10 * (h_star(s, M=10, eta_y=1.0) - h(s, M=10, eta_y=1.0))
    # M gap = (ln s + const) / (2 s): the increments of 2 s M gap per decade are ln 10.
    np.testing.assert_allclose(np.diff(2 * s * gap), np.log(10), rtol=0.01)


def test_remark_2_fails_the_lead_grows_without_bound():
    s = np.array([10**4, 10**5, 10**6])
    lead = h_lead(s, M=10, eta_y=1.0)
    np.testing.assert_allclose(np.diff(lead), np.log(10) / 2, rtol=0.01)
    assert lead[-1] > 3 * np.log(10)


def test_bad_input_names_the_field():
    with pytest.raises(ValueError, match="eta_y must be > 0"):
        h(1.0, M=10, eta_y=0.0)
    with pytest.raises(ValueError, match="M must be >= 2"):
        h(1.0, M=1, eta_y=1.0)
    with pytest.raises(ValueError, match="t must be >= 0"):
        h(-1.0, M=10, eta_y=1.0)
    with pytest.raises(ValueError, match="steps must be integers"):
        h_star(1.5, M=10, eta_y=1.0)
    with pytest.raises(ValueError, match="form must be one of 'corrected', 'printed'"):
        h_gap_bound(M=10, eta_y=1.0, form="right")

"""The decoder's clock and what follows from it alone: h, gamma and the growth bound B_n.

First the decoder: how fast it learns a class, h, and the speed gamma (Lemmas 5 to 9, Eq. 128). Then
the phase transition: B_n(t) and its two regimes (Theorem 4, Appendix F).

Two clocks appear. h* and its flow h count the visits of ONE class (s in Lemma 5, t in Lemma 6).
The functions that take K (`gamma`, `reduced_time`, `growth_bound`, ...) count batch-1 optimiser
steps t with K classes drawn uniformly: each class is seen in 1/K of them, so that they use h(t/K)
and depend on time through eta_Y t / K. nu = eta_Y / eta_Z as in Appendix F (the caption of Fig. 9
inverts it).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from attnlab.files.errors import InputError
from attnlab.formulas.checks import FloatArray, at_least, is_printed, unwrap


def scaled_growth(t: ArrayLike, *, M: ArrayLike, eta_y: ArrayLike) -> FloatArray:
    """M h(t), the logit gap between the right next token and any other (Lemma 6, Eq. 45).

    Solves exp(x) + (M - 1) x = M eta_Y t + 1. With a = M - 1 the root is x = ln(a omega(y)),
    y = (M eta_Y t + 1)/a - ln a and omega the Wright omega function, which never forms the
    exponentials that overflow in the Lambert W form.
    """
    t = at_least("t", t, 0.0)
    a = at_least("M", M, 2.0) - 1.0
    target = (a + 1.0) * at_least("eta_y", eta_y, 0.0, strict=True) * t
    finite = np.isfinite(target)
    c = np.where(finite, target, 0.0)
    x = np.log(a) + np.log(scipy.special.wrightomega((c + 1.0) / a - np.log(a)))
    # Two Newton steps on expm1(x) + a x = c restore the relative accuracy lost near t = 0.
    for _ in range(2):
        x = x - (np.expm1(x) + a * x - c) / (a + np.exp(x))
    return np.asarray(np.where(finite, x, np.inf))


def h(t: ArrayLike, *, M: ArrayLike, eta_y: ArrayLike) -> FloatArray:
    """h(t) of Lemma 6: dh/dt = eta_Y / (M - 1 + exp(M h)), h(0) = 0, in closed form.

    How far the decoder has learnt one class: M h is the gap between the logit of the right next
    token and any other. Accurate to rounding for M to 1e9 and t to 1e15.

    Parameters
    ----------
    t : array_like
        Flow time in visits of one class, any shape; infinity is allowed. With K uniform classes and
        t batch-1 steps, pass t/K.

    Examples
    --------
    >>> h([0, 1, 10, 100], M=100, eta_y=1.0).round(4)
    array([0.    , 0.0099, 0.0601, 0.0912])
    """
    return unwrap(scaled_growth(t, M=M, eta_y=eta_y) / np.asarray(M, dtype=np.float64))


def h_inverse(value: ArrayLike, *, M: ArrayLike, eta_y: ArrayLike) -> FloatArray:
    """Return the time t, in visits of one class, at which h(t) = value (Eq. 45 read backwards).

    Parameters
    ----------
    value : array_like
        Values of h, >= 0.

    Examples
    --------
    >>> float(h_inverse(h(7.0, M=100, eta_y=1.0), M=100, eta_y=1.0).round(9))
    7.0
    """
    M = at_least("M", M, 2.0)
    x = M * at_least("value", value, 0.0)
    return unwrap((np.expm1(x) + (M - 1.0) * x) / (M * at_least("eta_y", eta_y, 0.0, strict=True)))


def h_star(steps: ArrayLike, *, M: float, eta_y: float) -> FloatArray:
    """h*(s) of Lemma 5: the exact recursion of Eq. 33 after s optimiser steps on one class.

    The recursion has no closed form: one pass of max(steps) scalar iterations (about 0.2 s per
    million) serves them all.

    >>> h_star([1, 10, 100], M=100, eta_y=1.0).round(4)
    array([0.01  , 0.0617, 0.0914])
    >>> h([1, 10, 100], M=100, eta_y=1.0).round(4)  # the flow is a little behind
    array([0.0099, 0.0601, 0.0912])
    """
    at = np.asarray(steps)
    if not np.issubdtype(at.dtype, np.integer) or np.any(at < 0):
        raise InputError(f"steps must be integers >= 0; got {steps!r}")
    at_least("M", M, 2.0)
    at_least("eta_y", eta_y, 0.0, strict=True)
    wanted, where = np.unique(at, return_inverse=True)
    values = np.empty(wanted.shape)
    x, s = 0.0, 0
    for i, stop in enumerate(wanted.tolist()):
        while s < stop:
            # exp(-x) underflows where exp(x) would overflow, at large learning rates.
            e = math.exp(-x)
            x += M * eta_y * e / ((M - 1.0) * e + 1.0)
            s += 1
        values[i] = x / M
    return unwrap(values[where.reshape(at.shape)])


def h_gap_bound(*, M: ArrayLike, eta_y: ArrayLike, form: str = "corrected") -> FloatArray:
    """Lemma 7a: an upper bound on h*(s) - h(s), which is never negative, for every step s.

    Printed: 2 eta_Y / M. Corrected: eta_Y / M. The proof shows that either h(s) >= h*(s - 1), and
    then the gap is at most one step h*(s) - h*(s - 1) <= eta_Y / M, or the gap is smaller than it
    was at s - 1; induction on s gives eta_Y / M with no factor of 2.

    >>> gap = h_star(10, M=100, eta_y=1.0) - h(10, M=100, eta_y=1.0)
    >>> bool(0 <= gap <= h_gap_bound(M=100, eta_y=1.0))
    True
    """
    bound = at_least("eta_y", eta_y, 0.0, strict=True) / at_least("M", M, 2.0)
    return unwrap(2.0 * bound if is_printed(form) else bound)


def h_lead(steps: ArrayLike, *, M: float, eta_y: float) -> FloatArray:
    """Return the visits c by which discrete growth is ahead of the flow: h(s + c) = h*(s).

    Remark 2 claims that some constant c = O(ln M) serves all s. It does not: each step adds (1/2) M
    eta_Y exp(M h) / (M - 1 + exp(M h))^2, which tends to 1/(2 s), so that c grows like (1/2) ln s
    without bound (slowly: it passes ln M only beyond s of order M^2).

    >>> h_lead([10, 1000, 100_000], M=100, eta_y=1.0).round(2)
    array([0.9, 3.5, 5.8])
    """
    return unwrap(
        h_inverse(h_star(steps, M=M, eta_y=eta_y), M=M, eta_y=eta_y) - np.asarray(steps, float)
    )


class Peak(NamedTuple):
    """Maximum of gamma.

    t: the step.
    value: gamma there.
    """

    t: FloatArray
    value: FloatArray


class TransitionTimes(NamedTuple):
    """The steps at which one stage ends and the other begins (Lemma 9).

    t0_prime: t_0': the first stage ends.
    t0: t_0: the second begins.
    """

    t0_prime: FloatArray
    t0: FloatArray


class GammaStages(NamedTuple):
    """The rates that Lemma 9 states for gamma.

    early: up to t_0'.
    late: from t_0 on.
    """

    early: FloatArray
    late: FloatArray


def _visits(t: ArrayLike, K: ArrayLike) -> FloatArray:
    return at_least("t", t, 0.0) / at_least("K", K, 1.0)


def gamma(t: ArrayLike, *, K: ArrayLike, M: ArrayLike, eta_y: ArrayLike) -> FloatArray:
    """gamma(t) = (M - 1)^2 h(t/K) / (M - 1 + exp(M h(t/K))), above Lemma 9: the speed of attention.

    Eq. 85 has h at ceil(t/K) instead; Lemma 9 and Appendix F drop the ceiling, and so do we,
    because Theorem 4 integrates gamma over continuous t.

    >>> gamma([1, 10, 100, 1000], K=2, M=100, eta_y=1.0).round(3)
    array([0.485, 2.436, 0.191, 0.022])
    """
    M = np.asarray(M, dtype=np.float64)
    x = scaled_growth(_visits(t, K), M=M, eta_y=eta_y)
    finite = np.isfinite(x)
    x = np.where(finite, x, 0.0)
    return unwrap(np.where(finite, (M - 1.0) ** 2 / M * x / (M - 1.0 + np.exp(x)), 0.0))


def gamma_peak(*, K: ArrayLike, M: ArrayLike, eta_y: ArrayLike) -> Peak:
    """Return the maximum of gamma over t, in closed form; the paper does not give it.

    d gamma / dx = 0 at (x - 1) e^x = M - 1, that is x = 1 + W((M - 1)/e) for x = M h, and there
    gamma = ((M - 1)/M) W((M - 1)/e). It comes before t_0' for every M >= 19.

    >>> peak = gamma_peak(K=2, M=100, eta_y=1.0)
    >>> print(f"gamma is largest at t = {peak.t:.2f}: {peak.value:.3f}")
    gamma is largest at t = 7.92: 2.602
    """
    M = at_least("M", M, 2.0)
    w = scipy.special.lambertw((M - 1.0) / np.e).real
    t = at_least("K", K, 1.0) * h_inverse((1.0 + w) / M, M=M, eta_y=eta_y)
    return Peak(unwrap(t), unwrap((M - 1.0) / M * w))


def gamma_stages(
    t: ArrayLike, *, K: ArrayLike, M: ArrayLike, eta_y: ArrayLike, form: str = "corrected"
) -> GammaStages:
    """Return gamma's two rates, with constant 1: eta_Y t / K, then K ln(M eta_Y t / K) / (eta_Y t).

    gamma is never above `early`, and lies between 1 - 2/M and 2 times `late` for t >= t_0. Printed
    (Theorems 1b and 4): ln(eta_Y t / K) without the M that Lemma 9 has, so that the constant in the
    O is not uniform in M: at t_0, gamma is 5.6, 9.0 and 11.9 times it for M = 1e3, 1e6 and 1e9.

    >>> stages = gamma_stages([1, 1000], K=2, M=100, eta_y=1.0)
    >>> gamma([1, 1000], K=2, M=100, eta_y=1.0).round(4)
    array([0.4855, 0.0216])
    >>> float(stages.early[0]), float(stages.late[1].round(4))
    (0.5, 0.0216)
    """
    M = at_least("M", M, 2.0)
    y = at_least("eta_y", eta_y, 0.0, strict=True) * _visits(t, K)
    with np.errstate(divide="ignore", invalid="ignore"):
        late = np.log(y if is_printed(form) else M * y) / y
    return GammaStages(unwrap(y), unwrap(np.where(np.isinf(y), 0.0, late)))


def _crossing(M: ArrayLike, branch: int) -> tuple[FloatArray, FloatArray]:
    # The zeros of exp(x) - (M - 1) x, with x = M h; there are two only if M - 1 >= e.
    M = at_least("M", M, 1.0 + np.e)
    return M, np.asarray(-scipy.special.lambertw(-1.0 / (M - 1.0), branch).real)


def omega_0(M: ArrayLike) -> FloatArray:
    """omega_0 of Lemma 8: exp(M h) = (M - 1) M h at its smaller zero h = M^-(2 - omega_0).

    Written as Eq. 50, (ln(M/(M-1)) + M h) / ln M, which does not cancel at large M. M >= 1 + e.

    >>> omega_0([10, 1000]).round(5)
    array([0.10049, 0.00029])
    """
    M, x = _crossing(M, 0)
    return unwrap((x - np.log1p(-1.0 / M)) / np.log(M))


def omega_1(M: ArrayLike) -> FloatArray:
    """omega_1 of Lemma 8: exp(M h) = (M - 1) M h at its larger zero h = (1 + omega_1) ln M / M.

    It is Theta(ln ln M / ln M), hence small only in name: 0.32 at M = 1000, 0.15 at M = 1e9.

    >>> omega_1([1e3, 1e9]).round(2)
    array([0.32, 0.15])
    """
    M, x = _crossing(M, -1)
    return unwrap((np.log(x) + np.log1p(-1.0 / M)) / np.log(M))


def transition_times(*, K: ArrayLike, M: ArrayLike, eta_y: ArrayLike) -> TransitionTimes:
    """t_0' = K ln M / eta_Y and t_0 = 2 (1 + omega_1) K ln M / eta_Y (Lemma 9).

    Between the two neither rate of Lemma 9 is claimed.

    >>> times = transition_times(K=10, M=1000, eta_y=1.0)
    >>> print(f"scanning until {times.t0_prime:.1f}, snapping from {times.t0:.1f} on")
    scanning until 69.1, snapping from 182.3 on
    """
    t0_prime = at_least("K", K, 1.0) * np.log(M) / at_least("eta_y", eta_y, 0.0, strict=True)
    return TransitionTimes(unwrap(t0_prime), unwrap(2.0 * (1.0 + omega_1(M)) * t0_prime))


def reduced_time(
    t: ArrayLike, *, K: ArrayLike, M: ArrayLike, eta_y: ArrayLike, eta_z: ArrayLike
) -> FloatArray:
    """Gamma(t) = eta_Z * integral of gamma = (eta_Z/eta_Y) K (M-1)^2 h(t/K)^2 / 2 (Eq. 128, exact).

    This is the clock of attention: in tau = Gamma(t) Eq. 10 has no gamma, no learning rate and no
    explicit time left in it (see `attention_flow`).

    >>> reduced_time([1, 10, 100], K=2, M=100, eta_y=1.0, eta_z=0.1).round(4)
    array([0.0244, 1.82  , 6.8123])
    """
    M = np.asarray(M, dtype=np.float64)
    growth = (M - 1.0) / M * scaled_growth(_visits(t, K), M=M, eta_y=eta_y)
    ratio = at_least("eta_z", eta_z, 0.0) / np.asarray(eta_y, dtype=np.float64)
    return unwrap(ratio * np.asarray(K, dtype=np.float64) * growth**2 / 2.0)


class Snapping(NamedTuple):
    """Theorem 4 at the steps asked for.

    t0_prime: scanning ends.
    t0: snapping begins.
    regime: "scanning", "between" or "snapping", per step.
    exact: B_n by Eq. 129.
    scanning: Eq. 130, claimed for t < t_0'.
    snapping: Eq. 131, claimed for t >= t_0; nan while M eta_Y t < K.
    asymptotic: the bracket of Eq. 132, for t to infinity; nan while M eta_Y t < K. As printed it
        stays (1/4) ln C_0 above B_n.
    """

    t0_prime: float
    t0: float
    regime: NDArray[np.str_]
    exact: FloatArray
    scanning: FloatArray
    snapping: FloatArray
    asymptotic: FloatArray


class CommonTokenPath(NamedTuple):
    """The single common token of Section 6.

    logit: z_ml.
    growth_bound: the B_n that goes with it.
    """

    logit: FloatArray
    growth_bound: FloatArray


def _bound(four_gamma: FloatArray, C0: float, form: str) -> FloatArray:
    if is_printed(form):
        return np.asarray(np.log(C0 + four_gamma) / 4.0)
    return np.asarray(np.log1p(four_gamma / C0) / 4.0)


def growth_bound(
    t: ArrayLike,
    *,
    K: ArrayLike,
    M: ArrayLike,
    eta_y: ArrayLike,
    eta_z: ArrayLike,
    C0: float,
    form: str = "corrected",
) -> FloatArray:
    """B_n(t) of Theorem 4 without its approximations of h (Eqs. 124 and 129).

    Corrected: (1/4) ln(1 + 4 Gamma(t) / C_0), with Gamma = `reduced_time` (Eq. 128). Printed: (1/4)
    ln(C_0 + 4 Gamma(t)), the antiderivative of Eq. 124 without its value at the lower limit: B_n(0)
    would be (1/4) ln C_0, not the 0 that its definition as an integral from 0 gives (and that the
    poster states). The poster and the slides also drop the 1/4.

    >>> rates = {"K": 10, "M": 1000, "eta_y": 1.0, "eta_z": 1.0, "C0": 12.0}
    >>> growth_bound([0, 10, 1000], **rates).round(3)
    array([0.   , 0.245, 1.345])
    >>> growth_bound(0, **rates, form="printed").round(3)  # it should be 0
    np.float64(0.621)
    """
    at_least("C0", C0, 0.0, strict=True)
    tau = reduced_time(t, K=K, M=M, eta_y=eta_y, eta_z=eta_z)
    return unwrap(_bound(4.0 * np.asarray(tau), C0, form))


def snapping(
    t: ArrayLike,
    *,
    K: float,
    M: float,
    eta_y: float,
    eta_z: float,
    C0: float,
    form: str = "corrected",
) -> Snapping:
    """Theorem 4: B_n(t), its two regimes (Eq. 14 = Eqs. 130, 131) and its limit (Eqs. 132, 133).

    Eq. 130 puts h = eta_Y t / (M K) and Eq. 131 puts h = ln(M eta_Y t / K) / M. Their neglected
    o(1) is 0.57/ln M at t_0' and ln 2 / ((1 + omega_1) ln M) at t_0: 8% of h in both at M = 1000.
    The form shifts each expression by (1/4) ln C_0, as in `growth_bound`.

    >>> found = snapping([10, 100, 1000], K=10, M=1000, eta_y=1.0, eta_z=1.0, C0=12.0)
    >>> found.regime.tolist(), found.exact.round(3).tolist()
    (['scanning', 'between', 'snapping'], [0.245, 1.152, 1.345])
    """
    at_least("C0", C0, 0.0, strict=True)
    t = at_least("t", t, 0.0)
    t0_prime, t0 = transition_times(K=K, M=M, eta_y=eta_y)
    y = eta_y * t / K
    scale = 2.0 * K * ((M - 1.0) / M) ** 2 * eta_z / eta_y
    with np.errstate(divide="ignore", invalid="ignore"):
        log_y = np.where(M * y > 1.0, np.log(M * y), np.nan)
        asymptotic = np.log(log_y) / 2.0 + np.log(scale) / 4.0
    if not is_printed(form):
        asymptotic = asymptotic - np.log(C0) / 4.0
    regime = np.select([t < t0_prime, t >= t0], ["scanning", "snapping"], "between")
    return Snapping(
        t0_prime=float(t0_prime),
        t0=float(t0),
        regime=regime,
        exact=growth_bound(t, K=K, M=M, eta_y=eta_y, eta_z=eta_z, C0=C0, form=form),
        scanning=unwrap(_bound(scale * y**2, C0, form)),
        snapping=unwrap(_bound(scale * log_y**2, C0, form)),
        asymptotic=unwrap(asymptotic),
    )


def common_token_path(
    t: ArrayLike,
    *,
    K: int,
    M: float,
    eta_y: float,
    eta_z: float,
    rho0: float,
    form: str = "corrected",
) -> CommonTokenPath:
    """z_ml and B_n of the single common token under the approximations of Eq. 13.

    K symmetric classes of one query, f_n.f_n' = beta = exp(2 z)/rho0^2, and 1 - f_nl^2 = 1.
    Printed: both dz/dt = -eta_Z gamma e^{4z}/C_0 and xi = gamma e^{4z}/C_0 with C_0 = rho0^4/K,
    hence B_n = -z. Corrected: xi = gamma (K - 1) e^{4z}/rho0^4; Eq. 10 with the class weight 1/K
    then gives dz/dt = -eta_Z xi but dB_n/dt = eta_Z xi / K, hence B_n = -z/K: what the common token
    loses is shared among the distinct tokens of K classes (the rows of Z sum to 0). Both have
    B_n(0) = 0.

    Parameters
    ----------
    rho0 : float
        1/f_nl(0), at least 1.

    Examples
    --------
    >>> path = common_token_path([0, 100], K=10, M=1000, eta_y=1.0, eta_z=1.0, rho0=3.0)
    >>> path.logit.round(3), path.growth_bound.round(4)
    (array([-0.   , -1.224]), array([0.    , 0.1224]))
    """
    K = int(at_least("K", K, 2.0))
    printed = is_printed(form)
    at_least("rho0", rho0, 1.0)
    tau = np.asarray(reduced_time(t, K=K, M=M, eta_y=eta_y, eta_z=eta_z))
    rate = (K if printed else K - 1) / rho0**4
    logit = -np.log1p(4.0 * rate * tau) / 4.0
    return CommonTokenPath(unwrap(logit), unwrap(-logit if printed else -logit / K))


def density_threshold(*, K: ArrayLike, M: float, eta_y: ArrayLike) -> FloatArray:
    """Return the step after which a larger eta_Y means a smaller B_n(t), hence denser attention.

    Section 6 states "larger eta_Y, denser attention" for t >= t_0. At fixed t and eta_Z, Gamma is
    proportional to h^2/eta_Y, and its derivative in eta_Y changes sign once, from + to -, at (x -
    2) e^x + 2 = (M - 1) x with x = M h. That is at eta_Y t / K = 8.6 for M = 1000, between t_0'
    (6.9) and t_0 (18.2); before it, larger eta_Y means sparser attention.

    >>> float(density_threshold(K=1, M=1000, eta_y=1.0).round(1))
    8.6
    """
    a = float(at_least("M", M, 2.0)) - 1.0

    def excess(x: float) -> float:
        return float((x - 2.0) + (2.0 - a * x) * np.exp(-x))

    x = scipy.optimize.brentq(excess, 1.0, 3.0 + 2.0 * np.log(a + 1.0), xtol=1e-14, rtol=8.9e-16)
    return unwrap(at_least("K", K, 1.0) * h_inverse(x / M, M=M, eta_y=eta_y))

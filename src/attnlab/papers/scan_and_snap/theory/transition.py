"""The phase transition: the growth bound B_n(t) and its two regimes (Theorem 4, Appendix F).

Time t counts batch-1 optimiser steps with K classes drawn uniformly; everything depends on it
through eta_Y t / K. nu = eta_Y / eta_Z as in Appendix F (the caption of Fig. 9 inverts it).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from attnlab.formulas.checks import FloatArray, at_least, is_printed, unwrap

from .growth import h_inverse, reduced_time, transition_times


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
    """The step after which a larger eta_Y means a smaller B_n(t), hence denser attention.

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

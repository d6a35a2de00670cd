"""The back-propagated gradient and its coefficients iota, beta and xi (Theorem 1, Eqs. 81 to 89).

All are in units of gamma(t), which carries the time; E is taken at one instant, or at many with
leading axes. theta_n and sigma_n say how far class n's own visits are from the average (Theorem 5,
Corollary 1; see `visit_deviations`); both are 0 when every class was seen equally often.
"""

from __future__ import annotations

import numpy as np
import scipy
from numpy.typing import ArrayLike

from attnlab.formulas.checks import FloatArray, at_least, is_printed
from attnlab.papers.scan_and_snap.theory.correlations import e_prime, gram


def _overlaps(M: float) -> tuple[float, float]:
    # q_1 = zeta_i . zeta_i and q_0 = zeta_i . zeta_j of Appendix D.1.
    at_least("M", M, 2.0)
    return M / (M - 1.0), -M / (M - 1.0) ** 2


def _terms(
    E: ArrayLike, theta: ArrayLike, sigma: ArrayLike
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    Ep = e_prime(E)
    K = Ep.shape[-1]
    one_theta = 1.0 + np.broadcast_to(np.asarray(theta, dtype=np.float64), (K,))
    one_sigma = 1.0 + np.broadcast_to(np.asarray(sigma, dtype=np.float64), (K,))
    own = one_theta[:, None] * Ep
    # others[n, n'] = sum over k != n of (1 + theta_k) E'_{kn'}.
    others = own.sum(-2, keepdims=True) - own
    return own, others, one_theta, one_sigma


def beta(
    E: ArrayLike,
    *,
    M: float,
    theta: ArrayLike = 0.0,
    sigma: ArrayLike = 0.0,
    form: str = "corrected",
) -> FloatArray:
    """beta[n, n'] of Eq. 88, with 0 on the diagonal: how class n' acts on class n.

    Corrected: (1+sigma_n) {q1 (1+theta_n) E'_nn' - q0 [(1+theta_n') - sum_{k!=n} (1+theta_k)
    E'_kn']}, which is minus the n'-th entry of (I - E')(I + Theta) [q0, .., q1, .., q0] in Eq. 83.
    Printed: + q0 [(1+theta_n') + sum_{k!=n} ..]; its first sign is wrong, and q0 is about -1/M, so
    that it takes about 1/M away where the algebra adds about 1/M. E' is Lemma 14's in both.

    These are the coefficients of the modified update (Eq. 26). Under the plain update (Eq. 7) beta
    starts at -q0, about 1/M, whatever the correlations are.

    >>> beta([[0.0, 0.1], [0.1, 0.0]], M=1000).round(4)
    array([[0.    , 0.1021],
           [0.1021, 0.    ]])
    """
    q1, q0 = _overlaps(M)
    own, others, one_theta, one_sigma = _terms(E, theta, sigma)
    if is_printed(form):
        b = q1 * own + q0 * (one_theta + others)
    else:
        b = q1 * own - q0 * (one_theta - others)
    b = one_sigma[:, None] * b
    diagonal = np.arange(b.shape[-1])
    b[..., diagonal, diagonal] = 0.0
    return b


def iota(E: ArrayLike, *, M: float, theta: ArrayLike = 0.0, sigma: ArrayLike = 0.0) -> FloatArray:
    """iota_n of Eq. 86, which keeps class n's own part of the gradient; the printed form is right.

    >>> iota([[0.0, 0.1], [0.1, 0.0]], M=1000).round(4)
    array([1.0112, 1.0112])
    """
    q1, q0 = _overlaps(M)
    own, others, one_theta, one_sigma = _terms(E, theta, sigma)
    own_n = np.diagonal(own, axis1=-2, axis2=-1)
    others_n = np.diagonal(others, axis1=-2, axis2=-1)
    return np.asarray(one_sigma * (q1 * (one_theta - own_n) - q0 * others_n))


def xi(
    E: ArrayLike,
    *,
    M: float,
    theta: ArrayLike = 0.0,
    sigma: ArrayLike = 0.0,
    form: str = "corrected",
) -> FloatArray:
    """xi_n / gamma = sum over n' != n of beta_nn' f_n . f_n' (Theorem 1a).

    With the corrected beta and theta = 0 it equals a_nn [q1 e.B^-1 e - q0 e.B^-1 1], where e is row
    n of E without entry n, B is I + E without row and column n, and a = (I + E)^-1. So it is
    positive for every class that overlaps another as soon as the row sums of E are below 1 (which
    |lambda_1| < 1/K implies): the lower eigenvalue bound of Assumption 2 is not needed. With the
    printed beta it is negative once the overlaps fall below about 1/M.

    >>> E = [[0.0, 1e-4], [1e-4, 0.0]]
    >>> bool((xi(E, M=1000) > 0).all()), bool((xi(E, M=1000, form="printed") > 0).all())
    (True, False)
    """
    E = np.asarray(E, dtype=np.float64)
    return np.asarray((beta(E, M=M, theta=theta, sigma=sigma, form=form) * E).sum(-1))


def back_gradient(
    f: ArrayLike,
    *,
    M: float,
    theta: ArrayLike = 0.0,
    sigma: ArrayLike = 0.0,
    form: str = "corrected",
) -> FloatArray:
    """g_n / gamma = iota_n f_n - sum over n' != n of beta_nn' f_n' (Eq. 9).

    >>> back_gradient([[0.6, 0.8, 0], [0.6, 0, 0.8]], M=1000).round(3)
    array([[ 0.441,  0.92 , -0.332],
           [ 0.441, -0.332,  0.92 ]])
    """
    f = np.asarray(f, dtype=np.float64)
    E = gram(f)
    own = iota(E, M=M, theta=theta, sigma=sigma)[..., None] * f
    return np.asarray(own - beta(E, M=M, theta=theta, sigma=sigma, form=form) @ f)


def gradient_coefficients(
    W: ArrayLike, E: ArrayLike, *, next_token: ArrayLike | None = None
) -> FloatArray:
    """g_n in the basis f for ANY decoder: coefficient[n, n'] of f_n' in Y (e_n - alpha_n).

    Eq. 81 with no approximation, provided that the columns of Y lie in the span of the f_n (they do
    from Y(0) = 0): gamma iota_n is the diagonal and -gamma beta_nn' the rest, so that a simulated
    decoder can be compared with `iota` and `beta`. Returns the coefficients, (K, K).

    Parameters
    ----------
    W : array_like
        F^T Y, the output logits of each class, (K, outputs).
    next_token : array_like, optional
        The target of each class; 0 to K - 1 by default.

    Examples
    --------
    >>> gradient_coefficients([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]], [[0.0, 0.1], [0.1, 0.0]]).round(3)
    array([[ 0.45 , -0.257],
           [-0.257,  0.45 ]])
    """
    W = np.asarray(W, dtype=np.float64)
    E = np.asarray(E, dtype=np.float64)
    K = len(E)
    target = np.arange(K) if next_token is None else np.asarray(next_token)
    error = -scipy.special.softmax(W, axis=-1)
    error[np.arange(K), target] += 1.0
    return np.asarray(error @ np.linalg.solve(np.eye(K) + E, W).T)

"""The decoder: correlations between classes, what it sends back through them, and what it learns.

1. E and E' with what Assumption 2 asks of them (Appendix D.1, D.5).
2. The back-propagated gradient with its iota, beta and xi (Theorem 1, Eqs. 81 to 89). There is no
   time here: each function takes the attention as it is at one instant, or at many with leading
   axes, and the coefficients are in units of gamma(t), which carries the time. theta_n and sigma_n
   say how far class n's own visits are from the average (Theorem 5, Corollary 1; see
   `visit_deviations`); both are 0 when every class was seen equally often.
3. What the decoder has learnt: Theorem 5, Corollary 1, and the plain update of Remark 1. Time t
   counts batch-1 optimiser steps with K classes drawn uniformly, unless a docstring says that it
   takes the growth h of each class, which serves any schedule of visits.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import ArrayLike

from attnlab.files.errors import InputError
from attnlab.formulas import solve
from attnlab.formulas.checks import FloatArray, at_least, is_printed, unwrap
from attnlab.formulas.setting import SettingLike
from attnlab.formulas.tokens import unit_attention

from .growth import gamma, h, h_inverse, scaled_growth


class Part(NamedTuple):
    """One part of an assumption: it holds when its margin is positive.

    name: what is measured.
    value: what it is here.
    bound: what it is compared with.
    margin: by how much it is on the right side.
    """

    name: str
    value: float
    bound: float
    margin: float

    @property
    def holds(self) -> bool:
        """True if the inequality is true."""
        return self.margin > 0


class Assumption2(NamedTuple):
    """The parts of Assumption 2, and whether any E at all could satisfy the two eigenvalue parts.

    vocabulary: M over K^2 (printed: much larger than 1; here the margin only says larger).
    largest: |lambda_1| against 1/K.
    smallest: min |lambda_i| against 6/sqrt(M).
    feasible: M against 36 K^2, without which `largest` and `smallest` exclude each other.
    """

    vocabulary: Part
    largest: Part
    smallest: Part
    feasible: Part

    @property
    def holds(self) -> bool:
        """True if all parts hold."""
        return all(part.holds for part in self)


class SpectrumBounds(NamedTuple):
    """Right-hand sides of Lemmas 13, 15 and 17.

    entry: on max |E|.
    e_prime_radius: on max |lambda(E')|.
    e_prime_gap: on max |E' - E|.
    """

    entry: FloatArray
    e_prime_radius: FloatArray
    e_prime_gap: FloatArray


def gram(f: ArrayLike) -> FloatArray:
    """E = F^T F - I from the rows f_n (Assumption 2), with its diagonal exactly 0.

    >>> gram([[0.6, 0.8, 0], [0.6, 0, 0.8]]).round(2)
    array([[0.  , 0.36],
           [0.36, 0.  ]])
    """
    f = np.asarray(f, dtype=np.float64)
    E = f @ np.swapaxes(f, -1, -2)
    diagonal = np.arange(E.shape[-1])
    E[..., diagonal, diagonal] = 0.0
    return np.asarray(E)


def correlation(setting: SettingLike, z: ArrayLike | None = None) -> FloatArray:
    """E_{nn'} = f_n . f_n' for n != n', 0 on the diagonal (Assumption 2).

    P may list only the contextual tokens in play: the others add nothing.

    >>> correlation([[0.5, 0.5, 0], [0.5, 0, 0.5]]).round(2)
    array([[0. , 0.5],
           [0.5, 0. ]])
    """
    return gram(unit_attention(setting, z))


def e_prime(E: ArrayLike, *, form: str = "corrected") -> FloatArray:
    """E' = I - (I + E)^-1, as Lemma 14 and Eqs. 26 to 30 need it.

    Printed (Appendix D.1; the minus is inferred, since our machine reading lost the operator): (I +
    E)^-1 - I, the opposite sign; with it Eq. 26 does not give Eq. 8 and Theorem 5, and Lemmas 16
    and 17 fail.

    >>> e_prime([[0.0, 0.1], [0.1, 0.0]]).round(4)
    array([[-0.0101,  0.101 ],
           [ 0.101 , -0.0101]])
    """
    sign = -1.0 if is_printed(form) else 1.0
    E = np.asarray(E, dtype=np.float64)
    try:
        return np.asarray(sign * np.linalg.solve(np.eye(E.shape[-1]) + E, E))
    except np.linalg.LinAlgError:
        raise InputError("E must leave I + E invertible: the f_n are linearly dependent") from None


def spectrum_bounds(E: ArrayLike) -> SpectrumBounds:
    """Return the bounds of Lemmas 13, 15 and 17: |l|, |l|/(1-|l|) and |l|^2/(1-|l|).

    l is the eigenvalue of largest modulus. Lemma 17 prints l < 1; it needs |l| < 1, as Lemmas 14
    and 15 do, and where that fails the last two bounds are infinite.

    >>> [float(bound.round(4)) for bound in spectrum_bounds([[0.0, 0.1], [0.1, 0.0]])]
    [0.1, 0.1111, 0.0111]
    """
    radius = np.abs(np.linalg.eigvalsh(np.asarray(E, dtype=np.float64))).max(-1)
    room = np.where(radius < 1.0, 1.0 - radius, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return SpectrumBounds(radius, radius / room, radius**2 / room)


def assumption_2(E: ArrayLike, *, M: float) -> Assumption2:
    """Assumption 2 for one E: each part with its value, its bound and its margin.

    For equal off-diagonals rho the eigenvalue parts read 6/sqrt(M) <= rho < 1/(K (K - 1)), which is
    empty unless M > 36 K^2 (K - 1)^2. The factor 6 is more than the proof uses: its last line needs
    min lambda^2 > 6/M, and with the corrected `beta` no lower bound is needed at all.

    >>> found = assumption_2([[0.0, 0.1], [0.1, 0.0]], M=10_000)
    >>> found.holds, found.smallest.bound
    (True, 0.06)
    """
    E = np.asarray(E, dtype=np.float64)
    at_least("M", M, 2.0)
    K = E.shape[-1]
    size = np.abs(np.linalg.eigvalsh(E))
    large, small, floor = float(size.max()), float(size.min()), float(6.0 / np.sqrt(M))
    return Assumption2(
        Part("M / K^2", M / K**2, 1.0, M / K**2 - 1.0),
        Part("max |eigenvalue of E|", large, 1.0 / K, 1.0 / K - large),
        Part("min |eigenvalue of E|", small, floor, small - floor),
        Part("M", float(M), 36.0 * K**2, M - 36.0 * K**2),
    )


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


def xi(E: ArrayLike, *, M: float, form: str = "corrected") -> FloatArray:
    """xi_n / gamma = sum over n' != n of beta_nn' f_n . f_n' (Theorem 1a).

    Here theta = sigma = 0. With the corrected beta it equals a_nn [q1 e.B^-1 e - q0 e.B^-1 1],
    where e is row n of E without entry n, B is I + E without row and column n, and a =
    (I + E)^-1. So it is positive for every class that overlaps another as soon as the row sums of E
    are below 1 (which |lambda_1| < 1/K implies): the lower eigenvalue bound of Assumption 2 is not
    needed. With the printed beta it is negative once the overlaps fall below about 1/M.

    >>> E = [[0.0, 1e-4], [1e-4, 0.0]]
    >>> bool((xi(E, M=1000) > 0).all()), bool((xi(E, M=1000, form="printed") > 0).all())
    (True, False)
    """
    E = np.asarray(E, dtype=np.float64)
    return np.asarray((beta(E, M=M, form=form) * E).sum(-1))


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


class ClassLogits(NamedTuple):
    """The three distinct entries of w_n when classes are exchangeable.

    own: at class n's next token.
    other: at another class's next token.
    outside: at a token that is no class's next token; nan where K = M leaves none.
    """

    own: FloatArray
    other: FloatArray
    outside: FloatArray


class PlainCoefficients(NamedTuple):
    """Eq. 9's coefficients in units of gamma(t), when classes are exchangeable.

    iota: iota_n.
    beta: beta_nn'.
    """

    iota: FloatArray
    beta: FloatArray


def class_logits(growth: ArrayLike, *, M: int) -> FloatArray:
    """W, (K, M), with rows w_n = (M - 1) h_n zeta_n (Lemma 5, Eq. 31), class n predicting token n.

    >>> class_logits([0.5, 0.5], M=4)
    array([[ 1.5, -0.5, -0.5, -0.5],
           [-0.5,  1.5, -0.5, -0.5]])
    """
    growth = np.atleast_1d(np.asarray(growth, dtype=np.float64))
    W = np.repeat(-growth[:, None], M, axis=1)
    n = np.arange(len(growth))
    W[n, n] += M * growth
    return np.asarray(W)


def decoder_weights(f: ArrayLike, growth: ArrayLike, *, M: int) -> FloatArray:
    """Y = F (I - E') (I + Theta) W-bar of Theorem 5 (Eq. 70).

    The growth of each class makes Theta explicit: 1 + theta_n = h(N_n) / h(N-bar). With h_star(N_n)
    it is the exact state of the modified update (Eq. 26) from Y(0) = 0 after any sequence of N_n
    visits, so the N >> K^2 of the theorem concerns the size of Theta only. Returns Y, (L, M).

    >>> decoder_weights([[0.6, 0.8, 0], [0.6, 0, 0.8]], 0.5, M=3).round(3)
    array([[ 0.221,  0.221, -0.441],
           [ 1.085, -0.79 , -0.294],
           [-0.79 ,  1.085, -0.294]])
    """
    f = np.asarray(f, dtype=np.float64)
    K = len(f)
    W = class_logits(np.broadcast_to(growth, (K,)), M=M)
    return np.asarray(f.T @ (W - e_prime(gram(f)) @ W))


def decoder_error(t: ArrayLike, *, K: ArrayLike, M: ArrayLike, eta_y: ArrayLike) -> FloatArray:
    """|x_{T+1} - alpha_n|_2 at step t, from Eq. 71 with sigma = 0; it falls like K / (eta_Y t).

    The norm of zeta_n is sqrt(M/(M - 1)).

    >>> decoder_error([0, 10, 1000], K=2, M=100, eta_y=1.0).round(3)
    array([0.995, 0.574, 0.002])
    """
    M = np.asarray(M, dtype=np.float64)
    x = scaled_growth(at_least("t", t, 0.0) / at_least("K", K, 1.0), M=M, eta_y=eta_y)
    small = np.exp(-x)
    return unwrap(np.sqrt((M - 1.0) * M) * small / ((M - 1.0) * small + 1.0))


def steps_to_error(
    epsilon: ArrayLike, *, K: ArrayLike, M: ArrayLike, eta_y: ArrayLike, form: str = "corrected"
) -> FloatArray:
    """Batch-1 steps until |x_{T+1} - alpha_n|_2 = epsilon (Corollary 1).

    Corrected: the exact inverse of `decoder_error`, close to (K/eta_Y) (1/epsilon + ln(M/epsilon)).
    Printed: the bound (K/eta_Y) (1/epsilon) ln(M/epsilon) with constant 1 in its O, which is true
    but loose: Eq. 73 bounds the whole path by its slowest step, and so multiplies what adds.

    Parameters
    ----------
    epsilon : array_like
        Errors to reach, > 0.

    Examples
    --------
    >>> float(steps_to_error(0.1, K=2, M=100, eta_y=1.0).round(1))
    31.4
    >>> float(steps_to_error(0.1, K=2, M=100, eta_y=1.0, form="printed").round(1))
    138.2
    """
    M = at_least("M", M, 2.0)
    K = at_least("K", K, 1.0)
    epsilon = at_least("epsilon", epsilon, 0.0, strict=True)
    if is_printed(form):
        eta_y = at_least("eta_y", eta_y, 0.0, strict=True)
        return unwrap(K / (epsilon * eta_y) * np.log(M / epsilon))
    # exp(x) = sqrt(M (M - 1)) / epsilon - (M - 1); an error above the initial one needs no step.
    odds = np.maximum(np.sqrt(M * (M - 1.0)) / epsilon - (M - 1.0), 1.0)
    return unwrap(K * h_inverse(np.log(odds) / M, M=M, eta_y=eta_y))


def plain_decoder(
    t: ArrayLike, *, K: int, M: int, rho: float, eta_y: float, form: str = "corrected"
) -> ClassLogits:
    """w_n under the plain update (Eq. 7) when f_n . f_n' = rho for all n != n' (Remark 1), in the
    flow.

    Printed: Eq. 43, (1 - rho) (M - 1) h(t/K) zeta_n. It rests on sum_n zeta_n = 0, which holds only
    for K = M, and it scales h where the argument scales the learning rate inside h, so that even
    for K = M the right value is (M - 1) h(t/K; (1 - rho) eta_Y) zeta_n. Corrected: the solution of

        dw_n/dt = (eta_Y/K) [(e_n - alpha_n) + rho sum_{n' != n} (e_n' - alpha_n')],

    two coupled equations by exchangeability. The gap own - other still learns at the rate (1 - rho)
    eta_Y; but for K < M own - outside starts at the full rate eta_Y, and `other` rises with it at
    rho eta_Y.

    >>> w = plain_decoder(20.0, K=2, M=10, rho=0.3, eta_y=1.0)
    >>> float(w.own.round(3)), float(w.other.round(3)), float(w.outside.round(3))
    (3.691, 0.464, -0.519)
    """
    t = at_least("t", t, 0.0)
    at_least("K", K, 2.0)
    at_least("M", M, float(K))
    if is_printed(form):
        grown = (1.0 - rho) * h(t / K, M=M, eta_y=eta_y)
        return ClassLogits(unwrap((M - 1.0) * grown), unwrap(-grown), unwrap(-grown))
    gram_sum = 1.0 + rho * (K - 1)

    def velocity(_: float, state: FloatArray) -> FloatArray:
        own, other = np.exp(state)
        total = own + (K - 1) * other + (M - K)
        q, r = other / total, 1.0 / total
        # 1 - p as a sum of what is not p, which does not cancel once p is near 1.
        miss = ((K - 1) * other + (M - K)) / total
        drift = gram_sum * r
        return np.array(
            [miss - rho * (K - 1) * q + drift, rho * miss - (1.0 + rho * (K - 2)) * q + drift]
        )

    y = at_least("eta_y", eta_y, 0.0, strict=True) * t / K
    own, other = np.moveaxis(solve(velocity, np.zeros(2), y, rtol=1e-12, atol=1e-13), -1, 0)
    shift = -(own + (K - 1) * other) / M
    outside = shift if K < M else np.full(y.shape, np.nan)
    return ClassLogits(unwrap(own + shift), unwrap(other + shift), unwrap(outside))


def plain_coefficients(
    t: ArrayLike, *, K: int, M: int, rho: float, eta_y: float
) -> PlainCoefficients:
    """iota and beta of Eq. 9 under the plain update (Eq. 7), with equal overlaps rho.

    Exact for the decoder of `plain_decoder`, in units of the gamma(t) of Theorem 1, so that they
    compare with `iota` and `beta`. Not in the paper, which says after Theorem 1 that it still holds
    with a smaller learning rate. Its form, (a) and (b) do; beta's size does not. It starts at -q0,
    about 1/M, grows as exp(rho eta_Y t / K) / M well before t_0 and about as (M eta_Y t / K)^rho /
    M from t_0 to 100 t_0, where it is far smaller than `beta`. Later it overtakes `beta` (for rho =
    0.3 and M = 1000 at 1.1e6 t_0): for K = 2 beta/iota tends to 2 rho/(1 + rho^2), up to 1/M, where
    Theorem 1 has about rho, but only like 1/ln t.

    >>> float(plain_coefficients(100.0, K=2, M=1000, rho=0.1, eta_y=1.0).beta.round(4))
    0.0036
    >>> float(beta([[0.0, 0.1], [0.1, 0.0]], M=1000)[0, 1].round(4))  # under Theorem 1's decoder
    0.1021
    """
    t = at_least("t", t, 0.0, strict=True)
    w = plain_decoder(t, K=K, M=M, rho=rho, eta_y=eta_y)
    own, other = np.asarray(w.own), np.asarray(w.other)
    outside = np.asarray(w.outside) if K < M else np.zeros(t.shape)
    # Only own and other reach the softmax when K = M, where no token is outside.
    lead, rest = np.exp(-(own - other)), (M - K) * np.exp(outside - own)
    total = 1.0 + (K - 1) * lead + rest
    miss, q, r = ((K - 1) * lead + rest) / total, lead / total, rest / total
    # Rows of (I + E)^-1 W: what multiplies f_n in Y.
    share = rho / (1.0 + (K - 1) * rho) * (own + (K - 1) * other)
    y_own, y_other = (own - share) / (1.0 - rho), (other - share) / (1.0 - rho)
    y_outside = outside / (1.0 + (K - 1) * rho)
    speed = np.asarray(gamma(t, K=K, M=M, eta_y=eta_y))
    g_own = y_own * miss - (K - 1) * q * y_other - r * y_outside
    g_other = y_other * miss - q * y_own - (K - 2) * q * y_other - r * y_outside
    return PlainCoefficients(unwrap(g_own / speed), unwrap(-g_other / speed))

"""What the decoder has learnt: Theorem 5, Corollary 1, and the plain update of Remark 1.

Time t counts batch-1 optimiser steps with K classes drawn uniformly, unless a docstring says that
it takes the growth h of each class, which serves any schedule of visits.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from attnlab.formulas import solve
from attnlab.formulas.checks import FloatArray, at_least, is_printed, unwrap

from .correlations import e_prime, gram
from .growth import gamma, h, h_inverse, scaled_growth


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

"""The minimal model at its start: the first step of W, and the first signal for v.

All is for W = c in every entry with c to 0 (probabilities are 1/k), v = 0, and a stationary start.
Expectations over sequences are exact, by powers of P; those over chains are means over the P given.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import numpy as np

from attnlab.formulas.chains import stationary

from .chains import Floats


def powers(P: Floats) -> Iterator[Floats]:
    """Yield P^0, P^1, ... without end.

    Examples
    --------
    >>> found = powers(np.array([[0.0, 1.0], [1.0, 0.0]]))
    >>> next(found).tolist(), next(found).tolist()
    ([[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [1.0, 0.0]])
    """
    power = np.broadcast_to(np.eye(P.shape[-1]), P.shape)
    while True:
        yield power
        power = power @ P


def first_step(P: Floats, T: int) -> Floats:
    """Return -dL/dW (k, k) at the start, at any T.

    -dL/dW_ab = (1/T) sum_s E_P (pi_b / s) sum_y S_s(b, y) R_{T-s}(y, a) (P(a, y) - 1/k), with
    S_s = sum_{j<s} P^j and R_n = sum_{j<=n} P^j (derived here).

    Examples
    --------
    >>> from attnlab.papers.statistical_induction.theory import dirichlet
    >>> P = dirichlet(np.random.default_rng(0), 4000, 2)
    >>> M = first_step(P, 50)
    >>> bool(M[0, 0] > M[0, 1] > 0)
    True
    """
    pi, k = stationary(P), P.shape[-1]
    sums = _sums(P, T)
    excess = np.swapaxes(P - 1.0 / k, -1, -2)  # y a
    total = sum((sums[s - 1] / s) @ (sums[T - s] * excess) for s in range(1, T + 1))  # n b a
    return np.asarray((pi[:, :, None] * total).mean(0).T / T)


def leading_step(P: Floats, T: int) -> Floats:
    """Return the leading term of `first_step` for large T: (T/2) E pi_a pi_b h_a.

    h_a = sum_y P(a, y) (pi_y - 1/k). It vanishes for doubly stochastic chains.

    Examples
    --------
    >>> leading_step(np.full((1, 2, 2), 0.5), 10).tolist()
    [[0.0, 0.0], [0.0, 0.0]]
    """
    pi, k = stationary(P), P.shape[-1]
    h = np.einsum("nay,ny->na", P, pi - 1.0 / k)
    return np.asarray(T / 2.0 * np.einsum("na,nb,na->ab", pi, pi, h) / len(P))


def lag_kernel(P: Floats, lags: int) -> Floats:
    """Return G_d = E sum_ay pi_a^2 P(a, y) (P^d(a, y) - pi_y) for d = 0, ..., lags - 1.

    With pi_a in place of pi_a^2, and divided by pi_y, it is the kernel of "causal structure", whose
    parent is lag 1 here.

    Examples
    --------
    >>> lag_kernel(np.array([[[0.0, 1.0], [1.0, 0.0]]]), 4).tolist()
    [-0.25, 0.25, -0.25, 0.25]
    """
    pi = stationary(P)
    weights = (pi**2)[..., None] * P / len(P)
    even = np.vdot(weights, np.broadcast_to(pi[:, None], P.shape))
    return np.array([np.vdot(weights, power) - even for power in islice(powers(P), lags)])


def leading_signal(P: Floats, T: int) -> Floats:
    """Return -dL/dv_d over w (T,) to leading order, at W = c + w I: formula by `lag_kernel`.

    (1/T) sum_t sum_{s=d+1..t} (1/s) (G_d - (1/s) sum_{d'<s} G_d'). The second term is the mean that
    softmax takes off, of relative order 1/log T.

    Examples
    --------
    >>> leading_signal(np.array([[[0.0, 1.0], [1.0, 0.0]]]), 20).argmax().item()
    1
    """
    G, s = lag_kernel(P, T), np.arange(1, T + 1)
    seen = s[:, None] > np.arange(T)  # s d
    terms = (G - (np.cumsum(G) / s)[:, None]) / s[:, None]
    return np.asarray(((T + 1 - s)[:, None] * seen * terms).sum(0) / T)


def first_signal(P: Floats, T: int) -> Floats:
    """Return -dL/dv_d over w (T,) at W = c + w I with c and w to 0, at any T.

    (1/T) sum_{s>d} (1/s) (A_d(T-s) - (1/s) sum_{d'<s} A_d'(T-s)), with A_d(n) = E sum_ay pi_a
    P^d(a, y) R_n(y, a) (P(a, y) - 1/k) and R_n as in `first_step` (derived here).

    Examples
    --------
    >>> from attnlab.papers.statistical_induction.theory import dirichlet
    >>> P = dirichlet(np.random.default_rng(0), 4000, 3)
    >>> int(first_signal(P, 50).argmax())
    1
    """
    pi, k = stationary(P), P.shape[-1]
    by_lag = np.stack([*islice(powers(P), T)])
    sums = _sums(P, T)
    weighted = pi[:, :, None] * (P - 1.0 / k) * by_lag / len(P)  # d n a y
    weighted = weighted.reshape(T, -1)
    back = np.swapaxes(sums, -1, -2).reshape(T, -1)  # m n a y
    A = weighted @ back.T  # d m
    s = np.arange(1, T + 1)
    seen = s[:, None] > np.arange(T)
    at = A[:, T - s].T * seen  # s d
    terms = (at - at.sum(1, keepdims=True) / s[:, None] * seen) / s[:, None]
    return np.asarray(terms.sum(0) / T)


def _sums(P: Floats, T: int) -> Floats:
    """Return I, I + P, I + P + P^2, ...: T sums of powers, (T, chains, k, k)."""
    return np.cumsum([*islice(powers(P), T)], axis=0)

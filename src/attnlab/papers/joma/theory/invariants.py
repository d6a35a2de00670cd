"""Invariants: attention logits as a function of the MLP's lower weights (JoMA, claim 1).

With gradient flow at rates eta_w (MLP) and eta_z (attention), and u_mk the share of query m in the
velocity of v_k (`joint_gradient`), v_k' = eta_w sum_m u_mk, and the logits of query m follow

    linear:   z_m * z_m'    = eta_z sum_k v_k * u_mk
    exp:      z_m'          = (eta_z/T) sum_k v_k * u_mk
    softmax:  z_m'          = (eta_z/T) (sum_k v_k * u_mk - sum over n of P(n) S_n b_n)

(all re-derived; S_n = sum_k g_nk h'_nk v_k . b_n). With one query the first two integrate at once,
whatever the gradients that arrive do: they are exact, and need no stationarity. A temperature
divides the second and the third, and drops out of the first.

The third needs the assumption that b and S are uncorrelated, E[S b] = E[S] b-bar, which is what
remains of the paper's E[sum_k g_k h_k' b b^T] = b-bar E[sum_k g_k h_k' b]^T. Then sum_k v_k . v_k'
= eta_w E[S], and with s = 1/2 sum_k |v_k|^2

    dz/dt = (eta_z/(eta_w T)) d/dt(1/2 sum_k v_k^2) - (eta_z/(eta_w T)) b-bar(t) ds/dt.

If b-bar does not move this is the paper's invariant (`softmax_invariant`). If it moves, the second
term is an integral over s (`moving_invariant`; ours): b-bar is all that has to be known on the way.

Several queries that share one MLP are not covered by the paper. What survives (ours, exact): the
shares add up to v', so that for exp attention the sum of z_m over queries, and for linear attention
the sum of z_m^2, are what z and z^2 are for one query. Each query by itself needs its own share
(`shared_invariant`).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from attnlab.files.errors import InputError
from attnlab.formulas.checks import FloatArray, at_least


def rate_ratio(eta_w: float, eta_z: float) -> float:
    """eta_z/eta_w, both positive."""
    w = at_least("eta_w", eta_w, 0.0, strict=True)
    return float(at_least("eta_z", eta_z, 0.0) / w)


def _squares(v: ArrayLike, v0: ArrayLike) -> FloatArray:
    """sum_k v_k^2 beyond the start, token by token: (..., H, L) to (..., L)."""
    v, v0 = np.asarray(v, dtype=np.float64), np.asarray(v0, dtype=np.float64)
    return np.asarray((v**2).sum(-2) - (np.broadcast_to(v0, v.shape[-2:]) ** 2).sum(-2))


def linear_invariant(
    v: ArrayLike,
    *,
    v0: ArrayLike = 0.0,
    z0: ArrayLike = 1.0,
    eta_w: float = 1.0,
    eta_z: float = 1.0,
) -> FloatArray:
    """z^2 = z(0)^2 + (eta_z/eta_w) sum_k (v_k^2 - v_k(0)^2), for linear attention: exact.

    The temperature drops out. Returns z^2 of one query, (..., L); of several, the sum of z_m^2 over
    them.

    >>> linear_invariant([[0.0, 1.0], [0.0, 2.0]])
    array([1., 6.])
    """
    start = np.atleast_1d(np.asarray(z0, dtype=np.float64)) ** 2
    start = start.sum(0) if start.ndim > 1 else start
    return np.asarray(start + rate_ratio(eta_w, eta_z) * _squares(v, v0))


def exp_invariant(
    v: ArrayLike,
    *,
    v0: ArrayLike = 0.0,
    z0: ArrayLike = 0.0,
    eta_w: float = 1.0,
    eta_z: float = 1.0,
    temperature: float = 1.0,
) -> FloatArray:
    """z = z(0) + (eta_z/(2 eta_w T)) sum_k (v_k^2 - v_k(0)^2), for exp attention: exact.

    Returns z of one query, (..., L); of several, the sum over them.

    >>> exp_invariant([[0.0, 1.0], [0.0, 2.0]])
    array([0. , 2.5])
    """
    start = np.atleast_1d(np.asarray(z0, dtype=np.float64))
    start = start.sum(0) if start.ndim > 1 else start
    T = at_least("temperature", temperature, 0.0, strict=True)
    return np.asarray(start + rate_ratio(eta_w, eta_z) / (2.0 * T) * _squares(v, v0))


def softmax_invariant(
    v: ArrayLike,
    mean_attention: ArrayLike,
    *,
    v0: ArrayLike = 0.0,
    z0: ArrayLike = 0.0,
    eta_w: float = 1.0,
    eta_z: float = 1.0,
    temperature: float = 1.0,
) -> FloatArray:
    """z = z(0) + (eta_z/(2 eta_w T)) sum_k (v_k^2 - |v_k|^2 b-bar), differences from the start.

    For one query, and a mean attention that does not move.

    >>> softmax_invariant([[0.0, 1.0], [0.0, 2.0]], [0.5, 0.5])
    array([-1.25,  1.25])
    """
    squares = _squares(v, v0)
    T = at_least("temperature", temperature, 0.0, strict=True)
    bent = squares - squares.sum(-1, keepdims=True) * np.asarray(mean_attention, dtype=np.float64)
    return np.asarray(np.asarray(z0) + rate_ratio(eta_w, eta_z) / (2.0 * T) * bent)


def moving_invariant(
    v: ArrayLike,
    mean_attention: ArrayLike,
    *,
    z0: ArrayLike = 0.0,
    eta_w: float = 1.0,
    eta_z: float = 1.0,
    temperature: float = 1.0,
) -> FloatArray:
    """z = z(0) + (eta_z/(eta_w T)) (1/2 sum_k v_k^2 - integral of b-bar ds), s = 1/2 sum_k |v_k|^2.

    For one query, along a run (time, ...) from its start on. Ours. The integral is the trapezoidal
    rule between records, which is right to second order in their distance; it needs no times, only
    b-bar as a function of s.

    >>> moving_invariant([[[0.0, 0.0]], [[0.0, 2.0]]], [[0.5, 0.5], [0.3, 0.7]])
    array([[ 0. ,  0. ],
           [-0.8,  0.8]])
    """
    v = np.asarray(v, dtype=np.float64)
    mean = np.asarray(mean_attention, dtype=np.float64)
    if v.ndim != 3 or mean.shape != (len(v), v.shape[-1]):
        raise InputError(
            f"v, mean_attention: expected (time, hidden, token) and (time, token); got {v.shape} "
            f"and {mean.shape}"
        )
    T = at_least("temperature", temperature, 0.0, strict=True)
    squares = _squares(v, v[0]) / 2.0
    s = squares.sum(-1)
    taken = np.zeros_like(squares)
    taken[1:] = np.cumsum((mean[1:] + mean[:-1]) / 2.0 * np.diff(s)[:, None], axis=0)
    return np.asarray(np.asarray(z0) + rate_ratio(eta_w, eta_z) / T * (squares - taken))


def shared_invariant(
    v: ArrayLike,
    shares: ArrayLike,
    mean_attention: ArrayLike | None,
    t: ArrayLike,
    *,
    z0: ArrayLike = 0.0,
    eta_z: float = 1.0,
    temperature: float = 1.0,
    linear: bool = False,
) -> FloatArray:
    """z of each of several queries that share one MLP, along a run (time, ...) (ours).

        z_m = z_m(0) + (eta_z/T) integral of sum_k (v_k * u_mk - (v_k . u_mk) b-bar_m) dt

    For exp attention it is exact but for the rule of integration (trapezoidal, between the times
    t); for linear attention z_m^2 = z_m(0)^2 + 2 eta_z integral of sum_k v_k * u_mk dt.

    Parameters
    ----------
    shares : array_like
        u of `joint_gradient`, (time, Q, H, L).
    mean_attention : array_like or None
        b-bar, (time, Q, L), for softmax attention; None for exp and linear attention.
    linear : bool, optional
        Whether attention is linear.

    Examples
    --------
    >>> v, u = np.ones((2, 1, 2)), np.ones((2, 1, 1, 2))
    >>> shared_invariant(v, u, None, [0.0, 1.0])[-1]
    array([[1., 1.]])
    """
    v, u = np.asarray(v, dtype=np.float64), np.asarray(shares, dtype=np.float64)
    T = at_least("temperature", temperature, 0.0, strict=True)
    each = np.einsum("thl,tqhl->tql", v, u)
    if mean_attention is not None:
        each = each - each.sum(-1, keepdims=True) * np.asarray(mean_attention, dtype=np.float64)
    moved = np.zeros_like(each)
    steps = np.diff(np.asarray(t, dtype=np.float64))[:, None, None]
    moved[1:] = np.cumsum((each[1:] + each[:-1]) / 2.0 * steps, axis=0)
    start, rate = np.asarray(z0, dtype=np.float64), at_least("eta_z", eta_z, 0.0)
    if linear:
        return np.asarray(np.sign(start) * np.sqrt(np.maximum(start**2 + 2.0 * rate * moved, 0.0)))
    return np.asarray(start + rate / T * moved)

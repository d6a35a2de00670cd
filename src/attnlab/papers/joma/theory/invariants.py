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

The MLP alone (`reduced_joint_flow`). From v(0) = 0 the lower weights follow

    v_k' = eta_w sum over n of P(n) g_nk h'_nk b_n(z(v)),      r_km' = the same without b,

where z is no variable of its own: the invariant of claim 1 gives it from v. For exp and linear
attention and one query that is no approximation. For softmax attention it takes b-bar as fixed (the
paper) or, with `moving`, integrates the velocity of z with the current b-bar and with the
share that each query has in v' (ours): what is left out is then only that b and S are correlated.
With `stationary` the gradient that arrives stays as it starts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import ArrayLike

from attnlab.files.errors import InputError
from attnlab.formulas import Setting, solve
from attnlab.formulas.checks import FloatArray, at_least
from attnlab.formulas.setting import SettingLike

from .gradient import attend, joint_gradient, mean_attention, start_gradient


def rate_ratio(eta_w: float, eta_z: float) -> float:
    """eta_z/eta_w, both positive."""
    w = at_least("eta_w", eta_w, 0.0, strict=True)
    return float(at_least("eta_z", eta_z, 0.0) / w)


def _speed(eta_w: float, eta_z: float, temperature: float) -> float:
    """eta_z/(eta_w T)."""
    T = float(at_least("temperature", temperature, 0.0, strict=True))
    return rate_ratio(eta_w, eta_z) / T


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
    return np.asarray(start + _speed(eta_w, eta_z, temperature) / 2.0 * _squares(v, v0))


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
    bent = squares - squares.sum(-1, keepdims=True) * np.asarray(mean_attention, dtype=np.float64)
    return np.asarray(np.asarray(z0) + _speed(eta_w, eta_z, temperature) / 2.0 * bent)


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
    squares = _squares(v, v[0]) / 2.0
    s = squares.sum(-1)
    taken = scipy.integrate.cumulative_trapezoid(mean, s, axis=0, initial=0)
    return np.asarray(np.asarray(z0) + _speed(eta_w, eta_z, temperature) * (squares - taken))


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
    times = np.asarray(t, dtype=np.float64)
    moved = scipy.integrate.cumulative_trapezoid(each, times, axis=0, initial=0)
    start, rate = np.asarray(z0, dtype=np.float64), at_least("eta_z", eta_z, 0.0)
    if linear:
        return np.asarray(np.sign(start) * np.sqrt(np.maximum(start**2 + 2.0 * rate * moved, 0.0)))
    return np.asarray(start + rate / T * moved)


@dataclass(frozen=True)
class ReducedJoint:
    """The reduced dynamics at the times asked for, whose shape leads.

    weights: v, (..., H, L).
    query_weights: r, (..., H, Q).
    logits: z, (..., Q, L).
    """

    weights: FloatArray
    query_weights: FloatArray
    logits: FloatArray


def reduced_joint_flow(
    setting: SettingLike,
    t: ArrayLike,
    *,
    attention: str = "softmax",
    activation: str = "linear",
    temperature: float = 1.0,
    residual: bool = True,
    z0: ArrayLike | None = None,
    moving: bool = False,
    stationary: bool = False,
    rtol: float = 1e-8,
    atol: float = 1e-11,
) -> ReducedJoint:
    """Solve the reduced dynamics at times t, from v(0) = 0 and r(0) = 0.

    Parameters
    ----------
    activation : {"linear", "gelu"}
        Of the hidden units; a ReLU has no slope at v = 0.
    residual : bool, optional
        Whether hidden units see the query.
    z0 : array_like, optional
        Logits at the start, (Q, L); by default those at which attention is even.
    moving : bool, optional
        For softmax attention, and for several queries of any, integrate z with its own velocity.
    stationary : bool, optional
        Keep the gradient that arrives as it starts.

    Examples
    --------
    >>> setting = Setting([[0.5, 0.5, 0], [0.5, 0, 0.5]], eta_y=1.0, eta_z=1.0)
    >>> reduced_joint_flow(setting, 5.0).logits.round(3)
    array([[-0.318,  0.159,  0.159]])
    """
    if activation == "relu":
        raise InputError("activation: from v(0) = 0 a ReLU has no slope; take 'linear' or 'gelu'")
    s = Setting.of(setting)
    L, J, (eta_w, eta_z) = s.L, s.wanted.shape[1], s.rates
    T = float(at_least("temperature", temperature, 0.0, strict=True))
    start = s.start(z0)
    if z0 is None and attention == "linear":
        start = start + T
    Q, ratio = len(start), rate_ratio(eta_w, eta_z)
    fixed = mean_attention(s, attend(s, start, attention=attention, temperature=T))
    incoming = start_gradient(s) if stationary else None
    weights, from_query = J * L, J * Q * residual

    def eliminated(v: FloatArray) -> FloatArray:
        """z of v (..., J, L), by the invariant of one query: (..., Q, L)."""
        squares = ratio * (v**2).sum(-2)[..., None, :]
        if attention == "linear":
            return np.asarray(np.sign(start) * np.sqrt(start**2 + squares))
        if attention == "softmax":
            squares = squares - squares.sum(-1, keepdims=True) * fixed
        return np.asarray(start + squares / (2.0 * T))

    def unpack(state: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return v (..., J, L), r (..., J, Q) and z (..., Q, L) of a flat state of the solver."""
        lead = state.shape[:-1]
        v = state[..., :weights].reshape(*lead, J, L)
        r = np.zeros((*lead, J, Q))
        if residual:
            r = state[..., weights : weights + from_query].reshape(*lead, J, Q)
        if moving:
            return v, r, state[..., weights + from_query :].reshape(*lead, Q, L)
        return v, r, eliminated(v)

    def velocity(_: float, state: FloatArray) -> FloatArray:
        v, r, z = unpack(state)
        found = joint_gradient(
            s,
            v,
            z,
            r=r,
            attention=attention,
            activation=activation,
            temperature=T,
            incoming=incoming,
        )
        parts = [eta_w * found.shares.sum(0).ravel()]
        if residual:
            parts.append(eta_w * found.query_weights.ravel())
        if moving:
            each = np.einsum("hl,qhl->ql", v, found.shares)
            if attention == "softmax":
                each = each - each.sum(-1, keepdims=True) * mean_attention(s, found.attention)
            if attention == "linear":
                each = T * each / z
            parts.append(eta_z / T * each.ravel())
        return np.concatenate(parts)

    initial = np.zeros(weights + from_query + moving * start.size)
    if moving:
        initial[weights + from_query :] = start.ravel()
    path = solve(velocity, initial, at_least("t", t, 0.0), rtol=rtol, atol=atol)
    return ReducedJoint(*unpack(path))

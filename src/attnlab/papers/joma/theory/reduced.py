"""The MLP alone, with attention eliminated by its invariant: JoMA's joint dynamics.

From v(0) = 0 the lower weights follow

    v_k' = eta_w sum over n of P(n) g_nk h'_nk b_n(z(v)),      r_km' = the same without b,

where z is no variable of its own: the invariant of claim 1 gives it from v. For exp and linear
attention and one query that is no approximation. For softmax attention it takes b-bar as fixed (the
paper) or, with `moving`, integrates the velocity of z with the b-bar of the moment and with the
share that each query has in v' (ours): what is left out is then only that b and S are correlated.
With `stationary` the gradient that arrives stays as it starts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from attnlab.files.errors import InputError
from attnlab.formulas import Setting, solve
from attnlab.formulas.checks import FloatArray, at_least
from attnlab.formulas.setting import SettingLike

from .gradient import attend, joint_gradient, mean_attention, start_gradient
from .invariants import rate_ratio


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

"""Gradients that reach an MLP over attention and that it sends on: the model of JoMA.

Class n has query m = psi(n), token frequencies x_n = P(.|n) and a label. With sigma(z) = exp(z) or
z, and A = 1 or, for softmax, the sum that makes b a distribution,

    b_n = sigma(z_m/T) * x_n / A,     h_k = phi(v_k . b_n + r_km),     outputs alpha = softmax(h)

where the hidden units are the labels' logits, or softmax(h V) with an upper layer V. The gradient
that arrives at h_k is g_k = 1[k is the label] - alpha_k, pulled back by V; gradient flow has
v_k' = eta_w sum_m u_mk and z_m' = eta_z (...), where

    u_mk = sum over classes n of m of P(n) g_nk h'_nk b_n           (the share of query m in v_k')
    sum over classes n of m of P(n) (db_n/dz_m)^T q_n,  q_n = sum_k g_nk h'_nk v_k.

Delta says how discriminative and how frequent a token is (claim 2, as we know it). At the start the
outputs are equal, and the gradient that arrives at hidden unit j, which is the logit of label j, is
g_j = 1[j is the label] - 1/J. What first moves v_jl is

    Delta_jl = E[g_j x_l] = P(l) E[g_j | l] = P(l) (P(j|l) - 1/J),

frequency times discriminancy. Scan and Snap's two kinds of tokens are the two ends of the second
factor: it vanishes where a token says nothing about the label (a common token, equally frequent
under all labels), and is largest where one label alone has the token (a distinct token).

What JoMA assumes of a run can be measured at any state, except orthonormal embeddings, which are a
property of the model: with coordinates v_k for its weights there is nothing left to measure.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy
from numpy.typing import ArrayLike

from attnlab.files.errors import InputError
from attnlab.formulas import Setting
from attnlab.formulas.checks import FloatArray, at_least
from attnlab.formulas.setting import SettingLike
from attnlab.formulas.tokens import attention_weights

KINDS = ("softmax", "exp", "linear")


def _gelu_slope(h: FloatArray) -> FloatArray:
    density = np.exp(-(h**2) / 2) / np.sqrt(2 * np.pi)
    return np.asarray((1 + scipy.special.erf(h / np.sqrt(2))) / 2 + h * density)


# phi and its slope.
ACTIVATIONS: dict[str, tuple[Callable[..., FloatArray], Callable[..., FloatArray]]] = {
    "linear": (lambda h: h, np.ones_like),
    "relu": (lambda h: np.maximum(h, 0.0), lambda h: (h > 0).astype(np.float64)),
    "gelu": (lambda h: np.asarray(h * (1 + scipy.special.erf(h / np.sqrt(2))) / 2), _gelu_slope),
}


def by_query(s: Setting, each: FloatArray) -> FloatArray:
    """Sums over the classes of each query, as often as they are drawn: (..., K, A) to Q, A."""
    return np.asarray(s.owner.T @ each)


@dataclass(frozen=True)
class JointGradient:
    """One state of an MLP over attention, or several along leading axes; rates are left out.

    attention: b, (..., K, L).
    incoming: g, (..., K, H).
    slope: h', (..., K, H).
    shares: u, the part of each query in the velocity of v, (..., Q, H, L).
    logits: the velocity of z, (..., Q, L).
    query_weights: that of r, (..., H, Q).
    pull: S_n = q_n . b_n, (..., K).
    """

    attention: FloatArray
    incoming: FloatArray
    slope: FloatArray
    shares: FloatArray
    logits: FloatArray
    query_weights: FloatArray
    pull: FloatArray


def joint_gradient(
    setting: SettingLike,
    v: ArrayLike,
    z: ArrayLike,
    *,
    r: ArrayLike | None = None,
    upper: ArrayLike | None = None,
    attention: str = "softmax",
    activation: str = "linear",
    temperature: float = 1.0,
    incoming: ArrayLike | None = None,
) -> JointGradient:
    """The gradient of minus the loss in all weights of an MLP over attention.

    >>> found = joint_gradient([[0.5, 0.5, 0], [0.5, 0, 0.5]], np.zeros((2, 3)), np.zeros((1, 3)))
    >>> found.shares.sum(0)  # what moves v: Delta
    array([[ 0.   ,  0.125, -0.125],
           [ 0.   , -0.125,  0.125]])
    """
    s = Setting.of(setting)
    v, z = np.asarray(v, dtype=np.float64), np.asarray(z, dtype=np.float64)
    T = float(at_least("temperature", temperature, 0.0, strict=True))
    phi, slope_of = _activation(activation)
    b = attend(s, z, attention=attention, temperature=T)
    before = b @ np.swapaxes(v, -1, -2)
    if r is not None:
        before = before + np.swapaxes(np.asarray(r, dtype=np.float64), -1, -2)[..., s.rows, :]
    if incoming is not None:
        g = np.broadcast_to(np.asarray(incoming, dtype=np.float64), before.shape)
    elif upper is not None:
        V = np.asarray(upper, dtype=np.float64)
        g = _errors(s, phi(before) @ V) @ np.swapaxes(V, -1, -2)
    else:
        g = _errors(s, phi(before))
    slope = slope_of(before)
    felt = g * slope  # (..., K, H)
    q = felt @ v  # (..., K, L)
    pull = (q * b).sum(-1)
    if attention == "softmax":
        back = b * (q - pull[..., None]) / T
    elif attention == "exp":
        back = b * q / T
    else:
        back = s.P * q / T
    of_query = felt[..., None, :, :] * s.owner.T[..., None]  # (..., Q, K, H)
    return JointGradient(
        attention=b,
        incoming=np.asarray(g),
        slope=slope,
        shares=np.swapaxes(of_query, -1, -2) @ b[..., None, :, :],
        logits=by_query(s, back),
        query_weights=np.swapaxes(by_query(s, felt), -1, -2),
        pull=pull,
    )


def attend(
    setting: SettingLike, z: FloatArray, *, attention: str = "softmax", temperature: float = 1.0
) -> FloatArray:
    """b of each class, what it attends to, (..., K, L).

    >>> attend([[0.5, 0.5, 0], [0.5, 0, 0.5]], np.zeros((1, 3)))
    array([[0.5, 0.5, 0. ],
           [0.5, 0. , 0.5]])
    """
    if attention not in KINDS:
        raise InputError(f"attention must be one of {', '.join(KINDS)}; got {attention!r}")
    s = Setting.of(setting)
    if attention == "softmax":
        return attention_weights(s, z / temperature)
    sigma = np.exp(z / temperature) if attention == "exp" else z / temperature
    return np.asarray(s.P * sigma[..., s.rows, :])


def mean_attention(setting: SettingLike, b: FloatArray) -> FloatArray:
    """b-bar_m = E[b | m], the attention of a query on average over its classes, (..., Q, L).

    Parameters
    ----------
    b : ndarray
        Attention of each class, (..., K, L).

    Examples
    --------
    >>> P = np.array([[0.5, 0.5, 0], [0.5, 0, 0.5]])
    >>> mean_attention(P, P)
    array([[0.5 , 0.25, 0.25]])
    """
    s = Setting.of(setting)
    return np.asarray(by_query(s, b) / s.owner.sum(0)[:, None])


def _errors(s: Setting, logits: FloatArray) -> FloatArray:
    """1[label] - softmax(logits), (..., K, J)."""
    if logits.shape[-1] != s.wanted.shape[1]:
        raise InputError(
            f"v: {logits.shape[-1]} hidden units for {s.wanted.shape[1]} labels; without an upper "
            "layer each label has one"
        )
    odds = np.exp(logits - logits.max(-1, keepdims=True))
    return np.asarray(s.wanted - odds / odds.sum(-1, keepdims=True))


def _activation(name: str) -> tuple[Callable[..., FloatArray], Callable[..., FloatArray]]:
    if name not in ACTIVATIONS:
        raise InputError(f"activation must be one of {', '.join(ACTIVATIONS)}; got {name!r}")
    return ACTIVATIONS[name]


def start_gradient(setting: SettingLike) -> FloatArray:
    """g at equal outputs: 1[j is the label of class n] - 1/J, (K, J).

    >>> start_gradient([[0.5, 0.5, 0], [0.5, 0, 0.5]])
    array([[ 0.5, -0.5],
           [-0.5,  0.5]])
    """
    wanted = Setting.of(setting).wanted
    return np.asarray(wanted - 1.0 / wanted.shape[1])


def delta(setting: SettingLike) -> FloatArray:
    """Delta of each query, label and token, at equal outputs: frequency times discriminancy.

    The share P(m) of a query is part of it, since it is part of what moves v: the sum over queries
    is the whole. Returns Delta, (Q, J, L).

    >>> delta([[0.5, 0.5, 0], [0.5, 0, 0.5]])[0]  # what both classes have says nothing
    array([[ 0.   ,  0.125, -0.125],
           [ 0.   , -0.125,  0.125]])
    """
    s = Setting.of(setting)
    return np.einsum("kq,kj,kl->qjl", s.owner, start_gradient(s), s.P)


def discriminancy(setting: SettingLike) -> FloatArray:
    """Return the discriminancy of each token for the label under each query, from 0 to 1.

    The norm over labels of E[g_j | l, m] = P(j|l,m) - 1/J, over its largest value sqrt(1 - 1/J): 0
    if all labels are equally likely given the token, 1 if one is certain. Returns (Q, L); nan where
    the query never sees the token.

    >>> discriminancy([[0.5, 0.5, 0], [0.5, 0, 0.5]]).round(9)
    array([[0., 1., 1.]])
    """
    s = Setting.of(setting)
    with np.errstate(invalid="ignore", divide="ignore"):
        expected = delta(s) / by_query(s, s.P)[:, None, :]
    J = s.wanted.shape[1]
    return np.asarray(np.linalg.norm(expected, axis=1) / np.sqrt(1.0 - 1.0 / J))


@dataclass(frozen=True)
class JointAssumptions:
    """Distance of a run from what is assumed, along its first axis; 0 is as assumed.

    drift: half of |b-bar_m(t) - b-bar_m(0)|_1, for each query, (time, Q).
    residual: of the factorisation, |E[S b | m] - E[S | m] b-bar_m| / |E[S b | m]|, (time, Q); nan
        where nothing pulls.
    change: |g(t) - g(0)| / |g(0)| over classes and hidden units, (time,).
    """

    drift: FloatArray
    residual: FloatArray
    change: FloatArray


def joint_assumptions(
    setting: SettingLike, v: ArrayLike, z: ArrayLike, **model: Any
) -> JointAssumptions:
    """Measure what JoMA assumes of a run, whose records (time, ...) begin at the start.

    b-bar is of attention as it is: its sum is 1 for softmax alone.

    Parameters
    ----------
    **model
        The other arguments of `joint_gradient`.

    Examples
    --------
    >>> v, z = np.zeros((2, 2, 3)), np.zeros((2, 1, 3))
    >>> joint_assumptions([[0.5, 0.5, 0], [0.5, 0, 0.5]], v, z).drift  # nothing has moved
    array([[0.],
           [0.]])
    """
    s = Setting.of(setting)
    found = joint_gradient(s, v, z, **model)
    mean = mean_attention(s, found.attention)
    together = by_query(s, found.pull[..., None] * found.attention)
    apart = by_query(s, found.pull[..., None]) * mean
    size = np.linalg.norm(together, axis=-1)
    with np.errstate(invalid="ignore", divide="ignore"):
        residual = np.linalg.norm(together - apart, axis=-1) / size
    g = found.incoming
    moved = np.linalg.norm(g - g[0], axis=(-2, -1)) / np.linalg.norm(g[0])
    return JointAssumptions(np.abs(mean - mean[0]).sum(-1) / 2.0, residual, np.asarray(moved))

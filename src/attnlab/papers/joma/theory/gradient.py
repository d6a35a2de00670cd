"""What arrives at an MLP over attention, and what it sends on: the model of JoMA, written out.

Class n has query m = psi(n), token frequencies x_n = P(.|n) and a label. With sigma(z) = exp(z) or
z, and A = 1 or, for softmax, the sum that makes b a distribution,

    b_n = sigma(z_m/T) * x_n / A,     h_k = phi(v_k . b_n + r_km),     outputs alpha = softmax(h)

where the hidden units are the labels' logits, or softmax(h V) with an upper layer V. The gradient
that arrives at h_k is g_k = 1[k is the label] - alpha_k, pulled back by V; gradient flow has
v_k' = eta_w sum_m u_mk and z_m' = eta_z (...), where

    u_mk = sum over classes n of m of P(n) g_nk h'_nk b_n           (the share of query m in v_k')
    sum over classes n of m of P(n) (db_n/dz_m)^T q_n,  q_n = sum_k g_nk h'_nk v_k.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy
from numpy.typing import ArrayLike

from attnlab.files.errors import InputError
from attnlab.formulas.checks import (
    Classes,
    Contexts,
    FloatArray,
    IntArray,
    at_least,
    class_weights,
    contexts,
    count_queries,
    shares,
)
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


@dataclass(frozen=True)
class Mixture:
    """Labelled classes in letters.

    Attributes
    ----------
    P
        P(l|n), (K, L).
    rows
        psi: the query of each class, (K,).
    share
        P(n), (K,).
    wanted
        Labels, one-hot, (K, J).
    """

    P: FloatArray
    rows: IntArray
    share: FloatArray
    wanted: FloatArray

    @cached_property
    def owner(self) -> FloatArray:
        """P(n) at the query of class n, (K, Q)."""
        return np.asarray(np.eye(count_queries(self.rows))[self.rows] * self.share[:, None])

    def by_query(self, each: FloatArray) -> FloatArray:
        """Sums over the classes of each query, as often as they are drawn: (..., K, A) to Q, A."""
        return np.asarray(self.owner.T @ each)


def mixture(
    P: Contexts | Mixture,
    *,
    psi: ArrayLike | None = None,
    weight: ArrayLike | None = None,
    target: ArrayLike | None = None,
) -> Mixture:
    """Classes in the letters of JoMA.

    Parameters
    ----------
    P : array_like, SequenceClasses or Mixture
        P(l|n): a row for each class, a column for each contextual token, (K, L). `SequenceClasses`
        and a `Mixture` bring the following three with them.
    psi : array_like, optional
        The row of z of each class, 0 to Q - 1, as `classes.query_index` has it. By default one
        query for all.
    weight : array_like, optional
        How often each class is drawn, P(n); 1/K by default.
    target : array_like, optional
        The label of each class, numbered from 0 without gaps. By default each class has its own, or
        what `SequenceClasses` have as next tokens.

    Returns
    -------
    Mixture
        The same, labelled.

    Examples
    --------
    >>> from attnlab.papers.joma.theory import mixture
    >>> mixture([[0.5, 0.5, 0], [0.5, 0, 0.5]]).wanted
    array([[1., 0.],
           [0., 1.]])
    """
    if isinstance(P, Mixture):
        return P
    weight = shares(P, weight)
    if target is None and isinstance(P, Classes):
        target = np.unique(P.next_token, return_inverse=True)[1]
    P, rows = contexts(P, psi)
    goal = np.arange(len(P)) if target is None else np.asarray(target)
    return Mixture(P, rows, class_weights(weight, len(P)), np.eye(int(goal.max()) + 1)[goal])


@dataclass(frozen=True)
class JointGradient:
    """One state of an MLP over attention, or several along leading axes; rates are left out.

    Attributes
    ----------
    attention
        b, (..., K, L).
    incoming
        g, (..., K, H).
    slope
        h', (..., K, H).
    shares
        u, the part of each query in the velocity of v, (..., Q, H, L).
    logits
        The velocity of z, (..., Q, L).
    query_weights
        That of r, (..., H, Q).
    pull
        S_n = q_n . b_n, (..., K).
    """

    attention: FloatArray
    incoming: FloatArray
    slope: FloatArray
    shares: FloatArray
    logits: FloatArray
    query_weights: FloatArray
    pull: FloatArray


def joint_gradient(
    P: Contexts | Mixture,
    v: ArrayLike,
    z: ArrayLike,
    *,
    r: ArrayLike | None = None,
    upper: ArrayLike | None = None,
    psi: ArrayLike | None = None,
    weight: ArrayLike | None = None,
    target: ArrayLike | None = None,
    attention: str = "softmax",
    activation: str = "linear",
    temperature: float = 1.0,
    incoming: ArrayLike | None = None,
) -> JointGradient:
    """The gradient of minus the loss in all weights of an MLP over attention.

    Parameters
    ----------
    P : array_like, SequenceClasses or Mixture
        P(l|n): a row for each class, a column for each contextual token, (K, L). `SequenceClasses`
        and a `Mixture` bring the following three with them.
    v : array_like
        Lower weights of the MLP, (..., H, L).
    z : array_like
        Attention logits, (..., Q, L).
    r : array_like, optional
        Weights of the queries, (..., H, Q); zero unless given.
    upper : array_like, optional
        Upper layer V, (..., H, J), if there is one.
    psi : array_like, optional
        The row of z of each class, 0 to Q - 1, as `classes.query_index` has it. By default one
        query for all.
    weight : array_like, optional
        How often each class is drawn, P(n); 1/K by default.
    target : array_like, optional
        The label of each class, numbered from 0 without gaps. By default each class has its own, or
        what `SequenceClasses` have as next tokens.
    attention : {"softmax", "exp", "linear"}
        What becomes of the logits.
    activation : {"linear", "relu", "gelu"}
        Of the hidden units.
    temperature : float, optional
        T, by which attention logits are divided.
    incoming : array_like, optional
        g, (K, H), where it does not follow the outputs.

    Returns
    -------
    JointGradient
        The state, and the velocities in it.

    Examples
    --------
    >>> import numpy as np
    >>> from attnlab.papers.joma.theory import joint_gradient
    >>> found = joint_gradient([[0.5, 0.5, 0], [0.5, 0, 0.5]], np.zeros((2, 3)), np.zeros((1, 3)))
    >>> found.shares.sum(0)  # what moves v: Delta
    array([[ 0.   ,  0.125, -0.125],
           [ 0.   , -0.125,  0.125]])
    """
    s = mixture(P, psi=psi, weight=weight, target=target)
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
        logits=s.by_query(back),
        query_weights=np.swapaxes(s.by_query(felt), -1, -2),
        pull=pull,
    )


def attend(
    s: Mixture, z: FloatArray, *, attention: str = "softmax", temperature: float = 1.0
) -> FloatArray:
    """b of each class: what it attends to.

    Parameters
    ----------
    s : Mixture
        Labelled classes (`mixture`).
    z : ndarray
        Attention logits, (..., Q, L).
    attention : {"softmax", "exp", "linear"}
        What becomes of the logits.
    temperature : float, optional
        T, by which attention logits are divided.

    Returns
    -------
    ndarray
        b, (..., K, L).

    Examples
    --------
    >>> import numpy as np
    >>> from attnlab.papers.joma.theory import attend, mixture
    >>> attend(mixture([[0.5, 0.5, 0], [0.5, 0, 0.5]]), np.zeros((1, 3)))
    array([[0.5, 0.5, 0. ],
           [0.5, 0. , 0.5]])
    """
    if attention not in KINDS:
        raise InputError(f"attention must be one of {', '.join(KINDS)}; got {attention!r}")
    if attention == "softmax":
        return attention_weights(s.P, z / temperature, psi=s.rows)
    sigma = np.exp(z / temperature) if attention == "exp" else z / temperature
    return np.asarray(s.P * sigma[..., s.rows, :])


def mean_attention(s: Mixture, b: FloatArray) -> FloatArray:
    """b-bar_m = E[b | m], the attention of a query on average over its classes.

    Parameters
    ----------
    s : Mixture
        Labelled classes (`mixture`).
    b : ndarray
        Attention of each class, (..., K, L).

    Returns
    -------
    ndarray
        b-bar, (..., Q, L).

    Examples
    --------
    >>> from attnlab.papers.joma.theory import mean_attention, mixture
    >>> s = mixture([[0.5, 0.5, 0], [0.5, 0, 0.5]])
    >>> mean_attention(s, s.P)
    array([[0.5 , 0.25, 0.25]])
    """
    return np.asarray(s.by_query(b) / s.owner.sum(0)[:, None])


def _errors(s: Mixture, logits: FloatArray) -> FloatArray:
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

"""Contextual tokens: attention (Eq. 5), roles (Section 3.2), and gradients in Y and Z (Lemma 1)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from attnlab.files.errors import InputError
from attnlab.formulas.checks import FloatArray, IntArray
from attnlab.formulas.setting import Setting, SettingLike


class Roles(NamedTuple):
    """The roles of tokens (Section 3.2).

    common: for each token l, whether it is in G_CT, (L,).
    distinct: for each class n and token l, whether l is in G_DT(n), (K, L).
    """

    common: NDArray[np.bool_]
    distinct: NDArray[np.bool_]


def log_scores(setting: SettingLike, z: ArrayLike | None = None) -> FloatArray:
    """Return ln c~_{l|n} = ln P(l|n) + z_{psi(n) l}, (..., K, L); -inf where P is 0."""
    s = Setting.of(setting)
    if z is None:
        return s.log_p
    z = np.atleast_2d(np.asarray(z, dtype=np.float64))
    if z.shape[-1] != s.L or z.shape[-2] <= s.rows.max():
        raise InputError(
            f"z must have a row for each query in psi and {s.L} columns; got {z.shape}"
        )
    if s.psi is None and z.shape[-2] > 1:
        raise InputError(f"psi: z has {z.shape[-2]} rows; say which of them each class has")
    return np.asarray(s.log_p + z[..., s.rows, :])


def attention_weights(setting: SettingLike, z: ArrayLike | None = None) -> FloatArray:
    """c_{l|n} of Eq. 5, the attention that class n pays to token l when T is infinite.

    By Lemma 2 and Lemma 18 a finite sequence has the same form with its token frequencies for P.
    Returns c, (..., K, L); a class sums to 1.

    >>> attention_weights([[0.5, 0.5, 0], [0.5, 0, 0.5]], [-1.0, 1.0, 1.0]).round(3)
    array([[0.119, 0.881, 0.   ],
           [0.119, 0.   , 0.881]])
    """
    score = log_scores(setting, z)
    weight = np.exp(score - score.max(-1, keepdims=True))
    return np.asarray(weight / weight.sum(-1, keepdims=True))


def unit_attention(setting: SettingLike, z: ArrayLike | None = None) -> FloatArray:
    """f_n = c_n / |c_n| of Eq. 7, one row per class (the paper's F has them as columns).

    Returns f, (..., K, L); a class has norm 1.

    >>> unit_attention([[0.6, 0.8, 0], [0.6, 0, 0.8]])
    array([[0.6, 0.8, 0. ],
           [0.6, 0. , 0.8]])
    """
    return unit_rows(log_scores(setting, z))


def unit_rows(score: FloatArray) -> FloatArray:
    """Return c/|c| of scores ln c~, (..., K, L); `unit_attention` computes the scores too."""
    weight = np.exp(score - score.max(-1, keepdims=True))
    return np.asarray(weight / np.linalg.norm(weight, axis=-1, keepdims=True))


def token_roles(setting: SettingLike) -> Roles:
    """Global roles: a token is distinct if exactly one class has it, common if several do.

    >>> token_roles([[0.5, 0.5, 0], [0.5, 0, 0.5]]).common
    array([ True, False, False])
    """
    present = Setting.of(setting).P > 0
    classes = np.asarray(present.sum(0))
    return Roles(np.asarray(classes > 1), present & (classes == 1))


def by_query(terms: FloatArray, rows: IntArray, Q: int) -> FloatArray:
    """Sum the terms of the classes that share a query: (..., K, L) to (..., Q, L)."""
    members = (np.arange(Q)[:, None] == rows).astype(np.float64)
    return np.asarray(members @ terms)


# -- Lemma 1: gradients in Y and Z (Eqs. 3 and 4), an oracle independent of autodiff --------------


class SampleGradient(NamedTuple):
    """Directions of ascent of one sample, in units of the learning rates.

    A batch-1 optimizer step adds eta_Y and eta_Z times these.

    decoder: for Y, (L, outputs).
    logits: for z_m, (L,).
    """

    decoder: FloatArray
    logits: FloatArray


def logit_gradient(f: ArrayLike, g: ArrayLike) -> FloatArray:
    """Return diag(f) (I - f f^T) g, Eq. 4 for a back-propagated gradient g.

    Eq. 4 has diag(c) P_c^perp / |c|, which is the same thing because f = c/|c|. Returns what moves
    the logits, (..., L).

    Parameters
    ----------
    f : array_like
        Attention with norm 1, (..., L).
    g : array_like
        The gradient that arrives, (..., L); rows pair with rows.

    Examples
    --------
    >>> logit_gradient([0.6, 0.8], [1.0, 0.0]).round(3)
    array([ 0.384, -0.384])
    """
    f = np.asarray(f, dtype=np.float64)
    g = np.asarray(g, dtype=np.float64)
    return np.asarray(f * (g - f * (f * g).sum(-1, keepdims=True)))


def sample_gradient(q: ArrayLike, z: ArrayLike, Y: ArrayLike, *, target: int) -> SampleGradient:
    """Lemma 1 for one sequence: the gradient of its log-likelihood in Y and in row z_m of Z.

    X^T b is the attention of Eq. 5 with q for P, and X^T diag(b) X its diagonal matrix (Eqs. 20 and
    22), with no approximation at finite T. Returns both in units of the learning rates.

    Parameters
    ----------
    q : array_like
        Frequencies of the L tokens among the T - 1 contextual ones (Eq. 137), or P(.|m, n) for T
        infinite.
    z : array_like
        Row m of Z, (L,).
    Y : array_like
        The decoder, tokens to outputs, (L, outputs).
    target : int
        x_{T+1}.

    Examples
    --------
    >>> found = sample_gradient([0.5, 0.5], [0.0, 0.0], np.eye(2), target=0)
    >>> found.logits.round(3)
    array([ 0.354, -0.354])
    """
    Y = np.asarray(Y, dtype=np.float64)
    c = attention_weights(np.atleast_2d(q), z)[0]
    f = c / np.linalg.norm(c)
    error = -scipy.special.softmax(Y.T @ f)
    error[target] += 1.0
    return SampleGradient(np.outer(f, error), logit_gradient(f, Y @ error))

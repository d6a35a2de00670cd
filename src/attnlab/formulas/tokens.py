"""Contextual tokens: how much attention each gets (Eq. 5) and which role it plays (Section 3.2)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
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
    """ln c~_{l|n} = ln P(l|n) + z_{psi(n) l}, shape (..., K, L); -inf where P is 0."""
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
    """c/|c| of scores ln c~, (..., K, L): `unit_attention` for whoever has them."""
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

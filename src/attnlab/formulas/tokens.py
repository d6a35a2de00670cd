"""Contextual tokens: how much attention each gets (Eq. 5) and which role it plays (Section 3.2).

P holds P(l|n), one row per class and one column per contextual token; rows need not sum to one,
because every formula normalises. z holds attention logits, one row per query; psi gives each
class its row of z. z may have leading axes (times, heads), which the results keep.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnlab.files.errors import InputError
from attnlab.formulas.checks import (
    Classes,
    Contexts,
    FloatArray,
    IntArray,
    contexts,
    probabilities,
)


class Roles(NamedTuple):
    """The roles of tokens (Section 3.2).

    Attributes
    ----------
    common
        For each token l, whether it is in G_CT, (L,).
    distinct
        For each class n and token l, whether l is in G_DT(n), (K, L).
    """

    common: NDArray[np.bool_]
    distinct: NDArray[np.bool_]


def log_scores(
    P: Contexts, z: ArrayLike | None = None, *, psi: ArrayLike | None = None
) -> FloatArray:
    """ln c~_{l|n} = ln P(l|n) + z_{psi(n) l}, shape (..., K, L); -inf where P is 0."""
    known = psi is not None or isinstance(P, Classes)
    P, rows = contexts(P, psi)
    with np.errstate(divide="ignore"):
        log_p = np.log(P)
    if z is None:
        return log_p
    z = np.atleast_2d(np.asarray(z, dtype=np.float64))
    if z.shape[-1] != P.shape[1] or z.shape[-2] <= rows.max():
        raise InputError(
            f"z must have a row for each query in psi and {P.shape[1]} columns; got {z.shape}"
        )
    if not known and z.shape[-2] > 1:
        raise InputError(f"psi: z has {z.shape[-2]} rows; say which of them each class has")
    return np.asarray(log_p + z[..., rows, :])


def attention_weights(
    P: Contexts, z: ArrayLike | None = None, *, psi: ArrayLike | None = None
) -> FloatArray:
    """c_{l|n} of Eq. 5, the attention that class n pays to token l when T is infinite.

    By Lemma 2 and Lemma 18 a finite sequence has the same form with its token frequencies for P.

    Parameters
    ----------
    P : array_like or SequenceClasses
        P(l|n): a row for each class, a column for each contextual token, (K, L). `SequenceClasses`
        bring psi, M and the shares of the classes with them.
    z : array_like, optional
        Attention logits, a row for each query, (..., Q, L). By default zero.
    psi : array_like, optional
        The row of z of each class, 0 to Q - 1, as `classes.query_index` has it. By default one
        query for all.

    Returns
    -------
    ndarray
        c, (..., K, L); a class sums to 1.

    Examples
    --------
    >>> from attnlab.formulas import attention_weights
    >>> attention_weights([[0.5, 0.5, 0], [0.5, 0, 0.5]], [-1.0, 1.0, 1.0]).round(3)
    array([[0.119, 0.881, 0.   ],
           [0.119, 0.   , 0.881]])
    """
    score = log_scores(P, z, psi=psi)
    weight = np.exp(score - score.max(-1, keepdims=True))
    return np.asarray(weight / weight.sum(-1, keepdims=True))


def unit_attention(
    P: Contexts, z: ArrayLike | None = None, *, psi: ArrayLike | None = None
) -> FloatArray:
    """f_n = c_n / |c_n| of Eq. 7, one row per class (the paper's F has them as columns).

    Parameters
    ----------
    P : array_like or SequenceClasses
        P(l|n): a row for each class, a column for each contextual token, (K, L). `SequenceClasses`
        bring psi, M and the shares of the classes with them.
    z : array_like, optional
        Attention logits, a row for each query, (..., Q, L). By default zero.
    psi : array_like, optional
        The row of z of each class, 0 to Q - 1, as `classes.query_index` has it. By default one
        query for all.

    Returns
    -------
    ndarray
        f, (..., K, L); a class has norm 1.

    Examples
    --------
    >>> from attnlab.formulas import unit_attention
    >>> unit_attention([[0.6, 0.8, 0], [0.6, 0, 0.8]])
    array([[0.6, 0.8, 0. ],
           [0.6, 0. , 0.8]])
    """
    return unit_rows(log_scores(P, z, psi=psi))


def unit_rows(score: FloatArray) -> FloatArray:
    """c/|c| of scores ln c~, (..., K, L): `unit_attention` for whoever has them."""
    weight = np.exp(score - score.max(-1, keepdims=True))
    return np.asarray(weight / np.linalg.norm(weight, axis=-1, keepdims=True))


def token_roles(P: Contexts) -> Roles:
    """Global roles: a token is distinct if exactly one class has it, common if several do.

    Parameters
    ----------
    P : array_like or SequenceClasses
        P(l|n): a row for each class, a column for each contextual token, (K, L). `SequenceClasses`
        bring psi, M and the shares of the classes with them.

    Returns
    -------
    Roles
        The roles of all tokens.

    Examples
    --------
    >>> from attnlab.formulas import token_roles
    >>> token_roles([[0.5, 0.5, 0], [0.5, 0, 0.5]]).common
    array([ True, False, False])
    """
    present = probabilities(P) > 0
    classes = np.asarray(present.sum(0))
    return Roles(np.asarray(classes > 1), present & (classes == 1))


def by_query(terms: FloatArray, rows: IntArray, Q: int) -> FloatArray:
    """Sum the terms of the classes that share a query: (..., K, L) to (..., Q, L)."""
    members = (np.arange(Q)[:, None] == rows).astype(np.float64)
    return np.asarray(members @ terms)

"""Sections 3 and 7, made precise: LayerNorm, residual connection, positions, several heads."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnlab.files.errors import InputError
from attnlab.theory._check import (
    Contexts,
    FloatArray,
    IntArray,
    contexts,
    count_queries,
    is_printed,
    query_rows,
    shares,
    vocabulary,
)
from attnlab.theory.scan_and_snap.attention import (
    AttentionFlow,
    attention_flow,
    by_query,
    class_velocity,
    class_weights,
)
from attnlab.theory.scan_and_snap.coefficients import beta
from attnlab.theory.scan_and_snap.correlations import gram
from attnlab.theory.scan_and_snap.tokens import (
    attention_weights,
    log_scores,
    token_roles,
    unit_attention,
)


class LocalRoles(NamedTuple):
    """Roles within each query, as in Section 7.

    Attributes
    ----------
    common
        For each query m and token l, (Q, L).
    distinct
        For each class n and token l, (K, L).
    """

    common: NDArray[np.bool_]
    distinct: NDArray[np.bool_]


def local_roles(P: Contexts, *, psi: ArrayLike | None = None) -> LocalRoles:
    """Distinct and common tokens within psi^-1(m), the classes that share query m (Section 7).

    Parameters
    ----------
    P : array_like or SequenceClasses
        P(l|n): a row for each class, a column for each contextual token, (K, L). `SequenceClasses`
        bring psi, M and the shares of the classes with them.
    psi : array_like, optional
        The row of z of each class, 0 to Q - 1, as `classes.query_index` has it. By default one
        query for all.

    Returns
    -------
    LocalRoles
        The roles.

    Examples
    --------
    >>> from attnlab.theory import local_roles
    >>> local_roles([[0.5, 0.5, 0], [0.5, 0, 0.5]], psi=[0, 1]).common  # two queries
    array([[False, False, False],
           [False, False, False]])
    """
    P, rows = contexts(P, psi)
    present = P > 0
    count = by_query(present.astype(np.float64), rows, count_queries(rows))
    return LocalRoles(count > 1, present & (count[rows] == 1))


def residual_correlation(E: ArrayLike, *, psi: ArrayLike | None = None) -> FloatArray:
    """E of the decoder's input when the query is added: f-bar_n = (f_n + e_psi(n)) / sqrt 2.

    Off the diagonal it is (E_nn' + 1[psi(n) = psi(n')]) / 2, for query tokens that do not occur as
    context. Classes of one query are thus at least 1/2 correlated: Assumption 2 fails as soon as
    two classes share a query.

    Parameters
    ----------
    E : array_like
        Correlations between the classes, (..., K, K), with 0 on the diagonal (`correlation`).
    psi : array_like, optional
        The row of z of each class, 0 to Q - 1, as `classes.query_index` has it. By default one
        query for all.

    Returns
    -------
    ndarray
        E-bar, (..., K, K).

    Examples
    --------
    >>> from attnlab.theory import residual_correlation
    >>> residual_correlation([[0.0, 0.1], [0.1, 0.0]])
    array([[0.  , 0.55],
           [0.55, 0.  ]])
    """
    E = np.asarray(E, dtype=np.float64)
    rows = query_rows(psi, E.shape[-1])
    shared = (rows[:, None] == rows).astype(np.float64)
    np.fill_diagonal(shared, 0.0)
    return np.asarray((E + shared) / 2.0)


def residual_beta(
    E: ArrayLike, *, psi: ArrayLike | None = None, M: float, form: str = "corrected"
) -> FloatArray:
    """The beta_nn' that takes Eq. 10's place when there is a residual connection (Section 7).

    Printed: f_n.f_n' + 1 for classes of one query and 0 otherwise (the "much larger" terms kept,
    the others dropped, as in Section 7's g). Corrected: half of Eq. 88 at `residual_correlation`.
    The half comes from the two normalisations, and Eq. 10 holds with this beta exactly under the
    modified update of the decoder. Across queries it is neither 0 nor always positive, because
    E-bar is not small; so roles within a query do not decide a token's fate by themselves.

    Parameters
    ----------
    E : array_like
        Correlations between the classes, (..., K, K), with 0 on the diagonal (`correlation`).
    psi : array_like, optional
        The row of z of each class, 0 to Q - 1, as `classes.query_index` has it. By default one
        query for all.
    M : float
        Size of the vocabulary.
    form : {"corrected", "printed"}
        Our correction, or the paper as printed.

    Returns
    -------
    ndarray
        beta in units of gamma, (..., K, K).

    Examples
    --------
    >>> from attnlab.theory import residual_beta
    >>> residual_beta([[0.0, 0.1], [0.1, 0.0]], M=1000).round(3)
    array([[0.   , 0.395],
           [0.395, 0.   ]])
    """
    E = np.asarray(E, dtype=np.float64)
    if not is_printed(form):
        return np.asarray(beta(residual_correlation(E, psi=psi), M=M) / 2.0)
    rows = query_rows(psi, E.shape[-1])
    shared = (rows[:, None] == rows).astype(np.float64)
    np.fill_diagonal(shared, 0.0)
    return np.asarray(shared * (E + 1.0))


def residual_velocity(
    P: Contexts,
    z: ArrayLike,
    *,
    psi: ArrayLike | None = None,
    M: float | None = None,
    weight: ArrayLike | None = None,
    form: str = "corrected",
) -> FloatArray:
    """dz/dtau with a residual connection: `attention_velocity` with `residual_beta`.

    Parameters
    ----------
    P : array_like or SequenceClasses
        P(l|n): a row for each class, a column for each contextual token, (K, L). `SequenceClasses`
        bring psi, M and the shares of the classes with them.
    z : array_like
        Attention logits, a row for each query, (..., Q, L). By default zero.
    psi : array_like, optional
        The row of z of each class, 0 to Q - 1, as `classes.query_index` has it. By default one
        query for all.
    M : float, optional
        Size of the vocabulary; `SequenceClasses` know it.
    weight : array_like, optional
        The class weight. As printed it is 1; but of t batch-1 steps class n gets only the share
        P(n), so that Eq. 10 needs the factor P(n) = 1/K when t counts steps, and that is the
        default.
    form : {"corrected", "printed"}
        Our correction, or the paper as printed.

    Returns
    -------
    ndarray
        The velocity, in the shape of z.

    Examples
    --------
    >>> from attnlab.theory import residual_velocity
    >>> residual_velocity([[0.5, 0.5, 0], [0.5, 0, 0.5]], [0, 0, 0], M=100).round(3)
    array([[-0.219,  0.11 ,  0.11 ]])
    """
    M, weight = vocabulary(P, M), shares(P, weight)
    P, rows = contexts(P, psi)
    z = np.atleast_2d(np.asarray(z, dtype=np.float64))
    f = unit_attention(P, z, psi=rows)
    terms = class_velocity(f, residual_beta(gram(f), psi=rows, M=M, form=form))
    return by_query(class_weights(weight, len(P))[:, None] * terms, rows, z.shape[-2])


def centred_attention(
    P: Contexts,
    z: ArrayLike | None = None,
    *,
    psi: ArrayLike | None = None,
    M: float | None = None,
) -> FloatArray:
    """f_n = (c_n - 1/M)/|c_n - 1/M| over all M tokens, of which P has the first.

    What standard LayerNorm makes of attention, up to the constant sqrt(M) (Section 3).

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
    M : float, optional
        Size of the vocabulary; `SequenceClasses` know it.

    Returns
    -------
    ndarray
        f, (..., K, M).

    Examples
    --------
    >>> from attnlab.theory import centred_attention
    >>> centred_attention([[0.5, 0.5]], M=4)
    array([[ 0.5,  0.5, -0.5, -0.5]])
    """
    M = vocabulary(P, M)
    c = attention_weights(P, z, psi=psi)
    spare = int(M) - c.shape[-1]
    if spare < 0:
        raise InputError(f"M must be at least the number of tokens in P, {c.shape[-1]}; got {M}")
    padded = np.concatenate([c, np.zeros((*c.shape[:-1], spare))], axis=-1) - 1.0 / M
    return np.asarray(padded / np.linalg.norm(padded, axis=-1, keepdims=True))


def centred_velocity(
    P: Contexts,
    z: ArrayLike,
    *,
    psi: ArrayLike | None = None,
    M: float | None = None,
    weight: ArrayLike | None = None,
) -> FloatArray:
    """dz/dtau under standard LayerNorm: Eq. 10 with `centred_attention`.

    diag(c_n)/|c_n - 1/M| stands in the place of diag(f_n). (The softmax's own -c c^T vanishes as it
    does in Lemma 1, because what it meets has zero sum.)

    Parameters
    ----------
    P : array_like or SequenceClasses
        P(l|n): a row for each class, a column for each contextual token, (K, L). `SequenceClasses`
        bring psi, M and the shares of the classes with them.
    z : array_like
        Attention logits, a row for each query, (..., Q, L). By default zero.
    psi : array_like, optional
        The row of z of each class, 0 to Q - 1, as `classes.query_index` has it. By default one
        query for all.
    M : float, optional
        Size of the vocabulary; `SequenceClasses` know it.
    weight : array_like, optional
        The class weight. As printed it is 1; but of t batch-1 steps class n gets only the share
        P(n), so that Eq. 10 needs the factor P(n) = 1/K when t counts steps, and that is the
        default.

    Returns
    -------
    ndarray
        The velocity, in the shape of z.

    Examples
    --------
    >>> from attnlab.theory import centred_velocity
    >>> centred_velocity([[0.5, 0.5, 0], [0.5, 0, 0.5]], [0, 0, 0], M=100).round(3)
    array([[-0.169,  0.085,  0.085]])
    """
    M, weight = vocabulary(P, M), shares(P, weight)
    P, rows = contexts(P, psi)
    K, L = P.shape
    z = np.atleast_2d(np.asarray(z, dtype=np.float64))
    f = centred_attention(P, z, psi=rows, M=M)
    E = gram(f)
    b = beta(E, M=M)
    c = attention_weights(P, z, psi=rows)
    size = np.sqrt((c**2).sum(-1, keepdims=True) - 1.0 / M)
    seen = f[..., :L]
    terms = c / size * ((b * E).sum(-1)[..., None] * seen - b @ seen)
    return by_query(class_weights(weight, K)[:, None] * terms, rows, z.shape[-2])


def logit_prior(P: Contexts, bias: ArrayLike, *, psi: ArrayLike | None = None) -> FloatArray:
    """P(l|n) exp(bias_l), normalised: the P for which the start z0 = bias is the start z0 = 0.

    A bias z_0 added to the logits (Section 7) is a prior on tokens: the flow from z0 = bias is the
    flow of these probabilities from 0, plus bias.

    Parameters
    ----------
    P : array_like or SequenceClasses
        P(l|n): a row for each class, a column for each contextual token, (K, L). `SequenceClasses`
        bring psi, M and the shares of the classes with them.
    bias : array_like
        The bias, a row for each query, (..., Q, L).
    psi : array_like, optional
        The row of z of each class, 0 to Q - 1, as `classes.query_index` has it. By default one
        query for all.

    Returns
    -------
    ndarray
        Probabilities, (..., K, L).

    Examples
    --------
    >>> import numpy as np
    >>> from attnlab.theory import logit_prior
    >>> logit_prior([[0.5, 0.5]], [np.log(3.0), 0.0]).round(3)
    array([[0.75, 0.25]])
    """
    score = log_scores(P, bias, psi=psi)
    weight = np.exp(score - score.max(-1, keepdims=True))
    return np.asarray(weight / weight.sum(-1, keepdims=True))


def position_prior(P: Contexts, bias: ArrayLike) -> FloatArray:
    """What a relative-position bias (T5, ALiBi) makes of P when T is infinite.

    The result, sum_r P_r exp(bias_r) normalised, takes the place of P(l|n) everywhere. So a
    position bias is a prior on tokens only where tokens depend on the position: if P is the same at
    all positions it changes nothing.

    Parameters
    ----------
    P : array_like
        The token probabilities at each of R relative positions (or bands of them), (R, K, L).
    bias : array_like
        The bias of each position, (R,).

    Returns
    -------
    ndarray
        P, (K, L).

    Examples
    --------
    >>> from attnlab.theory import position_prior
    >>> position_prior([[[1.0, 0.0]], [[0.5, 0.5]]], [0.0, 0.0])
    array([[0.75, 0.25]])
    """
    P = np.asarray(P, dtype=np.float64)
    bias = np.asarray(bias, dtype=np.float64)
    if P.ndim != 3 or bias.shape != P.shape[:1]:
        raise InputError(
            f"P must be (positions, K, L), bias (positions,); got {P.shape}, {bias.shape}"
        )
    mixed = np.tensordot(np.exp(bias - bias.max()), P, axes=1)
    return np.asarray(mixed / mixed.sum(-1, keepdims=True))


def dominant_tokens(
    P: Contexts, z0: ArrayLike | None = None, *, psi: ArrayLike | None = None
) -> IntArray:
    """The distinct token that Theorem 3 lets win in each class: argmax of P(l|n) exp(z0_l).

    Parameters
    ----------
    P : array_like or SequenceClasses
        P(l|n): a row for each class, a column for each contextual token, (K, L). `SequenceClasses`
        bring psi, M and the shares of the classes with them.
    z0 : array_like, optional
        Logits at the start, (..., Q, L), with leading axes for heads. By default zero.
    psi : array_like, optional
        The row of z of each class, 0 to Q - 1, as `classes.query_index` has it. By default one
        query for all.

    Returns
    -------
    IntArray
        Tokens, (..., K); -1 for a class without distinct ones.

    Examples
    --------
    >>> from attnlab.theory import dominant_tokens
    >>> dominant_tokens([[0.4, 0.2, 0.4, 0.0], [0.5, 0.0, 0.0, 0.5]])
    array([2, 3])
    """
    distinct = token_roles(P).distinct
    score = np.where(distinct, log_scores(P, z0, psi=psi), -np.inf)
    return np.asarray(np.where(distinct.any(-1), score.argmax(-1), -1))


def head_flows(
    P: Contexts,
    t: ArrayLike,
    *,
    z0: ArrayLike,
    psi: ArrayLike | None = None,
    M: float | None = None,
    eta_y: float,
    eta_z: float,
    weight: ArrayLike | None = None,
) -> tuple[AttentionFlow, ...]:
    """Several heads as one head started in different places (Sections 3 and 5).

    Each head evolves as if it had the decoder to itself: that is the paper's reading, not a
    property of a transformer whose heads share a decoder.

    Parameters
    ----------
    P : array_like or SequenceClasses
        P(l|n): a row for each class, a column for each contextual token, (K, L). `SequenceClasses`
        bring psi, M and the shares of the classes with them.
    t : array_like
        Batch-1 optimiser steps.
    z0 : array_like
        Logits at the start, (heads, Q, L).
    psi : array_like, optional
        The row of z of each class, 0 to Q - 1, as `classes.query_index` has it. By default one
        query for all.
    M : float, optional
        Size of the vocabulary; `SequenceClasses` know it.
    eta_y : float
        Rate of the decoder.
    eta_z : float
        Rate of attention.
    weight : array_like, optional
        The class weight. As printed it is 1; but of t batch-1 steps class n gets only the share
        P(n), so that Eq. 10 needs the factor P(n) = 1/K when t counts steps, and that is the
        default.

    Returns
    -------
    tuple of AttentionFlow
        One flow for each head.

    Examples
    --------
    >>> import numpy as np
    >>> from attnlab.theory import head_flows
    >>> P = [[0.5, 0.5, 0], [0.5, 0, 0.5]]
    >>> flows = head_flows(P, 100.0, z0=np.zeros((2, 1, 3)), M=100, eta_y=1.0, eta_z=0.1)
    >>> len(flows)
    2
    """
    starts = np.asarray(z0, dtype=np.float64)
    if starts.ndim != 3:
        raise InputError(f"z0 must be (heads, queries, tokens); got {starts.shape}")
    return tuple(
        attention_flow(P, t, psi=psi, M=M, eta_y=eta_y, eta_z=eta_z, z0=start, weight=weight)
        for start in starts
    )

"""Sections 5 and 7: what is added to z is a prior on tokens: a bias, positions, heads."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from attnlab.files.errors import InputError
from attnlab.formulas.checks import Contexts, FloatArray, IntArray
from attnlab.formulas.tokens import log_scores, token_roles
from attnlab.papers.scan_and_snap.theory.attention import AttentionFlow, attention_flow


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
    >>> from attnlab.papers.scan_and_snap.theory import logit_prior
    >>> logit_prior([[0.5, 0.5]], [np.log(3.0), 0.0]).round(3)
    array([[0.75, 0.25]])
    """
    score = log_scores(P, bias, psi=psi)
    weight = np.exp(score - score.max(-1, keepdims=True))
    return np.asarray(weight / weight.sum(-1, keepdims=True))


def position_prior(P: Contexts, bias: ArrayLike) -> FloatArray:
    """Return what a relative-position bias (T5, ALiBi) makes of P in the mean over sequences.

    The result, sum_r P_r exp(bias_r) normalised, takes the place of P(l|n) where no position keeps
    weight of its own as T grows, as for bands of positions that grow with T. Then a position bias
    is a prior on tokens only where tokens depend on the position: if P is the same at all positions
    it changes nothing. A bias that falls off with distance keeps its weight on few positions at any
    T (ALiBi of slope s on coth(s/2) of them), so that attention in one sequence stays random.

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
    >>> from attnlab.papers.scan_and_snap.theory import position_prior
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
    >>> from attnlab.papers.scan_and_snap.theory import dominant_tokens
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
    >>> from attnlab.papers.scan_and_snap.theory import head_flows
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

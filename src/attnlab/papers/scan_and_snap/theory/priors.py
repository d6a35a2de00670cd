"""Sections 5 and 7: what is added to z is a prior on tokens: a bias, positions, heads."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from attnlab.files.errors import InputError
from attnlab.formulas.checks import FloatArray, IntArray
from attnlab.formulas.setting import Setting, SettingLike
from attnlab.formulas.tokens import attention_weights, log_scores, token_roles
from attnlab.papers.scan_and_snap.theory.attention import AttentionFlow, attention_flow


def logit_prior(setting: SettingLike, bias: ArrayLike) -> FloatArray:
    """P(l|n) exp(bias_l), normalised: the P for which the start z0 = bias is the start z0 = 0.

    A bias z_0 added to the logits (Section 7) is a prior on tokens: the flow from z0 = bias is the
    flow of these probabilities from 0, plus bias. Returns probabilities, (..., K, L).

    Parameters
    ----------
    bias : array_like
        The bias, a row for each query, (..., Q, L).

    Examples
    --------
    >>> logit_prior([[0.5, 0.5]], [np.log(3.0), 0.0]).round(3)
    array([[0.75, 0.25]])
    """
    return attention_weights(setting, bias)


def position_prior(P: ArrayLike, bias: ArrayLike) -> FloatArray:
    """Return what a relative-position bias (T5, ALiBi) makes of P in the mean over sequences.

    The result, sum_r P_r exp(bias_r) normalised, takes the place of P(l|n) where no position keeps
    weight of its own as T grows, as for bands of positions that grow with T. Then a position bias
    is a prior on tokens only where tokens depend on the position: if P is the same at all positions
    it changes nothing. A bias that falls off with distance keeps its weight on few positions at any
    T (ALiBi of slope s on coth(s/2) of them), so that attention in one sequence stays random.
    Returns P, (K, L).

    Parameters
    ----------
    P : array_like
        The token probabilities at each of R relative positions (or bands of them), (R, K, L).
    bias : array_like
        The bias of each position, (R,).

    Examples
    --------
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


def dominant_tokens(setting: SettingLike, z0: ArrayLike | None = None) -> IntArray:
    """The distinct token that Theorem 3 lets win in each class: argmax of P(l|n) exp(z0_l).

    Returns tokens, (..., K); -1 for a class without distinct ones.

    >>> dominant_tokens([[0.4, 0.2, 0.4, 0.0], [0.5, 0.0, 0.0, 0.5]])
    array([2, 3])
    """
    s = Setting.of(setting)
    distinct = token_roles(s).distinct
    score = np.where(distinct, log_scores(s, z0), -np.inf)
    return np.asarray(np.where(distinct.any(-1), score.argmax(-1), -1))


def head_flows(setting: SettingLike, t: ArrayLike, *, z0: ArrayLike) -> tuple[AttentionFlow, ...]:
    """Several heads as one head started in different places (Sections 3 and 5).

    Each head evolves as if it had the decoder to itself: that is the paper's reading, not a
    property of a transformer whose heads share a decoder.

    Parameters
    ----------
    z0 : array_like
        Logits at the start, (heads, Q, L).

    Examples
    --------
    >>> setting = Setting([[0.5, 0.5, 0], [0.5, 0, 0.5]], M=100, eta_y=1.0, eta_z=0.1)
    >>> len(head_flows(setting, 100.0, z0=np.zeros((2, 1, 3))))
    2
    """
    starts = np.asarray(z0, dtype=np.float64)
    if starts.ndim != 3:
        raise InputError(f"z0 must be (heads, queries, tokens); got {starts.shape}")
    return tuple(attention_flow(setting, t, z0=start) for start in starts)

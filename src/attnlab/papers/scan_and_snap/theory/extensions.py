"""Sections 3, 5 and 7: LayerNorm, a residual connection, and priors on tokens that add to z."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnlab.files.errors import InputError
from attnlab.formulas import Setting
from attnlab.formulas.checks import FloatArray, IntArray, is_printed
from attnlab.formulas.setting import SettingLike
from attnlab.formulas.tokens import (
    attention_weights,
    by_query,
    log_scores,
    token_roles,
    unit_attention,
)

from .attention import AttentionFlow, attention_flow, class_velocity
from .decoder import beta, correlation, gram


def centred_attention(setting: SettingLike, z: ArrayLike | None = None) -> FloatArray:
    """f_n = (c_n - 1/M)/|c_n - 1/M| over all M tokens, of which P has the first.

    What standard LayerNorm makes of attention, up to the constant sqrt(M) (Section 3). Returns f,
    (..., K, M).

    >>> centred_attention(Setting([[0.5, 0.5]], M=4))
    array([[ 0.5,  0.5, -0.5, -0.5]])
    """
    s = Setting.of(setting)
    M, c = s.vocab_size, attention_weights(s, z)
    spare = int(M) - c.shape[-1]
    if spare < 0:
        raise InputError(f"M must be at least the number of tokens in P, {c.shape[-1]}; got {M}")
    padded = np.concatenate([c, np.zeros((*c.shape[:-1], spare))], axis=-1) - 1.0 / M
    return np.asarray(padded / np.linalg.norm(padded, axis=-1, keepdims=True))


def centred_velocity(setting: SettingLike, z: ArrayLike) -> FloatArray:
    """dz/dtau under standard LayerNorm: Eq. 10 with `centred_attention`.

    diag(c_n)/|c_n - 1/M| stands in the place of diag(f_n). (The softmax's own -c c^T vanishes as it
    does in Lemma 1, because what it meets has zero sum.)

    >>> centred_velocity(Setting([[0.5, 0.5, 0], [0.5, 0, 0.5]], M=100), [0, 0, 0]).round(3)
    array([[-0.169,  0.085,  0.085]])
    """
    s = Setting.of(setting)
    z = np.atleast_2d(np.asarray(z, dtype=np.float64))
    f, c = centred_attention(s, z), attention_weights(s, z)
    E = gram(f)
    b = beta(E, M=s.vocab_size)
    size = np.sqrt((c**2).sum(-1, keepdims=True) - 1.0 / s.vocab_size)
    seen = f[..., : s.L]
    terms = c / size * ((b * E).sum(-1)[..., None] * seen - b @ seen)
    return by_query(s.share[:, None] * terms, s.rows, z.shape[-2])


class LocalRoles(NamedTuple):
    """Roles within each query, as in Section 7.

    common: for each query m and token l, (Q, L).
    distinct: for each class n and token l, (K, L).
    """

    common: NDArray[np.bool_]
    distinct: NDArray[np.bool_]


def local_roles(setting: SettingLike) -> LocalRoles:
    """Distinct and common tokens within psi^-1(m), the classes that share query m (Section 7).

    >>> local_roles(Setting([[0.5, 0.5, 0], [0.5, 0, 0.5]], psi=[0, 1])).common  # two queries
    array([[False, False, False],
           [False, False, False]])
    """
    s = Setting.of(setting)
    present = s.P > 0
    count = by_query(present.astype(np.float64), s.rows, s.Q)
    return LocalRoles(count > 1, present & (count[s.rows] == 1))


def residual_correlation(setting: SettingLike, z: ArrayLike | None = None) -> FloatArray:
    """E of the decoder's input when the query is added: f-bar_n = (f_n + e_psi(n)) / sqrt 2.

    Off the diagonal it is (E_nn' + 1[psi(n) = psi(n')]) / 2, for query tokens that do not occur as
    context. Classes of one query are thus at least 1/2 correlated: Assumption 2 fails as soon as
    two classes share a query. Returns E-bar, (..., K, K).

    >>> residual_correlation([[0.6, 0.8, 0], [0.6, 0, 0.8]]).round(2)
    array([[0.  , 0.68],
           [0.68, 0.  ]])
    """
    s = Setting.of(setting)
    return np.asarray((correlation(s, z) + _sharing(s)) / 2.0)


def residual_beta(
    setting: SettingLike, z: ArrayLike | None = None, *, form: str = "corrected"
) -> FloatArray:
    """Return the beta_nn' that Eq. 10 has with a residual connection (Section 7).

    Printed: f_n.f_n' + 1 for classes of one query and 0 otherwise (the "much larger" terms kept,
    the others dropped, as in Section 7's g). Corrected: half of Eq. 88 at `residual_correlation`.
    The half comes from the two normalisations, and Eq. 10 holds with this beta exactly under the
    modified update of the decoder. Across queries it is neither 0 nor always positive, because
    E-bar is not small; so roles within a query do not decide a token's fate by themselves.

    >>> residual_beta(Setting([[0.6, 0.8, 0], [0.6, 0, 0.8]], M=1000)).round(3)
    array([[0.   , 0.634],
           [0.634, 0.   ]])
    """
    s = Setting.of(setting)
    if is_printed(form):
        return np.asarray(_sharing(s) * (correlation(s, z) + 1.0))
    return np.asarray(beta(residual_correlation(s, z), M=s.vocab_size) / 2.0)


def _sharing(s: Setting) -> FloatArray:
    """1[psi(n) = psi(n')] off the diagonal, (K, K)."""
    shared = (s.rows[:, None] == s.rows).astype(np.float64)
    np.fill_diagonal(shared, 0.0)
    return shared


def residual_velocity(setting: SettingLike, z: ArrayLike, *, form: str = "corrected") -> FloatArray:
    """dz/dtau with a residual connection: `attention_velocity` with `residual_beta`.

    >>> residual_velocity(Setting([[0.5, 0.5, 0], [0.5, 0, 0.5]], M=100), [0, 0, 0]).round(3)
    array([[-0.219,  0.11 ,  0.11 ]])
    """
    s = Setting.of(setting)
    z = np.atleast_2d(np.asarray(z, dtype=np.float64))
    terms = class_velocity(unit_attention(s, z), residual_beta(s, z, form=form))
    return by_query(s.share[:, None] * terms, s.rows, z.shape[-2])


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
    """Return the distinct token that Theorem 3 lets win in each class: argmax of P(l|n) exp(z0_l).

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

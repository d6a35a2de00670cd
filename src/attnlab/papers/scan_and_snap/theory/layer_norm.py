"""Section 3: LayerNorm with the mean subtracted, as the analysis is extended to it."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from attnlab.files.errors import InputError
from attnlab.formulas.checks import (
    Contexts,
    FloatArray,
    class_weights,
    contexts,
    shares,
    vocabulary,
)
from attnlab.formulas.tokens import attention_weights, by_query
from attnlab.papers.scan_and_snap.theory.coefficients import beta
from attnlab.papers.scan_and_snap.theory.correlations import gram


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
    >>> from attnlab.papers.scan_and_snap.theory import centred_attention
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
    >>> from attnlab.papers.scan_and_snap.theory import centred_velocity
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

"""Gradients of the 1-layer transformer in Y and Z (Lemma 1, Eqs. 3 and 4), written out by hand.

One sample at a time, in units of the learning rates: a batch-1 optimiser step adds eta_Y and eta_Z
times these. They are an oracle independent of automatic differentiation.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import ArrayLike

from attnlab.formulas.checks import FloatArray
from attnlab.formulas.tokens import attention_weights


class SampleGradient(NamedTuple):
    """Directions of ascent of one sample.

    decoder: for Y, (L, outputs).
    logits: for z_m, (L,).
    """

    decoder: FloatArray
    logits: FloatArray


def logit_gradient(f: ArrayLike, g: ArrayLike) -> FloatArray:
    """diag(f) (I - f f^T) g, what Eq. 4 does to a back-propagated gradient g.

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

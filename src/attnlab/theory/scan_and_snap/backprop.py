"""Gradients of the 1-layer transformer in Y and Z (Lemma 1, Eqs. 3 and 4), written out by hand.

One sample at a time, in units of the learning rates: a batch-1 optimiser step adds eta_Y and eta_Z
times these. They are an oracle independent of automatic differentiation.
"""

from typing import NamedTuple

import numpy as np
import scipy.special
from numpy.typing import ArrayLike

from attnlab.theory._check import FloatArray
from attnlab.theory.scan_and_snap.tokens import attention_weights


class SampleGradient(NamedTuple):
    """Ascent directions of one sample: `decoder` (L, outputs) for Y, `logits` (L,) for z_m."""

    decoder: FloatArray
    logits: FloatArray


def logit_gradient(f: ArrayLike, g: ArrayLike) -> FloatArray:
    """diag(f) (I - f f^T) g, what Eq. 4 does to a back-propagated gradient g; rows pair with rows.

    Eq. 4 has diag(c) P_c^perp / |c|, which is the same thing because f = c/|c|.
    """
    f = np.asarray(f, dtype=np.float64)
    g = np.asarray(g, dtype=np.float64)
    return np.asarray(f * (g - f * (f * g).sum(-1, keepdims=True)))


def sample_gradient(q: ArrayLike, z: ArrayLike, Y: ArrayLike, *, target: int) -> SampleGradient:
    """Lemma 1 for one sequence: the gradient of its log-likelihood in Y and in row z_m of Z.

    q holds the frequencies of the L tokens among the T - 1 contextual ones (Eq. 137), or
    P(.|m, n) for T infinite; z is row m of Z; Y maps tokens to outputs; `target` is x_{T+1}.
    X^T b is then the attention of Eq. 5 with q for P, and X^T diag(b) X its diagonal matrix
    (Eqs. 20 and 22), with no approximation at finite T.
    """
    Y = np.asarray(Y, dtype=np.float64)
    c = attention_weights(np.atleast_2d(q), z)[0]
    f = c / np.linalg.norm(c)
    error = -scipy.special.softmax(Y.T @ f)
    error[target] += 1.0
    return SampleGradient(np.outer(f, error), logit_gradient(f, Y @ error))

"""The stable rank of a matrix (JoMA, claim 4)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from attnlab.formulas.checks import FloatArray, unwrap


def stable_rank(W: ArrayLike) -> FloatArray:
    """|W|_F^2/|W|_2^2 over the last two axes, from 1 to the rank; nan for a zero matrix.

    Parameters
    ----------
    W : array_like
        Matrices, (..., m, n).

    Examples
    --------
    >>> float(stable_rank(np.diag([2.0, 1.0, 1.0])))
    1.5
    """
    sizes = np.linalg.svd(np.asarray(W, dtype=np.float64), compute_uv=False) ** 2
    with np.errstate(invalid="ignore"):
        return unwrap(sizes.sum(-1) / sizes.max(-1))

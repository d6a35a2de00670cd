"""The stable rank of a matrix (JoMA, claim 4)."""

import numpy as np
from numpy.typing import ArrayLike

from attnlab.theory._check import FloatArray, unwrap


def stable_rank(W: ArrayLike) -> FloatArray:
    """|W|_F^2/|W|_2^2 of the last two axes: from 1 to the rank; nan for a zero matrix."""
    sizes = np.linalg.svd(np.asarray(W, dtype=np.float64), compute_uv=False) ** 2
    with np.errstate(invalid="ignore"):
        return unwrap(sizes.sum(-1) / sizes.max(-1))

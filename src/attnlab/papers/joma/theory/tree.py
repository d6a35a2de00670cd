"""Co-occurrence on a tree of hidden binary latents (JoMA, claim 5)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from attnlab.files.errors import InputError
from attnlab.formulas.checks import FloatArray, at_least, unwrap


def tree_co_occurrence(
    H: ArrayLike, *, depth: int, rho: ArrayLike, rho_0: ArrayLike = 0.0
) -> FloatArray:
    """P(y_l = 1 | y_m = 1) of leaves whose lowest common ancestor is H levels up, below the root.

        1/2 (1 + rho^(2H) - 2 rho^(L-1) rho_0)/(1 - rho^(L-1) rho_0)

    Re-derived: with spins s = 1 - 2y, E[s_l] = rho^(L-1) rho_0 and E[s_l s_m] = rho^(2H). For H =
    L, under different children of the root, it does not hold: there the label makes the
    correlation.

    Parameters
    ----------
    H : array_like
        How many levels up, 0 to L - 1.
    depth : int
        L.
    rho : array_like
        An edge keeps its parent's value with probability (1 + rho)/2.
    rho_0 : array_like, optional
        The mean spin of the root's child above the two leaves, P(off) - P(on), over all labels.

    Examples
    --------
    >>> tree_co_occurrence([0, 1, 2], depth=3, rho=0.8).round(3)
    array([1.   , 0.82 , 0.705])
    """
    up = at_least("H", H, 0.0)
    if np.any(up >= depth):
        raise InputError(f"H must be below the depth {depth}; got {H!r}: the root is no latent")
    rho, mean = np.asarray(rho, dtype=np.float64), np.asarray(rho_0, dtype=np.float64)
    spin = rho ** (depth - 1) * mean
    return unwrap((1.0 + rho ** (2.0 * up) - 2.0 * spin) / (1.0 - spin) / 2.0)

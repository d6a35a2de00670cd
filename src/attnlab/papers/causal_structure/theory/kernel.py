r"""The kernel of the first gradient: what an earlier position tells about a later one.

With the prior of the transition matrices and the tree given, nothing else enters the leading term:

$$
g_{ij} = \sum_{a,b} P(s_j = a, s_i = b)\,\frac{\pi(b \mid a)}{\mu(b)} - 1 .
$$
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax

from attnlab.formulas.chains import stationary

Floats = NDArray[np.float64]
KINSHIPS: dict[str, tuple[int, int]] = {  # edges from the common ancestor to j, and to i
    "parent": (0, 1),
    "grandparent": (0, 2),
    "great-grandparent": (0, 3),
    "sibling": (1, 1),
    "self": (0, 0),
}
ROOT = -1


def sample_chains(
    symbols: int, alpha: float, count: int, *, stickiness: float = 0.0, seed: int = 0
) -> Floats:
    """Return `count` transition matrices, (count, S, S), from the prior of the paper.

    Rows are stickiness e_a + (1 - stickiness) Dirichlet(alpha); stickiness is ours.
    """
    rows = np.random.default_rng(seed).dirichlet(np.full(symbols, alpha), (count, symbols))
    return stickiness * np.eye(symbols) + (1.0 - stickiness) * rows


def joint_law(pi: ArrayLike, down: int, across: int) -> Floats:
    """Return P(s_j = a, s_i = b), with j and i `down` and `across` edges below their ancestor.

    Equals sum_r mu(r) pi^down(a|r) pi^across(b|r); of different trees it would be mu(a) mu(b).
    """
    pi = np.asarray(pi, dtype=np.float64)
    to_key, to_query = (np.linalg.matrix_power(pi, edges) for edges in (down, across))
    return np.swapaxes(stationary(pi)[..., None] * to_key, -1, -2) @ to_query


def kernel(pi: ArrayLike, joint: ArrayLike) -> Floats:
    """Return g = sum P(a, b) pi(b|a) / mu(b) - 1 for a joint law of two positions."""
    return _excess(joint, pi, np.asarray(joint).sum(-2)[..., None, :])


def kinship_kernel(pi: ArrayLike, kinship: str) -> Floats:
    """Return g of two positions by kinship, a name of `KINSHIPS`: of key j as seen from query i."""
    return kernel(pi, joint_law(pi, *KINSHIPS[kinship]))


def chi_squared(joint: ArrayLike) -> Floats:
    """Return the chi-squared mutual information sum P^2 / (mu mu) - 1 of joint laws (..., S, S)."""
    joint = np.asarray(joint, dtype=np.float64)
    return _excess(joint, joint, joint.sum(-1)[..., None] * joint.sum(-2)[..., None, :])


def _excess(joint: ArrayLike, over: ArrayLike, under: Floats) -> Floats:
    """Return sum joint over / under - 1; what never occurs adds nothing."""
    terms = np.multiply(joint, over, dtype=np.float64)
    return np.divide(terms, under, out=np.zeros_like(terms), where=under > 0).sum((-1, -2)) - 1.0


def distances(parents: ArrayLike) -> NDArray[np.int64]:
    """Return (down, across) of all pairs of positions, (2, n, n); -1 in different trees.

    Entry [:, i, j] has the edges from the nearest common ancestor to the key j and to the query i.
    """
    of = np.asarray(parents)
    i, j = np.indices((of.size, of.size))
    up = np.where(i == j, 0.0, np.inf)  # edges from a position to each of its ancestors
    for position in np.flatnonzero(of != ROOT):
        up[position] = np.minimum(up[position], up[of[position]] + 1)
    both = up[:, None] + up  # i j ancestor
    common = both.argmin(-1)
    found = np.stack([up[j, common], up[i, common]])
    return np.where(np.isfinite(both.min(-1)), found, ROOT).astype(int)


def expected_kernel(pi: ArrayLike, parents: ArrayLike) -> Floats:
    """Return E g_ij over transition matrices (count, S, S), (T, T), 0 above the diagonal.

    The test token is independent of all others, so that its row and column are 0. Its own entry is
    left at 0 as well: it is not one of the tree, and has no mean for sparse chains.
    """
    apart = distances(parents)
    n = apart.shape[1]
    found = np.zeros((n + 1, n + 1))
    for pair in np.unique(apart.reshape(2, -1), axis=1).T:
        if pair[0] != ROOT:
            at = (apart == pair[:, None, None]).all(0)
            found[:n, :n][at] = kernel(pi, joint_law(pi, *pair)).mean()
    return np.tril(found)


def through_softmax(x: ArrayLike, weights: ArrayLike) -> Floats:
    """Return -dL/dA1 from x = -dL/dS: S_ij (x_ij - sum_k S_ik x_ik), S = softmax(A1) over j <= i.

    At A1 = 0 it is (1/i)(x_ij - mean_{k <= i} x_ik).
    """
    x = np.tril(np.asarray(x, dtype=np.float64))
    S = np.asarray(weights, dtype=np.float64)
    return S * (x - (S * x).sum(-1, keepdims=True))


def softmax_rows(A1: ArrayLike) -> Floats:
    """Return softmax(A1) over j <= i."""
    A1 = np.asarray(A1, dtype=np.float64)
    return np.asarray(softmax(np.where(np.tri(len(A1), dtype=bool), A1, -np.inf), axis=-1))


def leading_gradient(pi: ArrayLike, parents: ArrayLike, *, beta0: float = 1.0) -> Floats:
    """Return the leading term of -dL/dA1 at A1 = 0: beta0 / (S T) E g through the softmax.

    Leading order in beta0 and eps, and for long contexts, where the output is mu.
    """
    g = expected_kernel(pi, parents)
    return through_softmax(beta0 / (np.shape(pi)[-1] * len(g)) * g, softmax_rows(np.zeros_like(g)))

"""What weights and activations say without a map: stable ranks, and how many units do the work."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from attnlab.files.errors import InputError
from attnlab.measures import maps
from attnlab.measures.arrays import Array, alike, exactly, namespace, precise, to_numpy

if TYPE_CHECKING:
    from jaxtyping import Float

UNITS_MASS = 0.95
SMALL = 128  # matrices that are squared as a whole to find their largest eigenvalue,
SQUARES = 24  # so many times: what is left of the others is below 1e-6
STEPS = 64  # of Lanczos for larger ones


def stable_rank(matrix: Float[Array, "*many rows columns"]) -> NDArray[np.float64]:
    """|W|_F^2 / |W|_2^2 of a matrix, such as the input matrix of an MLP.

    From the largest eigenvalue of the smaller of W W^T and W^T W, made where the matrix is.
    """
    return stable_rank_of_gram(gram(matrix))


def stable_rank_of_qk(
    query: Float[Array, "head width model"], key: Float[Array, "kv_head width model"]
) -> NDArray[np.float64]:
    """|M|_F^2 / |M|_2^2 of M = W_Q^T W_K, head by head, without making M.

    Biases, norms and rotary embedding are not in it.
    """
    if len(query.shape) != 3 or len(key.shape) != 3 or query.shape[1:] != key.shape[1:]:
        raise InputError(
            "query: expected weights of head, width, model for queries and keys, got shapes "
            f"{tuple(query.shape)} and {tuple(key.shape)}"
        )
    if query.shape[0] % key.shape[0]:
        raise InputError(
            f"key: {key.shape[0]} heads do not divide the {query.shape[0]} heads of the queries"
        )
    return stable_rank_of_gram(product(query, key))


def gram(matrix: Float[Array, "*many rows columns"]) -> Float[Array, "*many size size"]:
    """The smaller of W W^T and W^T W: its eigenvalues are the squares of W's singular values."""
    xp = namespace(matrix)
    with exactly(matrix):
        whole = precise(matrix)
        turned = xp.matrix_transpose(whole)
        wide = whole.shape[-1] >= whole.shape[-2]
        return xp.matmul(whole, turned) if wide else xp.matmul(turned, whole)


def product(
    query: Float[Array, "head width model"], key: Float[Array, "kv_head width model"]
) -> Float[Array, "head width width"]:
    """W_Q W_Q^T W_K W_K^T: its eigenvalues are the squares of the singular values of W_Q^T W_K.

    That has model x model entries and at most the rank of a head's width.
    """
    xp = namespace(query)
    with exactly(query):
        mine, theirs = (
            xp.matmul(one, xp.matrix_transpose(one)) for one in (precise(query), precise(key))
        )
        group = query.shape[0] // key.shape[0]
        return xp.matmul(mine, xp.repeat(theirs, group, axis=0))


def stable_rank_of_gram(
    products: Float[Array, "*many size size"],
) -> NDArray[np.float64]:
    """The trace over the largest eigenvalue, of `gram` or `product`; NaN of a matrix of zeros."""
    xp, size = namespace(products), products.shape[-1]
    with exactly(products):
        diagonal = xp.linalg.diagonal(products)
        find = _largest_by_squares if size <= SMALL else _largest_by_steps
        largest = find(products)
        trace = to_numpy(xp.sum(diagonal, axis=-1)).astype(np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        return trace / np.where(largest > 0, largest, np.nan)


def units_for(
    activations: Float[Array, "*rows unit"], mass: float = UNITS_MASS
) -> tuple[float, float]:
    """How many hidden units of an MLP hold this much of a token's |activation|: number and share.

    The mean over rows (Liu et al. 2023, Deja Vu). Activations are those after the nonlinearity.
    Rows in which nothing is active are left out.
    """
    mean = float(units_of(activations, mass))
    return mean, mean / activations.shape[-1]


def units_of(activations: Float[Array, "*rows unit"], mass: float = UNITS_MASS) -> Float[Array, ""]:
    """The number of `units_for`, where the activations are; NaN where nothing is active."""
    xp = namespace(activations)
    with exactly(activations):
        strength = xp.abs(precise(activations)).reshape(-1, activations.shape[-1])
        active = alike(strength, xp.sum(strength, axis=-1) > 0)
        number = alike(strength, maps.keys_for(strength, (mass,))[..., 0])
        rows = xp.sum(active)
        return xp.where(rows > 0, xp.sum(number * active) / xp.where(rows > 0, rows, 1.0), xp.nan)


def _largest_by_squares(matrices: Float[Array, "*many size size"]) -> NDArray[np.float64]:
    """The largest eigenvalue, from the trace of a high power: of real positive eigenvalues the
    largest alone is left of it. Symmetric or not, many at once."""
    xp = namespace(matrices)
    power, logarithm = xp.astype(matrices, xp.float64), 0.0
    for i in range(SQUARES + 1):
        size = xp.max(xp.abs(power), axis=(-2, -1), keepdims=True)
        size = xp.where(size > 0, size, 1.0)
        power = power / size
        logarithm = logarithm + xp.log(size[..., 0, 0]) / 2**i
        if i < SQUARES:
            power = xp.matmul(power, power)
    trace = to_numpy(xp.linalg.trace(power)).astype(np.float64)
    with np.errstate(divide="ignore"):
        return np.exp(to_numpy(logarithm) + np.log(np.maximum(trace, 0.0)) / 2**SQUARES)


def _largest_by_steps(matrices: Float[Array, "*many size size"]) -> NDArray[np.float64]:
    """The largest eigenvalue of large symmetric matrices, by Lanczos (Golub and Van Loan,
    Section 10.1): that of a small tridiagonal matrix, which the largest enters first."""
    xp = namespace(matrices)
    start = np.random.default_rng(0).normal(size=matrices.shape[-1])
    now = alike(matrices, start / np.linalg.norm(start))[:, None] + 0 * matrices[..., :1]
    before, length = 0.0 * now, 0.0
    diagonal, beside_it = [], []
    for _ in range(STEPS):
        ahead = xp.matmul(matrices, now) - length * before
        along = xp.sum(ahead * now, axis=(-2, -1), keepdims=True)
        ahead = ahead - along * now
        length = xp.sqrt(xp.sum(ahead * ahead, axis=(-2, -1), keepdims=True))
        before, now = now, ahead / xp.where(length > 0, length, 1.0)
        diagonal.append(along)
        beside_it.append(length)
    ends = to_numpy(xp.concat([*diagonal, *beside_it[:-1]], axis=-1))[..., 0, :]
    ends = ends.astype(np.float64)
    small = np.zeros((*ends.shape[:-1], STEPS, STEPS))
    place = np.arange(STEPS)
    small[..., place, place] = ends[..., :STEPS]
    small[..., place[1:], place[:-1]] = ends[..., STEPS:]
    return np.linalg.eigvalsh(small)[..., -1]

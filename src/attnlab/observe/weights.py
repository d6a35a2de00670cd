"""What weights and activations say without a map: stable ranks, and how many units do the work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attnlab.files.errors import InputError
from attnlab.measures import maps
from attnlab.measures.arrays import Array, alike, exactly, namespace, precise, to_numpy

if TYPE_CHECKING:
    from jaxtyping import Float

UNITS_MASS = 0.95


def stable_rank(matrix: Float[Array, "*many rows columns"]) -> NDArray[np.float64]:
    """|W|_F^2 / |W|_2^2 of a matrix, such as the input matrix of an MLP.

    From the eigenvalues of the smaller of W W^T and W^T W, which is made where the matrix is.
    """
    xp = namespace(matrix)
    with exactly(matrix):
        whole = precise(matrix)
        turned = xp.matrix_transpose(whole)
        wide = whole.shape[-1] >= whole.shape[-2]
        gram = to_numpy(xp.matmul(whole, turned) if wide else xp.matmul(turned, whole))
    return _stable_rank_of(gram.astype(np.float64))


def stable_rank_of_qk(
    query: Float[Array, "head width model"], key: Float[Array, "kv_head width model"]
) -> NDArray[np.float64]:
    """|M|_F^2 / |M|_2^2 of M = W_Q^T W_K, head by head, without making M.

    M has model x model entries and at most the rank of a head's width. With A = W_Q W_Q^T and
    B = W_K W_K^T, of that width, the squares of its singular values are the eigenvalues of
    A^(1/2) B A^(1/2). Biases, norms and rotary embedding are not in it.
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
    A, B = _gram(query), _gram(key)
    B = np.repeat(B, len(A) // len(B), axis=0)
    values, vectors = np.linalg.eigh(A)
    root = vectors * np.sqrt(np.maximum(values, 0))[:, None, :]  # root root^T = A
    return _stable_rank_of(np.swapaxes(root, -1, -2) @ B @ root)


def units_for(
    activations: Float[Array, "*rows unit"], mass: float = UNITS_MASS
) -> tuple[float, float]:
    """How many hidden units of an MLP hold this much of a token's |activation|: number and share.

    The mean over rows (Liu et al. 2023, Deja Vu). Activations are those after the nonlinearity.
    Rows in which nothing is active are left out.
    """
    xp = namespace(activations)
    with exactly(activations):
        strength = xp.abs(precise(activations)).reshape(-1, activations.shape[-1])
        active = alike(strength, xp.sum(strength, axis=-1) > 0)
        number = alike(strength, maps.keys_for(strength, (mass,))[..., 0])
        rows = float(xp.sum(active))
        if not rows:
            return float("nan"), float("nan")
        mean = float(xp.sum(number * active)) / rows
    return mean, mean / activations.shape[-1]


def _gram(weights: Float[Array, "head width model"]) -> NDArray[np.float64]:
    xp = namespace(weights)
    with exactly(weights):
        whole = precise(weights)
        return to_numpy(xp.matmul(whole, xp.matrix_transpose(whole))).astype(np.float64)


def _stable_rank_of(gram: Float[Any, "*many size size"]) -> NDArray[np.float64]:
    """From W W^T: its trace over its largest eigenvalue; NaN of a matrix of zeros."""
    largest = np.linalg.eigvalsh(gram)[..., -1]
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.trace(gram, axis1=-2, axis2=-1) / np.where(largest > 0, largest, np.nan)

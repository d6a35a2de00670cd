"""Stable ranks of weights, and active units of an MLP, of numpy, JAX or torch.

The stable rank is |W|_F^2 / |W|_2^2, between 1 and the rank. It is computed from W W^T, without
singular values: their decomposition takes an accelerator much longer.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attnlab.files.errors import InputError
from attnlab.measures import maps
from attnlab.measures.arrays import (
    Array,
    cast_like,
    double,
    full_precision,
    is_torch,
    namespace,
    on_processor,
    precise,
    repeat_step,
    to_numpy,
)

if TYPE_CHECKING:
    from jaxtyping import Float

SMALL = 128  # matrices that are squared as a whole to find their largest eigenvalue,
SQUARES = 24  # times, which leaves less than 1e-6 of the other eigenvalues
AT_ONCE = 4  # of them before their length is made 1 again, which float64 has room for
PRODUCTS = 16  # times for larger ones on an accelerator,
STEPS = 64  # or steps of Lanczos on a processor
TINY = 1e-30  # added to a length, which may be 0
UNITS_MASS = 0.95


def stable_rank(matrix: Float[Array, "*many rows columns"]) -> NDArray[np.float64]:
    """Return |W|_F^2 / |W|_2^2 of a matrix, such as an MLP's input matrix; NaN of zeros."""
    return stable_rank_of_gram(gram(matrix))


def stable_rank_there(matrix: Float[Array, "*many rows columns"]) -> Float[Array, "*many"]:
    """Return `stable_rank` on the matrix's device, inside a compiled program too."""
    with full_precision(matrix):
        total, largest = _by_products(gram(matrix))
        return total / largest


def stable_rank_of_qk(
    query: Float[Array, "head width model"], key: Float[Array, "kv_head width model"]
) -> NDArray[np.float64]:
    """Return |M|_F^2 / |M|_2^2 of M = W_Q^T W_K, head by head, without making M.

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
    """Return the smaller of W W^T and W^T W, whose eigenvalues are W's singular values squared."""
    xp = namespace(matrix)
    with full_precision(matrix):
        whole = precise(matrix)
        turned = xp.matrix_transpose(whole)
        wide = whole.shape[-1] >= whole.shape[-2]
        return xp.matmul(whole, turned) if wide else xp.matmul(turned, whole)


def product(
    query: Float[Array, "head width model"], key: Float[Array, "kv_head width model"]
) -> Float[Array, "head width width"]:
    """Return W_Q W_Q^T W_K W_K^T: its eigenvalues are the singular values of W_Q^T W_K, squared.

    That has model x model entries and at most the rank of a head's width.
    """
    xp = namespace(query)
    with full_precision(query):
        both = xp.concat([precise(query), precise(key)])
        both = xp.matmul(both, xp.matrix_transpose(both))
        mine, theirs = both[: len(query)], both[len(query) :]
        group = query.shape[0] // key.shape[0]
        return xp.matmul(mine, theirs if group == 1 else xp.repeat(theirs, group, axis=0))


def stable_rank_of_gram(products: Float[Array, "*many size size"]) -> NDArray[np.float64]:
    """Return the trace over the largest eigenvalue, of `gram` or `product`; NaN of zeros."""
    return stable_rank_of_numbers(to_numpy(numbers_of_gram(products)))


def numbers_of_gram(products: Float[Array, "*many size size"]) -> Float[Array, "*many number"]:
    """Return the input of `stable_rank_of_numbers`. Does not synchronise with the device."""
    with full_precision(products):
        if products.shape[-1] <= SMALL:
            return _by_squares(products)
        if on_processor(products):
            return _by_steps(products)
        return namespace(products).stack(_by_products(products), axis=-1)


def stable_rank_of_numbers(numbers: Float[Any, "*many number"]) -> NDArray[np.float64]:
    """Return stable ranks from what `numbers_of_gram` returns."""
    numbers = np.asarray(numbers, np.float64)
    largest = _LARGEST.get(numbers.shape[-1], _of_steps)(numbers)
    with np.errstate(invalid="ignore", divide="ignore"):
        return numbers[..., 0] / np.where(largest > 0, largest, np.nan)


def _by_squares(matrices: Float[Array, "*many size size"]) -> Float[Array, "*many number"]:
    """Return traces of high powers, from which `_of_squares` finds the largest eigenvalue.

    Eigenvalues are real and positive; the matrices need not be symmetric."""
    power = double(matrices)
    xp = namespace(power)
    numbers = [xp.linalg.trace(power)]
    for i in range(SQUARES + 1):
        if i % AT_ONCE == 0:
            size = xp.linalg.vector_norm(power, axis=(-2, -1), keepdims=True) + TINY
            power = power / size
            numbers.append(size[..., 0, 0])
        if i < SQUARES:
            power = xp.matmul(power, power)
    return xp.stack([*numbers, xp.linalg.trace(power)], axis=-1)


def _of_squares(numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the largest eigenvalue: each length counts for as many squares as came after it."""
    shares = 0.5 ** np.arange(0, SQUARES + 1, AT_ONCE)
    with np.errstate(divide="ignore"):
        logarithm = np.log(np.maximum(numbers[..., 1:], 0.0))
    return np.exp(logarithm[..., :-1] @ shares + logarithm[..., -1] / 2**SQUARES)


def _by_products(
    matrices: Float[Array, "*many size size"],
) -> tuple[Float[Array, "*many"], Float[Array, "*many"]]:
    """Return trace and largest eigenvalue of symmetric matrices by power iteration.

    Repeated squaring applies a matrix 2^16 times in few operations, which suits accelerators, and
    separates singular values that differ by 1 in 10,000.
    """
    xp = namespace(matrices)
    total = xp.linalg.trace(matrices)

    def squared(power: Array) -> Array:
        for _ in range(2):  # the largest eigenvalue of n is 1/n or more: its fourth power is left
            power = xp.matmul(power, power)
        return power / (xp.linalg.trace(power) + TINY)[..., None, None]

    power = repeat_step(PRODUCTS // 2, squared, matrices / (total + TINY)[..., None, None])
    vector = xp.matmul(power, _start(matrices))
    turned = xp.matrix_transpose(vector)
    stretched = xp.matmul(turned, xp.matmul(matrices, vector))
    return total, (stretched / (xp.matmul(turned, vector) + TINY))[..., 0, 0]


def _by_steps(matrices: Float[Array, "*many size size"]) -> Float[Array, "*many number"]:
    """Return Lanczos coefficients of large symmetric matrices (Golub and Van Loan, Section 10.1).

    The largest eigenvalue of their small tridiagonal matrix converges first.
    """
    xp = namespace(matrices)
    now = _start(matrices) + 0 * matrices[..., :1]
    before, length = 0.0 * now, 0.0
    diagonal, beside_it = [], []
    for _ in range(STEPS):
        ahead = xp.matmul(matrices, now) - length * before
        along = xp.matmul(xp.matrix_transpose(ahead), now)
        ahead = ahead - along * now
        length = xp.linalg.vector_norm(ahead, axis=(-2, -1), keepdims=True)
        before, now = now, ahead / (length + TINY)
        diagonal.append(along[..., 0])
        beside_it.append(length[..., 0])
    trace = xp.linalg.trace(matrices)[..., None]
    return xp.concat([trace, *diagonal, *beside_it[:-1]], axis=-1)


def _start(matrices: Any) -> Any:
    """Return a random unit vector, which is orthogonal to no eigenvector."""
    if is_torch(matrices):
        return _start_there(matrices.shape[-1], matrices.dtype, matrices.device)
    return cast_like(matrices, _start_here(matrices.shape[-1]))[:, None]


def _start_here(size: int) -> NDArray[np.float64]:
    start = np.random.default_rng(0).normal(size=size)
    return start / np.linalg.norm(start)


@lru_cache(maxsize=4)  # a copy to an accelerator waits for all that it has to do before
def _start_there(size: int, dtype: Any, device: Any) -> Any:
    import torch

    return torch.as_tensor(_start_here(size), dtype=dtype, device=device)[:, None]


def _of_steps(numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    small = np.zeros((*numbers.shape[:-1], STEPS, STEPS))
    place = np.arange(STEPS)
    small[..., place, place] = numbers[..., 1 : STEPS + 1]
    small[..., place[1:], place[:-1]] = numbers[..., STEPS + 1 :]
    # what is not finite has no eigenvalues, and would stop the others
    finite = np.asarray(np.isfinite(small).all(axis=(-2, -1), keepdims=True))
    largest = np.linalg.eigvalsh(np.where(finite, small, 0.0))[..., -1]
    return np.where(finite[..., 0, 0], largest, np.nan)


# by the count of numbers for a matrix
_LARGEST = {SQUARES // AT_ONCE + 3: _of_squares, 2: lambda numbers: numbers[..., 1]}


def units_for(
    activations: Float[Array, "*rows unit"], mass: float = UNITS_MASS
) -> tuple[float, float]:
    """Return number and share of the hidden units that hold `mass` of a token's |activation|.

    The mean over rows (Liu et al. 2023, Deja Vu). Activations are those after the nonlinearity.
    Rows in which nothing is active are left out.
    """
    mean = float(units_of(activations.reshape(-1, activations.shape[-1]), mass))
    return mean, mean / activations.shape[-1]


def units_of(
    activations: Float[Array, "*many row unit"], mass: float = UNITS_MASS
) -> Float[Array, "*many"]:
    """Return the numbers of `units_for` on the same device; NaN where nothing is active."""
    xp = namespace(activations)
    with full_precision(activations):
        strength = xp.abs(precise(activations))
        active = cast_like(strength, xp.sum(strength, axis=-1) > 0)
        number = cast_like(strength, maps.keys_for(strength, (mass,))[..., 0])
        rows = xp.sum(active, axis=-1)
        mean = xp.sum(number * active, axis=-1) / xp.where(rows > 0, rows, 1.0)
        return xp.where(rows > 0, mean, xp.nan)

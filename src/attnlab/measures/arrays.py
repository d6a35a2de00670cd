"""Arrays of three kinds: numpy's, JAX's and torch's, through the array API standard.

The measures of plain maps are written once, against the namespace of what they are given, and run
where that is. numpy and JAX bring their namespaces along; torch's is that of array-api-compat.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnlab.files.errors import InputError

Array = Any  # of numpy, JAX or torch


def namespace(array: Array) -> Any:
    """The functions for this kind of array."""
    if hasattr(array, "__array_namespace__"):
        return array.__array_namespace__()
    if is_torch(array):
        import array_api_compat.torch

        return array_api_compat.torch
    raise InputError(
        f"maps: expected an array of numpy, JAX or torch, got {type(array).__name__}; "
        "np.asarray makes one"
    )


def is_torch(array: Array) -> bool:
    """Whether this is a tensor of torch; torch is not imported to find out."""
    return hasattr(array, "requires_grad")


def is_bool(array: Array) -> bool:
    """Whether it holds truth values."""
    return bool(namespace(array).isdtype(array.dtype, "bool"))


def is_floating(array: Array) -> bool:
    """Whether it holds floating-point numbers, of half precision too."""
    # bfloat16 is in no list of the standard
    return bool(namespace(array).isdtype(array.dtype, "real floating")) or "float" in str(
        array.dtype
    )


def precise(array: Array) -> Array:
    """Detached from gradients, in float32, or in float64 if it is that already."""
    if is_torch(array):
        array = array.detach()
    xp = namespace(array)
    kept = array.dtype in (xp.float32, xp.float64)
    return array if kept else xp.astype(array, xp.float32)


def beside(array: Array, values: ArrayLike) -> Array:
    """These values as an array of the same kind in the same place."""
    xp = namespace(array)
    if is_torch(array):
        return xp.asarray(np.asarray(values), device=array.device)
    return xp.asarray(np.asarray(values))


def alike(array: Array, values: Any) -> Array:
    """Numbers, of numpy or of the same kind, in the kind and precision of the array."""
    xp = namespace(array)
    if isinstance(values, int | float | np.ndarray):
        values = beside(array, values)
    return xp.astype(values, array.dtype, copy=False)


def to_numpy(array: Array) -> NDArray[Any]:
    """The same values here."""
    return np.asarray(array.detach().cpu() if is_torch(array) else array)


def double(array: Array) -> Array:
    """In float64: a tensor of torch stays where it is, if that knows such numbers; others here."""
    if is_torch(array):
        return array.double() if array.device.type in ("cpu", "cuda") else array.cpu().double()
    return to_numpy(array).astype(np.float64)


def largest(array: Array, k: int) -> Array:
    """The k largest along the last axis, falling."""
    k = min(k, array.shape[-1])
    if is_torch(array):
        return array.topk(k).values
    if isinstance(array, np.ndarray):
        return falling(array)[..., :k]
    from jax.lax import top_k

    return top_k(array, k)[0]


def falling(array: Array) -> Array:
    """Sorted along the last axis, the largest first."""
    if is_torch(array) and array.device.type == "cpu":
        # torch makes indices too, and needs six times as long
        return namespace(array).from_numpy(np.sort(to_numpy(array), axis=-1)).flip(-1)
    if is_torch(array):
        return array.sort(descending=True).values
    return -namespace(array).sort(-array, axis=-1)


@contextmanager
def exactly(array: Array) -> Iterator[None]:
    """Products of matrices in the precision of what is multiplied, and no gradients.

    Trainings switch on autocast and TF32, which are right for learning and wrong for logits of
    which an exponential is taken. What was set before is set again afterwards.
    """
    with ExitStack() as stack:
        if is_torch(array):
            import torch

            stack.enter_context(torch.no_grad())
            stack.enter_context(torch.autocast(array.device.type, enabled=False))
            stack.callback(torch.set_float32_matmul_precision, torch.get_float32_matmul_precision())
            torch.set_float32_matmul_precision("highest")
        elif isinstance(array, np.ndarray):
            # rows that only fill up see nothing; torch and JAX do not warn of them either
            stack.enter_context(np.errstate(divide="ignore", invalid="ignore"))
        else:
            import jax

            stack.enter_context(jax.default_matmul_precision("highest"))
        yield

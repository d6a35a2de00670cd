"""Arrays of three kinds: numpy's, JAX's and torch's, through the array API standard.

The measures of plain maps are written once, against the namespace of what they are given, and run
where that is. numpy and JAX bring their namespaces along; torch's is that of array-api-compat.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnlab.files.errors import InputError

Array = Any  # of numpy, JAX or torch


def namespace(array: Array) -> Any:
    """Return the array-API functions for this kind of array."""
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
    """Check for a tensor of torch, without importing torch."""
    return hasattr(array, "requires_grad")


def is_numpy(array: Array) -> bool:
    """Check for an array of numpy."""
    return isinstance(array, np.ndarray)


def on_processor(array: Array) -> bool:
    """Check for an array in the memory of the processor, of numpy or torch; JAX decides for
    itself."""
    return array.device.type == "cpu" if is_torch(array) else is_numpy(array)


def is_bool(array: Array) -> bool:
    """Check for truth values."""
    return bool(namespace(array).isdtype(array.dtype, "bool"))


def is_floating(array: Array) -> bool:
    """Check for floating-point numbers, half precision included."""
    # bfloat16 is in no list of the standard
    return bool(namespace(array).isdtype(array.dtype, "real floating")) or "float" in str(
        array.dtype
    )


def precise(array: Array) -> Array:
    """Return the array detached from gradients, in float32, or float64 if it is that already."""
    if is_torch(array):
        array = array.detach()
    xp = namespace(array)
    kept = array.dtype in (xp.float32, xp.float64)
    return array if kept else xp.astype(array, xp.float32)


def same_kind(array: Array, values: ArrayLike) -> Array:
    """Return values as an array of the same kind on the same device."""
    xp = namespace(array)
    if is_torch(array):
        return xp.asarray(np.asarray(values), device=array.device)
    return xp.asarray(np.asarray(values))


def arange_like(array: Array, start: int, stop: int) -> Array:
    """Return start to stop - 1 in the same kind, made on the same device."""
    xp = namespace(array)
    if is_torch(array):
        return xp.arange(start, stop, device=array.device)
    return xp.arange(start, stop)


def cast_like(array: Array, values: Any) -> Array:
    """Return numbers, of numpy or of the same kind, in the array's kind and precision."""
    xp = namespace(array)
    if isinstance(values, int | float | np.ndarray):
        values = same_kind(array, values)
    return xp.astype(values, array.dtype, copy=False)


def to_numpy(array: Array) -> NDArray[Any]:
    """Return the values as a numpy array."""
    return np.asarray(array.detach().cpu() if is_torch(array) else array)


def all_to_numpy(arrays: Sequence[Array]) -> list[NDArray[Any]]:
    """Return numpy arrays; those on a device are copied together, in one synchronisation."""
    away = [i for i, one in enumerate(arrays) if is_torch(one) and one.device.type != "cpu"]
    found = [None if i in away else to_numpy(one) for i, one in enumerate(arrays)]
    if away:
        xp = namespace(arrays[away[0]])
        whole = to_numpy(xp.concat([double(arrays[i]).reshape(-1) for i in away]))
        ends = np.cumsum([arrays[i].numel() for i in away])[:-1]
        for i, values in zip(away, np.split(whole, ends), strict=True):
            kind = bool if is_bool(arrays[i]) else values.dtype
            found[i] = values.reshape(tuple(arrays[i].shape)).astype(kind, copy=False)
    return found  # type: ignore[return-value]


def with_float64(array: Array) -> Array:
    """Return an array on a device that has float64: tensors of torch stay there if it has."""
    if is_torch(array):
        return array if array.device.type in ("cpu", "cuda") else array.cpu()
    return to_numpy(array)


def double(array: Array) -> Array:
    """Return an array in float64, on a device that has it."""
    home = with_float64(array)
    return home.double() if is_torch(home) else home.astype(np.float64)


def largest(array: Array, k: int) -> Array:
    """Return the k largest along the last axis, the largest first."""
    k = min(k, array.shape[-1])
    if is_torch(array):
        return array.topk(k).values
    if is_numpy(array):
        return sort_descending(array)[..., :k]
    from jax.lax import top_k

    return top_k(array, k)[0]


def sort_descending(array: Array) -> Array:
    """Sort along the last axis, the largest first."""
    if is_torch(array) and array.device.type == "cpu":
        # torch makes indices too, and needs six times as long
        return namespace(array).from_numpy(np.sort(to_numpy(array), axis=-1)).flip(-1)
    if is_torch(array):
        return array.sort(descending=True).values
    return -namespace(array).sort(-array, axis=-1)


def repeat_step(times: int, step: Callable[[Array], Array], start: Array) -> Array:
    """Apply `step` to an array `times` times; JAX compiles one step and repeats it."""
    if is_torch(start) or is_numpy(start):
        for _ in range(times):
            start = step(start)
        return start
    from jax.lax import fori_loop

    return fori_loop(0, times, lambda _, value: step(value), start)


def own_copy(array: Array) -> Array:
    """Copy a tensor of torch that would keep a larger one alive; leave others as they are."""
    if is_torch(array) and array.untyped_storage().nbytes() > 2 * array.nbytes:
        return array.clone()
    return array


def contiguous(array: Array) -> Array:
    """Return a contiguous array; torch copies others for each product of matrices."""
    return array.contiguous() if is_torch(array) else array


def take_along(array: Array, index: Array, axis: int) -> Array:
    """Return the entries at an index along an axis; the index broadcasts in the other axes."""
    xp, axis = namespace(array), axis % len(array.shape)
    if not is_torch(array):
        return xp.take_along_axis(array, index, axis=axis)
    # torch.take_along_dim first looks for negative indices
    shape = list(array.shape)
    shape[axis] = index.shape[axis]
    return array.gather(axis, index.expand(shape))


def log_softmax(logits: Array) -> Array:
    """Return ln of the softmax over the last axis."""
    if is_torch(logits):
        return logits.log_softmax(-1)  # in one pass
    xp = namespace(logits)
    shifted = logits - xp.max(logits, axis=-1, keepdims=True)
    return shifted - xp.log(xp.sum(xp.exp(shifted), axis=-1, keepdims=True))


def softmax(logits: Array) -> Array:
    """Return the softmax over the last axis."""
    if is_torch(logits):
        return logits.softmax(
            -1
        )  # in one pass; an exponential of far logits takes a processor long
    return namespace(logits).exp(log_softmax(logits))


def count_below(growing: Array, bounds: Array) -> Array:
    """Count the entries below each bound, in rows that grow along the last axis."""
    if is_torch(growing):
        return namespace(growing).searchsorted(growing, bounds.contiguous())
    xp = namespace(growing)
    below = growing[..., None, :] < bounds[..., None]
    return xp.sum(xp.astype(below, xp.int32), axis=-1)


def ranks(array: Array) -> Array:
    """Return the rank of each entry along the last axis, from 1; ties share their mean rank.

    In float64, on the same device if that is torch's, and otherwise here.
    """
    if is_torch(array):
        xp = namespace(array)
        given = array.contiguous()
        growing = given.sort(-1).values
        ends = [xp.searchsorted(growing, given, right=right) for right in (False, True)]
        return (ends[0] + ends[1] + 1) / xp.asarray(2.0, dtype=xp.float64)
    from scipy.stats import rankdata

    return np.asarray(rankdata(to_numpy(array), axis=-1))


@contextmanager
def full_precision(array: Array) -> Iterator[None]:
    """Multiply matrices in the precision of their entries, and compute no gradients.

    Trainings switch on autocast and TF32, which are right for learning and wrong for logits of
    which an exponential is taken. What was set before is set again afterwards; of several threads
    that are in here at a time, by the last.
    """
    if is_torch(array) and _is_exact(array):
        yield
        return
    with ExitStack() as stack:
        if is_torch(array):
            import torch

            stack.enter_context(torch.no_grad())
            stack.enter_context(torch.autocast(array.device.type, enabled=False))
            stack.enter_context(_HELD)
        else:
            # rows that only fill up see nothing; torch and JAX do not warn of them either
            stack.enter_context(np.errstate(divide="ignore", invalid="ignore"))
        if not (is_torch(array) or is_numpy(array)):
            import jax

            stack.enter_context(jax.default_matmul_precision("highest"))
        yield


def _is_exact(array: Array) -> bool:
    """Return True if `full_precision` would change nothing, so that nesting costs nothing."""
    import torch

    return not (
        torch.is_grad_enabled()
        or torch.is_autocast_enabled(array.device.type)
        or torch.get_float32_matmul_precision() != "highest"
        or torch.get_deterministic_debug_mode()
        or _HELD.only_by_others
    )


class _Held:
    """Settings of torch that belong to the process, held while at least one thread is inside."""

    _lock, _mine = threading.Lock(), threading.local()
    _inside = 0
    _before = ExitStack()

    @property
    def only_by_others(self) -> bool:
        """True if only other threads hold the settings, and may release them."""
        return self._inside > 0 and not getattr(self._mine, "depth", 0)

    def __enter__(self) -> None:
        import torch

        with self._lock:
            if self._inside == 0:
                precision = torch.get_float32_matmul_precision()
                self._before.callback(torch.set_float32_matmul_precision, precision)
                torch.set_float32_matmul_precision("highest")
                # deterministic operations are for the training; some that we use have no such form
                mode = torch.get_deterministic_debug_mode()
                self._before.callback(torch.set_deterministic_debug_mode, mode)
                torch.set_deterministic_debug_mode("default")
            self._inside += 1
            self._mine.depth = getattr(self._mine, "depth", 0) + 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            self._mine.depth -= 1
            if self._inside == 0:
                self._before.close()


_HELD = _Held()

"""The start of sequence-class models: zero, random, or given attention logits."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from attnlab.files.errors import InputError
from attnlab.tasks.classes.classes import SequenceClasses

Init = Literal["zero", "uniform"] | ArrayLike | xr.DataArray


def is_random(init: Init) -> bool:
    """Return True if the start is drawn."""
    return isinstance(init, str) and init == "uniform"


def checked_init(classes: SequenceClasses, init: Init, *, heads: int = 1) -> Init:
    """Return a start that fits the classes: its name, or finite logits as a read-only array.

    Logits are (token,), (query, token) or, with several heads, (head, query, token).
    """
    if isinstance(init, str):
        if init not in ("zero", "uniform"):
            raise InputError(f"init: expected 'zero', 'uniform' or logits, got {init!r}")
        return init
    names = ("head", "query", "token")[heads == 1 :]
    shape = (heads, classes.queries.size, classes.vocab_size)[heads == 1 :]
    if isinstance(init, xr.DataArray):
        if set(init.dims) != set(names[-init.ndim :]):
            raise InputError(f"init: logits have dims {names} or the last of them, not {init.dims}")
        labels = (np.arange(heads), classes.queries, np.arange(classes.vocab_size))[heads == 1 :]
        coords = dict(zip(names, labels, strict=True))
        init = init.reindex({d: coords[str(d)] for d in init.dims if d in init.coords})
        init = init.transpose(*names[-init.ndim :])
    try:
        logits = np.array(init, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(
            f"init: expected 'zero', 'uniform' or an array of logits, got {type(init).__name__}"
        ) from None
    fits = logits.ndim and logits.shape == shape[-logits.ndim :]
    if not fits or not np.all(np.isfinite(logits)):
        raise InputError(
            f"init: logits must be finite, of shape {shape} for {names} or the last of them, "
            f"got shape {logits.shape}"
        )
    logits.setflags(write=False)
    return logits


def initial_logits(
    classes: SequenceClasses, init: Init, *, heads: int = 1, neutral: float = 0.0
) -> NDArray[np.float64]:
    """Return z(0) as (query, token), or (head, query, token) with several heads.

    Logits that were not given are `neutral`; the model draws the random start.
    """
    shape = (heads, classes.queries.size, classes.vocab_size)[heads == 1 :]
    given: Any = checked_init(classes, init, heads=heads)
    return np.broadcast_to(neutral if isinstance(given, str) else given, shape).copy()

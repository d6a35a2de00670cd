"""The start of a run: zero, random, or given attention logits."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from attnlab.data.classes import SequenceClasses

Init = Literal["zero", "uniform"] | ArrayLike | xr.DataArray


def is_symmetric(init: Init) -> bool:
    """Whether Y(0) = 0, so that outputs that are never a target stay identical."""
    return not (isinstance(init, str) and init == "uniform")


def initial_logits(classes: SequenceClasses, init: Init) -> NDArray[np.float64]:
    """z(0) as (query, token): what was given, else zero (the layout draws the random start)."""
    shape = (classes.queries.size, classes.vocab_size)
    if isinstance(init, str):
        if init not in ("zero", "uniform"):
            raise ValueError(f"init: expected 'zero', 'uniform' or logits, got {init!r}")
        return np.zeros(shape)
    if isinstance(init, xr.DataArray):
        missing = {"query", "token"} & set(init.dims) ^ set(init.dims)
        if missing:
            raise ValueError(f"init: logits have dims (query, token), not {init.dims}")
        coords = {"query": classes.queries, "token": np.arange(classes.vocab_size)}
        init = init.reindex({d: coords[str(d)] for d in init.dims if d in init.coords})
        init = init.transpose(*[d for d in ("query", "token") if d in init.dims])
    logits = np.asarray(init, dtype=np.float64)
    if logits.shape not in (shape, shape[1:]) or not np.all(np.isfinite(logits)):
        raise ValueError(
            f"init: logits must be finite, of shape {shape} (query, token) or {shape[1:]} "
            f"(token), got shape {logits.shape}"
        )
    return np.broadcast_to(logits, shape).copy()


class Start(NamedTuple):
    """What a start is made from: given logits, and the tokens that an embedding needs."""

    logits: Any  # Z(0) as a Block in the layout; zero unless given
    in_play: Any  # (A,) token ids
    queries: Any  # (Q,) token ids

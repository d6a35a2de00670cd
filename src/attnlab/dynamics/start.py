"""The start of a run: zero, random, or given attention logits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from attnlab.data.classes import SequenceClasses
from attnlab.files.errors import InputError

if TYPE_CHECKING:
    from jaxtyping import Float, Int

Init = Literal["zero", "uniform"] | ArrayLike | xr.DataArray


def is_random(init: Init) -> bool:
    """Whether the start is drawn."""
    return isinstance(init, str) and init == "uniform"


def checked_init(classes: SequenceClasses, init: Init, *, heads: int = 1) -> Init:
    """A start that fits the classes: its name, or finite logits (token,), (query, token) or, with
    several heads, (head, query, token), as an array that cannot be written to."""
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
    logits = np.array(init, dtype=np.float64)
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
    """z(0) as (query, token), or (head, query, token) with several heads: what was given, else
    `neutral` (the model draws the random start)."""
    shape = (heads, classes.queries.size, classes.vocab_size)[heads == 1 :]
    given: Any = checked_init(classes, init, heads=heads)
    return np.broadcast_to(neutral if isinstance(given, str) else given, shape).copy()


class Start(NamedTuple):
    """What a start is made from: given logits, and what the models need to know of tokens."""

    logits: Any  # Z(0) as a Block in the layout; zero unless given
    tokens: Int[Any, " L"]  # token ids by place in the layout
    queries: Int[Any, " Q"]  # token ids
    query_place: Int[Any, " Q"]  # places of the queries' own tokens, or -1
    bias: Float[Any, " distances"]  # position bias by distance; empty for T to infinity
    drawn: Int[Any, " A_drawn"]  # the shared groups' order in a random start

"""The start of sequence-class models: zero, random, or given attention logits."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from attnlab.files.documents import shown
from attnlab.files.errors import InputError
from attnlab.files.recipe import Numbers, as_value
from attnlab.tasks.classes.classes import SequenceClasses

Init = Literal["zero", "uniform"] | ArrayLike | xr.DataArray
StartDocument = Literal["zero", "uniform"] | Numbers | dict[str, Any] | None


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


def read_start(where: str, document: Any) -> Any:
    """Return a start as its document gives it, with arrays where that has groups of lists."""
    read = as_value(where, document, StartDocument)
    return _arrays(read) if isinstance(read, dict) else read


def _arrays(groups: Any) -> Any:
    """Return the arrays of a start, which a document has as lists."""
    if isinstance(groups, dict):
        return {name: _arrays(of) for name, of in groups.items()}
    try:
        return np.asarray(groups, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"init: expected numbers by group, got {shown(groups)}") from None


def start_document(init: Any) -> Any:
    """Return a start as plain values; a result by the digest of its spec."""
    if isinstance(init, Mapping) and not isinstance(init, xr.Dataset):
        return {name: start_document(of) for name, of in init.items()}
    if isinstance(init, xr.Dataset):
        return {"result": hashlib.sha256(init.attrs.get("spec", "").encode()).hexdigest()}
    return init if init is None or isinstance(init, str) else np.asarray(init).tolist()


# How the field `init` of a run is read from documents and written to them.
START = {"kind": StartDocument, "read": read_start, "write": start_document}

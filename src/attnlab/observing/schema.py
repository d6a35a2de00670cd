"""Schema of an observer's dataset: checked once, before words and pages are made of it.

A file can be whole (its seal says so) and still hold anything: somebody may have changed the
dataset and saved it again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import xarray as xr

from attnlab.files.documents import shown
from attnlab.files.errors import InputError
from attnlab.observing.labels import COORDS, OTHERS, ROW_MEANS
from attnlab.observing.snap import STATES

MOST_HEADS = 2**17  # of all layers together: a page has a number for each
_OF_HEADS = ("layer", "head")
_NEEDED = ("entropy", "relative_entropy", "keys_for", "keys_share", "visible_keys")
# what is there together with another variable
_BESIDE = {
    "attention_speed": "snap_step", "snap_low": "snap_high", "received_start": "received_end",
    "received_end": "token",
}  # fmt: skip
_SNAP = ("snap_step", "snap_low", "snap_high", "snap_missing", "snap_speed_left",
         "snap_moved_since")  # fmt: skip
_OF_KEYS = ("sequence", "key")
# dims beside step, of what the page and its words read
_DIMS = {
    **{name: (*_OF_HEADS, *label.dims) for name, label in (ROW_MEANS | OTHERS).items()},
    **dict.fromkeys(("attention_speed", "heavy_overlap"), _OF_HEADS),
    **dict.fromkeys(("repeated_induction", "repeated_duplicate"), _OF_HEADS),
    **dict.fromkeys((*_SNAP, "snap_median", "snap_state"), _OF_HEADS),
    **dict.fromkeys(("received_start", "received_end", "token"), _OF_KEYS),
    "module": ("layer",),
}
_WITHOUT_STEP = re.compile("snap_|received_|token$|module$")
_ERRORS = re.compile("_sequence_se$|_se$")
# of a dim's entries, the one that a page and its words name
_NAMED = {"mass": 0.95, "k": 1, "first": 1, "budget": 0.1, "policy": "oracle"}


def checked(dataset: xr.Dataset) -> xr.Dataset:
    """Return the dataset of an observer with its dims in order; refuse any other.

    Variables and attributes that neither words nor pages read are not looked at.
    """
    if "entropy" not in dataset or not set(_OF_HEADS) <= set(dataset.dims):
        raise InputError(
            "dataset: was not produced by attnlab.observe (no entropy over layer and head); give "
            "what observer.result() returns, or a file that it was saved to"
        )
    for name in _NEEDED:
        if name not in dataset:
            _refuse(name, "is missing")
    for name, other in _BESIDE.items():
        if name in dataset and other not in dataset.variables:
            _refuse(other, f"is missing beside {name}")
    if "snap_state" in dataset:
        _check_states(dataset)
    _check_sizes(dataset)
    for key, variable in dataset.variables.items():
        _check_variable(str(key), variable, stepped="step" in dataset.dims)
    for dim, entry in _NAMED.items():
        if dim in dataset.dims:
            _check_entries(dim, dataset, entry)
    for name, is_right in _ATTRIBUTES.items():
        if name in dataset.attrs and not is_right(_parsed(dataset.attrs[name])):
            _refuse(
                f"attribute {name}", f"is not what attnlab writes: {shown(dataset.attrs[name])}"
            )
    if not isinstance(dataset.attrs.get("seconds", 0), int | float):
        _refuse("attribute seconds", f"expected a number, got {shown(dataset.attrs['seconds'])}")
    order = ("step", *_OF_HEADS, "policy", "budget", *_OF_KEYS)
    return dataset.transpose(*order, ..., missing_dims="ignore")


def _refuse(name: str, problem: str) -> None:
    raise InputError(
        f"dataset: {name}: {problem}; it was changed after attnlab.observe made it, measure again"
    )


def _check_states(dataset: xr.Dataset) -> None:
    for name in _SNAP:
        if name not in dataset:
            _refuse(name, "is missing beside snap_state")
    states = dataset["snap_state"]
    if states.dtype.kind not in "iu" or not bool(states.isin(range(len(STATES))).all()):
        _refuse("snap_state", f"expected whole numbers from 0 to {len(STATES) - 1}")
    if not isinstance(dataset.attrs.get("snap_spans", 0), int | np.integer):
        _refuse("attribute snap_spans", "expected a whole number")


def _check_sizes(dataset: xr.Dataset) -> None:
    for dim in ("step", *_OF_HEADS):
        if dataset.sizes.get(dim, 1) < 1:
            _refuse(dim, "has no entries")
        if dim in dataset.coords and dataset[dim].dtype.kind not in "iu":
            _refuse(dim, f"expected whole numbers, got {dataset[dim].dtype}")
    heads = dataset.sizes["layer"] * dataset.sizes["head"]
    if heads > MOST_HEADS:
        _refuse("head", f"{heads:,} heads are more than a page can show ({MOST_HEADS:,})")
    if "step" in dataset.coords and dataset["step"].dims not in ((), ("step",)):
        _refuse("step", "expected one step for all heads, or a dim of its own")
    if "step" in dataset.dims and not (np.diff(dataset["step"].values) > 0).all():
        _refuse("step", "steps do not grow")


def _check_variable(name: str, variable: xr.Variable, *, stepped: bool) -> None:
    dims = _DIMS.get(_ERRORS.sub("", name))
    if dims is None:
        return
    if stepped and not _WITHOUT_STEP.match(name):
        dims = ("step", *dims)
    if set(variable.dims) != set(dims):
        _refuse(name, f"expected dims {', '.join(dims)}, got {', '.join(map(str, variable.dims))}")
    kinds = {"token": "iu", "module": "U"}.get(name, "fiu")
    if variable.dtype.kind not in kinds and not (name == "module" and _is_text(variable)):
        _refuse(name, f"expected {'text' if name == 'module' else 'numbers'}, got {variable.dtype}")


def _check_entries(dim: str, dataset: xr.Dataset, entry: Any) -> None:
    values = dataset[dim].values.tolist() if dim in dataset.indexes else []
    known = COORDS[dim] if dim == "policy" else values
    alone = dim == "policy" and len(values) < 2
    if entry not in values or len(set(values)) < len(values) or alone or set(values) - set(known):
        _refuse(dim, f"expected {shown(entry)} among different entries, got {values[:6]}")


def _is_text(variable: xr.Variable) -> bool:
    return all(isinstance(one, str) for one in variable.values.ravel().tolist())


def _parsed(attribute: Any) -> Any:
    """Return the value of a JSON attribute; None for anything else."""
    try:
        return json.loads(attribute) if isinstance(attribute, str) else None
    except (ValueError, RecursionError):
        return None


def _are(kind: type, values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(one, kind) for one in values)


def _is_spec(value: Any) -> bool:
    return isinstance(value, dict) and _are(object, value.get("checkpoints", []))


def _is_lint(value: Any) -> bool:
    if not (isinstance(value, dict) and _are(int, value.get("steps"))):
        return False
    faults: Any = value.get("faults")
    return _are(dict, faults) and all(
        isinstance(fault.get("kind"), str) and isinstance(fault.get("words"), str)
        for fault in faults
    )


def _is_unseen(value: Any) -> bool:
    return isinstance(value, dict) and _are(str, list(value.values()))


_ATTRIBUTES: Mapping[str, Callable[[Any], bool]] = {
    "spec": _is_spec,
    "versions": lambda value: isinstance(value, dict),
    "lint": _is_lint,
    "theory": lambda value: _are(str, value),
    "unseen": _is_unseen,
}

"""The history of a model's attention: moments, what moved between them, when it came to rest."""

from __future__ import annotations

import json
import math
from collections.abc import Collection
from dataclasses import replace
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from attnlab.files.errors import InputError
from attnlab.measures.arrays import Array, all_to_numpy, beside, to_numpy
from attnlab.measures.received import shared
from attnlab.observe.behind import LABELS
from attnlab.observe.block import even_cuts
from attnlab.observe.labels import COORDS
from attnlab.observe.moment import Moment
from attnlab.observe.sheet import HEAVY, Sheet, put_by
from attnlab.observe.snap import moved, snap, speeds

AT_A_TIME = 2**23  # entries of maps that are compared at a time
OF_SEQUENCES = "_sequence_se"  # the standard error of a mean, of which sequences are probed
Arrays = dict[str, NDArray[Any]]


class History:
    """Moments of one model on one probe, in the order of their steps.

    Of each moment the means over sequences are kept with their standard errors, and how much each
    sequence's maps have changed since the one before; maps are kept of the last moment alone.

    comparable: whether each moment is of the same tokens, so that maps can be said to move.
    """

    def __init__(self, *, comparable: bool = True) -> None:
        self.comparable = comparable
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self.steps: list[int] = []
        self._last = Moment((), ())
        self._start: xr.DataArray | None = None  # what keys of the first layer received
        self._means: list[Arrays] = []
        self._behind: list[Arrays] = []
        self._changes: list[Arrays] = []  # one fewer

    def add(self, step: int, moment: Moment) -> None:
        """Add a moment of a later step."""
        if self.steps and step <= self.steps[-1]:
            raise InputError(
                f"step: {step} after {self.steps[-1]}; steps must grow, make a new observer for a "
                "new training"
            )
        if self.steps and self._last.order != moment.order:
            raise InputError(
                f"model: other layers attend at step {step} than before; observe one model, or "
                "make a new observer for another"
            )
        if self.steps and self.comparable:
            self._changes.append(_changes(self._last, moment))
        if not self.steps and self.comparable:
            self._start = _received(moment)
        self.steps.append(step)
        self._means.append(_placed(moment, [_means(sheet) for sheet in moment.sheets]))
        values = moment.behind.values
        self._behind.append(_stacked([dict(values.get(name, {})) for name in moment.order]))
        self._last = replace(moment, sheets=put_by(moment.sheets))

    def latest(self) -> xr.Dataset:
        """The means of the last moment, over (layer, head)."""
        found = self._labelled(self._means[-1], ())
        return found.assign(_behind(self._behind[-1], ("layer",)))

    def dataset(self, *, faulty: Collection[int] = ()) -> xr.Dataset:
        """Everything so far, over (step, layer, head).

        faulty: steps whose weights are not to be relied on; no snap is claimed across them.
        """
        if not self.steps:
            raise InputError(
                "step: nothing was measured yet; call step(0), or train a while (of processes that "
                "train together the first alone has results)"
            )
        steps = np.asarray(self.steps)
        whole = self._labelled(_stacked(self._means), ("step",)).assign_coords(step=steps)
        whole = whole.assign(_behind(_stacked(self._behind), ("step", "layer")))
        if self._changes:
            changes = xr.Dataset(
                {
                    name: (("step", "layer", "sequence", "head"), values)
                    for name, values in _stacked(self._changes).items()
                },
                {dim: whole[dim] for dim in ("layer", "head")},
            )
            fast = speeds(changes["change"].mean("sequence"), steps)
            whole = whole.assign({n: v.reindex(step=steps) for n, v in fast.data_vars.items()})
            overlap = changes["heavy_overlap"].mean("sequence")
            whole["heavy_overlap"] = overlap.assign_coords(step=steps[1:]).reindex(step=steps)
            whole = whole.assign(snap(changes["change"], steps, faulty=faulty).data_vars)
            whole = whole.assign(self._gained())
        else:
            whole["snap_step"] = xr.full_like(whole["entropy"].isel(step=0, drop=True), np.nan)
        whole.attrs = self.words()
        return whole

    def words(self) -> dict[str, str]:
        """What is not known of the model, for the attributes of a dataset: modules that were not
        seen, and weights that were not recognised."""
        last = self._last
        return {
            "unseen": json.dumps(dict(last.unseen)),
            "unrecognised": json.dumps(dict(last.behind.unrecognised)),
        }

    def _gained(self) -> dict[str, xr.DataArray]:
        """What each key of the first layer got at the first step and at the last, by its token."""
        end = _received(self._last)
        if self._start is None or end is None:
            return {}
        return {"received_start": self._start, "received_end": end}

    def _labelled(self, values: Arrays, before: tuple[str, ...]) -> xr.Dataset:
        """Arrays with the names and meanings that `statistics` gives them."""
        order, sheets = self._last.order, self._last.sheets
        variables: dict[str, Any] = {}
        for sheet in sheets:
            for name in (name for name in sheet.arrays if name in values):
                dims = tuple(dim for dim in sheet.dims(name) if dim != "sequence")
                label = ((*before, "layer", *dims), values[name], sheet.attrs(name))
                variables.setdefault(name, label)
                if (spread := f"{name}{OF_SEQUENCES}") in values:
                    attrs = {"long_name": f"standard error of {name}, of other sequences"}
                    variables.setdefault(spread, (label[0], values[spread], attrs))
        present = {dim for dims, _, _ in variables.values() for dim in dims}
        heads = max(sheet.arrays["entropy"].shape[2] for sheet in sheets)
        kinds = {name: sheet.labels.kind for sheet in sheets for name in sheet.layers}
        return xr.Dataset(
            variables,
            {
                **{name: values for name, values in COORDS.items() if name in present},
                "layer": np.arange(len(order)), "head": np.arange(heads),
                "module": ("layer", np.asarray(order)),
                "kind": ("layer", np.asarray([kinds[name] for name in order])),
            },
            {"min_keys": sheets[0].labels.min_keys},
        )  # fmt: skip


def _behind(values: Arrays, before: tuple[str, ...]) -> dict[str, Any]:
    """What weights and activations say, as variables."""
    return {
        name: (
            (*before, *label.dims),
            values[name],
            {"long_name": label.meaning, "units": label.units},
        )
        for name, label in LABELS.items()
        if name in values
    }


def _changes(before: Moment, after: Moment) -> Arrays:
    """Of each layer, sequence and head: how far maps have moved, and the heavy hitters' overlap."""
    first, second = before.sheets, after.sheets
    if [one.layers for one in first] != [one.layers for one in second]:  # one was read from a file
        first, second = (tuple(s for sheet in some for s in sheet.apart())
                         for some in (first, second))  # fmt: skip
    found: list[Array] = []
    numbers: list[int] = []  # how much of `found` belongs to the sheets so far
    for earlier, later in zip(first, second, strict=True):
        was, now = earlier.arrays["attention"], later.arrays["attention"]
        if tuple(was.shape) != tuple(now.shape) or later.labels.row_query is None:
            raise InputError(
                f"probe: maps of shape {tuple(now.shape)} after {tuple(was.shape)}; "
                "observe one model on one probe"
            )
        each = max(1, AT_A_TIME * len(now) // math.prod(now.shape))
        for some in even_cuts(len(now), each):
            heavy_before, heavy = earlier.arrays[HEAVY][some], later.arrays[HEAVY][some]
            found += [
                moved(_where(now, was[some]), now[some], later.labels.row_query),
                shared(_where(heavy, heavy_before), heavy),
            ]
        numbers.append(len(found))
    here, parts = all_to_numpy(found), []
    for begun, end in zip([0, *numbers], numbers, strict=False):
        whole = (np.concatenate(here[i:end:2]) for i in (begun, begun + 1))
        parts.append(dict(zip(("change", "heavy_overlap"), whole, strict=True)))
    return _placed(replace(after, sheets=second), parts)


def _where(now: Array, was: Array) -> Array:
    """An earlier array where a later one is: it may have been put by, or read from a file."""
    return was if type(was) is type(now) else beside(now, to_numpy(was))


def _means(sheet: Sheet) -> Arrays:
    """Means over sequences, as `attnlab.observe.record.over_sequences` takes them.

    All variables at once: one after the other would take longer than the forward itself.
    """
    arrays = sheet.of_heads()
    first = arrays["entropy"].shape  # layer sequence head
    flat = {name: np.asarray(v, np.float64).reshape(*first, -1) for name, v in arrays.items()}
    widths = [values.shape[-1] for values in flat.values()]
    values = np.concatenate(list(flat.values()), axis=-1)
    squares = np.repeat([name.endswith("_se") for name in flat], widths)
    number = np.isfinite(values).sum(axis=1)
    total = np.nansum(np.where(squares, values**2, values), axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(squares, np.sqrt(total), total) / np.where(number > 0, number, np.nan)
        off = np.nansum((values - mean[:, None]) ** 2, axis=1)
        several = np.where(number > 1, number, np.nan)
        spread = np.sqrt(off / (several - 1) / several)
    found: Arrays = {}
    ends = np.cumsum(widths).tolist()
    for name, begun, end in zip(flat, [0, *ends], ends, strict=False):
        shape = (first[0], *arrays[name].shape[2:])
        found[name] = mean[..., begun:end].reshape(shape)
        if f"{name}_se" in arrays:  # a mean over rows
            found[f"{name}{OF_SEQUENCES}"] = spread[..., begun:end].reshape(shape)
    return found


def _placed(moment: Moment, parts: list[Arrays]) -> Arrays:
    """What is said of each sheet, layer by layer in their order."""
    if len(parts) == 1:
        return parts[0]
    of_layers: dict[str, Arrays] = {}
    for sheet, part in zip(moment.sheets, parts, strict=True):
        for i, layer in enumerate(sheet.layers):
            of_layers[layer] = {name: values[i] for name, values in part.items()}
    return _stacked([of_layers[name] for name in moment.order])


def _received(moment: Moment) -> xr.DataArray | None:
    """Mean over heads of what keys receive in the first layer, where their tokens are known."""
    first = moment.layers[moment.order[0]]
    if "token" not in first.coords or first["kind"].item() != "self":
        return None
    mean = first["received"].mean("head").drop_vars("kind")
    return mean.assign_attrs(long_name="mean attention that a key of the first layer gets")


def _stacked(parts: list[Arrays]) -> Arrays:
    """Side by side; what one of them has not, or fewer of (heads), is NaN there."""
    names = dict.fromkeys(name for part in parts for name in part)
    whole = {}
    for name in names:
        shapes = [part[name].shape for part in parts if name in part]
        shape = tuple(max(sizes) for sizes in zip(*shapes, strict=True))
        filled = np.full((len(parts), *shape), np.nan)
        for i, part in enumerate(parts):
            if name in part:
                place: Any = (i, *(slice(size) for size in part[name].shape))
                filled[place] = part[name]
        whole[name] = filled
    return whole

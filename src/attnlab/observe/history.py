"""The history of a model's attention: moments, what moved between them, when it came to rest."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from attnlab.files.errors import InputError
from attnlab.observe.behind import LABELS
from attnlab.observe.moment import Moment
from attnlab.observe.snap import change, snap, speeds

_OWN = {"row", "key"}  # dims of what belongs to one call: maps, and what each key receives
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
        self._last: Moment = Moment({})
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
        last = self._last.layers
        if self.steps and list(last) != list(moment.layers):
            raise InputError(
                f"model: other layers attend at step {step} than before; observe one model, or "
                "make a new observer for another"
            )
        if self.steps and self.comparable:
            moved = [change(last[name], one) for name, one in moment.layers.items()]
            self._changes.append(_stacked([_values(one) for one in moved]))
        if not self.steps and self.comparable:
            self._start = _received(moment)
        self.steps.append(step)
        self._means.append(_stacked([_means(one) for one in moment.layers.values()]))
        values = moment.behind.values
        self._behind.append(_stacked([dict(values.get(name, {})) for name in moment.layers]))
        self._last = moment

    def latest(self) -> xr.Dataset:
        """The means of the last moment, over (layer, head)."""
        found = self._labelled(self._means[-1], ())
        return found.assign(_behind(self._behind[-1], ("layer",)))

    def dataset(self, *, faulty: Collection[int] = ()) -> xr.Dataset:
        """Everything so far, over (step, layer, head).

        faulty: steps whose weights are not to be relied on; no snap is claimed across them.
        """
        if not self.steps:
            raise InputError("step: nothing was measured yet; call step(0), or train a while")
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
        layers = self._last.layers
        variables: dict[str, Any] = {}
        for one in layers.values():
            for name, variable in one.data_vars.items():
                if str(name) in values:
                    meaning = f"standard error of {name}, of other sequences"
                    dims = tuple(str(dim) for dim in variable.dims if dim != "sequence")
                    label = ((*before, "layer", *dims), values[str(name)], variable.attrs)
                    variables.setdefault(str(name), label)
                    if (spread := f"{name}{OF_SEQUENCES}") in values:
                        attrs = {"long_name": meaning}
                        variables.setdefault(spread, (label[0], values[spread], attrs))
        first = next(iter(layers.values()))
        heads = max(one.sizes["head"] for one in layers.values())
        shared = {
            name: coord
            for one in layers.values()
            for name, coord in one.coords.items()
            if name in one.dims and name not in {*_OWN, "sequence", "head"}
        }
        return xr.Dataset(
            variables,
            {
                **shared, "layer": np.arange(len(layers)), "head": np.arange(heads),
                "module": ("layer", np.asarray(list(layers))),
                "kind": ("layer", np.asarray([str(one["kind"].item()) for one in layers.values()])),
            },
            {"min_keys": first.attrs.get("min_keys", 0)},
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


def _values(dataset: xr.Dataset) -> Arrays:
    return {str(name): v.transpose("sequence", ...).values for name, v in dataset.data_vars.items()}


def _means(dataset: xr.Dataset) -> Arrays:
    """Means over sequences, as `attnlab.observe.record.over_sequences` takes them.

    Without labels: for many layers xarray would need longer than the forward itself.
    """
    found: Arrays = {}
    variables = {name: dataset.variables[name] for name in dataset.data_vars}
    for name, variable in variables.items():
        if not _OWN & set(variable.dims):
            values = np.asarray(variable.values, np.float64)
            axis = variable.dims.index("sequence")
            number = np.isfinite(values).sum(axis=axis)
            squares = str(name).endswith("_se")
            total = np.nansum(values**2 if squares else values, axis=axis)
            with np.errstate(invalid="ignore", divide="ignore"):
                mean = (np.sqrt(total) if squares else total) / np.where(number > 0, number, np.nan)
                if f"{name}_se" in variables:  # a mean over rows
                    off = np.nansum((values - np.expand_dims(mean, axis)) ** 2, axis=axis)
                    several = np.where(number > 1, number, np.nan)
                    found[f"{name}{OF_SEQUENCES}"] = np.sqrt(off / (several - 1) / several)
            found[str(name)] = mean
    return found


def _received(moment: Moment) -> xr.DataArray | None:
    """Mean over heads of what keys receive in the first layer, where their tokens are known."""
    first = next(iter(moment.layers.values()), None)
    if first is None or "token" not in first.coords or first["kind"].item() != "self":
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

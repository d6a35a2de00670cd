"""The numbers that a sweep is summed up by: what is left at the end, and when attention snaps."""

from __future__ import annotations

import numpy as np
import xarray as xr

from attnlab import measures
from attnlab.sweep.schema import OUTER

OF_ATTENTION = {
    "entropy": measures.entropy,
    "distinct_entropy": measures.distinct_entropy,
    "common_mass": measures.common_mass,
    "effective_tokens": measures.effective_tokens,
}
FEWEST_RECORDS = 3  # for a snap: two intervals, one of which is quiet


def summary(result: xr.Dataset) -> xr.Dataset:
    """Numbers over (setting, cell, seed) of a group's result: means over classes, of what was
    recorded.

    `final_...` is the value at the last record; `snap_step` (or `snap_time`) is the mean over the
    classes whose attention has come to rest.
    """
    if "attention" not in result:
        return _summary(result)
    # tokens have their roles in their own setting; settings that agree in them go together
    alike: dict[bytes, list[int]] = {}
    for number, drawn in enumerate(result["probability"].values > 0):
        alike.setdefault(drawn.tobytes(), []).append(number)
    parts = []
    for numbers in alike.values():
        some = result.isel(setting=numbers)
        parts.append(_summary(some.assign(probability=some["probability"][0])))
    order = np.argsort(np.concatenate(list(alike.values())))
    return xr.concat(parts, "setting").isel(setting=order)


def _summary(result: xr.Dataset) -> xr.Dataset:
    clock = "time" if "time" in result.dims else "step"
    last = result.isel({clock: -1}, drop=True)
    found = {}
    for name, measure in OF_ATTENTION.items():
        if name in result or "attention" in result:
            found[f"final_{name}"] = measure(last)
    if "loss" in result:
        found["final_loss"] = last["loss"]
    if "attention" in result and result.sizes[clock] >= FEWEST_RECORDS:
        found[f"snap_{clock}"] = measures.snap_time(result)
    return xr.Dataset({name: _mean(values) for name, values in found.items()})


def is_summary(name: str) -> bool:
    """Whether a variable of a sweep is one of these numbers."""
    return name.startswith(("final_", "snap_"))


def _mean(values: xr.DataArray) -> xr.DataArray:
    inner = [dim for dim in values.dims if dim not in OUTER]
    return values.mean(inner).reset_coords(drop=True).drop_attrs()

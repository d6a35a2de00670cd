"""Speed of the maps over training, and when they come to rest, with a bootstrap over sequences."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from attnlab.files.errors import InputError, require_whole
from attnlab.measures import snap_of
from attnlab.measures.arrays import Array, beside, double, namespace
from attnlab.measures.maps import total_variation

if TYPE_CHECKING:
    from jaxtyping import Float, Int

RESAMPLES = 1000
INTERVAL = (0.05, 0.95)
AT_A_TIME = 2**23  # speeds of resamples in memory
# As in `measures.attention_speed`: rounding moves each entry by a few eps of itself
ROUNDING = 4 * float(np.finfo(np.float32).eps)


def moved(
    before: Float[Array, "*layer sequence head row key"],
    after: Float[Array, "*layer sequence head row key"],
    row_query: Int[NDArray[Any], "sequence row"],
) -> Float[Array, "*layer sequence head"]:
    """The mean over rows of sum |p - q|, where the maps are; rows whose query is -1 fill up."""
    change = 2 * total_variation(double(before), double(after))  # layer sequence head row
    xp = namespace(change)
    rows = beside(change, (row_query >= 0)[:, None, :] * 1.0)
    with np.errstate(invalid="ignore"):
        mean = xp.sum(change * rows, axis=-1) / xp.sum(rows, axis=-1)
    return xp.where(mean <= ROUNDING, 0.0, mean)


def speeds(changes: xr.DataArray, steps: NDArray[Any]) -> xr.Dataset:
    """Speed per step and per unit of log step, labelled with the left end of each interval.

    changes: along `step`, one for each interval between the records at `steps`. The interval that
    begins at step 0 has no logarithm: NaN there.
    """
    steps = np.asarray(steps, dtype=np.float64)
    if steps.size != changes.sizes["step"] + 1 or not np.all(np.diff(steps) > 0):
        raise InputError(
            f"steps: expected {changes.sizes['step'] + 1} growing steps, one more than changes, "
            f"got {steps.tolist()}"
        )
    changes = changes.assign_coords(step=steps[:-1])
    at = {"step": steps[:-1]}
    with np.errstate(divide="ignore"):
        logs = np.log(steps[1:]) - np.log(steps[:-1])
    per_step = changes / xr.DataArray(np.diff(steps), at, dims="step")
    per_log = changes / xr.DataArray(np.where(np.isfinite(logs), logs, np.nan), at, dims="step")
    return xr.Dataset({"attention_speed": per_step, "log_speed": per_log})


def snap(
    changes: xr.DataArray,
    steps: NDArray[Any],
    *,
    faulty: Collection[float] = (),
    fraction: float = 0.02,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> xr.Dataset:
    """When each head's maps come to rest, with its uncertainty over probe sequences.

    changes: over (step, layer, head, sequence) in any order, as `moved` gives them from record to
    record; the speed of a head is the mean over sequences. `snap_step` is the snap of
    `attnlab.measures.snap_time`. Sequences are drawn anew, with replacement: `snap_median`,
    `snap_low` and `snap_high` (90 % of the resamples that have a snap), and `snap_missing`, the
    share of the resamples that have none. With one sequence there is nothing to draw: NaN.

    faulty: steps whose checkpoint cannot be relied on. What is next to them is not known, and no
    snap is claimed across it.
    """
    require_whole("resamples", resamples, 1)
    speed = speeds(changes, steps)["attention_speed"]
    measured = speed.dropna("sequence", how="all")  # others are too short to be measured
    # of a training that has diverged none is left, and the answer is NaN
    speed = measured if measured.sizes["sequence"] else speed.isel(sequence=[0])
    ends = np.isin(np.asarray(steps, dtype=np.float64), np.asarray(list(faulty), dtype=np.float64))
    known = xr.DataArray(~(ends[:-1] | ends[1:]), dims="step")
    found = snap_of(speed.mean("sequence"), fraction=fraction, known=known)
    drawn = [
        snap_of(some, fraction=fraction, known=known)
        for some in _resampled(speed, found, resamples, seed)
    ]
    table = xr.concat(drawn, "unit").transpose("unit", "resample").values if drawn else np.empty(0)
    shape = [found.sizes[dim] for dim in found.dims]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a head without any snap has no median
        low, middle, high = np.nanquantile(table, (INTERVAL[0], 0.5, INTERVAL[1]), axis=1)
    missing = np.isnan(table).mean(axis=1)
    if speed.sizes["sequence"] < 2:
        low = middle = high = missing = np.full(len(table), np.nan)
    values = {
        "snap_median": (middle, "median of the resamples that have a snap"),
        "snap_low": (low, "5 % of the resamples that have a snap lie below"),
        "snap_high": (high, "5 % of the resamples that have a snap lie above"),
        "snap_missing": (missing, "share of the resamples without a snap"),
    }
    named = {
        name: (found.dims, one.reshape(shape), {"long_name": meaning})
        for name, (one, meaning) in values.items()
    }
    result = found.rename("snap_step").to_dataset().assign(named)
    return result.assign_attrs(resamples=resamples, seed=seed, sequences=speed.sizes["sequence"])


def _resampled(
    speed: xr.DataArray, found: xr.DataArray, resamples: int, seed: int
) -> Iterator[xr.DataArray]:
    """Speeds of some heads at a time, (step, unit, resample): all of them would not fit."""
    number = speed.sizes["sequence"]
    rng = np.random.default_rng(seed)
    draws = rng.multinomial(number, np.full(number, 1 / number), resamples) / number
    weights = xr.DataArray(draws, dims=("resample", "sequence"))
    units = speed.transpose(*found.dims, "step", "sequence").values
    units = units.reshape(-1, *units.shape[len(found.dims) :])
    size = max(1, AT_A_TIME // (resamples * speed.sizes["step"]))
    for start in range(0, len(units), size):
        some = xr.DataArray(
            units[start : start + size],
            {"step": speed["step"].values},
            dims=("unit", "step", "sequence"),
        )
        drawn = xr.dot(some.fillna(0.0), weights, dim="sequence")
        if bool(some.isnull().any()):  # a sequence may be too short for one layer alone
            there = xr.dot(some.notnull() * 1.0, weights, dim="sequence")
            drawn = drawn / there.where(there > 0)
        yield drawn

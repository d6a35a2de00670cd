"""Snap of each head's attention, with a bootstrap over sequences.

The definition is that of `attnlab.measures.motion`, here for a training whose learning rate may
follow a schedule, and for sequences that may disagree.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Float, Int
from numpy.typing import ArrayLike, NDArray

from attnlab.files.errors import InputError, require_whole
from attnlab.measures.arrays import Array, double, namespace, same_kind
from attnlab.measures.maps import total_variation
from attnlab.measures.motion import FEWEST_RECORDS, SNAP_SHARE, first_quiet
from attnlab.observing.layer_statistics import LABELS

RESAMPLES = 1000
INTERVAL = (0.05, 0.95)
AT_A_TIME = 2**23  # speeds of resamples in memory
# As in `measures.attention_speed`: rounding moves each entry by a few eps of itself
ROUNDING = 4 * float(np.finfo(np.float32).eps)
# Values of `snap_state`: state of a head at the end of the training.
STATES = ("snapped", "still moving", "stopped by the schedule", "cannot tell", "never moved")
SNAPPED, MOVING, STOPPED, UNKNOWN, NEVER = range(len(STATES))


@dataclass(frozen=True, eq=False)
class Spans:
    """Equal spans of a training, and how far attention moved in each.

    changes: over span, layer, sequence and head. steps: the bounds of the spans, one more. length:
    of each, in learning rate, or in steps where `rate_known` is False. known: spans that are
    reliable. stopped: whether the learning rate fell below 2 % of its peak at the end.
    """

    changes: xr.DataArray
    steps: NDArray[Any]
    length: NDArray[np.float64]
    known: NDArray[np.bool_]
    rate_known: bool
    stopped: bool


def moved(
    before: Float[Array, "*layer sequence head row key"],
    after: Float[Array, "*layer sequence head row key"],
    row_query: Int[NDArray[Any], "sequence row"],
) -> Float[Array, "*layer sequence head"]:
    """Return the mean over rows of sum |p - q|. Rows whose query is -1 do not count."""
    change = 2 * total_variation(double(before), double(after))  # layer sequence head row
    xp = namespace(change)
    rows = same_kind(change, (row_query >= 0)[:, None, :] * 1.0)
    with np.errstate(invalid="ignore"):
        mean = xp.sum(change * rows, axis=-1) / xp.sum(rows, axis=-1)
    return xp.where(mean <= ROUNDING, 0.0, mean)


def speeds(changes: xr.DataArray, steps: NDArray[Any]) -> xr.Dataset:
    """Return speeds per step and per unit of log step, labelled with the left end of each interval.

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


def stopped_by_schedule(steps: ArrayLike, sums: ArrayLike) -> bool:
    """Check whether the mean learning rate before the last record is below 2 % of its largest."""
    mean = np.diff(sums) / np.diff(steps)
    return bool(mean.size and mean[-1] < SNAP_SHARE * mean.max())


def snap(spans: Spans, *, resamples: int = RESAMPLES, seed: int = 0) -> xr.Dataset:
    """Return the snap of each head with its uncertainty.

    `snap_state` is one of STATES; `snap_step` the step of the snap, where there is one;
    `snap_speed_left` the speed in the last span over the peak, per learning rate; and
    `snap_moved_since` the most attention that can have moved elsewhere since. The speed of a head
    is the mean over sequences. Sequences are resampled with replacement: `snap_median`, `snap_low`
    and `snap_high` (90 % of the resamples that have a snap, and never narrower than a span), and
    `snap_missing`, the share of resamples without one. These are errors over sequences of one
    training: another training may snap elsewhere.
    """
    require_whole("resamples", resamples, 1)
    measured = spans.changes.dropna("sequence", how="all")  # others are too short to be measured
    changes = measured if measured.sizes["sequence"] else spans.changes  # diverged at once
    length = xr.DataArray(spans.length, dims="span")
    speed = (changes / length).transpose("sequence", "layer", "head", "span")
    of_head = speed.mean("sequence")
    dims, shape = ("layer", "head"), of_head.shape[:2]
    first = _first(of_head.values, spans)
    snapped = first >= 0
    if len(spans.length):
        with np.errstate(invalid="ignore", divide="ignore"):
            peak = np.where(spans.known, of_head.values, -np.inf).max(-1)
            left = np.where(peak > 0, of_head.values[..., -1] / peak, np.nan)
    else:
        peak = left = np.full(shape, np.nan)
    sums = np.cumsum(changes.mean("sequence").transpose(*dims, "span").values[..., ::-1], axis=-1)
    sums = np.concatenate([np.zeros((*shape, 1)), sums], axis=-1) / 2
    since = np.take_along_axis(sums, np.where(snapped, len(spans.length) - first, 0)[..., None], -1)
    values = {
        "snap_step": np.where(snapped, spans.steps[first], np.nan),
        "snap_speed_left": left,
        "snap_moved_since": np.where(snapped, since[..., 0], np.nan),
        **_resamples(speed, spans, first, resamples, seed),
        "snap_state": _states(first, left, peak, spans),
    }
    result = xr.Dataset({n: (dims, one, LABELS[n].attrs) for n, one in values.items()})
    per = "learning rate" if spans.rate_known else "step: the learning rate is unknown"
    result["snap_speed_left"].attrs["long_name"] += f", per {per}"
    flags = " ".join(name.replace(" ", "_") for name in STATES)
    result["snap_state"].attrs["flag_meanings"] = flags
    return result.assign_attrs(
        snap_resamples=resamples,
        snap_sequences=speed.sizes["sequence"],
        snap_spans=len(spans.length),
        snap_clock="learning rate" if spans.rate_known else "step",
    )


def _first(speed: NDArray[np.float64], spans: Spans) -> NDArray[np.intp]:
    """Return the first quiet span; none where the learning rate is not known."""
    if not spans.rate_known:
        return np.full(speed.shape[:-1], -1, np.intp)
    return first_quiet(speed, spans.length, known=spans.known)


def _states(
    first: NDArray[np.intp], left: NDArray[np.float64], peak: NDArray[np.float64], spans: Spans
) -> NDArray[np.int8]:
    state = np.full(first.shape, UNKNOWN, np.int8)
    if len(spans.length) + 1 >= FEWEST_RECORDS and spans.known[-1]:
        state[left >= SNAP_SHARE] = MOVING
    if spans.rate_known and spans.stopped:
        state[peak > 0] = STOPPED
    state[peak == 0] = NEVER
    state[first >= 0] = SNAPPED
    return state


def _resamples(
    speed: xr.DataArray, spans: Spans, first: NDArray[np.intp], resamples: int, seed: int
) -> dict[str, NDArray[Any]]:
    """Return quantiles of the snap over resampled sequences."""
    # there may be no span yet, so that numpy cannot find out how many heads there are
    heads = speed.sizes["layer"] * speed.sizes["head"]
    units = speed.values.reshape(speed.sizes["sequence"], heads, speed.sizes["span"])
    drawn = [_first(some, spans) for some in _resampled(units, resamples, seed)]
    table = np.concatenate(drawn) if drawn else np.empty((0, resamples), np.intp)
    at = np.where(table >= 0, spans.steps[table], np.nan)  # head, resample
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a head without any snap has no median
        low, middle, high = np.nanquantile(at, (INTERVAL[0], 0.5, INTERVAL[1]), axis=1)
    # A snap is known to the span before it at best.
    before = np.where(first > 0, spans.steps[np.maximum(first - 1, 0)], np.nan).ravel()
    low = np.fmin(low, before)
    missing = (table < 0).mean(axis=1)
    if len(units) < 2 or not spans.rate_known:
        low = middle = high = missing = np.full(len(table), np.nan)
    values = {"snap_median": middle, "snap_low": low, "snap_high": high, "snap_missing": missing}
    return {name: one.reshape(first.shape) for name, one in values.items()}


def _resampled(
    units: NDArray[np.float64], resamples: int, seed: int
) -> Iterator[NDArray[np.float64]]:
    """Yield speeds (head, resample, span), some heads at a time to bound memory."""
    number, heads, spans = units.shape
    rng = np.random.default_rng(seed)
    weights = rng.multinomial(number, np.full(number, 1 / number), resamples) / number
    size = max(1, AT_A_TIME // (resamples * max(1, spans)))
    for start in range(0, heads, size):
        some = units[:, start : start + size]
        there = np.isfinite(some)  # a sequence may be too short for one layer alone
        with np.errstate(invalid="ignore"):
            total = np.einsum("rs,shi->hri", weights, np.where(there, some, 0.0))
            yield total / np.einsum("rs,shi->hri", weights, there * 1.0)

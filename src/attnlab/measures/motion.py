"""Motion of attention: its speed, when it comes to rest, and where curves turn.

Three words, one definition each (docs/measures.md, "Snap, slowed, settled"):

- *slowed* to a share: from some record on, the speed of attention stays below that share of its
  peak, to the end of the record (:func:`slowed_time`);
- *snap*: the same at 2 %, on the clock of the learning rate, over spans of equal length, and only
  where the quiet lasts (:func:`snap_time`, :func:`first_quiet`);
- *settled*: the speed in the logarithm of time has fallen to a tenth of its peak (the audit).

Noise is why spans have to be equal: attention that is redrawn at each record changes as much over
a long span as over a short one, and per unit of time it seems to come to rest where records are
far apart. Along a flow there is no noise, and any records will do.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from attnlab.files.errors import InputError, refuse_if
from attnlab.measures import maps as of_rows
from attnlab.measures.attention import clock_of, named, recorded

SNAP_SHARE = 0.02  # of the peak speed: slower than that is quiet
SNAP_SPANS = 3  # spans that must be quiet at the least
SNAP_PART = 0.1  # of the whole clock, which they must hold at the least
FEWEST_RECORDS = SNAP_SPANS + 2  # for a snap: one span that moves, and those that are quiet
_LEVELS = 4  # each level of spans is this many times as long as the one below
_UNIT = 0.51  # of the first interval: with equal records, each interval is a span


def attention_speed(dataset: xr.Dataset) -> xr.DataArray:
    """Return the speed of c_n between records: sum_l |change of c_{l|n}| per unit of step or time.

    This is twice the rate of total variation distance. The speed between two neighbouring records
    is the average over their interval and is labelled with the interval's left end, so there is
    one entry fewer than there are records. A change no larger than the rounding of the recorded
    dtype counts as none.

    Parameters
    ----------
    dataset : xarray.Dataset
        With `attention`, at two records at least.

    Returns
    -------
    xarray.DataArray
        One entry fewer than there are records.
    """
    attention = recorded(dataset, "attention")
    axis = clock_of(attention)
    where = _increasing(attention, axis)
    speed = _changes(attention, axis) / xr.DataArray(np.diff(where), dims=axis)
    return named(speed, "attention_speed")


def slowed_time(dataset: xr.Dataset, *, share: float) -> xr.DataArray:
    """Return the record from which on :func:`attention_speed` stays below `share` of its peak.

    It is known to the spacing of the records, holds to the end of the record only, and depends on
    how records are spaced where training is noisy: see :func:`snap_time` for what does not.

    Parameters
    ----------
    dataset : xarray.Dataset
        With `attention`.
    share : float
        Share of the peak speed, between 0 and 1.

    Returns
    -------
    xarray.DataArray
        For each class, in steps or time; NaN where attention moves faster at the end, or never
        moved.
    """
    refuse_if(not 0 < share < 1, "share", "a number between 0 and 1", share)
    speed = attention_speed(dataset)
    axis = clock_of(speed)
    starts = speed[axis].values.astype(np.float64)

    def left_end(values: NDArray[np.float64]) -> NDArray[np.float64]:  # ... x interval
        stretch = _quiet_at_the_end(values, np.ones(starts.size, bool), share)
        return np.where(stretch > 0, starts[-stretch], np.nan)

    slowed = xr.apply_ufunc(left_end, speed, input_core_dims=[[axis]])
    return named(slowed, "slowed_time", share=share, measured_in=axis)


def snap_time(dataset: xr.Dataset) -> xr.DataArray:
    """Return when the attention of each class snaps (Section 6 and Theorem 4), in steps or time.

    The clock is the learning rate summed over steps, which for a constant one is the step, or the
    time of a flow. The snap is the start of the first span of the clock from which on attention
    changes at less than 2 % of its fastest, in at least 3 spans that hold at least 10 % of the
    whole clock. Spans are equal within a factor of two; along a flow, which has no noise, each
    interval between records is one. The snap is known to the length of a span, and a peak narrower
    than that is averaged down. Attention may go far after it: see :func:`moved_since`.

    NaN where attention still moves at the end (record longer), where the quiet is too short, where
    records are too unequal to tell (`Record(every=...)` makes equal ones), where attention never
    moved, and where it is NaN.

    Parameters
    ----------
    dataset : xarray.Dataset
        With `attention`.

    Returns
    -------
    xarray.DataArray
        For each class, in steps or time.

    Examples
    --------
    >>> import attnlab
    >>> from attnlab import measures
    >>> run = attnlab.simulate("syn-small", gradient="population", progress=False)
    >>> measures.snap_time(run).values
    array([[49., 49.]])
    """
    attention = recorded(dataset, "attention")
    axis = clock_of(attention)
    where = _increasing(attention, axis)
    bounds = np.arange(where.size) if axis == "time" else np.array(equal_spans(where))
    length = np.diff(where[bounds])
    speed = _changes(attention.isel({axis: bounds}), axis) / xr.DataArray(length, dims=axis)
    starts = where[bounds]

    def start(values: NDArray[np.float64]) -> NDArray[np.float64]:
        first = first_quiet(values, length)
        return np.where(first >= 0, starts[first], np.nan)

    snap = xr.apply_ufunc(start, speed, input_core_dims=[[axis]])
    return named(snap, "snap_time", share=SNAP_SHARE, measured_in=axis)


def moved_since(dataset: xr.Dataset, since: xr.DataArray) -> xr.DataArray:
    """Return how much attention has gone elsewhere from `since` to the end of the record.

    Parameters
    ----------
    dataset : xarray.Dataset
        With `attention`.
    since : xarray.DataArray
        A record of each class, as :func:`snap_time` gives it.

    Returns
    -------
    xarray.DataArray
        Total variation distance, from 0 to 1; NaN where `since` is.
    """
    attention = recorded(dataset, "attention")
    axis = clock_of(attention)
    there = since.notnull()
    known = since.fillna(attention[axis].values[0])
    before = attention.sel({axis: known.astype(attention[axis].dtype)}).drop_vars(axis)
    change = abs(attention.isel({axis: -1}, drop=True).astype(np.float64) - before).sum("token")
    return named((change / 2).where(there), "moved_since")


def first_quiet(
    speed: NDArray[np.floating],
    length: NDArray[np.floating],
    *,
    known: NDArray[np.bool_] | None = None,
) -> NDArray[np.intp]:
    """Return the first of the quiet spans that make a snap, or -1 where there is none.

    Parameters
    ----------
    speed : array (..., span)
        Mean speed in each span.
    length : array (span,)
        Their lengths, on the clock.
    known : array (span,), optional
        Which spans can be relied on; by default all. Another counts neither as the peak nor as
        quiet, and there is no snap right after it: attention that is quiet ever since may have
        come to rest anywhere in there.

    Returns
    -------
    array (...,)
        Index of a span.
    """
    if length.size <= SNAP_SPANS:
        return np.full(speed.shape[:-1], -1, np.intp)
    sure = np.ones(length.size, bool) if known is None else known
    stretch = _quiet_at_the_end(speed, sure, SNAP_SHARE)
    held = np.concatenate([[0.0], np.cumsum(length[::-1])])[stretch]
    lasts = (stretch >= SNAP_SPANS) & (held >= SNAP_PART * length.sum()) & sure[-stretch - 1]
    return np.where(lasts, length.size - stretch, -1)


def _quiet_at_the_end(
    speed: NDArray[np.floating], sure: NDArray[np.bool_], share: float
) -> NDArray[np.intp]:
    """Count the spans at the end that are slower than `share` of the peak: fewer than all, 0 if
    there are no spans."""
    if not speed.shape[-1]:
        return np.zeros(speed.shape[:-1], np.intp)
    peak = np.where(sure, speed, -np.inf).max(axis=-1, keepdims=True)
    # Every comparison with NaN is False, and so is 0 < 0: neither counts as quiet.
    quiet = (speed < share * peak) & sure
    return np.asarray(np.logical_and.accumulate(quiet[..., ::-1], axis=-1).sum(axis=-1))


class EqualSpans:
    """Spans of a clock that are equal within a factor of two, found while records come in.

    The clock's whole length is not known beforehand, so spans of several lengths are followed,
    each level four times as long as the one below. A level ends where two records are so far apart
    that its spans differ by a factor of two. The caller keeps attention for the
    records in `open` alone: a handful, however long the training.
    """

    def __init__(self) -> None:
        self.clock: list[float] = []
        self._levels: list[tuple[float, list[int]]] = []  # least length, bounds so far

    @property
    def open(self) -> set[int]:
        """Records at which a span begins that has not ended."""
        return {bounds[-1] for _, bounds in self._levels} | {0}

    def add(self, clock: float) -> list[int]:
        """Add a record; return the records at which spans began that end with it."""
        self.clock.append(clock)
        last, spent = len(self.clock) - 1, clock - self.clock[0]
        if not self._levels and spent > 0:
            self._levels.append((_UNIT * spent, [0]))
        while self._levels and spent >= self._levels[-1][0]:
            self._levels.append((_LEVELS * self._levels[-1][0], [0]))
        ended, kept = set(), []
        for least, bounds in self._levels:
            length = clock - self.clock[bounds[-1]]
            if length >= 2 * least:
                continue
            if length >= least:
                ended.add(bounds[-1])
                bounds = [*bounds, last]
            kept.append((least, bounds))
        self._levels = kept
        return sorted(ended)

    def bounds(self) -> list[int]:
        """Return the records between which the shortest spans lie that are equal to the end."""
        return self._levels[0][1] if self._levels else [0]


def equal_spans(clock: Sequence[float] | NDArray[np.floating]) -> list[int]:
    """Return the records that bound the shortest equal spans of a clock; one where there are none.

    Parameters
    ----------
    clock : sequence of float
        What the clock says at each record.

    Returns
    -------
    list of int
        Records, the first of which is 0.
    """
    spans = EqualSpans()
    for value in clock:
        spans.add(float(value))
    return spans.bounds()


def _increasing(attention: xr.DataArray, axis: str) -> NDArray[np.float64]:
    where = attention[axis].values.astype(np.float64)
    if where.size < 2:
        raise InputError(
            f"{axis}: a speed needs at least two records of attention, got {where.size}; "
            "record more of them with Record(...)"
        )
    if not np.all(np.diff(where) > 0):
        raise InputError(f"{axis}: records must increase; sort them with .sortby({axis!r})")
    return where


def _changes(attention: xr.DataArray, axis: str) -> xr.DataArray:
    """Return how far attention moves from each record to the next, summed over tokens.

    Changes within rounding are 0.
    """
    # Rounding moves each c_l by a few eps of itself, and they sum to 1.
    rounding = 4 * np.finfo(attention.dtype).eps
    change = abs(attention.astype(np.float64).diff(axis, label="lower")).sum("token", skipna=False)
    return change.where(~(change <= rounding), 0.0)


# -- attention of transformers on fixed sequences (probes) -----------------------------------------


def stayed_finite(result: xr.Dataset) -> xr.DataArray:
    """Return whether each run of a result stayed finite, along learning rates and seeds."""
    if "diverged_step" in result:
        return result["diverged_step"] < 0
    return xr.ones_like(result["train_loss"].isel(step=0, drop=True), dtype=bool)


def map_speed(result: xr.Dataset) -> xr.DataArray:
    """Return how fast a head's attention on the probes changes: the mean speed of its rows.

    See `attnlab.measures.attention_speed`; the speed from a record to the next is labelled with
    the first, and the last record has none.
    """
    speed = attention_speed(_heads_as_rows(result))
    return speed.reindex(step=result["step"]).rename("attention_speed")


def probe_entropy(result: xr.Dataset) -> xr.DataArray:
    """Return the entropy of each head on each probe, mean over its queries, in nats.

    With T queries it is at most ln(T!)/T, that of attention which is spread evenly.
    """
    rows = xr.apply_ufunc(of_rows.entropy, result["attention"], input_core_dims=[["key"]])
    return rows.mean("query", skipna=False).rename("probe_entropy")


def snap_step(result: xr.Dataset) -> xr.DataArray:
    """Return the step at which a head's attention on the probes snaps, per layer and head.

    The definition is that of `attnlab.measures.snap_time`; NaN where the head still moves at the
    end, or where the records are too unequal to tell.

    Parameters
    ----------
    result : xarray.Dataset
        Of a run on a text.

    Returns
    -------
    xarray.DataArray
        Over layer and head.
    """
    return snap_time(_heads_as_rows(result)).rename("snap_step")


def _heads_as_rows(result: xr.Dataset) -> xr.Dataset:
    """Return each head's maps as one distribution over (probe, query, key), along `token`."""
    maps = result["attention"]
    rows = maps.sizes["probe"] * maps.sizes["query"]
    flat = maps.stack(token=("probe", "query", "key"), create_index=False) / rows
    return xr.Dataset({"attention": flat})

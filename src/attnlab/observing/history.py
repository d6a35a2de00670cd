"""History of a model's attention: snapshots over steps, its motion, and when it came to rest."""

from __future__ import annotations

import itertools
import json
import math
from bisect import bisect_left
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from attnlab.files.errors import InputError
from attnlab.measures.arrays import Array, all_to_numpy, same_kind, to_numpy
from attnlab.measures.motion import EqualSpans
from attnlab.measures.received import shared
from attnlab.observing.call import even_cuts
from attnlab.observing.layer_statistics import (
    HEAVY,
    Arrays,
    LayerStatistics,
    keep_for_next,
    labelled,
    means_over_sequences,
)
from attnlab.observing.roles import with_roles
from attnlab.observing.snap import Spans, moved, snap, speeds, stopped_by_schedule
from attnlab.observing.snapshot import Snapshot

AT_A_TIME = 2**23  # attention weights that are compared at a time


class History:
    """Snapshots of one model on one probe, in the order of their steps.

    Of each snapshot it keeps means over sequences with their standard errors, and how far each
    sequence's attention has moved since the snapshot before and since the start of each span that
    ends with it (`EqualSpans`). It keeps attention weights, a few rows of each layer, only of the
    last snapshot and of those at which a span is open.

    comparable: whether all snapshots use the same tokens, so that the motion of attention is known.
    """

    def __init__(self, *, comparable: bool = True) -> None:
        self.comparable = comparable
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self.steps: list[int] = []
        self._last: Snapshot | None = None  # None where its attention weights are gone
        self._kinds: dict[str, str] = {}  # of all layers, in their order
        self._min_keys = 0
        # attributes: modules not seen, weights not recognised, the kernel that measures
        self.words: dict[str, str] = {}
        self._start: xr.DataArray | None = None  # attention received by keys of the first layer
        self._means: list[dict[str, Arrays]] = []  # of each snapshot, by layer; also of weights
        self._changes: dict[tuple[int, int], Arrays] = {}  # from one snapshot to another
        self._sums: list[float] | None = []  # of the learning rate; None where one is not known
        self._by_step, self._by_rate = EqualSpans(), EqualSpans()
        self._held: dict[int, tuple[LayerStatistics, ...]] = {}  # attention where a span is open

    def add(
        self,
        step: int,
        snapshot: Snapshot,
        *,
        learning_rate_sum: float | None = None,
        layers: Sequence[str] = (),
    ) -> None:
        """Add a snapshot of a later step.

        learning_rate_sum: learning rate summed up to it; None where that is not known.
        layers: names of all layers that may attend, in their order; a training's own batch may skip
        some of them (LayerDrop).
        """
        if self.steps and step <= self.steps[-1]:
            raise InputError(
                f"step: {step} after {self.steps[-1]}; steps must grow, make a new observer for a "
                "new training"
            )
        if self.steps and self.comparable and tuple(self._kinds) != snapshot.order:
            raise InputError(
                f"model: other layers attend at step {step} than before; observe one model, or "
                "make a new observer for another"
            )
        if self.comparable:
            if not self.steps:
                self._start = _received(snapshot)
            self._compare(step, snapshot, learning_rate_sum)
        names = [*self._kinds, *layers, *snapshot.order]
        self._kinds = dict.fromkeys(names, "self") | self._kinds
        for group in snapshot.groups:
            self._kinds |= dict.fromkeys(group.layers, group.labels.kind)
            self._min_keys = group.labels.min_keys
        self.steps.append(step)
        means = _by_layer(snapshot.groups, list(map(means_over_sequences, snapshot.groups)))
        weights = snapshot.weights.values
        self._means.append({name: {**one, **weights.get(name, {})} for name, one in means.items()})
        self._last = replace(snapshot, groups=keep_for_next(snapshot.groups))
        words = {"unseen": snapshot.unseen, "unrecognised": snapshot.weights.unrecognised}
        self.words = {name: json.dumps(dict(one)) for name, one in words.items()}
        kernel = dict.fromkeys(group.labels.kernel for group in snapshot.groups)
        self.words["kernel"] = "; ".join(kernel)

    def trim(self, step: int) -> None:
        """Forget the snapshots from `step` on: the training goes on from an earlier state.

        Attention weights are kept of few snapshots, so that the motion from the last of the others
        to the next may not be known: then it is NaN there.
        """
        number = bisect_left(self.steps, step)
        if not number:
            self.clear()
        if number == len(self.steps):
            return
        del self.steps[number:], self._means[number:]
        if self._sums is not None:
            del self._sums[number:]
        self._changes = {pair: one for pair, one in self._changes.items() if pair[1] < number}
        self._held = {index: one for index, one in self._held.items() if index < number}
        self._last = None
        self._by_step, self._by_rate = EqualSpans(), EqualSpans()
        for known in self.steps:
            self._by_step.add(known)
        for spent in self._sums or ():
            self._by_rate.add(spent)

    @property
    def spent(self) -> float | None:
        """Learning rate summed up to the last snapshot; None where it is not known."""
        return self._sums[-1] if self._sums else None

    def spent_at(self, step: int, *, last: int, spent: float | None) -> float | None:
        """Return the learning rate summed up to an earlier step, interpolated between snapshots;
        None where it is not known.

        last, spent: the step that the training had reached, and the sum there.
        """
        if not self.steps or step <= self.steps[0]:
            return 0.0
        if self._sums is None or spent is None or not self.comparable:
            return None
        # several knots at one step are the same
        return float(np.interp(step, [*self.steps, last], [*self._sums, spent]))

    def _compare(self, step: int, snapshot: Snapshot, spent: float | None) -> None:
        """Measure how far attention has moved since earlier snapshots whose weights are kept."""
        if spent is None or self._sums is None:
            self._sums, self._by_rate = None, EqualSpans()
        now = len(self.steps)
        starts = set(self._by_step.add(step))
        if self._sums is not None and spent is not None:
            self._sums.append(spent)
            starts |= set(self._by_rate.add(spent))
        before = dict(self._held)
        if now and self._last is not None:
            before[now - 1] = self._last.groups
        for start in (starts | {now - 1}) & before.keys():
            self._changes[start, now] = _changes(before[start], snapshot)
        still = self._by_step.open | self._by_rate.open
        if now - 1 in still & before.keys():
            self._held[now - 1] = _attention(before[now - 1])
        self._held = {index: groups for index, groups in self._held.items() if index in still}

    def means(self) -> xr.Dataset:
        """Return the means of the last snapshot, over (layer, head)."""
        return with_roles(self._labelled(self.of_layers(-1), ()))

    def _labelled(self, values: Arrays, before: tuple[str, ...]) -> xr.Dataset:
        return labelled(values, self._kinds, before).assign_attrs(min_keys=self._min_keys)

    def dataset(self, *, faulty: Collection[int] = ()) -> xr.Dataset:
        """Return everything so far, over (step, layer, head).

        faulty: steps with unreliable weights; no snap is claimed across them.
        """
        if not self.steps:
            raise InputError(
                "step: nothing was measured yet; call step(0), or train a while (in distributed "
                "training only the first process has results)"
            )
        steps = np.asarray(self.steps)
        values = _stacked([self.of_layers(index) for index in range(steps.size)])
        whole = self._labelled(values, ("step",)).assign_coords(step=steps)
        attrs = dict(self.words)
        if self._changes:
            changes = self._between(np.arange(steps.size)).rename(span="step").mean("sequence")
            fast = speeds(changes["change"], steps)
            whole = whole.assign({n: v.reindex(step=steps) for n, v in fast.data_vars.items()})
            overlap = changes.get("heavy_overlap", changes["change"] * np.nan)
            whole["heavy_overlap"] = overlap.assign_coords(step=steps[1:]).reindex(step=steps)
            if self._sums is not None:
                whole = whole.assign_coords(learning_rate_sum=("step", self._sums))
            found = snap(self._spans(steps, faulty))
            whole = whole.assign(found.data_vars).assign(self._gained())
            attrs |= found.attrs
        else:
            whole["snap_step"] = xr.full_like(whole["entropy"].isel(step=0, drop=True), np.nan)
        whole.attrs = attrs
        return with_roles(whole)

    def _spans(self, steps: NDArray[Any], faulty: Collection[int]) -> Spans:
        """Return the equal spans that decide about a snap: of learning rate, or else of steps."""
        sums = self._sums
        rate_known = sums is not None and sums[-1] > sums[0]
        spans = self._by_rate if rate_known else self._by_step
        bounds = np.array(spans.bounds())
        bad = np.isin(steps, list(faulty))
        known = [
            not bad[a : b + 1].any() and (a, b) in self._changes
            for a, b in itertools.pairwise(bounds.tolist())
        ]
        return Spans(
            self._between(bounds)["change"],
            steps[bounds],
            np.diff(np.array(spans.clock)[bounds]),
            np.array(known, bool),
            rate_known,
            stopped=sums is not None and rate_known and stopped_by_schedule(steps, sums),
        )

    def _between(self, records: NDArray[Any]) -> xr.Dataset:
        """Return the changes from each of these snapshots to the next; NaN where not known."""
        pairs = list(itertools.pairwise(records.tolist()))
        some = [self._changes.get(pair, {}) for pair in pairs]
        some.append(next(iter(self._changes.values())))  # whose shape the others have
        dims = ("span", "layer", "sequence", "head")
        found = xr.Dataset({name: (dims, values) for name, values in _stacked(some).items()})
        return found.isel(span=slice(len(pairs)))

    def of_layers(self, index: int) -> Arrays:
        """Stack the means of a snapshot's layers, in the order of all layers."""
        return _stacked([self._means[index].get(name, {}) for name in self._kinds])

    def _gained(self) -> dict[str, xr.DataArray]:
        """Return the attention that each key of the first layer received at the first and the last
        step."""
        end = None if self._last is None else _received(self._last)
        if self._start is None or end is None:
            return {}
        return {"received_start": self._start, "received_end": end}


def _changes(before: tuple[LayerStatistics, ...], after: Snapshot) -> Arrays:
    """Return how far attention has moved, over layer, sequence and head; and the overlap of heavy
    hitters, where those of `before` are known."""
    first, second = before, after.groups
    if [one.layers for one in first] != [one.layers for one in second]:  # of another device
        by_layer = {one.layers: one for group in first for one in group.apart()}
        second = tuple(one for group in second for one in group.apart())
        first = tuple(by_layer[one.layers] for one in second)
    found: list[Array] = []
    numbers: list[int] = []  # number of arrays in `found` after each group
    names = ["change", *(["heavy_overlap"] if HEAVY in first[0].arrays else [])]
    for earlier, later in zip(first, second, strict=True):
        was, now = earlier.arrays["attention"], later.arrays["attention"]
        if tuple(was.shape) != tuple(now.shape) or later.labels.row_query is None:
            raise InputError(
                f"probe: attention of shape {tuple(now.shape)} after {tuple(was.shape)}; "
                "observe one model on one probe"
            )
        each = max(1, AT_A_TIME * len(now) // math.prod(now.shape))
        for some in even_cuts(len(now), each):
            found.append(moved(_where(now, was[some]), now[some], later.labels.row_query))
            if len(names) > 1:
                heavy_before, heavy = earlier.arrays[HEAVY][some], later.arrays[HEAVY][some]
                found.append(shared(_where(heavy, heavy_before), heavy))
        numbers.append(len(found))
    here, parts = all_to_numpy(found), []  # in one synchronisation
    for begun, end in zip([0, *numbers], numbers, strict=False):
        of_group = here[begun:end]
        parts.append(
            {name: np.concatenate(of_group[i :: len(names)]) for i, name in enumerate(names)}
        )
    of_layers = _by_layer(second, parts)
    return _stacked([of_layers[name] for name in after.order])


def _attention(groups: tuple[LayerStatistics, ...]) -> tuple[LayerStatistics, ...]:
    """Return the attention weights alone, on the host, where they may be kept for long."""
    return tuple(
        replace(group, arrays={"attention": to_numpy(group.arrays["attention"])})
        for group in groups
    )


def _where(now: Array, was: Array) -> Array:
    """Return an earlier array, perhaps on the host, on the device of a later one."""
    return was if type(was) is type(now) else same_kind(now, to_numpy(was))


def _by_layer(groups: Sequence[LayerStatistics], parts: Sequence[Arrays]) -> dict[str, Arrays]:
    """Return the arrays of each group, layer by layer."""
    return {
        layer: {name: values[i] for name, values in part.items()}
        for group, part in zip(groups, parts, strict=True)
        for i, layer in enumerate(group.layers)
    }


def _received(snapshot: Snapshot) -> xr.DataArray | None:
    """Return the attention that keys of the first layer receive, mean over heads, where tokens
    are known."""
    first = snapshot.layer(snapshot.order[0])
    if "token" not in first.coords or first["kind"].item() != "self":
        return None
    mean = first["received"].mean("head").drop_vars("kind")
    return mean.assign_attrs(long_name="mean attention that a key of the first layer gets")


def _stacked(parts: list[Arrays]) -> Arrays:
    """Stack arrays by name; NaN where a part lacks an array, or has fewer heads."""
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

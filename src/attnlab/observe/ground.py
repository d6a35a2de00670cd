"""The ground of a call: all that does not depend on its queries and keys.

Which rows are measured, what they see, and where the keys are that something is said of. Layers of
one model mostly share it, so that it is made once for all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attnlab.measures import places
from attnlab.measures.arrays import Array, alike, beside, namespace, to_numpy
from attnlab.measures.received import token_counts
from attnlab.observe import budget
from attnlab.observe.block import Part, Seen, cuts_of, even_cuts
from attnlab.observe.call import AttentionCall
from attnlab.observe.plan import Plan
from attnlab.observe.sample import Rows, choose_rows, last_rows, spread_rows
from attnlab.observe.sheet import Labels

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int

MAP_ROWS = 8  # rows of each sequence whose maps are given, for the speed of maps,
MAP_BYTES = 2**24  # or fewer, where the maps of all sequences would be larger than this
SINKS = max(places.FIRST)


@dataclass(frozen=True, eq=False)
class Spot:
    """What is known of the rows of one block.

    weight: how many rows each stands for; and the same in the prompt alone, 0 after it.
    at: keys of which the attention is wanted (the first ones; its own place, the one before), and
    there: 0 where there is no such key.
    targets: what the attention to each key is multiplied with, for each column of `Ground.sums`,
    and chance: what is taken from the sum.
    """

    seen: Seen
    number: Float[Array, "#batch #head row"]
    weight: Float[Array, "batch 2 row"]
    at: Int[Array, "batch 1 row place"]
    there: Float[Array, "batch 1 row place"]
    targets: Float[Array, "batch row column key"]
    chance: Float[Array, "#batch #head row column"]


@dataclass(frozen=True, eq=False)
class Ground:
    """Of one call, and of all that are like it.

    chosen: the rows whose means are taken. fixed: those whose maps are given. later, voters: of
    what is said of caches; none of them where queries see later keys.
    """

    call: AttentionCall
    plan: Plan
    chosen: Rows
    fixed: Rows
    later: Rows
    voters: Rows
    counts: tuple[NDArray[Any], NDArray[Any]] | None  # of tokens
    budget_bytes: int
    _spots: dict[tuple[int, int], Spot] = field(default_factory=dict)
    _beside: dict[tuple[int, int], Seen] = field(default_factory=dict)
    _made: dict[str, Array] = field(default_factory=dict)

    @classmethod
    def of(
        cls, call: AttentionCall, plan: Plan, *, rows: int | None, seed: int, budget_bytes: int
    ) -> Ground:
        batch, head, _, keys = call.shape
        caches = not (plan.later or call.cross)
        number = max(budget.LEAST_LATER, budget.LATER // batch) if caches else 0
        return cls(
            _shadow(call),
            plan,
            choose_rows(plan.eligible, rows, seed=seed),
            spread_rows(
                plan.eligible, max(1, min(MAP_ROWS, MAP_BYTES // (4 * batch * head * keys)))
            ),
            last_rows(plan.eligible, number),
            last_rows(plan.eligible, budget.WINDOW if caches else 0, before=number),
            None if plan.tokens is None else token_counts(plan.tokens, plan.keys),
            budget_bytes,
        )

    @property
    def caches(self) -> bool:
        """Whether something can be said of caches."""
        return len(self.later) > 0

    @cached_property
    def sums(self) -> tuple[str, ...]:
        """The statistics of a row that are sums over keys."""
        own, known = not self.call.cross, self.counts is not None
        return (
            "whole",
            *(("far", "local_mass") if own else ()),
            *(("common_mass", "distinct_mass") if known else ()),
            *(("induction_mass", "duplicate_mass") if own and known else ()),
        )

    @cached_property
    def cuts(self) -> tuple[tuple[slice, tuple[slice, ...]], ...]:
        """Sequences that are looked at together, and the rows of each block of them."""
        together, in_block = cuts_of(self.call, self.budget_bytes)
        rows = tuple(even_cuts(len(self.chosen), in_block))
        return tuple((some, rows) for some in even_cuts(self.call.shape[0], together))

    @cached_property
    def cuts_beside(self) -> tuple[slice, ...]:
        """The rows beside the chosen ones, in blocks: later, voters, fixed."""
        _, in_block = cuts_of(self.call, self.budget_bytes)
        number = len(self.later) + len(self.voters) + len(self.fixed)
        return tuple(even_cuts(number, in_block))

    def spot(self, part: Part, sequences: slice, rows: slice) -> Spot:
        """What is known of a block of chosen rows."""
        where = (sequences.start, rows.start)
        found = self._spots.get(where)
        if found is None:
            found = self._spot(part, sequences, rows)
            if self.kept_bytes <= self.budget_bytes // 2:
                self._spots[where] = found
        return found

    def beside(self, part: Part, sequences: slice, rows: slice) -> Seen:
        """What is known of a block of the rows beside the chosen ones."""
        where = (sequences.start, rows.start)
        found = self._beside.get(where)
        if found is None:
            three = (self.later, self.voters, self.fixed)
            index = np.concatenate([one.index for one in three], axis=1)[sequences, rows]
            found = part.seen(index, self.plan.cut(sequences).at("counts", index))
            if self.kept_bytes <= self.budget_bytes // 2:
                self._beside[where] = found
        return found

    @cached_property
    def seen_later(
        self,
    ) -> Bool[Array, "#batch #head row key"]:
        """What the later rows see."""
        part = Part.of(self.call, slice(None))
        return part.visible(beside(part.query, self.later.index))

    @property
    def labels(self) -> Labels:
        """What the results of such calls are labelled with."""
        fixed = self.fixed
        return Labels(
            "cross" if self.call.cross else "self", self.plan.min_keys, self.plan.tokens,
            np.where(fixed.weight > 0, fixed.index, -1),
        )  # fmt: skip

    @cached_property
    def seeing(
        self,
    ) -> Float[NDArray[Any], "#batch #head key"]:
        """How many of the chosen rows, each as often as it stands for others, see a key."""
        if self.call.full_mask is None:
            return self._seeing_by_span()
        found = []
        for some, cuts in self.cuts:
            part = Part.of(self.call, some)
            total: Any = 0.0
            for cut in cuts:
                rows = self.chosen.cut(some, cut)
                visible = part.visible(beside(part.query, rows.index))
                weight = alike(part.key, rows.weight)[:, None, None, :]
                xp = namespace(visible)
                shown = xp.matmul(weight, alike(part.key, visible))
                total = total + to_numpy(shown[:, :, 0, :]).astype(np.float64)
            found.append(np.broadcast_to(total, (rows.index.shape[0], *np.shape(total)[1:])))
        return np.concatenate(found)

    def _seeing_by_span(self) -> NDArray[Any]:
        """Without a mask a query sees a run of keys."""
        batch, _, queries, keys = self.call.shape
        first, last = self.call.span(self.chosen.index + (keys - queries))
        first, after = np.clip(first, 0, keys), np.clip(last + 1, 0, keys)
        total = np.zeros((batch, 1, keys))
        for b in range(batch):
            begun, ended = (
                np.bincount(end[b], self.chosen.weight[b], keys + 1) for end in (first, after)
            )
            total[b, 0] = np.cumsum(begun - ended)[:keys]
        return total

    @cached_property
    def in_prompt(self) -> Float[NDArray[Any], "batch row"]:
        """The weight of the chosen rows before the later ones: there the prompt ends."""
        later = self.later
        most = later.index.max(initial=0)
        end = np.where(later.weight > 0, later.index, most).min(axis=1, initial=most)
        return self.chosen.weight * (self.chosen.index < end[:, None])

    @property
    def kept_bytes(self) -> int:
        """What all spots take together."""
        batch, _, _, keys = self.call.shape
        size = 4 * len(self.sums) + self.plan.counts.shape[1]
        return batch * len(self.chosen) * keys * size

    def _spot(self, part: Part, sequences: slice, cut: slice) -> Spot:
        plan, rows = self.plan.cut(sequences), self.chosen.cut(sequences, cut)
        counts = plan.at("counts", rows.index)
        seen, kind = part.seen(rows.index, counts), part.key.dtype
        xp = namespace(part.key)
        _, _, queries, keys = self.call.shape
        where = rows.index + (keys - queries)
        start = plan.at("starts", rows.index)
        own = () if self.call.cross else (where, where - 1)
        at = np.stack([*(start + i for i in range(SINKS)), *own], axis=-1)[:, None]
        there = (at >= 0) & (at < keys)
        place, first = beside(part.key, where), beside(part.key, start)
        shape = (*rows.index.shape, keys)
        targets = {"whole": xp.ones(shape, dtype=kind, **_device(part.key))}
        chance = {}
        if not self.call.cross:
            far = places.distance(targets["whole"], places=place)
            targets |= {"far": far, "local_mass": far < places.LOCAL}
        if self.counts is not None and plan.tokens is not None:
            several = beside(part.key, self.counts[1][sequences] > 1)[:, None, :]
            targets |= {"common_mass": several, "distinct_mass": ~several}
            if not self.call.cross:
                tokens = beside(part.key, plan.tokens)
                found = {
                    "induction_mass": places.followers(tokens, place, start=first),
                    "duplicate_mass": places.occurrences(tokens, place, start=first),
                }
                targets |= found
                chance = {
                    name: places.chance(target[:, None], seen.visible, kind)
                    for name, target in found.items()
                }
        heads = seen.visible.shape[1]
        zeros = alike(part.key, np.zeros((counts.shape[0], heads, counts.shape[2])))
        weight = np.stack([rows.weight, self.in_prompt[sequences, cut]], axis=1)
        return Spot(
            seen=seen,
            number=alike(part.key, counts),
            weight=alike(part.key, weight),
            at=beside(part.key, np.clip(at, 0, keys - 1)),
            there=alike(part.key, there),
            targets=xp.stack(
                [xp.broadcast_to(alike(part.key, targets[n]), shape) for n in self.sums], axis=2
            ),
            chance=xp.stack([chance.get(name, zeros) for name in self.sums], axis=-1),
        )

    def voting(self, maps: Array) -> Float[Array, "batch row"]:
        """The weights of the rows that vote, beside their maps."""
        if "voters" not in self._made:
            self._made["voters"] = alike(maps, self.voters.weight)
        return self._made["voters"]

    def pieces(self, rows: slice) -> Iterator[tuple[str, slice, slice]]:
        """Of a block of the rows beside: whose, where in the block, and which of theirs."""
        begun = 0
        for name in ("later", "voters", "fixed"):
            end = begun + len(getattr(self, name))
            start, stop = max(begun, rows.start), min(end, rows.stop)
            if start < stop:
                inside = slice(start - rows.start, stop - rows.start)
                yield name, inside, slice(start - begun, stop - begun)
            begun = end


def _shadow(call: AttentionCall) -> AttentionCall:
    """A call of the same shape, without the arrays of the model."""

    def shadow(array: Array) -> Array:
        xp = namespace(array)
        return xp.broadcast_to(xp.zeros_like(array[:1, :1, :1, :1]), tuple(array.shape))

    return replace(call, query=shadow(call.query), key=shadow(call.key), value=None, sinks=None)


def _device(array: Array) -> dict[str, Any]:
    return {"device": array.device} if hasattr(array, "device") else {}

"""Heads that are looked at together: those of one call, or of several that are alike.

An operation on an accelerator takes its time to begin, however small it is. So heads of several
layers stand side by side, as if one layer had them all, and one operation serves them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from attnlab.measures.arrays import Array, namespace

if TYPE_CHECKING:
    from jaxtyping import Float


@dataclass(frozen=True, eq=False)
class Heads:
    """What maps are made of.

    query: of the rows that are looked at, and times the scale. largest: where rows are sampled, the
    largest logit of each head over all rows. layers: of how many calls.
    """

    query: Float[Array, "batch head row width"]
    key: Float[Array, "batch kv_head key width"]
    sinks: Float[Array, " head"] | None
    largest: Float[Array, "batch head"] | None
    layers: int = 1

    def of_sequences(self, some: slice) -> Heads:
        """Of these sequences."""
        largest = None if self.largest is None else self.largest[some]
        return replace(self, query=self.query[some], key=self.key[some], largest=largest)


def side_by_side(several: Sequence[Heads]) -> Heads:
    """The heads of calls that are alike, in their order."""
    first = several[0]
    if len(several) == 1:
        return first
    xp = namespace(first.query)
    sinks = None if first.sinks is None else xp.concat([one.sinks for one in several])
    return Heads(
        xp.concat([one.query for one in several], axis=1),
        xp.concat([one.key for one in several], axis=1),
        sinks,
        None if first.largest is None else xp.concat([one.largest for one in several], axis=1),
        sum(one.layers for one in several),
    )


def apart(
    arrays: Sequence[Float[Array, "batch layers_and_heads *rest"]], layers: Sequence[int]
) -> Float[Array, "layer batch head *rest"]:
    """Layer by layer again, of several that stand side by side; layers: how many in each array."""
    xp = namespace(arrays[0])
    parts = []
    for array, number in zip(arrays, layers, strict=True):
        batch, _, *rest = array.shape
        split = array.reshape(batch, number, -1, *rest)
        parts.append(xp.moveaxis(split, 1, 0))
    return parts[0] if len(parts) == 1 else xp.concat(parts)

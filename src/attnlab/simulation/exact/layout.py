"""Layout: the entries of Y and Z that have to exist, and their indices.

The dynamics of Lemma 1 touch only a few of the M x M entries of Y and Z:

- Row l of Y moves only if some class draws token l, and z_{ml} only if a class of query m does.
- An exclusive token, of one class, has one logit; shared tokens, of several classes, have one per
  query. Exclusive tokens are kept class by class, so that work follows the non-zeros of P.
- Output columns that are never a target stay identical under a symmetric start: one column with
  a multiplicity stands for all of them.
- Tokens with the same probabilities in every class and the same start are exchangeable in the
  limit of long sequences: one group with a multiplicity stands for them, exactly.
- A sampled sequence has only tokens of its class. Where the last tokens of a dense block are
  exclusive ones, class by class, a sequence needs a number for C + S tokens only, not for C + K S.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from numpy.typing import NDArray

from attnlab.tasks.classes.classes import COMMON, SequenceClasses

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int

# Exclusive tokens are padded to the largest class while that at most doubles their number.
PADDING_FACTOR = 2


@dataclass(frozen=True)
class Sizes:
    """Sizes of a layout."""

    vocab_size: int  # M
    classes: int  # K
    queries: int  # Q
    outputs: int  # J
    shared: int  # A
    exclusive: tuple[int, int]  # R tiles of S

    @property
    def tokens(self) -> int:
        """Token groups, shared and exclusive."""
        return self.shared + math.prod(self.exclusive)

    @classmethod
    def expected(cls, classes: SequenceClasses, *, symmetric_start: bool) -> Sizes:
        """Return the sizes of a dense layout of these classes, before there is one."""
        M, K, Q = classes.vocab_size, len(classes), classes.queries.size
        outputs = min(np.unique(classes.next_token).size + 1, M) if symmetric_start else M
        return cls(M, K, Q, outputs, classes.in_play.size, (K, 0))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Layout:
    """The arrays that the dynamics run on. K classes, Q queries, J output columns, A shared
    token groups, R tiles of S exclusive token groups.

    Where `exclusive_each` is S > 0, the shared groups are C of any kind, then S exclusive tokens of
    each class, class by class, and there are no tiles: A = C + K S.
    """

    shared_log_prob: Float[Any, "K A"]  # log P, -inf outside the support
    shared_multiplicity: Float[Any, " A"]  # tokens that a group stands for
    shared_is_common: Bool[Any, " A"]  # drawn by several classes
    shared_query: Int[Any, " A_of_one_query"]  # of the groups after those of several
    first_exclusive: Int[Any, " K"]  # the first exclusive token among the shared groups
    exclusive_log_prob: Float[Any, "R S"]  # -inf in the padding
    exclusive_multiplicity: Float[Any, "R S"]
    tile_class: Int[Any, " R"]
    output_multiplicity: Float[Any, " J"]
    target: Int[Any, " K"]  # output column of each class's next token
    query: Int[Any, " K"]  # row of Z of each class
    prior: Float[Any, " K"]
    num_queries: int = field(metadata={"static": True})
    # how many of the shared groups, the first, are drawn by several queries
    multi_query: int = field(metadata={"static": True})
    exclusive_each: int = field(metadata={"static": True})  # S
    one_tile_per_class: bool = field(metadata={"static": True})
    # Whether a multiplicity differs from 1; where none does, the products are left out.
    lumped_shared: bool = field(metadata={"static": True})
    lumped_exclusive: bool = field(metadata={"static": True})
    lumped_outputs: bool = field(metadata={"static": True})

    @property
    def classes(self) -> int:
        """K."""
        return self.prior.shape[0]

    @property
    def num_outputs(self) -> int:
        """J."""
        return self.output_multiplicity.shape[-1]

    @property
    def num_shared(self) -> int:
        """A; in a dense layout, where all tokens are."""
        return self.shared_multiplicity.shape[-1]

    @property
    def sizes(self) -> Sizes:
        """Its sizes, where its arrays can be read."""
        return Sizes(
            vocab_size=int(np.sum(self.output_multiplicity)),
            classes=self.classes,
            queries=self.num_queries,
            outputs=self.num_outputs,
            shared=self.num_shared,
            exclusive=self.exclusive_multiplicity.shape,
        )

    @property
    def before_exclusive(self) -> int:
        """C: shared groups before the exclusive tokens that stand class by class."""
        return self.shared_multiplicity.shape[0] - self.classes * self.exclusive_each

    def count_shared(self, per_group: jax.Array) -> jax.Array:
        """Per token -> per group of shared tokens."""
        return per_group * self.shared_multiplicity if self.lumped_shared else per_group

    def count_exclusive(self, per_group: jax.Array) -> jax.Array:
        """Per token -> per group of exclusive tokens; what is padding must be zero already."""
        return per_group * self.exclusive_multiplicity if self.lumped_exclusive else per_group

    def count_outputs(self, per_column: jax.Array) -> jax.Array:
        """Per output column -> per group of columns."""
        return per_column * self.output_multiplicity if self.lumped_outputs else per_column

    def to_tiles(self, per_class: jax.Array) -> jax.Array:
        """Repeat per-class values for the tiles of each class."""
        return per_class if self.one_tile_per_class else per_class[self.tile_class]

    def sum_tiles(self, per_tile: jax.Array) -> jax.Array:
        """Sum per-tile values over the tiles of each class."""
        if self.one_tile_per_class:
            return per_tile
        return jax.ops.segment_sum(per_tile, self.tile_class, num_segments=self.prior.shape[0])


@dataclass(frozen=True)
class TokenMap:
    """Index of each token in play in a layout, to label what comes out."""

    tokens: Int[NDArray[np.int64], " L"]  # in play
    position: Int[NDArray[np.int64], " L"]  # in the order: A shared groups, then R * S exclusive
    num_shared: int
    tile_class: Int[NDArray[np.int64], " R"]
    tile_width: int
    drawn: Int[NDArray[np.int64], " A_drawn"]  # the shared groups' order in a random start
    exclusive_each: int = 0

    def places(self, tokens: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the index of each of `tokens` in the flat order, or -1 where it has none."""
        found = np.minimum(np.searchsorted(self.tokens, tokens), self.tokens.size - 1)
        return np.where(self.tokens[found] == tokens, self.position[found], -1)

    def attention(
        self, shared: NDArray[Any], exclusive: NDArray[Any], vocab_size: int
    ) -> NDArray[Any]:
        """(..., K, A) and (..., R, S) -> (..., K, M)."""
        out = np.zeros((*shared.shape[:-1], vocab_size), shared.dtype)
        return self._filled(out, shared, exclusive, self.tile_class)

    def logits(
        self,
        shared: NDArray[Any],
        exclusive: NDArray[Any],
        start: NDArray[Any],
        class_query: NDArray[np.int64],
    ) -> NDArray[Any]:
        """(..., Q, A) and (..., R, S) -> (..., Q, M); entries that never move keep `start`."""
        out = np.broadcast_to(start, (*shared.shape[:-1], start.shape[-1])).astype(shared.dtype)
        return self._filled(out, shared, exclusive, class_query[self.tile_class])

    def blocks(
        self, logits: NDArray[Any], class_query: NDArray[np.int64], exclusive_shape: tuple[int, int]
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Invert `logits`: (..., Q, M) -> (..., Q, A) and (..., R, S)."""
        shared = np.zeros((*logits.shape[:-1], self.num_shared))
        is_shared = self.position < self.num_shared
        shared[..., self.position[is_shared]] = logits[..., self.tokens[is_shared]]
        exclusive = np.zeros((*logits.shape[:-2], *exclusive_shape))
        tile, slot, token = self._exclusive()
        exclusive[..., tile, slot] = logits[..., class_query[self.tile_class[tile]], token]
        return shared, exclusive

    def _exclusive(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return tile, slot and token of each exclusive token."""
        is_exclusive = self.position >= self.num_shared
        tile, slot = np.divmod(
            self.position[is_exclusive] - self.num_shared, max(self.tile_width, 1)
        )
        return tile, slot, self.tokens[is_exclusive]

    def _filled(
        self, out: NDArray[Any], shared: Any, exclusive: Any, row: NDArray[np.int64]
    ) -> NDArray[Any]:
        """Write the blocks into an array over all tokens; `row` is that of each tile."""
        is_shared = self.position < self.num_shared
        out[..., self.tokens[is_shared]] = shared[..., self.position[is_shared]]
        tile, slot, token = self._exclusive()
        out[..., row[tile], token] = exclusive[..., tile, slot]
        return out


def dense_layout(
    classes: SequenceClasses,
    *,
    symmetric_start: bool,
    by_class: bool = False,
    also: NDArray[np.int64] | None = None,
    whole: bool = False,
) -> tuple[Layout, TokenMap]:
    """Return a layout with an entry for each token in play, as sampled sequences need it.

    by_class: exclusive tokens stand last, class by class, as many of each class as all classes
        have, if that makes them most of the tokens.
    also: tokens that have a place although no class draws them.
    whole: all M tokens have one. Under a symmetric start those that are neither in play nor in
        `also` stay equal: one group, the last, stands for them.
    """
    tokens = classes.in_play if also is None else np.union1d(classes.in_play, also)
    if whole and not symmetric_start:
        tokens = np.arange(classes.vocab_size)
    column = np.searchsorted(tokens, classes.tokens)
    log_prob = np.full((len(classes), tokens.size), -np.inf)
    log_prob[classes.class_of_entry, column] = np.log(classes.values)
    order = _multi_query_first(classes, log_prob)
    last, exclusive_each = (
        _exclusive_last(log_prob[:, order]) if by_class else (np.arange(tokens.size), 0)
    )
    order = order[last]
    log_prob, is_common = log_prob[:, order], (classes.roles()[tokens] == COMMON)[order]
    multiplicity = np.ones(tokens.size)
    rest = classes.vocab_size - tokens.size
    if whole and rest:
        log_prob = np.pad(log_prob, ((0, 0), (0, 1)), constant_values=-np.inf)
        is_common, multiplicity = np.append(is_common, False), np.append(multiplicity, rest)
    K, num_shared = len(classes), multiplicity.size
    arrays = {
        "shared_log_prob": log_prob,
        "shared_multiplicity": multiplicity,
        "shared_is_common": is_common,
        "exclusive_log_prob": np.zeros((K, 0)),
        "exclusive_multiplicity": np.zeros((K, 0)),
        "tile_class": np.arange(K),
    }
    layout = _assemble(classes, arrays, symmetric_start, exclusive_each)
    position = np.argsort(order)
    return layout, TokenMap(tokens, position, num_shared, np.arange(K), 0, last, exclusive_each)


def sparse_layout(
    classes: SequenceClasses,
    *,
    symmetric_start: bool,
    lump: bool,
    start_logits: NDArray[np.float64] | None = None,
) -> tuple[Layout, TokenMap]:
    """Return a layout with exclusive and shared tokens apart.

    Exchangeable tokens are lumped where `lump` allows it.
    """
    order = np.lexsort((classes.class_of_entry, classes.tokens))
    token, klass = classes.tokens[order], classes.class_of_entry[order]
    value, start = classes.values[order], np.zeros(token.size)
    if start_logits is not None:
        start = start_logits[classes.query_index[klass], token]
    tokens, first, omega = np.unique(token, return_index=True, return_counts=True)
    position = np.empty(tokens.size, dtype=np.int64)

    def of_count(count: int) -> tuple[NDArray[Any], ...]:
        """Return the tokens of `count` classes, their group, and each group's entries and size."""
        members = np.flatnonzero(omega == count)
        entries = first[members][:, None] + np.arange(count)
        profile = np.concatenate([klass[entries] * 1.0, value[entries], start[entries]], axis=1)
        representative, group, size = _unique_rows(profile) if lump else _each_its_own(len(members))
        return members, group, entries[representative], size

    exclusive, group, chosen, size = of_count(1)
    tile_class, tile, slot, width = _tiles(klass[chosen[:, 0]], len(classes))
    exclusive_log_prob = np.full((tile_class.size, width), -np.inf)
    exclusive_multiplicity = np.zeros((tile_class.size, width))
    exclusive_log_prob[tile, slot] = np.log(value[chosen[:, 0]])
    exclusive_multiplicity[tile, slot] = size

    blocks, sizes, num_shared = [np.zeros((len(classes), 0))], [np.zeros(0)], 0
    for count in np.unique(omega[omega > 1]):
        members, shared_group, chosen, size = of_count(count)
        block = np.full((len(classes), size.size), -np.inf)
        block[klass[chosen], np.arange(size.size)[:, None]] = np.log(value[chosen])
        position[members] = num_shared + shared_group
        num_shared += size.size
        blocks.append(block)
        sizes.append(size)
    position[exclusive] = num_shared + tile[group] * width + slot[group]
    shared_log_prob = np.concatenate(blocks, axis=1)
    order, shared = _multi_query_first(classes, shared_log_prob), omega > 1
    position[shared] = np.argsort(order)[position[shared]]
    arrays = {
        "shared_log_prob": shared_log_prob[:, order],
        "shared_multiplicity": np.concatenate(sizes)[order],
        "shared_is_common": np.ones(num_shared, dtype=bool),
        "exclusive_log_prob": exclusive_log_prob,
        "exclusive_multiplicity": exclusive_multiplicity,
        "tile_class": tile_class,
    }
    layout = _assemble(classes, arrays, symmetric_start)
    drawn = np.arange(num_shared)
    return layout, TokenMap(tokens, position, num_shared, tile_class, width, drawn)


def _assemble(
    classes: SequenceClasses,
    arrays: dict[str, NDArray[Any]],
    symmetric_start: bool,
    exclusive_each: int = 0,
) -> Layout:
    """Return the layout with these arrays, and those that follow from them."""
    K, M, tile_class = len(classes), classes.vocab_size, arrays.pop("tile_class")
    outputs, target = np.ones(M), classes.next_token
    if symmetric_start:
        targets, target = np.unique(classes.next_token, return_inverse=True)
        rest = M - targets.size
        outputs = np.append(np.ones(targets.size), [rest] if rest else [])
    queries = _queries_of(classes, arrays["shared_log_prob"])
    multi_query = int(np.count_nonzero(queries.sum(axis=0) > 1))
    drawn_exclusive = np.isfinite(arrays["exclusive_log_prob"])
    return Layout(
        **arrays,
        tile_class=tile_class.astype(np.int32),
        shared_query=np.argmax(queries[:, multi_query:], axis=0).astype(np.int32),
        first_exclusive=(queries.shape[1] - exclusive_each * np.arange(K, 0, -1)).astype(np.int32),
        output_multiplicity=outputs,
        target=target.astype(np.int32),
        query=classes.query_index.astype(np.int32),
        prior=classes.prior,
        num_queries=classes.queries.size,
        multi_query=multi_query,
        exclusive_each=exclusive_each,
        one_tile_per_class=np.array_equal(tile_class, np.arange(K)),
        lumped_shared=bool(np.any(arrays["shared_multiplicity"] != 1)),
        lumped_exclusive=bool(np.any(arrays["exclusive_multiplicity"][drawn_exclusive] != 1)),
        lumped_outputs=bool(np.any(outputs != 1)),
    )


def _queries_of(classes: SequenceClasses, log_prob: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return whether a class of the query draws the group, (Q, A)."""
    drawn = np.zeros((classes.queries.size, log_prob.shape[1]), dtype=bool)
    np.logical_or.at(drawn, classes.query_index, np.isfinite(log_prob))
    return drawn


def _multi_query_first(
    classes: SequenceClasses, log_prob: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Return an order of the groups in which those of several queries come first."""
    return np.argsort(_queries_of(classes, log_prob).sum(axis=0) <= 1, kind="stable")


def _exclusive_last(log_prob: NDArray[np.float64]) -> tuple[NDArray[np.int64], int]:
    """Return an order in which the last groups are S exclusive ones of each class, and S.

    S is 0 where those would not be most of the groups.
    """
    drawn = np.isfinite(log_prob)
    klass = np.where(drawn.sum(axis=0) == 1, drawn.argmax(axis=0), -1)
    exclusive_each = int(np.bincount(klass[klass >= 0], minlength=len(drawn)).min())
    if 2 * exclusive_each * len(drawn) < klass.size:
        return np.arange(klass.size), 0
    exclusive = np.concatenate(
        [np.flatnonzero(klass == k)[:exclusive_each] for k in range(len(drawn))]
    )
    return np.append(np.setdiff1d(np.arange(klass.size), exclusive), exclusive), exclusive_each


def _unique_rows(
    rows: NDArray[np.float64],
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Return a representative of each distinct row, the group of each row, and the groups' sizes.

    This is np.unique by rows, which takes several times as long.
    """
    order = np.lexsort(rows.T[::-1])
    changed = np.any(rows[order][1:] != rows[order][:-1], axis=1)
    starts = np.flatnonzero(np.append(True, changed)) if rows.size else np.zeros(0, np.int64)
    group = np.empty(len(rows), dtype=np.int64)
    group[order] = np.cumsum(np.append(False, changed)) if rows.size else 0
    return order[starts], group, np.diff(np.append(starts, len(rows))).astype(np.float64)


def _each_its_own(count: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    return np.arange(count), np.arange(count), np.ones(count)


def _tiles(
    group_class: NDArray[np.int64], num_classes: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], int]:
    """Return the class of each tile, and tile and slot of each exclusive group, and the width.

    Padding is bounded.
    """
    sizes = np.bincount(group_class, minlength=num_classes)
    width = int(sizes.max(initial=0))
    if num_classes * width > PADDING_FACTOR * sizes.sum():
        width = -(-int(sizes.sum()) // num_classes)
    tiles = np.maximum(-(-sizes // max(width, 1)), 1)  # an empty class keeps a tile of padding
    tile_class = np.repeat(np.arange(num_classes), tiles)
    order = np.argsort(group_class, kind="stable")
    rank = np.empty(group_class.size, dtype=np.int64)
    rank[order] = np.arange(group_class.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    first_tile = np.cumsum(tiles) - tiles
    return (
        tile_class,
        first_tile[group_class] + rank // max(width, 1),
        rank % max(width, 1),
        width,
    )

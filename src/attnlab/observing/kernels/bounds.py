"""Which tiles of queries and keys the Triton programs visit, in numpy.

A program visits tiles from `begin` to `end`. In *plain* tiles, from `plain_begin` to `plain_end`,
every row sees every key, so that nothing is tested. All four are multiples of the tile's size.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Int
from numpy.typing import NDArray

Ends = tuple[NDArray[np.int64], NDArray[np.int64]]  # (batch, row) each


def key_bounds(
    seen: Ends,
    plain: Ends | None,
    there: Bool[NDArray[np.bool], "batch row"],
    keys: int,
    tile: tuple[int, int],
) -> Int[NDArray[np.int32], "batch tile 4"]:
    """Return the bounds of keys for each tile of rows.

    seen, plain: the first and the last key that a row may see, and those that are plain for it;
    None where a mask decides. there: rows that count. tile: rows and keys of a tile.
    """
    rows, size = tile
    first, last = _over_tiles(seen, there, rows, inner=False)
    begin = np.clip(first, 0, keys) // size * size
    end = np.maximum(begin, -(-np.clip(last + 1, 0, keys) // size) * size)
    if plain is None:
        return np.stack([begin, begin, begin, end], axis=-1).astype(np.int32)
    first, last = _over_tiles(plain, there, rows, inner=True)
    plain_begin = np.clip(-(-np.clip(first, 0, keys) // size) * size, begin, end)
    plain_end = np.clip(np.clip(last + 1, 0, keys) // size * size, plain_begin, end)
    return np.stack([begin, plain_begin, plain_end, end], axis=-1).astype(np.int32)


def row_bounds(
    seen: Ends,
    there: Bool[NDArray[np.bool], "batch row"],
    keys: int,
    tile: tuple[int, int],
    *,
    masked: bool,
) -> Int[NDArray[np.int32], "batch tile 4"]:
    """Return the bounds of rows for each tile of keys. masked: a mask decides beside `seen`."""
    rows, size = tile
    first_key = np.arange(0, keys, size)
    last_key = np.minimum(first_key + size, keys) - 1

    def meeting(ends: Ends, *, inner: bool) -> Bool[NDArray[np.bool], "batch tile_of_rows tile"]:
        first, last = (one[..., None] for one in ends)
        if inner:
            return (first <= first_key) & (last >= last_key)
        return (first <= last_key) & (last >= first_key)

    visited = meeting(_over_tiles(seen, there, rows, inner=False), inner=False)
    begin, end = _run(visited)
    plain_begin = plain_end = begin
    if not masked:
        plain = visited & meeting(_over_tiles(seen, there, rows, inner=True), inner=True)
        first, last = _run(plain)
        gaps = plain.sum(axis=1) < last - first  # rows out of order
        plain_begin, plain_end = (np.where(gaps | (last == 0), begin, one) for one in (first, last))
    return (np.stack([begin, plain_begin, plain_end, end], axis=-1) * rows).astype(np.int32)


def _over_tiles(ends: Ends, there: NDArray[np.bool], rows: int, *, inner: bool) -> Ends:
    """Return the keys between which some row of each tile sees keys; with `inner`, all rows."""
    far = np.iinfo(np.int32).max
    low, high = (-1, far) if inner else (far, -1)
    padding = ((0, 0), (0, -there.shape[1] % rows))
    found = []
    for one, none, most in zip(ends, (low, high), (inner, not inner), strict=True):
        values = np.pad(np.where(there, one, none), padding, constant_values=none)
        tiles = values.reshape(len(values), -1, rows)
        found.append(tiles.max(axis=-1) if most else tiles.min(axis=-1))
    return found[0], found[1]


def _run(marked: Bool[NDArray[np.bool], "batch tile_of_rows tile"]) -> Ends:
    """Return the first marked tile of rows for each tile of keys, and one after the last."""
    last = np.where(marked.any(axis=1), marked.shape[1] - marked[:, ::-1].argmax(axis=1), 0)
    return np.where(last > 0, marked.argmax(axis=1), 0), last

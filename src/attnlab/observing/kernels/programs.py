"""Triton programs: statistics of rows, of keys, and the largest logit, without attention weights.

Logits are in units of ln 2 inside, because devices compute powers of two. A program visits its
tiles in two loops: *plain* tiles are visible to all rows of the program and far from what only some
tiles hold (a row's own key, the first keys, keys nearer than LOCAL), so that most tests are left
out there; `bounds` says which they are.
"""

# Triton reads these functions: no annotations but its own, and no `and` between tensors.
# mypy: ignore-errors

from typing import Any, NamedTuple

import triton
import triton.language as tl

from attnlab.measures import positions

LOG2E = tl.constexpr(1.4426950408889634)
LN2 = tl.constexpr(0.6931471805599453)
LOW = tl.constexpr(-1e30)
N_NONE = tl.constexpr(2**31 - 1)  # beyond all keys
LOCAL = tl.constexpr(positions.LOCAL)
FIRST = tl.constexpr(max(positions.FIRST))


class Array(NamedTuple):
    """An array of four dims with its strides, 0 where it does not vary; rows of queries and keys
    are contiguous."""

    at: Any
    batch: Any
    head: Any
    row: Any
    key: Any


class Sizes(NamedTuple):
    """Numbers of a call, of which a program serves any.

    group: heads that share keys. scale, softcap: over ln 2; with a softcap, scale is
    2 / (softcap ln 2). offset: the position of the first query.
    """

    rows: Any
    keys: Any
    heads: Any
    group: Any
    scale: Any
    softcap: Any
    window: Any
    offset: Any


class Kind(NamedTuple):
    """Settings of a call, for each of which a program is compiled.

    mask: 0 without a mask, 1 if it is bool, 2 if it is added and hides entries up to a floor.
    width, block: of a head, and padded to a power of two. upcast, dot: how products are made.
    """

    causal: bool
    window: bool
    softcap: bool
    mask: int
    width: int
    block: int
    upcast: bool
    dot: str


@triton.jit
def _place(q, k, mask, floor, sizes, tiles):
    """Return the tile, the head and the sequence of this program, and the arrays of its head."""
    pid = tl.program_id(0)
    head = (pid // tiles).to(tl.int64)
    b, h = head // sizes.heads, head % sizes.heads
    q, k = _of_head(q, b, h), _of_head(k, b, h // sizes.group)
    masks = _of_head(mask, b, h), _of_head(floor, b, h)
    return pid % tiles, head, b, q, k, masks


@triton.jit
def _of_head(array, b, h):
    at = array.at + b * array.batch + h * array.head
    return Array(at, array.batch, array.head, array.row, array.key)


@triton.jit
def _visits(bounds, BLOCK: tl.constexpr, PLAIN: tl.constexpr):
    """Return the number of tiles to visit: the plain ones, or the others, which lie on both sides.

    Also the number of tiles on the first side, where that begins, and where the second side begins,
    less the tiles of the first.
    """
    begin, plain_begin = tl.load(bounds), tl.load(bounds + 1)
    plain_end, end = tl.load(bounds + 2), tl.load(bounds + 3)
    if PLAIN:
        before = (plain_end - plain_begin) // BLOCK
        return before, before, plain_begin, plain_begin
    else:
        before = (plain_begin - begin) // BLOCK
        after = (end - plain_end) // BLOCK
        return before + after, before, begin, plain_end - before * BLOCK


@triton.jit
def _queries(q, row, sizes, kind: tl.constexpr):
    d = tl.arange(0, kind.block)
    inside = (row < sizes.rows)[:, None] & (d < kind.width)[None, :]
    return tl.load(q.at + row[:, None] * q.row + d[None, :], mask=inside, other=0.0)


@triton.jit
def _keys(k, n, sizes, kind: tl.constexpr):
    d = tl.arange(0, kind.block)
    inside = (n < sizes.keys)[None, :] & (d < kind.width)[:, None]
    return tl.load(k.at + n[None, :] * k.row + d[:, None], mask=inside, other=0.0)


@triton.jit
def _capped(x, sizes, kind: tl.constexpr):
    """Return logits over ln 2 of products."""
    x = x * sizes.scale
    if kind.softcap:  # tanh z = 1 - 2 / (exp 2z + 1)
        x = sizes.softcap * (1.0 - 2.0 / (tl.exp2(x) + 1.0))
    return x


@triton.jit
def _logits(q, k, sizes, kind: tl.constexpr):
    """Return the logits of a tile, without bias."""
    if kind.upcast:
        q, k = q.to(tl.float32), k.to(tl.float32)
    return _capped(tl.dot(q, k, input_precision=kind.dot), sizes, kind)


@triton.jit
def _span(position, there, sizes, kind: tl.constexpr):
    """Return the first and the last key that rows may see without a mask; -1 where none."""
    first, last = position * 0, position * 0 + sizes.keys - 1
    if kind.window:
        first = position - sizes.window + 1
        last = tl.minimum(position + sizes.window - 1, sizes.keys - 1)
    if kind.causal:
        last = tl.minimum(position, sizes.keys - 1)
    return first, tl.where(there, last, -1)


@triton.jit
def _seen(x, n, position, span, masks, sizes, kind: tl.constexpr):
    """Return logits (row, key) with their bias, and which keys n the rows see. masks: the mask and
    its floor."""
    first, last = span
    seen = n <= last[:, None]
    if kind.window:
        seen = seen & (n >= first[:, None])
    if kind.mask:
        mask, floor = masks
        query = tl.maximum(position - sizes.offset, 0).to(tl.int64)[:, None]
        entry = tl.load(mask.at + query * mask.row + n * mask.key, mask=seen, other=0)
        if kind.mask == 1:
            seen = seen & (entry != 0)
        else:
            entry = entry.to(tl.float32)
            seen = seen & (entry > tl.load(floor.at + query * floor.row))
            x = x + tl.where(seen, entry, 0.0) * LOG2E
    return x, seen


@triton.jit
def _attention(q, k, n, lse, position, span, masks, sizes, kind: tl.constexpr):
    """Return the attention of each row to one key of its own, n."""
    d = tl.arange(0, kind.block)
    there = (n >= 0) & (n <= span[1])
    at = k.at + tl.where(there, n, 0).to(tl.int64)[:, None] * k.row + d[None, :]
    key = tl.load(at, mask=there[:, None] & (d < kind.width)[None, :], other=0.0)
    x = _capped(tl.sum(q.to(tl.float32) * key.to(tl.float32), 1), sizes, kind)
    n = tl.where(there, n, N_NONE)[:, None]
    x, seen = _seen(x[:, None], n, position, span, masks, sizes, kind)
    return tl.sum(tl.where(seen, tl.exp2(x - lse[:, None]), 0.0), 1)


@triton.jit
def _above_0(x):
    """Return 0 in place of what rounding left below; NaN stays."""
    return tl.where(x < 0.0, 0.0, x)


@triton.jit
def rows(
    q,
    k,
    mask,
    floor,
    sizes,
    out,
    lse_at,
    position_at,
    there_at,
    start_at,
    tokens_at,
    common_at,
    bounds,
    sinks,
    plane,
    kind: tl.constexpr,
    SINKS: tl.constexpr,
    OWN: tl.constexpr,
    TOKENS: tl.constexpr,
    PACKED: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Write the statistics of BLOCK_M rows of a head, in the order of `launch.columns`, and the
    logarithm of the softmax's denominator.

    bounds: first key, first and last key of plain tiles, last key. OWN: queries and keys are of one
    sequence. TOKENS: tokens are known. PACKED: rows of a sequence differ in their first key; where
    they do not, tokens before it are -1.
    """
    tiles = tl.cdiv(sizes.rows, BLOCK_M)
    tile, head, b, q, k, masks = _place(q, k, mask, floor, sizes, tiles)
    tile = tiles - 1 - tile  # the rows that see most first
    row = tile * BLOCK_M + tl.arange(0, BLOCK_M)
    inside = row < sizes.rows
    of_row, of_key = b * sizes.rows, b * sizes.keys
    position = tl.load(position_at + of_row + row, mask=inside, other=0)
    there = tl.load(there_at + of_row + row, mask=inside, other=0) != 0
    start = tl.load(start_at + of_row + row, mask=inside, other=0)
    span = _span(position, there, sizes, kind)
    first, last = span
    if TOKENS and OWN:
        known = inside & (position >= 0) & (position < sizes.keys)
        token = tl.load(tokens_at + of_key + position, mask=known, other=-2)
    q = _queries(q, row, sizes, kind)

    # the largest logit so far, to which sums are relative; above LOW, which has no weight then
    top = tl.full([BLOCK_M], 0.5 * LOW, tl.float32)
    mass = tl.zeros([BLOCK_M], tl.float32)
    heat = tl.zeros([BLOCK_M], tl.float32)  # sum of e^t t
    square = tl.zeros([BLOCK_M], tl.float32)
    number = tl.zeros([BLOCK_M], tl.float32)
    mean = tl.zeros([BLOCK_M], tl.float32)
    spread = tl.zeros([BLOCK_M], tl.float32)  # squared distances from the mean
    far = tl.zeros([BLOCK_M], tl.float32)
    local = tl.zeros([BLOCK_M], tl.float32)
    induction = tl.zeros([BLOCK_M], tl.float32)
    duplicate = tl.zeros([BLOCK_M], tl.float32)
    common = tl.zeros([BLOCK_M], tl.float32)

    bounds += (b * tiles + tile) * 4
    for PLAIN in tl.static_range(2):
        visits, before, begin, after = _visits(bounds, BLOCK_N, PLAIN)
        for i in range(0, visits):
            n_0 = tl.where(i < before, begin, after) + i * BLOCK_N
            n = n_0 + tl.arange(0, BLOCK_N)
            x = _logits(q, _keys(k, n, sizes, kind), sizes, kind)
            if PLAIN:
                more = number * 0.0 + BLOCK_N
                middle = tl.sum(x, 1) / BLOCK_N
                off = x - middle[:, None]
            else:
                x, seen = _seen(x, n[None, :], position, span, masks, sizes, kind)
                if kind.mask:
                    more = tl.sum(seen.to(tl.float32), 1)
                else:
                    run = tl.minimum(last, n_0 + BLOCK_N - 1) - tl.maximum(first, n_0) + 1
                    more = tl.maximum(run, 0).to(tl.float32)
                middle = tl.sum(tl.where(seen, x, 0.0), 1) / tl.maximum(more, 1.0)
                off = tl.where(seen, x - middle[:, None], 0.0)
                x = tl.where(seen, x, LOW)
            higher = tl.maximum(top, tl.max(x, 1))
            t = x - higher[:, None]
            e = tl.exp2(t)
            less = tl.exp2(top - higher)
            here = tl.sum(e, 1)
            heat = less * (heat + mass * (top - higher)) + tl.sum(e * t, 1)
            mass = less * mass + here
            square = less * less * square + tl.sum(e * e, 1)
            top = higher
            # mean and squared distances of two sets, merged
            both = number + more
            apart = middle - mean
            part = more / tl.maximum(both, 1.0)
            spread += tl.sum(off * off, 1) + apart * apart * number * part
            mean += apart * part
            number = both
            if OWN:
                begun = (position - n_0).to(tl.float32)  # distance of the tile's first key
                steps = tl.arange(0, BLOCK_N).to(tl.float32)
                local = less * local
                if PLAIN:  # as far from the row as the tile is long, or farther
                    far = less * far + (begun * here - tl.sum(e * steps[None, :], 1))
                else:
                    away = tl.abs(begun[:, None] - steps[None, :])
                    far = less * far + tl.sum(e * away, 1)
                    local += tl.sum(tl.where(away < LOCAL, e, 0.0), 1)
            if TOKENS:
                shared = tl.load(common_at + of_key + n, mask=n < sizes.keys, other=0.0)
                common = less * common + tl.sum(e * shared[None, :], 1)
                if OWN:
                    at, some = tokens_at + of_key + n, n < sizes.keys
                    same = tl.load(at, mask=some, other=-1)
                    previous = tl.load(at - 1, mask=some & (n > 0), other=-1)
                    repeats = token[:, None] == same[None, :]
                    follows = token[:, None] == previous[None, :]
                    if not PLAIN:
                        if not kind.causal:
                            earlier = n[None, :] < position[:, None]
                            repeats, follows = repeats & earlier, follows & earlier
                        if PACKED:
                            repeats = repeats & (n[None, :] >= start[:, None])
                            follows = follows & (n[None, :] > start[:, None])
                    induction = less * induction + tl.sum(tl.where(follows, e, 0.0), 1)
                    duplicate = less * duplicate + tl.sum(tl.where(repeats, e, 0.0), 1)

    # relative to the larger of the largest logit and a learnable sink's
    lower = tl.zeros([BLOCK_M], tl.float32)
    whole = mass
    if SINKS:
        sink = tl.load(sinks + head % sizes.heads).to(tl.float32) * LOG2E
        higher = tl.maximum(top, sink)
        lower = top - higher
        whole = mass * tl.exp2(lower) + tl.exp2(sink - higher)
    whole = tl.where(whole == 0.0, 1.0, whole)  # rows that see nothing
    shift = lower - tl.log2(whole)  # top minus the logarithm of the denominator
    unit = tl.exp2(lower) / whole
    some = number > 0
    lse = tl.where(some, top - shift, float("inf"))
    at = out + head * sizes.rows + row
    tl.store(lse_at + head * sizes.rows + row, lse, mask=inside)
    # a NaN is lost in a maximum
    tl.store(at, unit * (heat + mass * shift) * LN2, mask=inside)
    tl.store(at + plane, tl.where(some, (mean - top + shift) * LN2, 0.0), mask=inside)
    tl.store(at + 2 * plane, tl.sqrt(spread) * LN2, mask=inside)
    tl.store(at + 3 * plane, tl.where(some, top * LN2 + 0.0 * mass, LOW), mask=inside)
    at += 4 * plane
    if SINKS:
        tl.store(at, (sink - higher - tl.log2(whole)) * LN2, mask=inside)
        at += plane
    tl.store(at, unit * tl.sqrt(square), mask=inside)
    at += plane
    for i in tl.static_range(FIRST):
        p = _attention(q, k, start + i, lse, position, span, masks, sizes, kind)
        tl.store(at, p, mask=inside)
        at += plane
    if OWN:
        itself = _attention(q, k, position, lse, position, span, masks, sizes, kind)
        previous = _attention(q, k, position - 1, lse, position, span, masks, sizes, kind)
        tl.store(at, itself, mask=inside)
        tl.store(at + plane, previous, mask=inside)
        tl.store(at + 2 * plane, unit * far, mask=inside)
        tl.store(at + 3 * plane, unit * local, mask=inside)
        at += 4 * plane
        if TOKENS:
            induction, duplicate = unit * induction, unit * duplicate
            if kind.causal:  # the row's own key was summed too
                at_earlier = tokens_at + of_key + position - 1
                earlier = tl.load(at_earlier, mask=known & (position > 0), other=-1)
                duplicate = _above_0(duplicate - itself)
                follows_own = earlier == token
                if PACKED:
                    follows_own = follows_own & (position > start)
                induction = _above_0(induction - tl.where(follows_own, itself, 0.0))
            tl.store(at, induction, mask=inside)
            tl.store(at + plane, duplicate, mask=inside)
            at += 2 * plane
    tl.store(at, unit * mass, mask=inside)
    if TOKENS:
        tl.store(at + plane, unit * common, mask=inside)
        tl.store(at + 2 * plane, unit * (mass - common), mask=inside)


@triton.jit
def keys(
    q,
    k,
    mask,
    floor,
    sizes,
    out,
    lse_at,
    position_at,
    weight_at,
    bounds,
    kind: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Write the attention that BLOCK_N keys receive from all rows, under two weights of these.

    bounds: first row, first and last row of plain tiles, last row.
    """
    tiles = tl.cdiv(sizes.keys, BLOCK_N)
    tile, head, b, q, k, masks = _place(q, k, mask, floor, sizes, tiles)
    n = tile * BLOCK_N + tl.arange(0, BLOCK_N)
    k = _keys(k, n, sizes, kind)
    # summed over rows once, at the end: a sum in each tile would cross the threads
    every = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    prompt = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    bounds += (b * tiles + tile) * 4
    for PLAIN in tl.static_range(2):
        visits, before, begin, after = _visits(bounds, BLOCK_M, PLAIN)
        for i in range(0, visits):
            row = tl.where(i < before, begin, after) + i * BLOCK_M + tl.arange(0, BLOCK_M)
            inside = row < sizes.rows
            x = _logits(_queries(q, row, sizes, kind), k, sizes, kind)
            # infinite where a row sees nothing, or only fills up
            lse = tl.load(lse_at + head * sizes.rows + row, mask=inside, other=float("inf"))
            if not PLAIN:
                position = tl.load(position_at + b * sizes.rows + row, mask=inside, other=0)
                span = _span(position, inside, sizes, kind)
                x, seen = _seen(x, n[None, :], position, span, masks, sizes, kind)
                x = tl.where(seen, x, -float("inf"))
            p = tl.exp2(x - lse[:, None])
            weight = weight_at + b * 2 * sizes.rows + row
            every += p * tl.load(weight, mask=inside, other=0.0)[:, None]
            prompt += p * tl.load(weight + sizes.rows, mask=inside, other=0.0)[:, None]
    at = out + head * 2 * sizes.keys + n
    tl.store(at, tl.sum(every, 0), mask=n < sizes.keys)
    tl.store(at + sizes.keys, tl.sum(prompt, 0), mask=n < sizes.keys)


@triton.jit
def largest(
    q,
    k,
    mask,
    floor,
    sizes,
    out,
    position_at,
    there_at,
    bounds,
    kind: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Write the largest visible logit of BLOCK_M rows; LOW where they see no key."""
    tiles = tl.cdiv(sizes.rows, BLOCK_M)
    tile, head, b, q, k, masks = _place(q, k, mask, floor, sizes, tiles)
    tile = tiles - 1 - tile
    row = tile * BLOCK_M + tl.arange(0, BLOCK_M)
    inside = row < sizes.rows
    position = tl.load(position_at + b * sizes.rows + row, mask=inside, other=0)
    there = tl.load(there_at + b * sizes.rows + row, mask=inside, other=0) != 0
    q = _queries(q, row, sizes, kind)
    span = _span(position, there, sizes, kind)
    top = tl.full([BLOCK_M, BLOCK_N], LOW, tl.float32)
    bounds += (b * tiles + tile) * 4
    for PLAIN in tl.static_range(2):
        visits, before, begin, after = _visits(bounds, BLOCK_N, PLAIN)
        for i in range(0, visits):
            n = tl.where(i < before, begin, after) + i * BLOCK_N + tl.arange(0, BLOCK_N)
            x = _logits(q, _keys(k, n, sizes, kind), sizes, kind)
            if not PLAIN:
                x, seen = _seen(x, n[None, :], position, span, masks, sizes, kind)
                x = tl.where(seen, x, LOW)
            top = tl.maximum(top, x, propagate_nan=tl.PropagateNan.ALL)
    found = tl.where(there, tl.max(top, 1) + 0.0 * tl.sum(top * 0.0, 1), LOW)
    found = tl.where(found > 0.5 * LOW, found * LN2, found)
    tl.store(out + head * tiles + tile, tl.max(found, 0) + 0.0 * tl.sum(found * 0.0, 0))

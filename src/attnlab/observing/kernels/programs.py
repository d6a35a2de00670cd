"""Triton programs: statistics of rows, of keys, and the largest logit, without attention weights.

Logits are in units of ln 2 inside, because devices compute powers of two. A program visits its
tiles in two loops: *plain* tiles are visible to all rows of the program and far from what only some
tiles hold (a row's own key, the first keys, keys nearer than LOCAL), so that most tests are left
out there; `bounds` says which they are.
"""

# Triton reads these functions: no annotations but its own, and no `and` between tensors.
# mypy: ignore-errors

import triton
import triton.language as tl

from attnlab.measures import positions

LOG2E = tl.constexpr(1.4426950408889634)
LN2 = tl.constexpr(0.6931471805599453)
LOW = tl.constexpr(-1e30)
N_NONE = tl.constexpr(2**31 - 1)  # beyond all keys
LOCAL = tl.constexpr(positions.LOCAL)
FIRST = tl.constexpr(max(positions.FIRST))


@triton.jit
def _capped(x, scale, softcap, SOFTCAP: tl.constexpr):
    """Return logits over ln 2 of products. scale: over ln 2; with a softcap, 2 / (softcap ln 2)."""
    x = x * scale
    if SOFTCAP:  # tanh z = 1 - 2 / (exp 2z + 1)
        x = softcap * (1.0 - 2.0 / (tl.exp2(x) + 1.0))
    return x


@triton.jit
def _logits(q, k, scale, softcap, SOFTCAP: tl.constexpr, UPCAST: tl.constexpr, DOT: tl.constexpr):
    """Return the logits of a tile, without bias."""
    if UPCAST:
        q, k = q.to(tl.float32), k.to(tl.float32)
    return _capped(tl.dot(q, k, input_precision=DOT), scale, softcap, SOFTCAP)


@triton.jit
def _span(position, there, N, window, CAUSAL: tl.constexpr, WINDOW: tl.constexpr):
    """Return the first and the last key that rows may see without a mask; -1 where none."""
    first, last = position * 0, position * 0 + N - 1
    if WINDOW:
        first, last = position - window + 1, tl.minimum(position + window - 1, N - 1)
    if CAUSAL:
        last = tl.minimum(position, N - 1)
    return first, tl.where(there, last, -1)


@triton.jit
def _seen(
    x,
    n,
    first,
    last,
    query,
    mask,
    mask_q,
    mask_k,
    floor,
    floor_q,
    WINDOW: tl.constexpr,
    MASK: tl.constexpr,
):
    """Return logits with their bias, and which are visible, of keys n for rows that broadcast.

    MASK: 0 without a mask, 1 if it is bool, 2 if it is added and hides entries up to `floor`.
    """
    seen = n <= last
    if WINDOW:
        seen = seen & (n >= first)
    if MASK:
        entry = tl.load(mask + query * mask_q + n * mask_k, mask=seen, other=0)
        if MASK == 1:
            seen = seen & (entry != 0)
        else:
            entry = entry.to(tl.float32)
            seen = seen & (entry > tl.load(floor + query * floor_q))
            x = x + tl.where(seen, entry, 0.0) * LOG2E
    return x, seen


@triton.jit
def _attention(
    q,
    k_at,
    k_n,
    d,
    n,
    shift,
    first,
    last,
    query,
    mask,
    mask_q,
    mask_k,
    floor,
    floor_q,
    scale,
    softcap,
    WINDOW: tl.constexpr,
    SOFTCAP: tl.constexpr,
    MASK: tl.constexpr,
    D: tl.constexpr,
):
    """Return the attention of each row to one key of its own, n. shift: of the denominator."""
    there = (n >= 0) & (n <= last)
    at = k_at + tl.where(there, n, 0).to(tl.int64)[:, None] * k_n + d[None, :]
    k = tl.load(at, mask=there[:, None] & (d < D)[None, :], other=0.0)
    x = _capped(tl.sum(q.to(tl.float32) * k.to(tl.float32), 1), scale, softcap, SOFTCAP)
    n = tl.where(there, n, N_NONE)
    x, seen = _seen(x, n, first, last, query, mask, mask_q, mask_k, floor, floor_q, WINDOW, MASK)
    return tl.where(seen, tl.exp2(x - shift), 0.0)


@triton.jit
def _above_0(x):
    """Return 0 in place of what rounding left below; NaN stays."""
    return tl.where(x < 0.0, 0.0, x)


@triton.jit
def rows(
    q_at,
    k_at,
    out,
    lse_at,
    position_at,
    there_at,
    start_at,
    tokens_at,
    common_at,
    bounds,
    sinks,
    mask,
    floor,
    q_b,
    q_h,
    q_r,
    k_b,
    k_h,
    k_n,
    mask_b,
    mask_h,
    mask_q,
    mask_k,
    floor_b,
    floor_h,
    floor_q,
    R,
    N,
    heads,
    group,
    plane,
    scale,
    softcap,
    window,
    offset,
    CAUSAL: tl.constexpr,
    WINDOW: tl.constexpr,
    SOFTCAP: tl.constexpr,
    MASK: tl.constexpr,
    SINKS: tl.constexpr,
    OWN: tl.constexpr,
    TOKENS: tl.constexpr,
    PACKED: tl.constexpr,
    D: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    UPCAST: tl.constexpr,
    DOT: tl.constexpr,
):
    """Write the statistics of BLOCK_M rows of a head, in the order of `launch.columns`, and the
    logarithm of the softmax's denominator.

    bounds: first key, first and last key of plain tiles, last key. OWN: queries and keys are of one
    sequence. TOKENS: tokens are known. PACKED: rows of a sequence differ in their first key; where
    they do not, tokens before it are -1.
    """
    tiles = tl.cdiv(R, BLOCK_M)
    pid = tl.program_id(0)
    tile = tiles - 1 - pid % tiles  # the rows that see most first
    head = (pid // tiles).to(tl.int64)
    b, h = head // heads, head % heads
    row, d = tile * BLOCK_M + tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_D)
    inside = row < R
    position = tl.load(position_at + b * R + row, mask=inside, other=0)
    there = tl.load(there_at + b * R + row, mask=inside, other=0) != 0
    start = tl.load(start_at + b * R + row, mask=inside, other=0)
    first, last = _span(position, there, N, window, CAUSAL, WINDOW)
    query = tl.maximum(position - offset, 0).to(tl.int64)  # for the mask
    if TOKENS and OWN:
        known = inside & (position >= 0) & (position < N)
        token = tl.load(tokens_at + b * N + position, mask=known, other=-2)
    q = tl.load(
        q_at + b * q_b + h * q_h + row[:, None] * q_r + d[None, :],
        mask=inside[:, None] & (d < D)[None, :],
        other=0.0,
    )
    k_at += b * k_b + (h // group) * k_h
    mask += b * mask_b + h * mask_h
    floor += b * floor_b + h * floor_h

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
    begin, plain_begin = tl.load(bounds), tl.load(bounds + 1)
    plain_end, end = tl.load(bounds + 2), tl.load(bounds + 3)
    left = (plain_begin - begin) // BLOCK_N
    for PLAIN in tl.static_range(2):
        if PLAIN:
            visits = (plain_end - plain_begin) // BLOCK_N
        else:
            visits = left + (end - plain_end) // BLOCK_N
        for i in range(0, visits):
            if PLAIN:
                n_0 = plain_begin + i * BLOCK_N
            else:
                n_0 = tl.where(i < left, begin, plain_end - left * BLOCK_N) + i * BLOCK_N
            n = n_0 + tl.arange(0, BLOCK_N)
            k_in = (n < N)[None, :] & (d < D)[:, None]
            k = tl.load(k_at + n[None, :] * k_n + d[:, None], mask=k_in, other=0.0)
            x = _logits(q, k, scale, softcap, SOFTCAP, UPCAST, DOT)
            if PLAIN:
                more = number * 0.0 + BLOCK_N
                middle = tl.sum(x, 1) / BLOCK_N
                off = x - middle[:, None]
            else:
                x, seen = _seen(
                    x, n[None, :], first[:, None], last[:, None], query[:, None],
                    mask, mask_q, mask_k, floor, floor_q, WINDOW, MASK,
                )  # fmt: skip
                if MASK:
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
                shared = tl.load(common_at + b * N + n, mask=n < N, other=0.0)
                common = less * common + tl.sum(e * shared[None, :], 1)
                if OWN:
                    same = tl.load(tokens_at + b * N + n, mask=n < N, other=-1)
                    previous = tl.load(tokens_at + b * N + n - 1, mask=(n > 0) & (n < N), other=-1)
                    repeats = token[:, None] == same[None, :]
                    follows = token[:, None] == previous[None, :]
                    if not PLAIN:
                        if not CAUSAL:
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
        sink = tl.load(sinks + h).to(tl.float32) * LOG2E
        higher = tl.maximum(top, sink)
        lower = top - higher
        whole = mass * tl.exp2(lower) + tl.exp2(sink - higher)
    whole = tl.where(whole == 0.0, 1.0, whole)  # rows that see nothing
    shift = lower - tl.log2(whole)  # top minus the logarithm of the denominator
    unit = tl.exp2(lower) / whole
    some = number > 0
    lse = tl.where(some, top - shift, float("inf"))
    at = out + head * R + row
    tl.store(lse_at + head * R + row, lse, mask=inside)
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
        p = _attention(
            q, k_at, k_n, d, start + i, lse, first, last, query, mask, mask_q, mask_k,
            floor, floor_q, scale, softcap, WINDOW, SOFTCAP, MASK, D,
        )  # fmt: skip
        tl.store(at, p, mask=inside)
        at += plane
    if OWN:
        itself = _attention(
            q, k_at, k_n, d, position, lse, first, last, query, mask, mask_q, mask_k,
            floor, floor_q, scale, softcap, WINDOW, SOFTCAP, MASK, D,
        )  # fmt: skip
        before = _attention(
            q, k_at, k_n, d, position - 1, lse, first, last, query, mask, mask_q, mask_k,
            floor, floor_q, scale, softcap, WINDOW, SOFTCAP, MASK, D,
        )  # fmt: skip
        tl.store(at, itself, mask=inside)
        tl.store(at + plane, before, mask=inside)
        tl.store(at + 2 * plane, unit * far, mask=inside)
        tl.store(at + 3 * plane, unit * local, mask=inside)
        at += 4 * plane
        if TOKENS:
            induction, duplicate = unit * induction, unit * duplicate
            if CAUSAL:  # the row's own key was summed too
                earlier = tl.load(
                    tokens_at + b * N + position - 1, mask=known & (position > 0), other=-1
                )
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
    q_at,
    k_at,
    out,
    lse_at,
    position_at,
    weight_at,
    bounds,
    mask,
    floor,
    q_b,
    q_h,
    q_r,
    k_b,
    k_h,
    k_n,
    mask_b,
    mask_h,
    mask_q,
    mask_k,
    floor_b,
    floor_h,
    floor_q,
    R,
    N,
    heads,
    group,
    scale,
    softcap,
    window,
    offset,
    CAUSAL: tl.constexpr,
    WINDOW: tl.constexpr,
    SOFTCAP: tl.constexpr,
    MASK: tl.constexpr,
    D: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    UPCAST: tl.constexpr,
    DOT: tl.constexpr,
):
    """Write the attention that BLOCK_N keys receive from all rows, under two weights of these.

    bounds: first row, first and last row of plain tiles, last row.
    """
    tiles = tl.cdiv(N, BLOCK_N)
    pid = tl.program_id(0)
    tile = pid % tiles
    head = (pid // tiles).to(tl.int64)
    b, h = head // heads, head % heads
    n, d = tile * BLOCK_N + tl.arange(0, BLOCK_N), tl.arange(0, BLOCK_D)
    k = tl.load(
        k_at + b * k_b + (h // group) * k_h + n[None, :] * k_n + d[:, None],
        mask=(n < N)[None, :] & (d < D)[:, None],
        other=0.0,
    )
    q_at += b * q_b + h * q_h
    mask += b * mask_b + h * mask_h
    floor += b * floor_b + h * floor_h
    # summed over rows once, at the end: a sum in each tile would cross the threads
    every = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    prompt = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    bounds += (b * tiles + tile) * 4
    begin, plain_begin = tl.load(bounds), tl.load(bounds + 1)
    plain_end, end = tl.load(bounds + 2), tl.load(bounds + 3)
    left = (plain_begin - begin) // BLOCK_M
    for PLAIN in tl.static_range(2):
        if PLAIN:
            visits = (plain_end - plain_begin) // BLOCK_M
        else:
            visits = left + (end - plain_end) // BLOCK_M
        for i in range(0, visits):
            if PLAIN:
                row = plain_begin + i * BLOCK_M + tl.arange(0, BLOCK_M)
            else:
                jump = tl.where(i < left, begin, plain_end - left * BLOCK_M)
                row = jump + i * BLOCK_M + tl.arange(0, BLOCK_M)
            inside = row < R
            q_in = inside[:, None] & (d < D)[None, :]
            q = tl.load(q_at + row[:, None] * q_r + d[None, :], mask=q_in, other=0.0)
            x = _logits(q, k, scale, softcap, SOFTCAP, UPCAST, DOT)
            # infinite where a row sees nothing, or only fills up
            lse = tl.load(lse_at + head * R + row, mask=inside, other=float("inf"))
            if not PLAIN:
                position = tl.load(position_at + b * R + row, mask=inside, other=0)
                first, last = _span(position, inside, N, window, CAUSAL, WINDOW)
                query = tl.maximum(position - offset, 0).to(tl.int64)
                x, seen = _seen(
                    x, n[None, :], first[:, None], last[:, None], query[:, None],
                    mask, mask_q, mask_k, floor, floor_q, WINDOW, MASK,
                )  # fmt: skip
                x = tl.where(seen, x, -float("inf"))
            p = tl.exp2(x - lse[:, None])
            one = tl.load(weight_at + b * 2 * R + row, mask=inside, other=0.0)
            other = tl.load(weight_at + (b * 2 + 1) * R + row, mask=inside, other=0.0)
            every += p * one[:, None]
            prompt += p * other[:, None]
    at = out + head * 2 * N + n
    tl.store(at, tl.sum(every, 0), mask=n < N)
    tl.store(at + N, tl.sum(prompt, 0), mask=n < N)


@triton.jit
def largest(
    q_at,
    k_at,
    out,
    position_at,
    there_at,
    bounds,
    mask,
    floor,
    q_b,
    q_h,
    q_r,
    k_b,
    k_h,
    k_n,
    mask_b,
    mask_h,
    mask_q,
    mask_k,
    floor_b,
    floor_h,
    floor_q,
    R,
    N,
    heads,
    group,
    scale,
    softcap,
    window,
    offset,
    CAUSAL: tl.constexpr,
    WINDOW: tl.constexpr,
    SOFTCAP: tl.constexpr,
    MASK: tl.constexpr,
    D: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    UPCAST: tl.constexpr,
    DOT: tl.constexpr,
):
    """Write the largest visible logit of BLOCK_M rows; LOW where they see no key."""
    tiles = tl.cdiv(R, BLOCK_M)
    pid = tl.program_id(0)
    tile = tiles - 1 - pid % tiles
    head = (pid // tiles).to(tl.int64)
    b, h = head // heads, head % heads
    row, d = tile * BLOCK_M + tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_D)
    inside = row < R
    position = tl.load(position_at + b * R + row, mask=inside, other=0)
    there = tl.load(there_at + b * R + row, mask=inside, other=0) != 0
    q = tl.load(
        q_at + b * q_b + h * q_h + row[:, None] * q_r + d[None, :],
        mask=inside[:, None] & (d < D)[None, :],
        other=0.0,
    )
    k_at += b * k_b + (h // group) * k_h
    mask += b * mask_b + h * mask_h
    floor += b * floor_b + h * floor_h
    top = tl.full([BLOCK_M, BLOCK_N], LOW, tl.float32)
    bounds += (b * tiles + tile) * 4
    begin, plain_begin = tl.load(bounds), tl.load(bounds + 1)
    plain_end, end = tl.load(bounds + 2), tl.load(bounds + 3)
    left = (plain_begin - begin) // BLOCK_N
    for PLAIN in tl.static_range(2):
        if PLAIN:
            visits = (plain_end - plain_begin) // BLOCK_N
        else:
            visits = left + (end - plain_end) // BLOCK_N
        for i in range(0, visits):
            if PLAIN:
                n = plain_begin + i * BLOCK_N + tl.arange(0, BLOCK_N)
            else:
                jump = tl.where(i < left, begin, plain_end - left * BLOCK_N)
                n = jump + i * BLOCK_N + tl.arange(0, BLOCK_N)
            k_in = (n < N)[None, :] & (d < D)[:, None]
            k = tl.load(k_at + n[None, :] * k_n + d[:, None], mask=k_in, other=0.0)
            x = _logits(q, k, scale, softcap, SOFTCAP, UPCAST, DOT)
            if not PLAIN:
                first, last = _span(position, there, N, window, CAUSAL, WINDOW)
                query = tl.maximum(position - offset, 0).to(tl.int64)
                x, seen = _seen(
                    x, n[None, :], first[:, None], last[:, None], query[:, None],
                    mask, mask_q, mask_k, floor, floor_q, WINDOW, MASK,
                )  # fmt: skip
                x = tl.where(seen, x, LOW)
            top = tl.maximum(top, x, propagate_nan=tl.PropagateNan.ALL)
    found = tl.where(there, tl.max(top, 1) + 0.0 * tl.sum(top * 0.0, 1), LOW)
    found = tl.where(found > 0.5 * LOW, found * LN2, found)
    tl.store(out + head * tiles + tile, tl.max(found, 0) + 0.0 * tl.sum(found * 0.0, 0))

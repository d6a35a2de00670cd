"""Statistics of attention calls, exact, computed from a block of queries at a time.

They are per sequence and head, so that a bootstrap over sequences is possible afterwards.
docs/measures.md says what each means and where it misleads.

`measure_heads` is the one function that computes attention weights: block by block, for the heads
of several layers at once. `summarize_layers` makes statistics of its measurements, for even more
layers at once, because small operations pay only for many.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Float
from numpy.typing import ArrayLike

from attnlab.files.errors import InputError, require_whole
from attnlab.files.provenance import provenance
from attnlab.measures import arrays, maps, positions
from attnlab.measures.arrays import Array, namespace
from attnlab.measures.received import heavy_hitters, mean_received
from attnlab.observing import call as calls
from attnlab.observing import kernels, kv_cache
from attnlab.observing.call import (
    BASIC,
    LOW,
    AttentionCall,
    Block,
    CallPart,
    Heads,
    is_taken,
    joined,
)
from attnlab.observing.layer_statistics import (
    LABELS,
    LayerStatistics,
    labelled,
    means_over_sequences,
)
from attnlab.observing.query_plan import SINKS, BlockPlan, QueryPlan, weighted_mean

MIN_KEYS = 16
BUDGET_BYTES = 256 * 2**20
# bytes for each column of a row and for each key while layers are summarized
BYTES_OF_A_COLUMN, BYTES_OF_A_KEY = 16, 64
LARGEST = BASIC.index("largest_logit")


@dataclass(frozen=True, eq=False)
class HeadMeasurements:
    """Measurements taken from the attention weights of the heads of some layers.

    columns: statistics of each chosen row. ranked: those of each mapped row that rank its keys.
    totals: attention received by keys, from all rows and from the prompt's. fixed, later: attention
    weights of these rows. window: attention received by
    keys from the rows that vote. sink: attention of the later rows to a learnable sink. short:
    attention received by the first key from rows that see too few keys to be chosen. largest:
    largest logit of all rows. learnable: whether there is a learnable sink.
    """

    layers: int
    columns: Float[Array, "batch head row column"]
    ranked: Float[Array, "batch head mapped column"]
    totals: Float[Array, "batch head 2 key"]
    fixed: Float[Array, "batch head row key"]
    later: Float[Array, "batch head row key"] | None
    window: Float[Array, "batch head key"] | None
    sink: Float[Array, "batch head row"] | None
    short: Float[Array, "batch head"]
    largest: Float[Array, "batch head"]
    learnable: bool


def statistics(call: AttentionCall, **options: Any) -> xr.Dataset:
    """Measure one call: return a dataset over (sequence, head); options of `measure_call`.

    Coords are `kind`, "self" or "cross", and the `token` of each key where it was given. Meanings
    are in the attributes. Means over rows have their standard error beside them, as `NAME_se`: 0
    where all are measured.
    """
    return measure_call(call, **options).dataset(str(call.layer))


def measure_call(
    call: AttentionCall,
    *,
    rows: int | None = None,
    min_keys: int = MIN_KEYS,
    budget_bytes: int = BUDGET_BYTES,
    seed: int = 0,
    **given: ArrayLike | Array | None,
) -> LayerStatistics:
    """Measure one call: return its statistics by sequence and head.

    tokens: (batch, key), the token of every key, for statistics of tokens. present: (batch, query),
    False for padded queries, which are left out. Without it, a position whose key the mask hides
    from all queries is padding (if all others see their own). starts: (batch, query), the first key
    of a query's own text in packed sequences; without it, the first key that some query of the
    sequence sees. rows: number of rows to sample, of all sequences together; None measures all.
    min_keys: rows that see fewer are left out. budget_bytes: memory of a block. seed: of the
    sample, which is the same at every step.

    Statistics without meaning are left out: of positions where keys belong to another sequence, of
    caches where queries see later keys, of tokens that were not given.
    """
    require_whole("budget_bytes", budget_bytes, 1)
    with arrays.full_precision(call.query):
        plan = QueryPlan.of(
            call, rows=rows, seed=seed, budget_bytes=budget_bytes, min_keys=min_keys, **given
        )
        measured = measure_heads(plan, plan.heads(call))
        return summarize_layers(plan, [measured], [call.value], [str(call.layer)])


def measure_heads(plan: QueryPlan, heads: Heads) -> HeadMeasurements:
    """Measure the attention weights of heads, block by block, inside `full_precision`."""
    exact = heads.precise(plan.call.scale, len(plan.chosen) if plan.fused else 0)
    found: list[dict[str, Any]] = []
    for some, cuts in plan.cuts:
        part, mine = CallPart.of(plan.call, some), exact.of_sequences(some)
        rows = _measure_rows(plan, part, mine, some, cuts)
        found.append(rows | _measure_extra_rows(plan, part, mine, some))
    whole = {name: joined([one[name] for one in found]) for name in found[0]}
    if plan.fused:
        fused = kernels.chosen_rows(plan, heads, whole["columns"])
        whole |= _chosen_by_torch(plan.by_torch, heads) if fused is None else fused
    columns = whole["columns"]
    xp, largest, of_short = namespace(columns), heads.largest, whole.pop("short_largest", None)
    if largest is None:
        there = plan.made(columns, "there", lambda: plan.chosen.weight > 0)[:, None]
        largest = xp.max(xp.where(there, columns[..., LARGEST], LOW), axis=-1)
    whole["largest"] = largest if of_short is None else xp.maximum(largest, of_short)
    absent: dict[str, Any] = dict.fromkeys(("later", "window", "sink"))
    absent["short"] = 0.0 * columns[:, :, 0, 0]
    return HeadMeasurements(heads.layers, **absent | whole, learnable=heads.sinks is not None)


def _measure_rows(
    plan: QueryPlan, part: CallPart, heads: Heads, some: slice, cuts: Sequence[slice]
) -> dict[str, Array]:
    """Measure the mapped rows of some sequences from their attention weights."""
    xp = namespace(heads.query)
    columns, ranked, totals = [], [], 0.0
    for cut in cuts:
        block_plan = plan.block_plan(part, some, cut)
        block = part.block(heads, cut, block_plan.seen, block_plan.number)
        totals = totals + xp.matmul(block_plan.weight[:, None], block.maps)
        columns.append(_columns(block, block_plan, plan.factors(block.maps, some)))
        mass = calls.ranked_mass(block.maps)
        keys_for = arrays.cast_like(mass, maps.keys_for(block.maps, ranked=mass))
        ranked.append(xp.concat([maps.top_mass(block.maps, ranked=mass), keys_for], axis=-1))
    return {"columns": joined(columns, 2), "ranked": joined(ranked, 2), "totals": totals}


def _chosen_by_torch(plan: QueryPlan, heads: Heads) -> dict[str, Array]:
    """Measure the chosen rows after all, where the fused program was wrong."""
    exact, found = heads.precise(plan.call.scale), []
    for some, cuts in plan.cuts:
        part = CallPart.of(plan.call, some)
        found.append(_measure_rows(plan, part, exact.of_sequences(some), some, cuts))
    return {name: joined([one[name] for one in found]) for name in ("columns", "totals")}


def _columns(
    block: Block, block_plan: BlockPlan, factors: Float[Array, "batch 1 column key"]
) -> Float[Array, "batch head row column"]:
    """Return statistics of each row: BASIC, ln of a learnable sink's attention, the norm of the
    attention weights, attention to single keys, sums over keys."""
    m = block.maps
    xp = namespace(m)
    sink = () if block.sink is None else (block.sink,)
    basic = xp.stack([*block.logits, *sink, xp.linalg.vector_norm(m, axis=-1)], axis=-1)
    # factors of `QueryPlan.sums`; a row is multiplied with its own for all heads at once
    batch, _, columns, keys = factors.shape
    factors = xp.broadcast_to(factors, (batch, m.shape[2], columns, keys))
    if block_plan.targets is not None:
        factors = xp.concat([arrays.cast_like(factors, block_plan.targets), factors], axis=2)
    turned = xp.permute_dims(m, (0, 2, 1, 3))
    sums = xp.matmul(turned, xp.matrix_transpose(factors))  # batch row head column
    sums = xp.permute_dims(sums, (0, 2, 1, 3)) - block_plan.chance
    single = arrays.take_along(m, block_plan.at, -1) * block_plan.there
    return xp.concat([basic, single, sums], axis=-1)


def _measure_extra_rows(
    plan: QueryPlan, part: CallPart, heads: Heads, some: slice
) -> dict[str, Any]:
    """Measure the extra rows of some sequences."""
    found: dict[str, list[Any]] = {"later": [], "fixed": [], "sink": []}
    window: Any = 0.0
    short: Any = 0.0
    largest: Any = None
    short_starts = partial(plan.visibility.at, "starts", plan.short.index)
    for cut in plan.extra_cuts:
        seen = plan.extra_rows(part, some, cut)
        begun = len(plan.mapped)
        logits = part.logits(heads, slice(begun + cut.start, begun + cut.stop), seen)
        for name, inside, own in plan.pieces(cut):
            blind = None if seen.blind is None else seen.blind[:, :, inside]
            m, sink = part.maps(logits[:, :, inside], heads, blind)
            if name == "voters":
                weight = plan.made(m, "voting", lambda: plan.voters.weight)[some, None, None, own]
                window = window + namespace(m).matmul(weight, m)[:, :, 0, :]
                continue
            if name == "short":
                xp = namespace(m)
                starts = plan.made(m, "first of short", short_starts)
                there = plan.made(m, "short", lambda: plan.short.weight)[some, None, own]
                mass = arrays.take_along(m, starts[some, None, own, None], -1)[..., 0]
                short = short + xp.sum(mass * there, axis=-1)
                rows = xp.where(there > 0, xp.max(logits[:, :, inside], axis=-1), LOW)
                here = xp.max(rows, axis=-1)
                largest = here if largest is None else xp.maximum(largest, here)
                continue
            found[name].append(m)
            if name == "later" and sink is not None:
                found["sink"].append(sink)
    whole = {name: joined(blocks, 2) for name, blocks in found.items() if blocks}
    if len(plan.short):
        whole |= {"short": short, "short_largest": largest}
    if plan.caches and len(plan.voters):
        whole["window"] = window
    elif plan.caches:  # too short for a prompt: nothing is kept of it
        whole["window"] = 0.0 * whole["later"][:, :, 0, :]
    return whole


def bytes_of(one: HeadMeasurements, value: Array | None) -> int:
    """Return the bytes that a layer takes until it is summarized, and while it is."""
    batch, heads, rows, columns = one.columns.shape
    parts = (one.columns, one.short, one.totals, one.fixed, one.later, one.window)
    waits = sum(4 * math.prod(array.shape) for array in parts if array is not None)
    keys = one.totals.shape[-1]
    works = batch * heads * (rows * columns * BYTES_OF_A_COLUMN + keys * BYTES_OF_A_KEY)
    of_value = 0 if value is None else 4 * math.prod(value.shape)
    return (waits + works) // one.layers + of_value


def summarize_layers(
    plan: QueryPlan,
    measurements: Sequence[HeadMeasurements],
    values: list[Any],
    names: Sequence[str],
) -> LayerStatistics:
    """Return the statistics of several calls of one plan. To be called inside `full_precision`.

    values: of each layer, or None; the list is emptied.
    """
    layers = [one.layers for one in measurements]

    def all_of(name: str) -> Any:
        return calls.split_layers([getattr(one, name) for one in measurements], layers)

    # as precise as they were measured: only their means are taken in float64
    columns, ranked = (arrays.with_float64(all_of(name)) for name in ("columns", "ranked"))
    of_rows = _of_rows(plan, columns, measurements[0].learnable)
    of_ranks = _of_ranks(plan, ranked)
    del columns, ranked
    if plan.fused:
        found = _row_means(plan, of_rows, "chosen") | _row_means(plan, of_ranks, "mapped")
    else:
        found = _row_means(plan, of_rows | of_ranks, "chosen")
    del of_rows, of_ranks
    totals = all_of("totals")
    found |= _of_keys(plan, arrays.with_float64(totals[..., 0, :]))
    found["alpha_1"] = _alpha_1(plan, found["sink_mass"][..., 0], arrays.double(all_of("short")))
    found["sink_rate"] = positions.sink_rate(found["alpha_1"])
    largest = arrays.double(all_of("largest"))
    xp = namespace(largest)
    found["max_logit"] = xp.where(largest <= LOW, xp.nan, largest)  # NaN: no key is visible
    found["attention"] = all_of("fixed")
    found["position_only"] = _position_only(plan, found["attention"])
    value = None
    if values[0] is not None:
        value = arrays.precise(namespace(values[0]).stack(values))
        values.clear()
        found["value_norm_ratio"] = _value_norm_ratio(plan, value)
        found["output_norm"] = _output_norm(plan, found["attention"], value)
    if plan.caches:
        sink = None if measurements[0].sink is None else all_of("sink")
        found |= _caches(plan, all_of("later"), all_of("window"), totals[..., 1, :], sink, value)
    return LayerStatistics(tuple(names), found, plan.labels)


def _alpha_1(
    plan: QueryPlan, mean: Float[Array, "layer batch head"], short: Float[Array, "layer batch head"]
) -> Float[Array, "layer batch head"]:
    """Return the attention to the first key, mean over all queries that see a key (Gu et al.
    2025)."""
    xp = namespace(mean)
    weight, _ = plan.weights(mean, "chosen")
    counted = xp.sum(weight, axis=-1)
    few = plan.made(mean, "number of short", lambda: plan.short.weight.sum(axis=1)[:, None])
    return (xp.where(counted > 0, mean, 0.0) * counted + short) / (counted + few)


def _row_means(plan: QueryPlan, named: dict[str, Array], rows: str) -> dict[str, Array]:
    """Return means over these rows, "chosen" or "mapped", and their standard errors."""
    xp = namespace(next(iter(named.values())))
    sizes = [values.shape[-1] for values in named.values()]
    values = xp.concat(list(named.values()), axis=-1)
    mean, error = weighted_mean(values, *plan.weights(values, rows))
    ends = np.cumsum(sizes).tolist()
    found = {}
    for suffix, whole in (("", mean), ("_se", error)):
        for name, begun, end in zip(named, [0, *ends], ends, strict=False):
            cut = whole[..., begun:end]
            found[name + suffix] = cut if len(LABELS[name].dims) > 1 else cut[..., 0]
    return found


def _of_rows(
    plan: QueryPlan, columns: Float[Array, "layer batch head row column"], learnable: bool
) -> dict[str, Float[Array, "layer batch head row column"]]:
    """Return the statistics of each row, in the order of the labels."""
    xp, own = namespace(columns), not plan.call.cross
    sizes = dict.fromkeys((*BASIC, *(("sink",) if learnable else ()), "norm"), 1)
    sizes |= {"first": SINKS}
    sizes |= dict.fromkeys((*(("itself", "before") if own else ()), *plan.sums), 1)
    ends = zip(sizes, np.cumsum(list(sizes.values())).tolist(), strict=True)
    of = {name: columns[..., end - sizes[name] : end] for name, end in ends}
    sink, norm = of.get("sink"), of["norm"]
    number = plan.made(
        columns, "number", lambda: plan.visibility.at("counts", plan.chosen.index)[..., None] * 1.0
    )
    entropy = 0.0 - of["entropy"]
    # rows that only fill up see nothing, and do not count
    found = {
        "entropy": entropy,
        "relative_entropy": maps.relative_entropy(entropy, number),
        "effective_tokens": maps.effective_tokens(entropy),
        "participation": 1.0 / (norm * norm),
        "largest_logit": of["largest_logit"],
        **_floor(of, entropy, number, sink),
        "visible_keys": number + xp.zeros_like(entropy),
    }
    if sink is not None:
        found["learnable_sink_mass"] = xp.exp(sink)
    sinks = [xp.sum(of["first"][..., :k], axis=-1, keepdims=True) for k in positions.FIRST]
    found["sink_mass"] = xp.concat(sinks, axis=-1)
    if own:
        found |= {"self_mass": of["itself"], "previous_mass": of["before"]}
        found |= {"local_mass": of["local_mass"], "mean_distance": of["far"] / of["whole"]}
    last = ("induction_mass", "duplicate_mass", "common_mass", "distinct_mass")
    return found | {name: of[name] for name in last if name in of}


def _of_ranks(
    plan: QueryPlan, ranked: Float[Array, "layer batch head row column"]
) -> dict[str, Float[Array, "layer batch head row column"]]:
    """Return the statistics of each row that rank its keys."""
    top = ranked[..., : len(maps.TOP)]
    keys = ranked[..., len(maps.TOP) :] + 0.0 * top[..., :1]  # NaN has no order, and is counted
    index = plan.mapped.index
    number = plan.made(
        ranked, "ranked number", lambda: plan.visibility.at("counts", index)[..., None] * 1.0
    )
    return {"top_mass": top, "keys_for": keys, "keys_share": keys / number}


def _floor(of: dict[str, Any], entropy: Any, number: Any, sink: Any) -> dict[str, Any]:
    """Return the floor of the whole softmax's entropy; a learnable sink is one of its outcomes."""
    xp, norm = namespace(entropy), of["logit_norm"]
    if sink is not None:  # one logit more, beside the mean of the others
        norm = xp.sqrt(norm**2 + (sink - of["mean_log"]) ** 2 * number / (number + 1))
        number = number + 1
        entropy = entropy - sink * xp.exp(sink)
    floor = maps.entropy_floor(norm, number)
    return {"logit_norm": norm, "entropy_floor": floor, "entropy_slack": entropy - floor}


def _of_keys(plan: QueryPlan, total: Float[Array, "layer batch head key"]) -> dict[str, Array]:
    """Return statistics of the attention that keys receive."""
    xp = namespace(total)
    there = plan.made(total, "keys", lambda: plan.visibility.keys[:, None, :])
    seeing = plan.made(total, "seeing", lambda: plan.seeing)
    received = mean_received(total, seeing)
    received = xp.where(there, received, xp.nan)
    total = xp.where(there, total, xp.nan)
    # a key that few queries see may receive much because they see no other
    seen_by_half = there & (seeing >= positions.SINK_SEEN * xp.max(seeing, axis=-1, keepdims=True))
    shared = xp.where(seen_by_half, received, -xp.inf)
    first = plan.made(total, "first key", lambda: plan.visibility.keys.argmax(axis=1)[:, None])
    strongest = xp.max(shared, axis=-1)
    heavy = heavy_hitters(total)
    whole = xp.sum(xp.where(there, total, 0.0), axis=-1)
    found = {
        "received": received,
        "received_total": total,
        "heavy": heavy,
        "strongest_mass": strongest,
        "strongest_is_first": xp.where(
            xp.isnan(strongest),
            xp.nan,
            arrays.cast_like(total, xp.argmax(shared, axis=-1) == first),
        ),
        "heavy_mass": xp.sum(xp.where(heavy, total, 0.0), axis=-1) / whole,
    }
    if plan.counts is not None:
        found |= _correlations(plan, received)
    return found


def _correlations(
    plan: QueryPlan, received: Float[Array, "layer batch head key"]
) -> dict[str, Array]:
    """Return Spearman's correlations of the attention that keys receive with the frequency and idf
    of their tokens."""
    xp, seen = namespace(received), plan.ranked
    there = plan.made(received, "ranked", lambda: seen[:, None, :])
    # keys without a rank stand behind all others, and NaN has no order
    ordered = ~xp.any(there & xp.isnan(received), axis=-1)
    mine = arrays.ranks(xp.where(there, received, xp.inf))
    xp = namespace(mine)
    number = seen.sum(axis=1)[:, None, None]
    there = plan.made(mine, "ranked here", lambda: seen[:, None, :])
    middle = plan.made(mine, "middle", lambda: (number + 1) / 2)
    mine = xp.where(there, mine - middle, 0.0)
    own = xp.sum(mine * mine, axis=-1)
    several = plan.made(mine, "several", lambda: number[..., 0] > 1)
    found = {}
    for name, score in plan.token_ranks.items():
        theirs = plan.made(mine, name, partial(np.expand_dims, score, 1))
        norm = xp.sqrt(own * xp.sum(theirs * theirs, axis=-1))
        ranked = xp.sum(mine * theirs, axis=-1) / xp.where(norm > 0, norm, xp.inf)
        # a constant ranks nothing
        found[f"{name}_correlation"] = xp.where(several & ordered, ranked, xp.nan)
    return found


def _value_norm_ratio(
    plan: QueryPlan, value: Float[Array, "layer batch kv_head key width"]
) -> Float[Array, "layer batch head"]:
    """Return the norm of the first key's value over the mean of the other visible keys'."""
    norm = arrays.with_float64(namespace(value).linalg.vector_norm(value, axis=-1))
    keys = plan.made(norm, "keys of values", lambda: plan.visibility.keys[:, None, :] * 1.0)
    ratio = positions.first_ratio(norm, keys)
    return namespace(norm).repeat(ratio, plan.call.shape[1] // norm.shape[2], axis=2)


def _position_only(
    plan: QueryPlan, fixed: Float[Array, "layer batch head row key"]
) -> Float[Array, "layer batch head"]:
    """Return the share of attention that is at the same positions in the mean of the other
    sequences; NaN where their fixed rows are at other positions."""
    rows, others = plan.fixed, fixed.shape[1] - 1
    starts = plan.visibility.at("starts", rows.index)
    same = all((one == one[:1]).all() for one in (rows.index, rows.weight, starts))
    if not others or not same:
        return arrays.double(fixed[..., 0, 0]) * np.nan
    xp, number, found = namespace(fixed), int((rows.weight[0] > 0).sum()), []
    for layer in fixed:  # one at a time, because these are large
        own = layer[:, :, :number]
        rest = (xp.sum(own, axis=0, keepdims=True) - own) / others
        shared = xp.sum(xp.minimum(own, rest), axis=-1) / xp.sum(own, axis=-1)
        found.append(xp.mean(shared, axis=-1))
    return arrays.double(xp.stack(found))


def _output_norm(
    plan: QueryPlan,
    fixed: Float[Array, "layer batch head row key"],
    value: Float[Array, "layer batch kv_head key width"],
) -> Float[Array, "layer batch head"]:
    """Return the norm of each head's output in the fixed rows, over the mean of the layer's."""
    output = kv_cache.output_of(fixed[..., None, :], value)[..., 0, :]
    xp = namespace(output)
    weight = plan.made(output, "weight of fixed", lambda: plan.fixed.weight[:, None, :])
    norm = arrays.double(xp.sum(xp.linalg.vector_norm(output, axis=-1) * weight, axis=-1))
    mean = xp.mean(norm, axis=-1, keepdims=True)
    return norm / xp.where(mean > 0, mean, xp.nan)


def _caches(
    plan: QueryPlan,
    later: Float[Array, "layer batch head row key"],
    window: Float[Array, "layer batch head key"],
    heavy: Float[Array, "layer batch head key"],
    sink: Float[Array, "layer batch head row"] | None,
    value: Float[Array, "layer batch kv_head key width"] | None,
) -> dict[str, Float[Array, "layer batch head policy budget"]]:
    """Return the attention and output that policies keep: means over the later rows."""
    rows = plan.later
    entries = math.prod(later.shape) // len(rows)
    in_cut = max(1, plan.budget_bytes // 2 // (entries * kv_cache.BYTES_OF_AN_ENTRY))
    blocks = []
    for cut in calls.even_cuts(len(rows), in_cut):
        mass, error = kv_cache.retained(
            later[..., cut, :],
            plan.cache_limits(cut),
            value=value,
            sink=None if sink is None else sink[..., cut],
            heavy=heavy,
            window=window,
        )
        both = (mass,) if error is None else (mass, error)
        blocks.append(namespace(mass).concat(both, axis=-1))
    values = arrays.double(joined(blocks, -2))
    mean, _ = weighted_mean(values, *plan.weights(values, "later"))
    mean = mean.reshape(*mean.shape[:-1], -1, len(kv_cache.POLICIES), len(kv_cache.BUDGETS))
    # a sequence too short for a prompt does not tell policies apart
    prompt = plan.made(mean, "prompt", lambda: plan.voters.weight.any(axis=1))
    xp = namespace(mean)
    mean = xp.where(prompt[:, None, None, None, None], mean, xp.nan)
    names = ("retained_mass", "output_error")[: mean.shape[-3]]
    return {name: mean[..., i, :, :] for i, name in enumerate(names)}


def record(
    q: Float[Array, "batch head query width"],
    k: Float[Array, "batch kv_head key width"],
    v: Float[Array, "batch kv_head key value_width"] | None = None,
    *,
    layer: int = 0,
    scale: float | None = None,
    causal: bool = False,
    mask: Array | None = None,
    window: int | None = None,
    softcap: float | None = None,
    sinks: Float[Array, " head"] | None = None,
    cross: bool = False,
    tokens: ArrayLike | Array | None = None,
    present: ArrayLike | Array | None = None,
    starts: ArrayLike | Array | None = None,
    rows: int | None = None,
    min_keys: int = MIN_KEYS,
    budget_bytes: int = BUDGET_BYTES,
    seed: int = 0,
) -> xr.Dataset:
    """Measure attention of which you have the queries and keys.

    Give them as the softmax uses them, after rotary embedding and norms, as arrays of numpy, JAX or
    torch; they stay where they are. Results are means over sequences.

    Call it in the code of a torch module whose attention `attnlab.observe` cannot capture: when the
    observer measures, the call counts as attention of that module, under its name, with the
    observer's own tokens and rows. In all other forward passes of a training that is observed it
    does nothing. In both cases the result is an empty dataset. Without an observer every forward
    pass is measured.

    Parameters
    ----------
    q : array
        Queries (batch, head, query, width).
    k : array
        Keys (batch, kv_head, key, width); the number of KV heads divides that of heads.
    v : array, optional
        Values, for errors of the output and norms of values; None leaves those out.
    layer : int, optional
        Number of the layer in the result.
    scale : float, optional
        Factor of the products; 1/sqrt(width) by default.
    causal : bool, optional
        A query sees only the keys up to its own position; the last query is the last key.
    mask : array, optional
        Bool (True: may attend) or additive floats, of which the first drop of 50 or more in a row
        (sorted from the largest) hides all keys after it.
    window : int, optional
        A query sees only keys nearer than this, in either direction.
    softcap : float, optional
        softcap * tanh(logits / softcap), before the mask.
    sinks : array, optional
        Learnable logits, one for each head, in the denominator of the softmax without a key.
    cross : bool, optional
        The keys belong to another sequence, so that positions do not compare.
    tokens : array_like, optional
        The token of each key, (batch, key), for induction and the like.
    present : array_like, optional
        Queries that are not padding, (batch, query): the others are left out. The mask hides keys
        that are padding. Without it, positions whose keys the mask hides from all queries are
        padding, if all other queries see their own.
    starts : array_like, optional
        The first key of a query's own text, in packed sequences.
    rows : int, optional
        Number of queries to sample; None measures all.
    min_keys : int, optional
        Queries that see fewer keys are left out.
    budget_bytes : int, optional
        Memory of a block.
    seed : int, optional
        Seed of the sample.

    Returns
    -------
    xarray.Dataset
        Over (layer, head); empty where an observer takes the call.

    Examples
    --------
    >>> import numpy as np
    >>> import attnlab
    >>> q, k = np.random.default_rng(0).normal(size=(2, 3, 4, 64, 8))  # batch head query width
    >>> found = attnlab.observing.record(q, k, causal=True)
    >>> found.entropy.dims
    ('layer', 'head')
    """
    width = (getattr(q, "shape", None) or (0,))[-1]
    if not width:
        raise InputError("q: expected an array of batch, head, query, width with numbers in it")
    scale = width**-0.5 if scale is None else scale
    call = AttentionCall(q, k, v, scale, layer, mask, causal, window, softcap, sinks, cross)
    if is_taken(call):
        return xr.Dataset()
    sample: dict[str, Any] = {"rows": rows, "min_keys": min_keys, "seed": seed}
    given: dict[str, Any] = {"tokens": tokens, "present": present, "starts": starts}
    group = measure_call(call, budget_bytes=budget_bytes, **sample, **given)
    found = labelled(means_over_sequences(group), {str(layer): group.labels.kind}, ())
    found = found.drop_vars(["module", "kind"]).assign_coords(layer=[layer])
    about = {"scale": scale, "causal": causal, "window": window, "softcap": softcap, "cross": cross}
    made_by = provenance({**about, "shape": call.shape, **sample})
    return found.assign_attrs(made_by, kernel=group.labels.kernel)

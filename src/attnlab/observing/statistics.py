"""The statistics of calls of attention, exact, a block of queries at a time.

They are given for each sequence and head, so that a bootstrap over sequences is possible
afterwards. docs/measures.md says what each is and where it misleads.

`look` takes from maps what needs them, where they are, of several layers' heads side by side;
`conclude` makes statistics of that for still more of them: what is small is worth doing only for
many.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from attnlab.files.errors import require_whole
from attnlab.measures import maps, places
from attnlab.measures.arrays import (
    Array,
    alike,
    at_home,
    double,
    exactly,
    namespace,
    precise,
    ranks,
    taken,
)
from attnlab.measures.received import heavy_hitters, mean_received
from attnlab.observing import budget
from attnlab.observing.block import BASIC, LOW, Block, Part, even_cuts, ranked_mass
from attnlab.observing.call import AttentionCall
from attnlab.observing.ground import SINKS, Ground, Spot
from attnlab.observing.heads import Heads, apart
from attnlab.observing.labels import ROW_MEANS
from attnlab.observing.plan import plan_of
from attnlab.observing.sample import weighted_mean
from attnlab.observing.sheet import Sheet

if TYPE_CHECKING:
    from jaxtyping import Float

MIN_KEYS = 16
BUDGET_BYTES = 256 * 2**20
BYTES_OF_A_COLUMN = 32  # of a row, in float64 and with what is computed from it
LARGEST = BASIC.index("largest_logit")
BYTES_OF_A_KEY = 64  # and of a key


@dataclass(frozen=True, eq=False)
class Look:
    """What was taken from the maps of the heads of some layers.

    columns: of each chosen row. totals: attention received by keys, from all rows and from the
    prompt's. fixed, later: maps of these rows, and window: what keys received from those that vote.
    sink: what a learnable sink takes from the later rows. short: what the first key gets from the
    rows that see too few keys to be chosen. largest: the largest logit of all rows.
    """

    layers: int
    columns: Float[Array, "batch head row column"]
    totals: Float[Array, "batch head 2 key"]
    fixed: Float[Array, "batch head row key"]
    later: Float[Array, "batch head row key"] | None
    window: Float[Array, "batch head key"] | None
    sink: Float[Array, "batch head row"] | None
    short: Float[Array, "batch head"]
    largest: Float[Array, "batch head"]
    learnable: bool  # whether there is a learnable sink


def statistics(
    call: AttentionCall,
    *,
    tokens: ArrayLike | Array | None = None,
    present: ArrayLike | Array | None = None,
    starts: ArrayLike | Array | None = None,
    rows: int | None = None,
    min_keys: int = MIN_KEYS,
    budget_bytes: int = BUDGET_BYTES,
    seed: int = 0,
) -> xr.Dataset:
    """Measure one call: a dataset over (sequence, head), with what each variable is in its attrs.

    tokens: (batch, key), the token of every key, for all that is said of tokens. present: (batch,
    query), False for padded queries: they are left out. Without it, a position whose key the mask
    hides from all queries is padding (if all others see their own). starts: (batch,
    query), the first key of a query's own text in packed sequences; without it, the first key that
    some query of the sequence sees. rows: how many rows are sampled, of all sequences together;
    None measures all. min_keys: rows that see fewer are left out. budget_bytes: what a block may
    take. seed: of the sample, which is the same at every step.

    Coords are `kind`, "self" or "cross", and the `token` of each key where it was given. Means over
    rows have their standard error beside them, as `NAME_se`: 0 where all are measured.
    What has no meaning is left out: places where keys are of another sequence, caches where
    queries see later keys, tokens that were not given.
    """
    require_whole("budget_bytes", budget_bytes, 1)
    with exactly(call.query):
        plan = plan_of(
            call, tokens=tokens, present=present, starts=starts, min_keys=min_keys,
            budget_bytes=budget_bytes,
        )  # fmt: skip
        ground = Ground.of(call, plan, rows=rows, seed=seed, budget_bytes=budget_bytes)
        seen = look(ground, ground.heads(call))
        sheet = conclude(ground, [seen], [call.value], [str(call.layer)])
    return sheet.dataset(str(call.layer))


def look(ground: Ground, heads: Heads) -> Look:
    """Take from the maps of heads what is needed of them. Inside `exactly`."""
    xp = namespace(heads.query)
    found: list[dict[str, Any]] = []
    for some, cuts in ground.cuts:
        part, mine = Part.of(ground.call, some), heads.of_sequences(some)
        columns, totals = [], 0.0
        for cut in cuts:
            spot = ground.spot(part, some, cut)
            block = part.block(mine, cut, spot.seen, spot.number)
            totals = totals + xp.matmul(spot.weight[:, None], block.maps)
            columns.append(_columns(block, spot, ground.factors(block.maps, some)))
        whole = _joined(columns)
        largest = mine.largest
        if largest is None:
            there = ground.made(whole, "there", lambda: ground.chosen.weight > 0)[some, None]
            largest = xp.max(xp.where(there, whole[..., LARGEST], LOW), axis=-1)
        found.append({"columns": whole, "totals": totals, "short": 0.0 * whole[:, :, 0, 0]}
                     | _beside(ground, part, mine, some, largest))  # fmt: skip
    joined: dict[str, Any] = {
        name: xp.concat([one[name] for one in found]) if len(found) > 1 else found[0][name]
        for name in found[0]
    }
    absent: dict[str, Any] = dict.fromkeys(("later", "window", "sink"))
    return Look(heads.layers, **(absent | joined), learnable=heads.sinks is not None)


def _columns(
    block: Block, spot: Spot, factors: Float[Array, "batch 1 column key"]
) -> Float[Array, "batch head row column"]:
    """What is said of each row: BASIC, a learnable sink's ln, the norm of its map, then top-k mass,
    keys for so much, the attention to single keys and the sums that the ground knows of."""
    m = block.maps
    xp = namespace(m)
    sink = () if block.sink is None else (block.sink,)
    basic = xp.stack([*block.logits, *sink, xp.linalg.vector_norm(m, axis=-1)], axis=-1)
    # a row's products with its own factors: all heads of it at once
    turned = xp.permute_dims(m, (0, 2, 1, 3))
    sums = xp.matmul(turned, xp.matrix_transpose(_factors(spot, factors)))  # batch row head column
    single = taken(m, spot.at, -1) * spot.there
    ranked = ranked_mass(m)
    return xp.concat(
        [
            basic,
            maps.top_mass(m, ranked=ranked),
            alike(m, maps.keys_for(m, ranked=ranked)),
            single,
            xp.permute_dims(sums, (0, 2, 1, 3)) - spot.chance,
        ],
        axis=-1,
    )


def _factors(
    spot: Spot, of_all: Float[Array, "batch 1 column key"]
) -> Float[Array, "batch row column key"]:
    """What the attention to each key is multiplied with, for each of `Ground.sums`."""
    xp, rows = namespace(of_all), spot.at.shape[2]
    batch, _, columns, keys = of_all.shape
    of_all = xp.broadcast_to(of_all, (batch, rows, columns, keys))
    if spot.targets is None:
        return of_all
    return xp.concat([alike(of_all, spot.targets), of_all], axis=2)


def _beside(
    ground: Ground, part: Part, heads: Heads, some: slice, largest: Float[Array, "batch head"]
) -> dict[str, Any]:
    """Of the rows beside the chosen ones. largest: logit of the chosen ones, or of all."""
    found: dict[str, list[Any]] = {"later": [], "fixed": [], "sink": []}
    window: Any = 0.0
    short: Any = 0.0
    for cut in ground.cuts_beside:
        seen = ground.beside(part, some, cut)
        begun = len(ground.chosen)
        logits = part.logits(heads, slice(begun + cut.start, begun + cut.stop), seen)
        for name, inside, own in ground.pieces(cut):
            blind = None if seen.blind is None else seen.blind[:, :, inside]
            m, sink = part.maps(logits[:, :, inside], heads, blind)
            if name == "voters":
                weight = ground.voting(m)[some, None, None, own]
                window = window + namespace(m).matmul(weight, m)[:, :, 0, :]
                continue
            if name == "short":
                first, there = ground.first_of_short(m)
                mass = taken(m, first[some, None, own, None], -1)[..., 0]
                xp = namespace(m)
                short = short + xp.sum(mass * there[some, None, own], axis=-1)
                rows = xp.where(
                    there[some, None, own] > 0, xp.max(logits[:, :, inside], axis=-1), LOW
                )
                largest = xp.maximum(largest, xp.max(rows, axis=-1))
                continue
            found[name].append(m)
            if name == "later" and sink is not None:
                found["sink"].append(sink)
    whole = {name: _joined(blocks) for name, blocks in found.items() if blocks}
    whole["largest"] = largest
    if len(ground.short):
        whole["short"] = short
    if ground.caches and len(ground.voters):
        whole["window"] = window
    elif ground.caches:  # too short for a prompt: nothing is kept of it
        whole["window"] = 0.0 * whole["later"][:, :, 0, :]
    return whole


def bytes_of(one: Look, value: Array | None) -> int:
    """What waits of a layer until it is concluded, and what that takes then."""
    batch, heads, rows, columns = one.columns.shape
    arrays = (one.columns, one.short, one.totals, one.fixed, one.later, one.window)
    waits = sum(4 * math.prod(array.shape) for array in arrays if array is not None)
    keys = one.totals.shape[-1]
    works = batch * heads * (rows * columns * BYTES_OF_A_COLUMN + keys * BYTES_OF_A_KEY)
    of_value = 0 if value is None else 4 * math.prod(value.shape)
    return (waits + works) // one.layers + of_value


def conclude(
    ground: Ground, looks: Sequence[Look], values: list[Any], names: Sequence[str]
) -> Sheet:
    """The statistics of several calls on one ground. Inside `exactly`.

    values: of each layer, or None; taken out of the list.
    """
    layers = [one.layers for one in looks]

    def all_of(name: str) -> Any:
        return apart([getattr(one, name) for one in looks], layers)

    found = _row_means(ground, double(all_of("columns")), looks[0].learnable)
    totals = all_of("totals")
    found |= _of_keys(ground, at_home(totals[..., 0, :]))
    found["alpha_1"] = _alpha_1(ground, found["sink_mass"][..., 0], double(all_of("short")))
    found["sink_rate"] = places.sink_rate(found["alpha_1"])
    found["max_logit"] = _max_logit(double(all_of("largest")))
    found["attention"] = all_of("fixed")
    value = None
    if values[0] is not None:
        value = precise(_stacked(values))
        values.clear()
        found["value_norm_ratio"] = _value_norm_ratio(ground, value)
    if ground.caches:
        sink = None if looks[0].sink is None else all_of("sink")
        found |= _caches(ground, all_of("later"), all_of("window"), totals[..., 1, :], sink, value)
    return Sheet(tuple(names), found, ground.labels)


def _max_logit(largest: Float[Array, "layer batch head"]) -> Float[Array, "layer batch head"]:
    """Return the largest logit, and NaN in sequences whose queries see no key."""
    xp = namespace(largest)
    return xp.where(largest <= LOW, xp.nan, largest)


def _alpha_1(
    ground: Ground, mean: Float[Array, "layer batch head"], short: Float[Array, "layer batch head"]
) -> Float[Array, "layer batch head"]:
    """The attention to the first key, mean over all queries that see any (Gu et al. 2025)."""
    xp = namespace(mean)
    weight, _ = ground.weights(mean, "chosen")
    counted = xp.sum(weight, axis=-1)
    few = ground.made(mean, "number of short", lambda: ground.short.weight.sum(axis=1)[:, None])
    return (xp.where(counted > 0, mean, 0.0) * counted + short) / (counted + few)


def _row_means(
    ground: Ground, columns: Float[Array, "layer batch head row column"], learnable: bool
) -> dict[str, Array]:
    named = _of_rows(ground, columns, learnable)
    xp = namespace(columns)
    sizes = [values.shape[-1] for values in named.values()]
    weight, factor = ground.weights(columns, "chosen")
    mean, error = weighted_mean(xp.concat(list(named.values()), axis=-1), weight, factor)
    ends = np.cumsum(sizes).tolist()
    found = {}
    for suffix, whole in (("", mean), ("_se", error)):
        for name, begun, end in zip(named, [0, *ends], ends, strict=False):
            cut = whole[..., begun:end]
            found[name + suffix] = cut if ROW_MEANS[name].dims else cut[..., 0]
    return found


def _of_rows(
    ground: Ground, columns: Float[Array, "layer batch head row column"], learnable: bool
) -> dict[str, Float[Array, "layer batch head row column"]]:
    """Row by row, in the order of the labels."""
    xp = namespace(columns)
    begun = 0

    def some(number: int) -> Any:
        nonlocal begun
        begun += number
        return columns[..., begun - number : begun]

    basic = {name: some(1) for name in BASIC}
    sink = some(1) if learnable else None
    norm = some(1)
    top, keys = some(len(maps.TOP)), some(len(maps.MASS))
    keys = keys + 0.0 * basic["entropy"]  # NaN has no order, and would be counted
    first = some(SINKS)
    own = not ground.call.cross
    itself, before = (some(1), some(1)) if own else (None, None)
    sums = {name: some(1) for name in ground.sums}
    number = ground.made(
        columns, "number", lambda: ground.plan.at("counts", ground.chosen.index)[..., None] * 1.0
    )
    entropy = 0.0 - basic["entropy"]
    # rows that fill up see nothing; what comes out of them is not counted
    found = {
        "entropy": entropy,
        "relative_entropy": maps.relative_entropy(entropy, number),
        "effective_tokens": maps.effective_tokens(entropy),
        "participation": 1.0 / (norm * norm),
        "top_mass": top,
        "keys_for": keys,
        "keys_share": keys / number,
        "largest_logit": basic["largest_logit"],
        **_floor(basic, entropy, number, sink),
        "visible_keys": number + xp.zeros_like(entropy),
    }
    if sink is not None:
        found["learnable_sink_mass"] = xp.exp(sink)
    found["sink_mass"] = xp.concat(
        [xp.sum(first[..., :count], axis=-1, keepdims=True) for count in places.FIRST], axis=-1
    )
    if own:
        found |= {
            "self_mass": itself, "previous_mass": before, "local_mass": sums["local_mass"],
            "mean_distance": sums["far"] / sums["whole"],
        }  # fmt: skip
    last = ("induction_mass", "duplicate_mass", "common_mass", "distinct_mass")
    return found | {name: sums[name] for name in last if name in sums}


def _floor(basic: dict[str, Any], entropy: Any, number: Any, sink: Any) -> dict[str, Any]:
    """The floor of the whole softmax's entropy: a learnable sink is one of its outcomes."""
    xp, norm = namespace(entropy), basic["logit_norm"]
    if sink is not None:  # one logit more, beside the mean of the others
        norm = xp.sqrt(norm**2 + (sink - basic["mean_log"]) ** 2 * number / (number + 1))
        number = number + 1
        entropy = entropy - sink * xp.exp(sink)
    floor = maps.entropy_floor(norm, number)
    return {"logit_norm": norm, "entropy_floor": floor, "entropy_slack": entropy - floor}


def _of_keys(ground: Ground, total: Float[Array, "layer batch head key"]) -> dict[str, Array]:
    """What keys receive."""
    xp = namespace(total)
    there = ground.made(total, "keys", lambda: ground.plan.keys[:, None, :])
    seeing = ground.made(total, "seeing", lambda: ground.seeing)
    received = mean_received(total, seeing)
    received = xp.where(there, received, xp.nan)
    total = xp.where(there, total, xp.nan)
    # a key that few queries see may get much from them, and no other could
    seen_by_half = there & (seeing >= places.SINK_SEEN * xp.max(seeing, axis=-1, keepdims=True))
    shared = xp.where(seen_by_half, received, -xp.inf)
    first = ground.made(total, "first key", lambda: ground.plan.keys.argmax(axis=1)[:, None])
    strongest = xp.max(shared, axis=-1)
    heavy = heavy_hitters(total)
    whole = xp.sum(xp.where(there, total, 0.0), axis=-1)
    found = {
        "received": received,
        "received_total": total,
        "heavy": heavy,
        "strongest_mass": strongest,
        "strongest_is_first": xp.where(
            xp.isnan(strongest), xp.nan, alike(total, xp.argmax(shared, axis=-1) == first)
        ),
        "heavy_mass": xp.sum(xp.where(heavy, total, 0.0), axis=-1) / whole,
    }
    if ground.counts is not None:
        found |= _correlations(ground, received)
    return found


def _correlations(
    ground: Ground, received: Float[Array, "layer batch head key"]
) -> dict[str, Array]:
    """Spearman's, of what keys receive with the frequency and idf of their tokens."""
    xp, seen = namespace(received), ground.ranked
    there = ground.made(received, "ranked", lambda: seen[:, None, :])
    # what is not ranked stands behind all others, and NaN has no order
    ordered = ~xp.any(there & xp.isnan(received), axis=-1)
    mine = ranks(xp.where(there, received, xp.inf))
    xp = namespace(mine)
    number = seen.sum(axis=1)[:, None, None]
    there = ground.made(mine, "ranked here", lambda: seen[:, None, :])
    middle = ground.made(mine, "middle", lambda: (number + 1) / 2)
    mine = xp.where(there, mine - middle, 0.0)
    own = xp.sum(mine * mine, axis=-1)
    several = ground.made(mine, "several", lambda: number[..., 0] > 1)
    found = {}
    for name, score in ground.token_ranks.items():
        theirs = ground.made(mine, name, partial(np.expand_dims, score, 1))
        norm = xp.sqrt(own * xp.sum(theirs * theirs, axis=-1))
        ranked = xp.sum(mine * theirs, axis=-1) / xp.where(norm > 0, norm, xp.inf)
        # a constant ranks nothing
        found[f"{name}_correlation"] = xp.where(several & ordered, ranked, xp.nan)
    return found


def _value_norm_ratio(
    ground: Ground, value: Float[Array, "layer batch kv_head key width"]
) -> Float[Array, "layer batch head"]:
    """The first key's value beside those of the other keys that are seen."""
    norm = at_home(namespace(value).linalg.vector_norm(value, axis=-1))
    xp, keys = namespace(norm), ground.plan.keys
    first = np.arange(keys.shape[1]) == keys.argmax(axis=1)[:, None]
    others = keys & ~first
    one = ground.made(norm, "first", lambda: first[:, None, :] * 1.0)
    number = np.where(others.any(axis=1), others.sum(axis=1), np.nan)[:, None]  # NaN beside none
    rest = ground.made(norm, "others", lambda: (others / number)[:, None, :])
    ratio = xp.sum(norm * one, axis=-1) / xp.sum(norm * rest, axis=-1)
    return xp.repeat(ratio, ground.call.shape[1] // norm.shape[2], axis=2)


def _caches(
    ground: Ground,
    later: Float[Array, "layer batch head row key"],
    window: Float[Array, "layer batch head key"],
    heavy: Float[Array, "layer batch head key"],
    sink: Float[Array, "layer batch head row"] | None,
    value: Float[Array, "layer batch kv_head key width"] | None,
) -> dict[str, Float[Array, "layer batch head policy budget"]]:
    """What policies keep: means over the later rows."""
    rows = ground.later
    entries = math.prod(later.shape) // len(rows)
    in_cut = max(1, ground.budget_bytes // 2 // (entries * budget.BYTES_OF_AN_ENTRY))
    blocks = []
    for cut in even_cuts(len(rows), in_cut):
        mass, error = budget.kept(
            later[..., cut, :], ground.room(cut), value=value,
            sink=None if sink is None else sink[..., cut], heavy=heavy, window=window,
        )  # fmt: skip
        both = (mass,) if error is None else (mass, error)
        blocks.append(namespace(mass).concat(both, axis=-1))
    values = double(_joined(blocks, axis=-2))
    mean, _ = weighted_mean(values, *ground.weights(values, "later"))
    mean = mean.reshape(*mean.shape[:-1], -1, len(budget.POLICIES), len(budget.BUDGETS))
    # a sequence too short for a prompt keeps nothing that could be told apart
    prompt = ground.made(
        mean, "prompt", lambda: ground.voters.weight.any(axis=1)[:, None, None, None, None]
    )
    xp = namespace(mean)
    mean = xp.where(prompt, mean, xp.nan)
    names = ("retained_mass", "output_error")[: mean.shape[-3]]
    return {name: mean[..., i, :, :] for i, name in enumerate(names)}


def _joined(blocks: list[Array], axis: int = 2) -> Array:
    """Rows of one block after those of another."""
    return blocks[0] if len(blocks) == 1 else namespace(blocks[0]).concat(blocks, axis=axis)


def _stacked(arrays: list[Any]) -> Array:
    """Of one layer after the other."""
    xp = namespace(arrays[0])
    return arrays[0][None] if len(arrays) == 1 else xp.stack(arrays)

"""The statistics of calls of attention, exact, a block of queries at a time.

They are given for each sequence and head, so that a bootstrap over sequences is possible
afterwards. docs/measures.md says what each is and where it misleads.

`look` takes from a call's maps what needs them, where they are; `conclude` makes statistics of that
for several calls at once, layers of one model: what is small is worth doing only for many.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from attnlab.files.errors import require_whole
from attnlab.measures import maps, places
from attnlab.measures.arrays import (
    Array,
    alike,
    alone,
    at_home,
    beside,
    double,
    exactly,
    namespace,
    precise,
    ranks,
    taken,
)
from attnlab.measures.received import heavy_hitters, mean_received
from attnlab.observe import budget
from attnlab.observe.block import Block, Part, even_cuts
from attnlab.observe.call import AttentionCall
from attnlab.observe.ground import SINKS, Ground, Spot
from attnlab.observe.labels import ROW_MEANS
from attnlab.observe.plan import plan_of
from attnlab.observe.sample import weighted_mean
from attnlab.observe.sheet import Sheet

if TYPE_CHECKING:
    from jaxtyping import Float

MIN_KEYS = 16
BUDGET_BYTES = 256 * 2**20
# what is taken of each row from its map and logarithms, before what `Ground` says
BASIC = ("entropy", "squares", "mean_log", "logit_norm", "largest_logit")
BYTES_OF_A_COLUMN = 32  # of a row, in float64 and with what is computed from it


@dataclass(frozen=True, eq=False)
class Look:
    """What was taken from the maps of one call.

    columns: of each chosen row. totals: attention received by keys, from all rows and from the
    prompt's. fixed, later: maps of these rows, and window: what keys received from those that vote.
    sink: what a learnable sink takes from the later rows.
    """

    columns: Float[Array, "batch head row column"]
    totals: Float[Array, "batch head 2 key"]
    fixed: Float[Array, "batch head row key"]
    later: Float[Array, "batch head row key"] | None
    window: Float[Array, "batch head key"] | None
    sink: Float[Array, "batch head row"] | None
    value: Float[Array, "batch kv_head key width"] | None
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
    query), False for padded queries, which a mask does not tell: they are left out. starts: (batch,
    query), the first key of a query's own text in packed sequences; without it, the first key that
    some query of the sequence sees. rows: how many rows are sampled, of all sequences together;
    None measures all. min_keys: rows that see fewer are left out. budget_bytes: what a block may
    take. seed: of the sample, which is the same at every step.

    Coords are `kind`, "self" or "cross", and the `token` of each key where it was given. Means over
    rows have their standard error beside them, as `NAME_se`: 0 where all are measured.
    What has no meaning is left out: places where keys are of another sequence, caches where
    queries see later keys, tokens that were not given.
    """
    require_whole("min_keys", min_keys, 1)
    require_whole("budget_bytes", budget_bytes, 1)
    with exactly(call.query):
        plan = plan_of(
            call, tokens=tokens, present=present, starts=starts, min_keys=min_keys,
            budget_bytes=budget_bytes,
        )  # fmt: skip
        ground = Ground.of(call, plan, rows=rows, seed=seed, budget_bytes=budget_bytes)
        sheet = conclude(ground, [look(ground, call)], [str(call.layer)])
    return sheet.dataset(str(call.layer))


def look(ground: Ground, call: AttentionCall) -> Look:
    """Take from the maps of a call what is needed of them. Inside `exactly`."""
    xp = namespace(call.query)
    found: list[dict[str, Any]] = []
    for some, cuts in ground.cuts:
        part = Part.of(call, some)
        columns, totals = [], 0.0
        for cut in cuts:
            spot = ground.spot(part, some, cut)
            block = part.block(spot.seen)
            columns.append(_columns(block, spot))
            totals = totals + xp.matmul(spot.weight[:, None], block.maps)
        found.append({"columns": _joined(columns), "totals": totals} | _beside(ground, part, some))
    whole: dict[str, Any] = {
        name: xp.concat([one[name] for one in found]) if len(found) > 1 else found[0][name]
        for name in found[0]
    }
    absent: dict[str, Any] = dict.fromkeys(("later", "window", "sink"))
    value = None if call.value is None else alone(call.value)
    return Look(**(absent | whole), value=value, learnable=call.sinks is not None)


def _columns(block: Block, spot: Spot) -> Float[Array, "batch head row column"]:
    """What is said of each row: BASIC, top-k mass, keys for so much, a learnable sink's ln, then
    the attention to single keys and the sums that the ground knows of."""
    m, logs, visible = block.maps, block.logs, spot.seen.visible
    xp = namespace(m)
    ranked = maps.ranked_mass(m)
    kept = xp.where(visible, logs, 0.0)
    number = xp.where(spot.number > 0, spot.number, 1.0)
    mean = xp.sum(kept, axis=-1) / number
    centred = xp.where(visible, kept - mean[..., None], 0.0)
    first = [
        xp.sum(m * logs, axis=-1),
        xp.sum(m * m, axis=-1),
        mean,
        xp.sum(centred * centred, axis=-1),
        block.largest,
        *([] if block.sink is None else [block.sink]),
    ]
    # a row's product with its targets: all heads of it at once
    turned = xp.permute_dims(m, (0, 2, 1, 3))
    sums = xp.matmul(turned, xp.matrix_transpose(spot.targets))  # batch row head column
    return xp.concat(
        [
            xp.stack(first, axis=-1),
            maps.top_mass(m, ranked=ranked),
            alike(m, maps.keys_for(m, ranked=ranked)),
            taken(m, spot.at, -1) * spot.there,
            xp.permute_dims(sums, (0, 2, 1, 3)) - spot.chance,
        ],
        axis=-1,
    )


def _beside(ground: Ground, part: Part, some: slice) -> dict[str, Any]:
    """Of the rows beside the chosen ones."""
    found: dict[str, list[Any]] = {"later": [], "fixed": [], "sink": []}
    window: Any = 0.0
    for cut in ground.cuts_beside:
        block = part.block(ground.beside(part, some, cut))
        for name, inside, own in ground.pieces(cut):
            m = block.maps[:, :, inside]
            if name == "voters":
                weight = ground.voting(m)[some, None, None, own]
                window = window + namespace(m).matmul(weight, m)[:, :, 0, :]
                continue
            found[name].append(m)
            if name == "later" and block.sink is not None:
                found["sink"].append(namespace(m).exp(block.sink[:, :, inside]))
    whole = {name: _joined(blocks) for name, blocks in found.items() if blocks}
    if ground.caches and len(ground.voters):
        whole["window"] = window
    elif ground.caches:  # too short for a prompt: nothing is kept of it
        whole["window"] = 0.0 * whole["later"][:, :, 0, :]
    return whole


def bytes_of(ground: Ground, one: Look) -> int:
    """What concluding from such a look takes."""
    batch, head, rows, columns = one.columns.shape
    keys = one.totals.shape[-1]
    taken = batch * head * (rows * columns * BYTES_OF_A_COLUMN + 64 * keys)
    if one.later is not None:
        in_cut = min(len(ground.later), _later_rows(ground, 1))
        taken += batch * head * keys * in_cut * budget.BYTES_OF_AN_ENTRY
    return taken + (0 if one.value is None else 4 * int(np.prod(one.value.shape)))


def conclude(ground: Ground, looks: Sequence[Look], names: Sequence[str]) -> Sheet:
    """The statistics of several calls on one ground. Inside `exactly`."""
    columns = double(_stacked([one.columns for one in looks]))  # layer batch head row column
    found = _row_means(ground, columns, looks[0].learnable)
    totals = at_home(_stacked([one.totals for one in looks]))
    found |= _of_keys(ground, totals[..., 0, :])
    first = found["sink_mass"][..., 0]
    found["sink_rate"] = places.sink_rate(first)
    found["attention"] = _stacked([one.fixed for one in looks])
    value = None
    if looks[0].value is not None:
        value = precise(_stacked([one.value for one in looks]))
        found["value_norm_ratio"] = _value_norm_ratio(ground, value)
    if ground.caches:
        found |= _caches(ground, looks, value)
    return Sheet(tuple(names), found, ground.labels)


def _row_means(
    ground: Ground, columns: Float[Array, "layer batch head row column"], learnable: bool
) -> dict[str, Array]:
    named = _of_rows(ground, columns, learnable)
    xp = namespace(columns)
    sizes = [values.shape[-1] for values in named.values()]
    counted = ground.plan.counted(ground.chosen.index)
    mean, error = weighted_mean(xp.concat(list(named.values()), axis=-1), ground.chosen, counted)
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
    top, keys = some(len(maps.TOP)), some(len(maps.MASS))
    first = some(SINKS)
    own = not ground.call.cross
    itself, before = (some(1), some(1)) if own else (None, None)
    sums = {name: some(1) for name in ground.sums}
    number = beside(columns, ground.plan.at("counts", ground.chosen.index) * 1.0)[..., None]
    entropy = 0.0 - basic["entropy"]
    # rows that fill up see nothing; what comes out of them is not counted
    found = {
        "entropy": entropy,
        "relative_entropy": maps.relative_entropy(entropy, number),
        "effective_tokens": maps.effective_tokens(entropy),
        "participation": 1.0 / basic["squares"],
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
    xp, squares = namespace(entropy), basic["logit_norm"]
    if sink is not None:  # one logit more, beside the mean of the others
        squares = squares + (sink - basic["mean_log"]) ** 2 * number / (number + 1)
        number = number + 1
        entropy = entropy - sink * xp.exp(sink)
    norm = xp.sqrt(squares)
    floor = maps.entropy_floor(norm, number)
    return {"logit_norm": norm, "entropy_floor": floor, "entropy_slack": entropy - floor}


def _of_keys(ground: Ground, total: Float[Array, "layer batch head key"]) -> dict[str, Array]:
    """What keys receive."""
    xp, plan = namespace(total), ground.plan
    there = beside(total, plan.keys[:, None, :])
    received = mean_received(total, alike(total, ground.seeing))
    received = xp.where(there, received, xp.nan)
    total = xp.where(there, total, xp.nan)
    heavy = heavy_hitters(total)
    whole = xp.sum(xp.where(there, total, 0.0), axis=-1)
    found = {
        "received": received,
        "received_total": total,
        "heavy": heavy,
        "heavy_mass": xp.sum(xp.where(heavy, total, 0.0), axis=-1) / whole,
    }
    if ground.counts is not None:
        found |= _correlations(ground, received)
    return found


def _correlations(
    ground: Ground, received: Float[Array, "layer batch head key"]
) -> dict[str, Array]:
    """Spearman's, of what keys receive with the frequency and idf of their tokens."""
    assert ground.counts is not None
    often, in_sequences = ground.counts
    seen = (ground.seeing > 0).all(axis=1) & ground.plan.keys  # batch key
    xp = namespace(received)
    there = beside(received, seen[:, None, :])
    number = seen.sum(axis=1)[:, None, None]
    # what is not ranked stands behind all others
    mine = _centred(xp.where(there, received, xp.inf), there, number)
    found = {}
    # idf falls with the number of sequences
    for name, score in (("frequency", often), ("idf", -in_sequences)):
        theirs = np.where(seen, score, np.inf)[:, None, :]
        theirs = _centred(beside(received, theirs), there, number)
        norm = xp.sqrt(xp.sum(mine * mine, axis=-1) * xp.sum(theirs * theirs, axis=-1))
        along = xp.sum(mine * theirs, axis=-1)
        ranked = along / xp.where(norm > 0, norm, xp.inf)  # a constant ranks nothing
        several = beside(received, number[..., 0] > 1)
        found[f"{name}_correlation"] = xp.where(several, ranked, xp.nan)
    return found


def _centred(values: Array, there: Array, number: NDArray[Any]) -> Array:
    rank = ranks(values)
    xp = namespace(rank)
    there = there if namespace(there) is xp else beside(rank, np.asarray(there))
    return xp.where(there, rank - beside(rank, (number + 1) / 2), 0.0)


def _value_norm_ratio(
    ground: Ground, value: Float[Array, "layer batch kv_head key width"]
) -> Float[Array, "layer batch head"]:
    """The first key's value beside those of the other keys that are seen."""
    xp, keys = namespace(value), ground.plan.keys
    norm = at_home(xp.linalg.vector_norm(value, axis=-1))
    xp = namespace(norm)
    first = keys.argmax(axis=1)[:, None]
    others = keys & (np.arange(keys.shape[1]) != first)
    mean = xp.sum(norm * beside(norm, others[:, None, :] * 1.0), axis=-1)
    mean = mean / beside(norm, others.sum(axis=1)[:, None] * 1.0)
    one = beside(norm, (np.arange(keys.shape[1]) == first)[:, None, :] * 1.0)
    ratio = xp.sum(norm * one, axis=-1) / mean
    return xp.repeat(ratio, ground.call.shape[1] // norm.shape[2], axis=2)


def _later_rows(ground: Ground, layers: int) -> int:
    """How many of the later rows are looked at together, of so many layers."""
    batch, head, _, keys = ground.call.shape
    entries = layers * batch * head * keys
    return max(1, ground.budget_bytes // (entries * budget.BYTES_OF_AN_ENTRY))


def _caches(
    ground: Ground, looks: Sequence[Look], value: Array | None
) -> dict[str, Float[Array, "layer batch head policy budget"]]:
    """What policies keep: means over the later rows."""
    later, plan = ground.later, ground.plan
    m, window = (_stacked([getattr(one, name) for one in looks]) for name in ("later", "window"))
    heavy = _stacked([one.totals for one in looks])[..., 1, :]
    sink = None if looks[0].sink is None else _stacked([one.sink for one in looks])
    seen = ground.seen_later
    start = beside(m, plan.at("starts", later.index))
    masses, errors = [], []
    for cut in even_cuts(len(later), _later_rows(ground, len(looks))):
        mass, error = budget.kept(
            m[..., cut, :], seen[..., cut, :], value=value,
            sink=None if sink is None else sink[..., cut], heavy=heavy, window=window,
            start=start[:, cut],
        )  # fmt: skip
        masses.append(mass)
        if error is not None:
            errors.append(error)
    # a sequence too short for a prompt keeps nothing that could be told apart
    prompt = ground.voters.weight.any(axis=1)[:, None, None, None]
    found = {}
    for name, blocks in (("retained_mass", masses), ("output_error", errors)):
        if blocks:
            values = namespace(blocks[0]).concat(blocks, axis=-2)
            mean, _ = weighted_mean(values, later, plan.counted(later.index))
            mean = mean.reshape(*mean.shape[:-1], len(budget.POLICIES), len(budget.BUDGETS))
            xp = namespace(mean)
            found[name] = xp.where(beside(mean, prompt), mean, xp.nan)
    return found


def _joined(blocks: list[Array]) -> Array:
    """Rows of one block after those of another."""
    return blocks[0] if len(blocks) == 1 else namespace(blocks[0]).concat(blocks, axis=2)


def _stacked(arrays: list[Any]) -> Array:
    """Of one layer after the other."""
    xp = namespace(arrays[0])
    return arrays[0][None] if len(arrays) == 1 else xp.stack(arrays)

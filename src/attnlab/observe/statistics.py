"""The statistics of one call of attention, exact, a block of queries at a time.

They are given for each sequence and head, so that a bootstrap over sequences is possible
afterwards. docs/measures.md says what each is and where it misleads.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from attnlab.files.errors import require_whole
from attnlab.measures import maps, places
from attnlab.measures.arrays import Array, alike, beside, exactly, namespace, to_numpy
from attnlab.measures.received import heavy_hitters, mean_received, rank_correlation, token_counts
from attnlab.observe import budget
from attnlab.observe.block import Block, Part, cuts_of, even_cuts
from attnlab.observe.call import AttentionCall
from attnlab.observe.labels import COORDS, OTHERS, ROW_MEANS
from attnlab.observe.plan import Plan, plan_of
from attnlab.observe.sample import ALL, Rows, choose_rows, last_rows, spread_rows, weighted_mean

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

MIN_KEYS = 16
BUDGET_BYTES = 256 * 2**20
MAP_ROWS = 8  # rows of each sequence whose maps are given, for the speed of maps,
MAP_BYTES = 2**24  # or fewer, where the maps of all sequences would be larger than this


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
        chosen = choose_rows(plan.eligible, rows, seed=seed)
        fixed = spread_rows(plan.eligible, _map_rows(call))
        common = None if plan.tokens is None else token_counts(plan.tokens, plan.keys)
        together, in_block = cuts_of(call, budget_bytes)
        found = []
        for some in even_cuts(call.shape[0], together):
            part, part_plan = Part.of(call, some), plan.cut(some)
            counts = None if common is None else tuple(one[some] for one in common)
            found.append(
                _of_part(part, part_plan, counts, chosen.cut(some), fixed.cut(some), in_block)
            )
    merged = {name: np.concatenate([one[name] for one in found]) for name in found[0]}
    return _labelled(call, plan, fixed, merged)


def _of_part(
    part: Part, plan: Plan, counts: Any, chosen: Rows, fixed: Rows, in_block: int
) -> dict[str, NDArray[Any]]:
    """All statistics of some sequences, over (batch, head, ...)."""
    number = max(budget.LEAST_LATER, budget.LATER // part.call.shape[0])
    later = last_rows(plan.eligible, number)
    voters = last_rows(plan.eligible, budget.WINDOW, before=number)
    # the prompt ends where the later queries begin
    end = np.where(later.weight > 0, later.index, later.index.max(initial=0)).min(axis=1)
    in_prompt = chosen.weight * (chosen.index < end[:, None])

    columns: dict[str, int] = {}
    of_rows, total, heavy, seeing = [], 0.0, 0.0, 0.0
    for cut in even_cuts(len(chosen), in_block):
        rows = chosen.cut(ALL, cut)
        block = part.block(rows)
        xp = namespace(block.maps)
        named = _of_rows(part.call, plan, counts, block, rows)
        columns = {name: values.shape[3] for name, values in named.items()}
        of_rows.append(xp.concat(list(named.values()), axis=3))
        total = total + _summed(block.maps, rows.weight)
        heavy = heavy + _summed(block.maps, in_prompt[:, cut])
        seeing = seeing + _summed(alike(block.maps, block.visible), rows.weight)
    found = _row_means(_joined(of_rows), columns, chosen, plan)
    found |= _of_keys(part, plan, counts, to_numpy(total), to_numpy(seeing))
    first = found["sink_mass"][..., 0]
    found["sink_rate"] = places.sink_rate(first)
    found["attention"] = np.concatenate(
        [to_numpy(part.block(fixed.cut(ALL, cut)).maps) for cut in even_cuts(len(fixed), in_block)],
        axis=2,
    )
    if not (plan.later or part.call.cross):
        found |= _caches(part, plan, later, voters, heavy, in_block)
    return found


def _of_rows(
    call: AttentionCall, plan: Plan, counts: Any, block: Block, rows: Rows
) -> dict[str, Float[Array, "batch head row column"]]:
    """What is said of each row, in the order of the labels."""
    m, xp = block.maps, namespace(block.maps)
    number = alike(m, plan.at("counts", rows.index))
    entropy = maps.entropy(m)
    ranked = maps.ranked_mass(m)
    keys_for = alike(m, maps.keys_for(m, ranked=ranked))
    found = {
        "entropy": entropy,
        "relative_entropy": maps.relative_entropy(entropy, number),
        "effective_tokens": maps.effective_tokens(entropy),
        "participation": maps.participation(m),
        "top_mass": maps.top_mass(m, ranked=ranked),
        "keys_for": keys_for,
        "keys_share": keys_for / number[..., None],
        "largest_logit": xp.max(block.logits, axis=-1),
        **_floor(block, entropy, number),
        "visible_keys": number + xp.zeros_like(entropy),
    }
    if block.sink is not None:
        found["learnable_sink_mass"] = block.sink
    start = beside(m, plan.at("starts", rows.index))[:, None, :]
    found["sink_mass"] = places.sink_mass(m, start=start)
    if not call.cross:
        place = block.place[:, None, :]
        found |= {
            "self_mass": places.self_mass(m, places=place),
            "previous_mass": places.previous_mass(m, places=place),
            "local_mass": places.local_mass(m, places=place),
            "mean_distance": places.mean_distance(m, places=place),
        }
        if plan.tokens is not None:
            where: Any = {"visible": block.visible, "places": place, "start": start}
            tokens = beside(m, plan.tokens)[:, None, :]
            found["induction_mass"] = places.induction_mass(m, tokens, **where)
            found["duplicate_mass"] = places.duplicate_mass(m, tokens, **where)
    if counts is not None:
        several = beside(m, counts[1] > 1)[:, None, None, :]
        found["common_mass"] = places.mass_on(m, several)
        found["distinct_mass"] = places.mass_on(m, ~several)
    # rows that fill up see nothing; what comes out of them is not counted
    return {name: one if len(one.shape) == 4 else one[..., None] for name, one in found.items()}


def _floor(block: Block, entropy: Any, number: Any) -> dict[str, Any]:
    """The floor of the whole softmax's entropy: a learnable sink is one of its outcomes."""
    xp, logits, visible = namespace(entropy), block.logits, block.visible
    if block.sink is not None and block.sink_logit is not None:
        one = (*entropy.shape, 1)
        of_sink = xp.broadcast_to(block.sink_logit[..., None], one)
        visible = xp.broadcast_to(visible, logits.shape)
        logits = xp.concat([logits, of_sink], axis=-1)
        visible = xp.concat([visible, beside(entropy, np.ones(one, bool))], axis=-1)
        number = number + 1
        entropy = entropy + maps.entropy(block.sink[..., None])
    norm = maps.logit_norm(logits, visible)
    floor = maps.entropy_floor(norm, number)
    return {"logit_norm": norm, "entropy_floor": floor, "entropy_slack": entropy - floor}


def _row_means(
    values: Float[Array, "batch head row column"], columns: dict[str, int], rows: Rows, plan: Plan
) -> dict[str, NDArray[Any]]:
    shape = values.shape[:3]
    counted: Bool[Any, "batch head row"] = np.broadcast_to(plan.counted(rows.index), shape)
    mean, error = weighted_mean(values, rows, counted)
    ends = np.cumsum(list(columns.values()))[:-1]
    found = {}
    for suffix, whole in (("", mean), ("_se", error)):
        for name, part in zip(columns, np.split(whole, ends, axis=-1), strict=True):
            found[name + suffix] = part if ROW_MEANS[name].dims else part[..., 0]
    return found


def _of_keys(
    part: Part, plan: Plan, counts: Any, total: NDArray[Any], seeing: NDArray[Any]
) -> dict[str, NDArray[Any]]:
    """What keys receive, over (batch, head, key) or (batch, head)."""
    batch, head, _ = total.shape
    there = np.broadcast_to(plan.keys[:, None, :], total.shape)
    received = np.where(there, mean_received(total, seeing), np.nan)
    total = np.where(there, total, np.nan)
    heavy = np.where(heavy_hitters(total), total, 0.0).sum(axis=-1)
    with np.errstate(invalid="ignore"):
        found = {
            "received": received,
            "received_total": total,
            "heavy_mass": heavy / np.nansum(total, axis=-1),
        }
    if counts is not None:
        often, in_sequences = counts
        ranks = np.full((batch, head, 2), np.nan)
        scores = np.stack([often, -in_sequences], axis=1)[:, None]  # idf falls with the number
        ranked = np.asarray(np.isfinite(received).all(axis=1))
        for number in np.unique(ranked.sum(axis=1)):  # sequences with as many keys go together
            if number > 1:
                these = ranked.sum(axis=1) == number
                keys = np.nonzero(ranked[these])[1].reshape(-1, 1, 1, number)
                a, b = (
                    np.take_along_axis(one[these], keys, axis=-1)
                    for one in (received[:, :, None, :], scores)
                )
                ranks[these] = rank_correlation(a, b)
        found["frequency_correlation"], found["idf_correlation"] = ranks[..., 0], ranks[..., 1]
    if part.value is not None:
        found["value_norm_ratio"] = _value_norm_ratio(part.value, plan, head)
    return found


def _value_norm_ratio(value: Array, plan: Plan, heads: int) -> NDArray[Any]:
    """The first key's value beside those of the other keys that are seen."""
    xp = namespace(value)
    norm = to_numpy(xp.linalg.vector_norm(value, axis=-1))  # batch kv_head key
    first = plan.keys.argmax(axis=1)[:, None]
    others = plan.keys & (np.arange(plan.keys.shape[1]) != first)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = (norm * others[:, None, :]).sum(axis=-1) / others.sum(axis=1)[:, None]
        ratio = np.take_along_axis(norm, first[:, None, :], axis=-1)[..., 0] / mean
    return np.repeat(ratio, heads // norm.shape[1], axis=1)


def _caches(
    part: Part, plan: Plan, later: Rows, voters: Rows, heavy: Any, in_block: int
) -> dict[str, NDArray[Any]]:
    """What policies keep, over (batch, head, policy, budget): means over the later rows."""
    window: Any = 0.0
    for cut in even_cuts(len(voters), in_block):
        rows = voters.cut(ALL, cut)
        window = window + _summed(part.block(rows).maps, rows.weight)
    masses, errors = [], []
    for cut in even_cuts(len(later), max(1, in_block // len(budget.BUDGETS))):
        rows = later.cut(ALL, cut)
        block = part.block(rows)
        start = beside(block.maps, plan.at("starts", rows.index))
        mass, error = budget.kept(part, block, heavy=heavy, window=window, start=start)
        masses.append(mass)
        if error is not None:
            errors.append(error)
    found = {}
    for name, blocks in (("retained_mass", masses), ("output_error", errors)):
        if blocks:
            values = _joined(blocks)
            counted = np.broadcast_to(plan.counted(later.index), values.shape[:3])
            mean, _ = weighted_mean(values, later, counted)
            shape = (*mean.shape[:2], len(budget.POLICIES), len(budget.BUDGETS))
            # a sequence too short for a prompt keeps nothing that could be told apart
            prompt = voters.weight.any(axis=1)[:, None, None, None]
            found[name] = np.where(prompt, mean.reshape(shape), np.nan)
    return found


def _summed(
    values: Float[Array, "#batch #head row key"], weight: NDArray[Any]
) -> Float[Array, "batch head key"]:
    """Sums over rows, each so many times."""
    xp = namespace(values)
    weights = alike(values, weight)[:, None, None, :]  # batch 1 1 row
    return xp.matmul(weights, values)[:, :, 0, :]


def _joined(blocks: list[Array]) -> Array:
    """Rows of one block after those of another."""
    return namespace(blocks[0]).concat(blocks, axis=2)


def _map_rows(call: AttentionCall) -> int:
    batch, head, _, keys = call.shape
    return max(1, min(MAP_ROWS, MAP_BYTES // (4 * batch * head * keys)))


def _labelled(
    call: AttentionCall, plan: Plan, fixed: Rows, found: dict[str, NDArray[Any]]
) -> xr.Dataset:
    labels = {**ROW_MEANS, **OTHERS}
    variables: dict[str, xr.Variable] = {}
    for name, values in found.items():
        label = labels[name.removesuffix("_se")]
        meaning = label.meaning
        if name.endswith("_se"):
            meaning = f"standard error of {name.removesuffix('_se')}, of sampling rows"
        dims = ("sequence", "head", *label.dims)
        attrs = {"long_name": meaning, "units": label.units}
        values = values.astype(np.float32) if "key" in dims else values
        variables[name] = xr.Variable(dims, values, attrs)
    present = {dim for variable in variables.values() for dim in variable.dims}
    query = np.where(fixed.weight > 0, fixed.index, -1)
    of_rows = {"long_name": "the queries of the rows of attention; -1 where there is none"}
    variables["row_query"] = xr.Variable(("sequence", "row"), query, of_rows)
    coords: dict[Any, Any] = dict(_coords(call.shape[:2], frozenset(present)))
    coords["kind"] = "cross" if call.cross else "self"
    if plan.tokens is not None:
        coords["token"] = (("sequence", "key"), plan.tokens)
    return xr.Dataset(variables, coords, {"min_keys": plan.min_keys})


@lru_cache  # making an index takes longer than measuring a small layer
def _coords(sizes: tuple[int, int], present: frozenset[Any]) -> xr.Coordinates:
    coords = {name: values for name, values in COORDS.items() if name in present}
    batch, head = sizes
    return xr.Dataset(
        coords={**coords, "sequence": np.arange(batch), "head": np.arange(head)}
    ).coords

"""Launches the Triton programs on tensors of torch. Imported only where they are used."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import triton
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from attnlab.measures import positions
from attnlab.observing.kernels import programs
from attnlab.observing.kernels.bounds import key_bounds, row_bounds
from attnlab.observing.kernels.tiles import Tile, tile

if TYPE_CHECKING:
    from attnlab.observing.call import AttentionCall, Heads
    from attnlab.observing.query_plan import QueryPlan

INTERPRETED = bool(triton.knobs.runtime.interpret)  # on a processor, to test the programs
LOG2E = 1.4426950408889634
FIRST = max(positions.FIRST)


def chosen_rows(
    plan: QueryPlan, heads: Heads
) -> tuple[Float[Tensor, "batch head row column"], Float[Tensor, "batch head 2 key"]]:
    """Return the columns and the totals of `statistics.HeadMeasurements`, without chance."""
    call, rows, keys = plan.call, len(plan.chosen), plan.call.shape[3]
    query, key = heads.query[:, :, :rows], _in_rows(heads.key)
    batch, count = query.shape[:2]
    made = _maker(plan)
    there, start = plan.chosen.weight > 0, plan.visibility.at("starts", plan.chosen.index)
    position = plan.chosen.index + (keys - call.shape[2])
    seen, tokens = call.span(position), plan.visibility.tokens
    own, sinks = not call.cross, heads.sinks is not None
    packed = bool(np.ptp(np.where(there, start, start[:, :1]), axis=1).any())
    last = np.minimum(seen[1], position - positions.LOCAL) if own else seen[1]
    # a row's own text begins after the first key of a tile: what it follows is another's
    plain = None if call.mask is not None else (np.maximum(seen[0], start + (start > 0)), last)

    shared = _shared(call, query, key) | {"position_at": made("position", lambda: position)}
    columns = len(("entropy", "mean_log", "logit_norm", "largest_logit", "norm", "whole")) + FIRST
    columns += sinks + 4 * own + (0 if tokens is None else 2 + 2 * own)
    out = query.new_empty(columns, batch, count, rows, dtype=torch.float32)
    lse = query.new_empty(batch, count, rows, dtype=torch.float32)
    size = _tile("rows", query)
    _launch(
        programs.rows,
        size,
        -(-rows // size.rows),
        shared,
        out=out,
        lse_at=lse,
        there_at=made("there", lambda: there),
        start_at=made("start", lambda: start),
        tokens_at=made("tokens", lambda: _codes(tokens, None if packed else start[:, :1])),
        common_at=made(
            "common", lambda: plan.counts[1] > 1 if plan.counts is not None else 0, float
        ),
        bounds=made(f"keys of {size}", lambda: key_bounds(seen, plain, there, keys, size[:2])),
        sinks=heads.sinks if sinks else query,
        plane=out.stride(0),
        SINKS=sinks,
        OWN=own,
        TOKENS=tokens is not None,
        PACKED=packed,
    )
    totals = query.new_empty(batch, count, 2, keys, dtype=torch.float32)
    size, masked = _tile("keys", query), call.mask is not None
    _launch(
        programs.keys,
        size,
        -(-keys // size.keys),
        shared,
        out=totals,
        lse_at=lse,
        weight_at=made("weight", lambda: plan.weights_of(plan.chosen), float),
        bounds=made(
            f"rows of {size}", lambda: row_bounds(seen, there, keys, size[:2], masked=masked)
        ),
    )
    return out.permute(1, 2, 3, 0), totals


def largest_logits(plan: QueryPlan, call: AttentionCall) -> Float[Tensor, "batch head"]:
    """Return the largest visible logit of each head over all queries that are not padding."""
    query, key = _in_rows(call.query.detach()), _in_rows(call.key.detach())
    batch, count, queries, keys = call.shape
    made, visible = _maker(plan), plan.visibility
    position = np.broadcast_to(np.arange(queries) + (keys - queries), (batch, queries))
    there, seen = visible.eligible | visible.short, call.span(position)
    plain = seen if call.mask is None else None
    size = _tile("largest", query)
    tiles = -(-queries // size.rows)
    out = query.new_empty(batch, count, tiles, dtype=torch.float32)
    _launch(
        programs.largest,
        size,
        tiles,
        _shared(plan.call, query, key),
        out=out,
        position_at=made("every position", lambda: position),
        there_at=made("every row there", lambda: there),
        bounds=made(f"every key of {size}", lambda: key_bounds(seen, plain, there, keys, size[:2])),
    )
    return out.amax(-1)


def _launch(program: Any, size: Tile, tiles: int, shared: dict[str, Any], **own: Any) -> None:
    """Run a program for each tile of each head."""
    query = shared["q"].at
    sizes = {"BLOCK_M": size.rows, "BLOCK_N": size.keys}
    # a product and a sum in one instruction; a later version of Triton has it off by default
    settings = {"num_warps": size.warps, "num_stages": size.stages, "enable_fp_fusion": True}
    settings = {} if INTERPRETED else settings
    with torch.cuda.device_of(query):
        program[(tiles * query.shape[0] * query.shape[1],)](**shared, **own, **sizes, **settings)


def _shared(call: AttentionCall, query: Tensor, key: Tensor) -> dict[str, Any]:
    """Return the arguments that all programs take."""
    (_, heads, rows, width), keys, softcap = query.shape, key.shape[2], call.softcap
    mask, floor = call.full_mask, call.floor
    of_mask = 0 if mask is None else 1 if floor is None else 2
    if mask is not None and floor is None:
        mask = mask.view(torch.uint8)
    scale = call.scale * LOG2E if softcap is None else 2 * LOG2E * call.scale / softcap
    numbers = scale, (softcap or 0.0) * LOG2E, call.window or 0, call.shape[3] - call.shape[2]
    options = call.causal, call.window is not None, softcap is not None
    # the interpreter's products of bfloat16 are wrong
    dot = "tf32x3" if query.dtype == torch.float32 and not INTERPRETED else "ieee"
    return {
        "q": _array(query),
        "k": _array(key),
        "mask": _array(query[:1, :1, :1, :1] if mask is None else mask),
        "floor": _array(query[:1, :1, :1, :1] if floor is None else floor),
        "sizes": programs.Sizes(rows, keys, heads, heads // key.shape[1], *numbers),
        "kind": programs.Kind(*options, of_mask, width, _padded(width), INTERPRETED, dot),
    }


def _array(array: Tensor) -> programs.Array:
    """Return an array and its strides, 0 where it does not vary."""
    strides = zip(array.shape, array.stride(), strict=True)
    return programs.Array(array, *(0 if size == 1 else step for size, step in strides))


def _maker(plan: QueryPlan) -> Callable[..., Tensor]:
    """Return a function that moves values to the device, once for each name."""

    def made(name: str, make: Callable[[], Any], kind: type = int) -> Tensor:
        dtype = np.int32 if kind is int else np.float64

        def cast() -> NDArray[Any]:
            return np.atleast_1d(np.asarray(make())).astype(dtype)

        return plan.made(plan.like, f"kernel: {name}", cast).contiguous()

    return made


def _codes(tokens: NDArray[Any] | None, start: NDArray[Any] | None) -> NDArray[Any]:
    """Return small numbers in place of tokens, -1 for those before `start`."""
    if tokens is None:
        return np.zeros(1)
    codes = np.unique(tokens, return_inverse=True)[1].reshape(tokens.shape)
    return codes if start is None else np.where(np.arange(tokens.shape[1]) < start, -1, codes)


def _in_rows(array: Tensor) -> Tensor:
    return array if array.stride(-1) == 1 else array.contiguous()


def _padded(width: int) -> int:
    return max(16, 1 << (width - 1).bit_length())


def _tile(program: str, query: Tensor) -> Tile:
    if INTERPRETED:
        return Tile(32, 32, 1, 1)
    major, minor = torch.cuda.get_device_capability(query.device)
    dtype = str(query.dtype).removeprefix("torch.")
    return tile(program, 10 * major + minor, _padded(query.shape[-1]), dtype)

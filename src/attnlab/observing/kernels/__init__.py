"""Statistics of attention by a fused Triton program, where one can take the call.

`ATTNLAB_KERNEL` chooses: "torch" never uses it, "triton" uses it wherever `refuses` gives no
reason, "auto" (the default) does so on CUDA devices. The path through torch,
`statistics.measure_heads`, is the oracle: it computes some rows of every measurement, among them
all that need whole attention weights, and `chosen_rows` compares the program's answer with these.

In this folder: `bounds` (tiles to visit), `tiles` (tile sizes), `programs` (Triton), `launch`.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import warnings
from typing import TYPE_CHECKING

import numpy as np

from attnlab.files.errors import InputError
from attnlab.measures import arrays
from attnlab.measures.arrays import Array

if TYPE_CHECKING:
    from attnlab.observing.call import AttentionCall, Heads
    from attnlab.observing.query_plan import QueryPlan

VARIABLE, KERNELS = "ATTNLAB_KERNEL", ("auto", "torch", "triton")
WIDTHS = (16, 256)  # of heads
OLDEST = 80  # compute capability: bfloat16 and TF32
# Torch computes the attention weights of some rows as well, for the strongest keys and as a check:
# WEIGHTS divided by the number of keys, between FEWEST and MOST rows over all sequences.
FEWEST, MOST, WEIGHTS = 32, 256, 2**19
TOLERANCE = 1e-3  # absolute below 1, relative above
_log = logging.getLogger(__name__)
_logged: set[str] = set()
_wrong: list[str] = []  # why the program is no longer used in this process


def refuses(call: AttentionCall) -> str | None:
    """Return why the Triton program cannot measure a call; None if it can."""
    query, key, mask = call.query, call.key, call.mask
    if not arrays.is_torch(query):
        return f"the arrays are of {type(query).__module__.partition('.')[0]}"
    dtypes = ("float16", "bfloat16", "float32")
    kind = str(query.dtype).removeprefix("torch.")
    if kind not in dtypes or query.dtype != key.dtype:
        return f"queries are {kind} and keys {key.dtype}".replace("torch.", "")
    if mask is not None and "float64" in str(mask.dtype):
        return "the mask is float64"
    width = query.shape[-1]
    if not WIDTHS[0] <= width <= WIDTHS[1]:
        return f"heads have width {width}, not {WIDTHS[0]} to {WIDTHS[1]}"
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed"
    import torch

    if query.device.type == "cuda":
        if torch.version.hip:
            return "it has not been tried on AMD devices"
        major, minor = torch.cuda.get_device_capability(query.device)
        if 10 * major + minor < OLDEST:
            return f"the device has compute capability {major}.{minor}, not 8.0 or more"
    elif query.device.type != "cpu" or os.environ.get("TRITON_INTERPRET") != "1":
        return f"the tensors are on {query.device.type}"
    return _wrong[0] if _wrong else None


def refusal(call: AttentionCall) -> str | None:
    """Return why torch measures a call, by `ATTNLAB_KERNEL` and `refuses`; log each reason once."""
    asked = os.environ.get(VARIABLE, "auto")
    if asked not in KERNELS:
        raise InputError(f"{VARIABLE}: expected {', '.join(KERNELS)}, got {asked!r}")
    if asked == "torch":
        return f"{VARIABLE}=torch"
    on_cuda = arrays.is_torch(call.query) and call.query.device.type == "cuda"
    if asked == "auto" and not on_cuda:
        return "there is no CUDA device"
    reason = refuses(call)
    if reason is not None and reason not in _logged:
        _logged.add(reason)
        _log.warning("attention is measured by torch, not by the Triton program: %s", reason)
    return reason


def rows_by_torch(call: AttentionCall) -> int:
    """Return the number of rows that torch measures beside the program."""
    return int(np.clip(WEIGHTS // call.shape[3], FEWEST, MOST))


def note(plan: QueryPlan) -> str:
    """Return how calls of a plan are measured, for the attributes of the result."""
    if (reason := plan.refusal or (_wrong[0] if _wrong else None)) is not None:
        return f"none: {reason}"
    if not plan.fused:
        return "triton"
    rows = int((plan.mapped.weight > 0).sum())
    return f"triton; top_mass, keys_for and keys_share from {rows} sampled rows"


def chosen_rows(plan: QueryPlan, heads: Heads, by_torch: Array) -> dict[str, Array] | None:
    """Return the columns and totals of all chosen rows; None, with a warning, if they are wrong.

    by_torch: the columns of the mapped rows, (batch head row column). Waits for the device.
    """
    if _wrong:
        return None
    from attnlab.observing.kernels import launch

    columns, totals = launch.chosen_rows(plan, heads)
    if "induction_mass" in plan.sums:
        end = columns.shape[-1] - len(plan.of_all)
        columns[..., end - 2 : end] -= plan.chance[..., 2:4]
    off = _distance(plan, columns, totals, by_torch)
    if off <= TOLERANCE:
        return {"columns": columns, "totals": totals}
    _wrong.append(f"it was off by {off:.1g} on this machine")
    warnings.warn(
        f"the Triton program's statistics of attention are off by {off:.1g}, where "
        f"{TOLERANCE:g} is allowed; torch measures instead from now on. Please report it; "
        f"{VARIABLE}=torch leaves the program out",
        stacklevel=2,
    )
    return None


def _distance(plan: QueryPlan, columns: Array, totals: Array, by_torch: Array) -> float:
    """Return how far the program's answer is from torch's at worst, relative to 1 + |answer|.

    Statistics of rows are compared where torch has the same rows. What keys receive has to add up
    to what rows give, in all and to tokens of several sequences.
    """
    import torch

    here = plan.made(columns, "mapped among chosen", lambda: plan.mapped_among_chosen)
    counts = plan.made(columns, "mapped counts", lambda: plan.mapped.weight > 0)[:, None, :, None]
    mine = arrays.take_along(columns, here[:, None, :, None], 2)
    off = torch.where(counts, _off(mine, by_torch), 0.0).max()
    weight = plan.made(columns, "weights", lambda: plan.weights_of(plan.chosen))
    given = torch.einsum("bwr,bhrc->bhwc", weight, columns[..., -len(plan.of_all) :])
    factors = plan.factors(columns, slice(None))[:, 0]
    received = torch.einsum("bck,bhwk->bhwc", factors, totals)
    rows = weight.sum(-1)[:, None, :, None] + 1.0
    return float(torch.maximum(off, _off(received / rows, given / rows).max()))


def _off(values: Array, wanted: Array) -> Array:
    """Return the distance of values; 0 where nothing is wanted: logits that are NaN."""
    same = (values == wanted) | wanted.isnan()
    return (values - wanted).abs().div(1 + wanted.abs()).masked_fill(same, 0.0)

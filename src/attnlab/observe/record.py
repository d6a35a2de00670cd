"""record(): one moment of anybody's attention, from its queries and keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

import xarray as xr
from numpy.typing import ArrayLike

from attnlab.files.errors import InputError
from attnlab.files.provenance import provenance
from attnlab.measures.arrays import Array
from attnlab.observe.call import AttentionCall
from attnlab.observe.statistics import BUDGET_BYTES, MIN_KEYS, statistics

if TYPE_CHECKING:
    from jaxtyping import Float


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
    """Measure attention of which you have the queries and keys: a dataset over (layer, head).

    Queries and keys are those that the softmax sees, after rotary embedding and norms; scale is
    1/sqrt(width) unless given. They may be of numpy, JAX or torch, and stay where they are. The
    other arguments are those of `AttentionCall` and `statistics`; values are means over sequences.

    >>> import numpy as np
    >>> q, k = np.random.default_rng(0).normal(size=(2, 3, 4, 64, 8))  # batch head query width
    >>> found = record(q, k, causal=True)
    >>> found.entropy.dims
    ('layer', 'head')
    """
    width = getattr(q, "shape", (0,))[-1]
    if not width:
        raise InputError("q: expected an array of batch, head, query, width with numbers in it")
    call = AttentionCall(
        q, k, v, width**-0.5 if scale is None else scale, layer,
        mask=mask, causal=causal, window=window, softcap=softcap, sinks=sinks, cross=cross,
    )  # fmt: skip
    found = statistics(
        call, tokens=tokens, present=present, starts=starts, rows=rows, min_keys=min_keys,
        budget_bytes=budget_bytes, seed=seed,
    )  # fmt: skip
    made_of = {
        "scale": call.scale, "causal": causal, "window": window, "softcap": softcap, "cross": cross,
        "shape": call.shape, "rows": rows, "min_keys": min_keys, "seed": seed,
    }  # fmt: skip
    means = over_sequences(found).drop_vars("kind").expand_dims(layer=[layer])
    return means.assign_attrs(provenance(made_of))


def over_sequences(dataset: xr.Dataset) -> xr.Dataset:
    """Means over sequences of what `statistics` gives; what belongs to one sequence is left out.

    Standard errors are those of sampling rows: how far the mean may be from that of all rows. What
    other texts would give, a bootstrap over sequences says (`attnlab.observe.snap`).
    """
    kept = dataset.drop_dims(["row", "key"])
    means = kept.mean("sequence", keep_attrs=True)
    for name in (str(name) for name in kept.data_vars if str(name).endswith("_se")):
        errors = kept[name]
        number = errors.notnull().sum("sequence")
        error = (errors**2).sum("sequence") ** 0.5 / number.where(number > 0)
        means[name] = error.assign_attrs(errors.attrs)
    return means

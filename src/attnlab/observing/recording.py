"""record(): one moment of anybody's attention, from its queries and keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

import xarray as xr
from numpy.typing import ArrayLike

from attnlab.files.errors import InputError
from attnlab.files.provenance import provenance
from attnlab.measures.arrays import Array
from attnlab.observing.call import AttentionCall
from attnlab.observing.labels import MAXIMA
from attnlab.observing.statistics import BUDGET_BYTES, MIN_KEYS, statistics

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
    """Measure attention of which you have the queries and keys.

    They are those that the softmax sees, after rotary embedding and norms, and may be of numpy, JAX
    or torch; they stay where they are. Values are means over sequences.

    Parameters
    ----------
    q : array
        Queries (batch, head, query, width).
    k : array
        Keys (batch, kv_head, key, width); the number of KV heads divides that of heads.
    v : array, optional
        Values, for errors of the output and norms of values; None leaves those out.
    layer : int, optional
        Its number in the result.
    scale : float, optional
        What the products are multiplied with, 1/sqrt(width) unless given.
    causal : bool, optional
        Whether a query sees the keys up to its own place only; the last query is the last key.
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
        Whether the keys are of another sequence, so that places do not compare.
    tokens : array_like, optional
        The token of each key, (batch, key), for induction and the like.
    present : array_like, optional
        Which queries are not padding, (batch, query): the others are left out. Keys that are
        padding are hidden by the mask. Without it, positions whose keys the mask hides from all
        queries are padding, if all other queries see their own.
    starts : array_like, optional
        The first key of a query's own text, in packed sequences.
    rows : int, optional
        How many queries are sampled; None measures all.
    min_keys : int, optional
        Queries that see fewer keys are left out.
    budget_bytes : int, optional
        What a block may take.
    seed : int, optional
        Of the sample.

    Returns
    -------
    xarray.Dataset
        Over (layer, head).

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
    """Return means over sequences of what `statistics` gives (of MAXIMA, the largest); what belongs
    to one sequence is left out.

    Standard errors are those of sampling rows: how far the mean may be from that of all rows. What
    other texts would give, a bootstrap over sequences says (`attnlab.observing.snap`).
    """
    kept = dataset.drop_dims(["row", "key"])
    means = kept.mean("sequence", keep_attrs=True)
    for name in (str(name) for name in kept.data_vars if str(name).endswith("_se")):
        errors = kept[name]
        number = errors.notnull().sum("sequence")
        error = (errors**2).sum("sequence") ** 0.5 / number.where(number > 0)
        means[name] = error.assign_attrs(errors.attrs)
    for name in (name for name in MAXIMA if name in kept):
        means[name] = kept[name].max("sequence", keep_attrs=True)
    return means

"""What is measured while a transformer trains: its loss and its attention, on fixed text.

The statistics of a head are means over the queries of the measured windows. They are made where
the model runs, window by window; no map is kept but those of the probes.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from attnlab import measures
from attnlab.dynamics.compiling import SMALL, compiled
from attnlab.dynamics.program import each
from attnlab.measures import maps as of_rows
from attnlab.measures.ranks import stable_rank_there
from attnlab.text.loss import cross_entropy
from attnlab.text.model import Params, TransformerSpec, decoder, encode
from attnlab.text.streams import window

TOP = (1, 5)  # the k of the top-k mass


@compiled("spec", "windows", options={"cpu": SMALL})  # as quick to run, in half the time
def observe(
    spec: TransformerSpec, windows: int, params: Params, streams: jax.Array, probes: jax.Array,
    frequent: jax.Array,
) -> dict[str, jax.Array]:  # fmt: skip
    """Measure each run (the leading axis of `params`) on the first windows of the streams.

    frequent: whether each word of the vocabulary is a frequent one.
    """

    def one_run(params: Params) -> dict[str, jax.Array]:
        def one_window(index: jax.Array) -> dict[str, jax.Array]:
            tokens, targets = window(streams, index, spec.context)
            x, maps = encode(params, spec, tokens)
            x, bias = x.reshape(-1, spec.dim), params["decoder_bias"]
            return {
                "validation_loss": cross_entropy(x, decoder(params), bias, targets.reshape(-1)),
                **head_statistics(maps),
                "frequent_mass": jnp.einsum("lbhqk,bk->lh", maps, frequent[tokens] * 1.0)
                / tokens.size,
            }

        found = jax.lax.map(one_window, jnp.arange(windows))
        mean = {name: value.mean(0) for name, value in found.items()}
        _, maps = encode(params, spec, probes)
        return {
            **mean,
            **weight_statistics(spec, params["layers"]),
            "attention": jnp.swapaxes(maps, 1, 2),  # layer head probe query key
        }

    return each(one_run)(params)


def head_statistics(maps: jax.Array) -> dict[str, jax.Array]:
    """Means over sequences and queries of maps (layer, B, head, query, key); dims layer, head.

    entropy: of a query's attention, in nats. relative_entropy: divided by the logarithm of the
    number of visible tokens, of the queries that see two or more. effective_tokens: exp(entropy).
    top_mass: the attention to the k strongest tokens, for each k of TOP (last dim).
    """
    entropy = of_rows.entropy(maps)  # layer B head query
    visible = np.arange(2, maps.shape[-1] + 1)  # the first query sees one token
    each = (1, 3)  # sequences and queries
    return {
        "entropy": entropy.mean(each),
        "relative_entropy": of_rows.relative_entropy(entropy[..., 1:], visible).mean(each),
        "effective_tokens": of_rows.effective_tokens(entropy).mean(each),
        "top_mass": of_rows.top_mass(maps, TOP).mean(each),
    }


def weight_statistics(spec: TransformerSpec, layers: Params) -> dict[str, jax.Array]:
    """Stable ranks of a layer's matrices: of the feed-forward's lower one (layer), and of each
    head's W_Q^T W_K (layer, head), by which queries and keys meet."""
    L, d = layers["up"].shape[:2]
    qkv = layers["qkv"].reshape(L, d, 3, spec.heads, -1)
    q, k = qkv[:, :, 0], qkv[:, :, 1]  # layer d head h
    met = jnp.einsum("ldhe,lfhe->lhdf", q, k, precision="highest")
    return {
        "mlp_stable_rank": stable_rank_there(layers["up"]),
        "qk_stable_rank": stable_rank_there(met),
    }


def map_speed(result: xr.Dataset) -> xr.DataArray:
    """How fast a head's map of the probes changes: the mean over its rows of their speed.

    See `attnlab.measures.attention_speed`; the speed from a record to the next is
    labelled with the first, and the last record has none.
    """
    speed = measures.attention_speed(_heads_as_rows(result))
    return speed.reindex(step=result["step"]).rename("attention_speed")


def probe_entropy(result: xr.Dataset) -> xr.DataArray:
    """Entropy of each head on each probe, mean over its queries, in nats.

    With T queries it is at most ln(T!)/T, that of attention which is spread evenly.
    """
    rows = xr.apply_ufunc(of_rows.entropy, result["attention"], input_core_dims=[["key"]])
    return rows.mean("query", skipna=False).rename("probe_entropy")


def snap_step(result: xr.Dataset) -> xr.DataArray:
    """Return the step at which a head's attention on the probes snaps, per layer and head.

    The definition is that of `attnlab.measures.snap_time`; NaN where the head still moves at the
    end, or where the records are too unequal to tell.

    Parameters
    ----------
    result : xarray.Dataset
        Of `train`.

    Returns
    -------
    xarray.DataArray
        Over layer and head.
    """
    return measures.snap_time(_heads_as_rows(result)).rename("snap_step")


def _heads_as_rows(result: xr.Dataset) -> xr.Dataset:
    """Each head's maps as one distribution over (probe, query, key), along `token`."""
    maps = result["attention"]
    rows = maps.sizes["probe"] * maps.sizes["query"]
    flat = maps.stack(token=("probe", "query", "key"), create_index=False) / rows
    return xr.Dataset({"attention": flat})

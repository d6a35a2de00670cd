"""Attention of transformers on fixed sequences (probes): entropy, speed and snap of heads."""

from __future__ import annotations

import xarray as xr

from attnlab.measures import maps as of_rows
from attnlab.measures.motion import attention_speed, snap_time


def stayed_finite(result: xr.Dataset) -> xr.DataArray:
    """Return whether each run of a result stayed finite, along learning rates and seeds."""
    if "diverged_step" in result:
        return result["diverged_step"] < 0
    return xr.ones_like(result["train_loss"].isel(step=0, drop=True), dtype=bool)


def map_speed(result: xr.Dataset) -> xr.DataArray:
    """Return how fast a head's attention on the probes changes: the mean speed of its rows.

    See `attnlab.measures.attention_speed`; the speed from a record to the next is labelled with
    the first, and the last record has none.
    """
    speed = attention_speed(_heads_as_rows(result))
    return speed.reindex(step=result["step"]).rename("attention_speed")


def probe_entropy(result: xr.Dataset) -> xr.DataArray:
    """Return the entropy of each head on each probe, mean over its queries, in nats.

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
        Of a run on a text.

    Returns
    -------
    xarray.DataArray
        Over layer and head.
    """
    return snap_time(_heads_as_rows(result)).rename("snap_step")


def _heads_as_rows(result: xr.Dataset) -> xr.Dataset:
    """Return each head's maps as one distribution over (probe, query, key), along `token`."""
    maps = result["attention"]
    rows = maps.sizes["probe"] * maps.sizes["query"]
    flat = maps.stack(token=("probe", "query", "key"), create_index=False) / rows
    return xr.Dataset({"attention": flat})

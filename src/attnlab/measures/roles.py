"""The roles of tokens (Section 3.2), read from the P(l|m,n) that a result carries.

Roles are counted over the classes in the dataset, so measure first and select classes afterwards.
"""

from __future__ import annotations

import xarray as xr

from attnlab.files.errors import InputError


def class_count(dataset: xr.Dataset) -> xr.DataArray:
    """|Omega(l)|: how many classes can draw each token, along `token`."""
    return _drawn(dataset).sum("sequence_class")


def in_play(dataset: xr.Dataset) -> xr.DataArray:
    """Return which tokens some class can draw: the contextual tokens, along `token`."""
    return class_count(dataset) > 0


def is_common(dataset: xr.Dataset) -> xr.DataArray:
    """Membership of G_CT, the tokens of several classes, along `token`."""
    return class_count(dataset) > 1


def is_distinct(dataset: xr.Dataset) -> xr.DataArray:
    """Membership of G_DT(n), the tokens of this class only, along (`sequence_class`, `token`)."""
    return _drawn(dataset) & (class_count(dataset) == 1)


def _drawn(dataset: xr.Dataset) -> xr.DataArray:
    if "probability" not in dataset:
        raise InputError(
            "probability: not in the dataset; token roles need P(l|m,n) along "
            "(sequence_class, token), which simulate() adds next to attention"
        )
    probability = dataset["probability"]
    if set(probability.dims) != {"sequence_class", "token"}:
        remedy = "measure the whole dataset first, then select"
        if "setting" in probability.dims:
            remedy = "take one set of classes, .isel(setting=0)"
        raise InputError(
            f"probability: expected dims (sequence_class, token), got {probability.dims}; {remedy}"
        )
    return probability.transpose("sequence_class", "token") > 0

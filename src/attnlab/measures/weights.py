"""Measures of trained weights."""

from __future__ import annotations

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from attnlab.files.errors import InputError


def stable_rank(dataset: xr.Dataset) -> xr.DataArray:
    """|W|_F^2 / |W|_2^2 of the MLP's lower matrix, between 1 and its rank; nan where W is 0.

    Of `mlp_weights`, the coordinates of W along contextual tokens, at each record. JoMA: it falls,
    then rises again, as attention becomes sparse and then dense.

    Parameters
    ----------
    dataset : xarray.Dataset
        The result of a model with an MLP, with its weights.

    Returns
    -------
    xarray.DataArray
        From 1 to the rank.
    """
    if "mlp_weights" not in dataset:
        raise InputError('mlp_weights: not recorded; train a model with an MLP, and Save("logits")')
    weights = dataset["mlp_weights"].astype(np.float64)
    found = xr.apply_ufunc(_stable_rank, weights, input_core_dims=[["unit", "token"]])
    found = found.rename("stable_rank")
    found.attrs = {}
    return found


def _stable_rank(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    # what is not finite has no singular values, and would stop the others
    finite = np.asarray(np.isfinite(weights).all(axis=(-2, -1), keepdims=True))
    known: NDArray[np.float64] = np.where(finite, weights, 0.0)
    squares = np.linalg.svd(known, compute_uv=False) ** 2
    with np.errstate(invalid="ignore"):
        rank = squares.sum(axis=-1) / squares[..., 0]
    return np.where(finite[..., 0, 0], rank, np.nan)

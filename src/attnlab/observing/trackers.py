"""Trackers: what is measured, sent where the training's other numbers go.

Each gives a function for `attnlab.observe(..., log=...)`; any function of a step and a dataset over
(layer, head) will do in its place. The trackers themselves are the caller's: nothing is imported.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import xarray as xr

from attnlab.observing.labels import MAXIMA

Log = Callable[[int, xr.Dataset], None]
# of each layer, the mean over heads of these, and of MAXIMA the largest
SENT = ("entropy", "relative_entropy", "effective_tokens", "self_mass", "previous_mass",
        "mean_distance", "sink_rate", *MAXIMA)  # fmt: skip


def tensorboard(writer: Any) -> Log:
    """To a `SummaryWriter`.

    Parameters
    ----------
    writer : SummaryWriter
        Of torch.utils.tensorboard, or one that has `add_scalar`.

    Returns
    -------
    callable
        For `attnlab.observe(..., log=...)`.
    """

    def log(step: int, moment: xr.Dataset) -> None:
        for name, value in numbers(moment).items():
            writer.add_scalar(name, value, step)

    return log


def wandb(run: Any) -> Log:
    """To a run of Weights & Biases.

    Parameters
    ----------
    run : Run or module
        The run, or the module `wandb` itself.

    Returns
    -------
    callable
        For `attnlab.observe(..., log=...)`.
    """

    def log(step: int, moment: xr.Dataset) -> None:
        # its own count of steps is that of the training's logs, which may be ahead of this one
        run.log({**numbers(moment), "attention/step": step})

    return log


def mlflow(module: Any) -> Log:
    """To the active run of MLflow.

    Parameters
    ----------
    module : module
        The module `mlflow`.

    Returns
    -------
    callable
        For `attnlab.observe(..., log=...)`.
    """

    def log(step: int, moment: xr.Dataset) -> None:
        module.log_metrics(numbers(moment), step=step)

    return log


def numbers(moment: xr.Dataset) -> dict[str, float]:
    """Return few numbers of a measurement: attention/entropy/layer_00 and so on, over heads."""
    found = {
        f"attention/{name}/layer_{int(layer):02d}": over_heads(name, moment[name].sel(layer=layer))
        for name in SENT
        if name in moment
        for layer in moment["layer"].values
    }
    return {name: value for name, value in found.items() if np.isfinite(value)}


def over_heads(name: str, values: xr.DataArray) -> float:
    """Return the mean over heads, and of MAXIMA the largest."""
    return float(values.max() if name in MAXIMA else values.mean())

"""Draw each seed, means over seeds and estimates, with bars of one standard error or bands."""

from collections.abc import Sequence
from typing import Any

import xarray as xr

from attnlab.experiments.estimate import Estimate, standard_error


def draw_mean(ax: Any, x: Any, values: xr.DataArray, **look: Any) -> None:
    """Draw the mean over seeds of `values` against `x`; NaN where a seed has no value."""
    middle = values.mean("seed", skipna=False)
    ax.errorbar(x, middle, yerr=standard_error(values), **{"capsize": 2, **look})


def draw_estimates(ax: Any, x: Any, found: Sequence[Estimate], **look: Any) -> None:
    """Draw estimates against `x`."""
    errors = [estimate.error for estimate in found]
    ax.errorbar(x, [estimate.value for estimate in found], yerr=errors, **{"capsize": 2, **look})


def draw_seeds(
    ax: Any, x: Any, values: xr.DataArray, *, label: str | None = None, **look: Any
) -> None:
    """Draw `values` of every seed against `x`, of which the first has the label."""
    lines = ax.plot(x, values.transpose(..., "seed"), **look)
    if label is not None:
        lines[0].set_label(label)


def draw_range(ax: Any, x: Any, values: xr.DataArray, *, color: Any, **look: Any) -> None:
    """Draw the mean over seeds of `values` against `x`, with a band from the least to the most."""
    ax.plot(x, values.mean("seed"), color=color, **look)
    ends = values.min("seed"), values.max("seed")
    ax.fill_between(x, *ends, color=color, alpha=0.15, linewidth=0)

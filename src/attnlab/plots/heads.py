"""Heads of an observed model: a statistic of each over training, layer by layer."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from attnlab.files.documents import did_you_mean
from attnlab.files.errors import InputError
from attnlab.plots import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMNS = 4
HEIGHT = 1.6  # of a row of panels, in inches
BAND = 1.96  # standard errors
WIDE = 100  # steps that are further apart are drawn even in ratio


def heads(result: xr.Dataset, variable: str = "relative_entropy", **entry: Any) -> Figure:
    """A panel for each layer with a curve for each head, bands, and snaps as marks.

    Bands are 95 % intervals: of what other sequences would have given, or where there is one, other
    rows of a sample.

    Parameters
    ----------
    result : xarray.Dataset
        Of an observer, over (step, layer, head).
    variable : str, optional
        What is drawn.
    **entry
        Where the variable has another dim, its entry: `heads(result, "keys_for", mass=0.95)`.

    Returns
    -------
    matplotlib.figure.Figure
        To show or to save.
    """
    if variable not in result or not {"step", "layer", "head"} <= set(result[variable].dims):
        over = [n for n, v in result.data_vars.items() if {"step", "layer", "head"} <= set(v.dims)]
        near = did_you_mean(variable, map(str, over))
        raise InputError(f"variable: the result has no {variable!r} over step, layer, head; {near}")
    values = result[variable].sel(entry)
    if more := set(values.dims) - {"step", "layer", "head"}:
        dim = str(sorted(map(str, more))[0])
        choice = ", ".join(str(one) for one in values[dim].values)
        raise InputError(f"{dim}: {variable} has several; give {dim}= one of {choice}")
    layers, steps = values.sizes["layer"], values["step"].values
    rows = math.ceil(layers / COLUMNS)
    colours = style.ordered(values.sizes["head"])
    with style.page(0.5 + HEIGHT * rows) as figure:
        axes = figure.subplots(
            rows, min(layers, COLUMNS), sharex=True, sharey=True, squeeze=False
        ).ravel()
        # sequences that differ tell of sampled rows too
        errors = (f"{variable}_sequence_se", f"{variable}_se")
        half = next((BAND * result[name].sel(entry) for name in errors if name in result), None)
        for layer, ax in enumerate(axes):
            if layer >= layers:
                ax.set_axis_off()
                continue
            ax.set_title(f"layer {int(result['layer'][layer])}", loc="left")
            for head, colour in enumerate(colours):
                curve = values.isel(layer=layer, head=head).values
                mark = "o" if steps.size == 1 else None
                ax.plot(steps, curve, color=colour, label=f"head {head}", marker=mark)
                if half is not None:
                    around = half.isel(layer=layer, head=head).values
                    ax.fill_between(
                        steps, curve - around, curve + around, color=colour, alpha=0.15, linewidth=0
                    )
                _mark_snap(ax, result, layer, head, steps, curve, colour)
            if steps[-1] > WIDE * max(1, steps[steps > 0].min(initial=1)):
                ax.set_xscale("symlog", linthresh=steps[steps > 0].min())
        figure.supxlabel("step", fontsize=8)
        figure.supylabel(style.label(variable), fontsize=8)
        if len(colours) <= 12:
            style.legend_above(figure, axes[0], ncols=min(len(colours), 8))
    return figure


def _mark_snap(
    ax: Any, result: xr.Dataset, layer: int, head: int, steps: Any, curve: Any, colour: Any
) -> None:
    if "snap_step" not in result:
        return
    at = float(result["snap_step"].isel(layer=layer, head=head))
    if np.isfinite(at):
        ax.plot(at, np.interp(at, steps, curve), marker="D", color=colour, markeredgecolor="k")

"""The outcome of a sweep: a number of each run against what was swept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from attnlab.files.documents import did_you_mean
from attnlab.files.errors import InputError
from attnlab.plots import style
from attnlab.plots.attention import how_many

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FAVOURITE = "final_entropy"
MOST_PANELS, MOST_LINES = 6, 12


def grid(result: xr.Dataset, name: str | None = None) -> Figure:
    """A number of each run over the swept parameters: means over seeds, bars one deviation.

    The parameter that was named last goes along the axis, the one before it is a line each, the one
    before that a panel each; of further ones the first value is shown.

    Parameters
    ----------
    result : xarray.Dataset
        Of `sweep`, or `open_sweep`.
    name : str, optional
        `final_entropy` unless given, or another number of each run.

    Returns
    -------
    matplotlib.figure.Figure
        To show or to save.
    """
    known = outcomes(result)
    if not known:
        raise InputError("result: it has no number of each run; record loss or statistics")
    if name is None:
        name = FAVOURITE if FAVOURITE in known else known[0]
    if name not in known:
        raise InputError(f"name: {name!r} is not a number of a run; {did_you_mean(name, known)}")
    values = result[name].where(result["finished"]).load()
    swept = [str(dim) for dim in values.dims if dim != "seed"]
    notes = [", ".join(f"{_named(values, dim, 0)} of {values.sizes[dim]}" for dim in swept[:-3])]
    values = values.isel({dim: 0 for dim in swept[:-3]})
    panels, lines, along = ([None] * 3 + swept)[-3:]
    mean, std = values.mean("seed"), values.std("seed")
    notes.append(_cut(mean, panels, MOST_PANELS))
    notes.append(_cut(mean, lines, MOST_LINES))
    lost = int((~result["finished"]).sum())
    notes.append(
        f"{lost} of {result['finished'].size} runs failed and are left out" if lost else ""
    )
    with style.style():
        figure, axes = style.panels(min(_count(mean, panels), MOST_PANELS), sharex=True)
        for k, ax in enumerate(axes):
            for i, colour in enumerate(style.ordered(min(_count(mean, lines), MOST_LINES))):
                place = {dim: n for dim, n in ((panels, k), (lines, i)) if dim is not None}
                label = "" if lines is None else _named(mean, lines, i)
                _line(ax, mean.isel(place), std.isel(place), along, i, colour, label)
            if panels is not None:
                ax.set_title(_named(mean, panels, k))
            ax.set_xlabel("" if along is None else style.label(along))
        what = name.removeprefix("final_").replace("_", " ")
        for ax in axes[:: style.PANELS_IN_A_ROW]:
            ax.set_ylabel(style.label(name.removeprefix("final_")))
        seeds = values.sizes["seed"]
        over = f"mean of {seeds} seeds, bars one standard deviation" if seeds > 1 else "one seed"
        end = " at the end of training" if name.startswith("final_") else ""
        title = f"{what[0].upper()}{what[1:]}{end}: {over}"
        if lines is None:
            figure.suptitle(title, fontsize=8.5)
        else:
            style.legend_above(figure, axes[0], ncols=4, title=title)
        if any(notes):
            figure.supxlabel("; ".join(filter(None, notes)), fontsize=8)
    return figure


def outcomes(result: xr.Dataset) -> list[str]:
    """The numbers that sum a run up."""
    whole = set(result["finished"].dims)
    return [
        str(name)
        for name, of in result.data_vars.items()
        if str(name).startswith(("final_", "snap_")) and set(of.dims) == whole
    ]


def _cut(values: xr.DataArray, dim: str | None, most: int) -> str:
    return "" if dim is None else how_many(min(values.sizes[dim], most), values.sizes[dim], dim)


def _count(values: xr.DataArray, dim: str | None) -> int:
    return 1 if dim is None else values.sizes[dim]


def _named(values: xr.DataArray, dim: str, number: int) -> str:
    return f"{style.label(dim)} = {values[dim].values[number]}"


def _line(
    ax: Any,
    mean: xr.DataArray,
    std: xr.DataArray,
    along: str | None,
    i: int,
    colour: Any,
    label: str,
) -> None:
    """Draw a line: along numbers, evenly in ratio if they are far apart, or along words."""
    values = np.zeros(1) if along is None else mean[along].values
    numeric = np.issubdtype(values.dtype, np.number)
    at = values if numeric else np.arange(values.size)
    ax.errorbar(
        at,
        np.atleast_1d(mean.values),
        yerr=np.atleast_1d(std.values),
        color=colour,
        capsize=2,
        marker=style.MARKERS[i % len(style.MARKERS)],
        linestyle=style.DASHES[i % len(style.DASHES)],
        label=label,
    )
    if not numeric:
        ax.set_xticks(at, list(map(str, values)))
    elif values.size > 2 and style.far_apart(values):
        even = np.geomspace(values.min(), values.max(), style.MOST_TICKS)
        near = np.unique([abs(np.log(values / tick)).argmin() for tick in even])
        style.log_ticks(ax, values[near])
    elif values.size <= style.MOST_TICKS:
        ax.set_xticks(at, [f"{value:g}" for value in values])

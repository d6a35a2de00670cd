"""Attention of each class as bars over tokens, at a few moments of training (like Fig. 4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's palette, told apart with any colour vision
COMMON_COLOUR, DISTINCT_COLOUR = "#E69F00", "#0072B2"
MOST_MOMENTS, MOST_CLASSES, MOST_TOKENS = 7, 6, 60


def data(result: xr.Dataset) -> xr.Dataset:
    """The frames to show: one run, a few moments, the classes and tokens that fit.

    Of several runs, the first is shown. Moments are those of Fig. 4 (0, 2, 4, 6, 8, 10 and the
    end) where they were recorded in a short run, else spread evenly in ratio. Of many tokens,
    those with the largest probability in the shown classes are kept.
    """
    clock = "time" if "time" in result.dims else "step"
    kept = {clock, "sequence_class", "token"}
    one = result[["attention", "probability"]]
    one = one.isel({dim: 0 for dim in one.dims if dim not in kept})
    one = one.isel(sequence_class=slice(0, MOST_CLASSES))
    moments = one[clock].values
    one = one.isel({clock: _frames(moments)})
    contextual = np.flatnonzero((result["probability"] > 0).any("sequence_class"))
    weight = one["probability"].max("sequence_class").values[contextual]
    chosen = contextual[np.sort(np.argsort(-weight, kind="stable")[:MOST_TOKENS])]
    roles = (result["probability"] > 0).sum("sequence_class") > 1
    return one.isel(token=chosen).assign_coords(common=("token", roles.values[chosen]))


def draw(frames: xr.Dataset) -> Figure:
    """Bars of c_n: a row per class, a column per moment; the outline is the start, P(l|m,n)."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    clock = "time" if "time" in frames.dims else "step"
    rows, columns = frames.sizes["sequence_class"], frames.sizes[clock]
    figure = Figure(figsize=(1.9 * columns + 0.6, 1.45 * rows + 1.0), layout="constrained")
    axes: Any = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    position = np.arange(frames.sizes["token"])
    colours = np.where(frames["common"].values, COMMON_COLOUR, DISTINCT_COLOUR)
    for i in range(rows):
        klass = frames.isel(sequence_class=i)
        start = klass["probability"].values
        for j in range(columns):
            ax, attention = axes[i][j], klass["attention"].isel({clock: j}).values
            ax.bar(position, attention, width=0.9, color=colours)
            ax.step(position, start, where="mid", color="0.35", linewidth=0.7)
            if i == 0:
                ax.set_title(f"{clock} {float(frames[clock][j]):g}", fontsize=9)
            ax.tick_params(labelsize=7)
            ax.spines[["top", "right"]].set_visible(False)
        query, following = int(klass["query_token"]), int(klass["next_token"])
        axes[i][0].set_ylabel(f"{_name(frames, query)} → {_name(frames, following)}", fontsize=8)
    figure.supxlabel("contextual token", fontsize=9)
    figure.supylabel("attention $c_{l|m,n}$, by class (query → next)", fontsize=9)
    figure.legend(
        handles=[
            Patch(color=COMMON_COLOUR, label="common token"),
            Patch(color=DISTINCT_COLOUR, label="distinct token"),
            Patch(facecolor="none", edgecolor="0.35", label="P(l|m,n), where it starts"),
        ],
        loc="outside upper center", ncols=3, fontsize=8, frameon=False,
    )  # fmt: skip
    return figure


def _frames(moments: np.ndarray[Any, Any]) -> list[int]:
    last = moments.size - 1
    paper = [np.flatnonzero(moments == t) for t in (0, 2, 4, 6, 8, 10)]
    if all(found.size for found in paper) and moments[-1] <= 1000:
        return sorted({*(int(found[0]) for found in paper), last})
    positive = np.flatnonzero(moments > 0)
    if not positive.size:
        return [0]
    wanted = np.geomspace(moments[positive[0]], moments[-1], MOST_MOMENTS - 1)
    return sorted({0, *(int(np.argmin(np.abs(moments - t))) for t in wanted)})


def _name(frames: xr.Dataset, token: int) -> str:
    names = frames.attrs.get("token_names")
    return names[token] if names else f"token {token}"

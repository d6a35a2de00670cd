"""How well scores agree with what a trained model attends to: a panel per measure and target."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from attnlab.plots import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TRAINED_ON = {
    "limit": "classes, T to infinity",
    "sampled": "classes, length T",
    "windows": "the text's own windows",
}
TARGETS = {"logits": "what is learnt, z (of TF-IDF, the idf)", "attention": "attention c"}
BOUNDS = {"rank_correlation": (-1, 1), "recall": (0, 1)}  # bars end where values do
ROWS = {
    ("rank_correlation", "all"): "rank correlation",
    ("rank_correlation", "frequent"): "rank correlation, the 10 % most frequent",
    ("recall", "all"): "recall of the top {top}",
}


def draw(summary: xr.Dataset, *, top: int) -> Figure:
    """Means with their 95 % intervals, of `attnlab.papers.scan_and_snap.agreement.summary`."""
    from matplotlib.figure import Figure

    names = [str(name) for name in summary["score"].values]
    row = np.arange(len(names))
    with style.style():
        figure = Figure(figsize=(style.PAGE_WIDTH, 5.6), layout="constrained")
        axes = figure.subplots(len(ROWS), len(TARGETS), sharey=True, sharex="row")
        for ax, ((measure, tokens), target) in zip(
            axes.ravel(), product(ROWS, TARGETS), strict=True
        ):
            cells = summary.sel(target=target, tokens=tokens)
            for i, (training, words) in enumerate(TRAINED_ON.items()):
                one = cells.sel(training=training)
                mean = one[measure].values
                ends = [one[f"{measure}_{end}"].values for end in ("low", "high")]
                low, high = np.clip(ends, *BOUNDS[measure])
                reach = np.abs([mean - low, high - mean])
                ax.errorbar(
                    mean, row + 0.2 * (i - 1), xerr=reach, linestyle="none",
                    marker=style.MARKERS[i], color=style.ordered(len(TRAINED_ON))[i], capsize=2,
                    label=words,
                )  # fmt: skip
            ax.axvline(0, color=style.OUTLINE, linewidth=0.6)
            ax.set_xlabel(ROWS[measure, tokens].format(top=top))
        axes[0][0].set_yticks(row, names)
        axes[0][0].invert_yaxis()
        style.panel_titles(axes.ravel(), [*TARGETS.values()] * len(ROWS))
        handles, labels = axes[0][0].get_legend_handles_labels()
        figure.legend(
            handles, labels, loc="outside upper center", ncols=3, title_fontsize=7.5,
            title=f"trained on; bars: 95 % t-interval over {summary.attrs['queries']} queries",
        )  # fmt: skip
    return figure

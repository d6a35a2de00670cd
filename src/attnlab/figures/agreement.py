"""How well scores agree with what a trained model attends to: a panel per measure and target."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from attnlab.figures import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TRAINED_ON = {
    "limit": "classes, T to infinity",
    "sampled": "classes, length T",
    "windows": "the text's own windows",
}
TARGETS = {"logits": "what is learnt, z (of TF-IDF, the idf)", "attention": "attention c"}
MEASURES = {"rank_correlation": "rank correlation", "recall": "recall of the top {top}"}


def draw(summary: xr.Dataset, *, top: int) -> Figure:
    """Means with their 95 % intervals, of `attnlab.text.agreement.summary`."""
    from matplotlib.figure import Figure

    names = [str(name) for name in summary["score"].values]
    row = np.arange(len(names))
    with style.style():
        figure = Figure(figsize=(style.PAGE_WIDTH, 3.9), layout="constrained")
        axes = figure.subplots(2, 2, sharey=True, sharex="row")
        for ax, (measure, target) in zip(
            axes.ravel(), [(m, t) for m in MEASURES for t in TARGETS], strict=True
        ):
            cells = summary.sel(target=target)
            for i, (training, words) in enumerate(TRAINED_ON.items()):
                one = cells.sel(training=training)
                mean = one[measure].values
                reach = [mean - one[f"{measure}_low"].values, one[f"{measure}_high"].values - mean]
                ax.errorbar(
                    mean, row + 0.2 * (i - 1), xerr=np.maximum(reach, 0), linestyle="none",
                    marker=style.MARKERS[i], color=style.ordered(len(TRAINED_ON))[i], capsize=2,
                    label=words,
                )  # fmt: skip
            ax.axvline(0, color=style.OUTLINE, linewidth=0.6)
            ax.set_xlabel(MEASURES[measure].format(top=top))
        axes[0][0].set_yticks(row, names)
        axes[0][0].invert_yaxis()
        style.panel_titles(axes.ravel(), [TARGETS[t] for _ in MEASURES for t in TARGETS])
        handles, labels = axes[0][0].get_legend_handles_labels()
        figure.legend(
            handles, labels, loc="outside upper center", ncols=3, title_fontsize=7.5,
            title="trained on; bars: 95 % interval over queries",
        )  # fmt: skip
    return figure

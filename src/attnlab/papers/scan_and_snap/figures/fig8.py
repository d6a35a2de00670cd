"""Fig. 8: h* (steps) against h (smooth) for several eta_Y, and the decoder in training."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from attnlab.experiments import ExperimentRecipe, Judgement, Standing, Texts
from attnlab.files.progress import Progress
from attnlab.plots import style

from .. import theory
from . import joint_runs as joint

TEXTS = Texts.read(__file__)
CLOSE = 30  # visits: the steps of h* can be told apart up to there


@dataclass(frozen=True, kw_only=True)
class Recipe(ExperimentRecipe):
    """visits: how often one class is seen, at most, in (a) and (b). classes, eta_z, steps,
    records: of the training in (c)."""

    classes: str
    eta_z: float
    eta_y: tuple[float, ...]
    visits: int
    steps: float
    records: int


def data(recipe: Recipe, *, progress: Progress = False, keep: Path | None = None) -> xr.Dataset:
    """h* and h over (eta_y, visits of one class), and h over (eta_y, time in steps).

    bound_printed, bound_corrected: Lemma 7's bound on h* - h. theory: h(time / K). training: the h
    that the loss of the joint flow stands for.
    """
    setting = joint.section_6(recipe.classes)
    K, M = setting.K, setting.M
    eta_y = np.array(recipe.eta_y)
    visits = np.arange(recipe.visits + 1)
    times = np.linspace(0.0, recipe.steps, recipe.records)
    result = joint.train(setting, eta_y=eta_y, eta_z=recipe.eta_z, times=times, progress=progress)

    def by_rate(h: Callable[..., Any], at: np.ndarray) -> np.ndarray:
        return np.array([h(at, M=M, eta_y=rate) for rate in eta_y])

    return xr.Dataset(
        {
            "h_star": (("eta_y", "visits"), by_rate(theory.h_star, visits)),
            "h": (("eta_y", "visits"), by_rate(theory.h, visits)),
            "bound_printed": ("eta_y", theory.h_gap_bound(M=M, eta_y=eta_y, form="printed")),
            "bound_corrected": ("eta_y", theory.h_gap_bound(M=M, eta_y=eta_y)),
            "theory": (("eta_y", "time"), by_rate(theory.h, times / K)),
            "training": joint.measured_h(setting, result).transpose("eta_y", "time"),
        },
        coords={"eta_y": eta_y, "visits": visits, "time": times},
        attrs={"K": K, "M": M, "eta_z": recipe.eta_z},
    )


def draw(curves: xr.Dataset) -> Figure:
    """(a) h* as steps and h as a curve; (b) their gap, and its bound; (c) h in training."""
    M, eta_y = curves.attrs["M"], curves["eta_y"].values
    with style.page(2.9) as figure:
        axes = figure.subplots(1, 3)
        for i, colour in enumerate(style.ordered(eta_y.size)):
            curve = curves.isel(eta_y=i)
            visits, label = curve["visits"], rf"$\eta_Y$ = {eta_y[i]:g}"
            steps: Any = {"where": "post", "color": colour, "linewidth": 0.9, "label": label}
            axes[0].step(visits, M * curve["h_star"], **steps)
            axes[0].plot(visits, M * curve["h"], color=colour, linewidth=1.6, alpha=0.55)
            gap = (curve["h_star"] - curve["h"]) * M / eta_y[i]
            styles: Any = {"color": colour, "marker": style.MARKERS[i]}
            axes[1].plot(visits, gap, markevery=8, markersize=3, **styles)
            axes[2].plot(curve["time"], M * curve["theory"], color=colour, alpha=0.55, lw=1.6)
            styles |= {"linestyle": "none", "markevery": (10 * i + 5, 50)}
            axes[2].plot(curve["time"], M * curve["training"], **styles)
        last = float(curves["visits"][-1])
        bounds = (("corrected", 1, style.DASHES[1]), ("Lemma 7, printed", 2, ":"))
        for name, bound, dashes in bounds:
            axes[1].axhline(bound, color=style.OUTLINE, linewidth=1, linestyle=dashes)
            axes[1].annotate(name, (last, bound), ha="right", va="bottom", fontsize=7)
        axes[1].set_ylim(0, 2.3)
        TEXTS.label(axes)
        for ax in axes:
            ax.margins(x=0.02)
        axes[0].set_xlim(0, min(CLOSE, last))
        style.legend_above(figure, axes[0])
    return figure


def judge(curves: xr.Dataset) -> Judgement:
    """Judge whether the gap is bounded and vanishes, and whether training follows h."""
    gap = (curves["h_star"] - curves["h"]) / curves["bound_corrected"]
    peak, last = float(gap.max()), float(gap.isel(visits=-1).max())
    error = abs(curves["training"] / curves["theory"] - 1).isel(time=slice(1, None))
    numbers = {
        "largest_gap": peak,
        "last_gap": last,
        "largest_training_error": error.max(),
        "last_training_error": error.isel(time=-1).max(),
    }
    within = bool(((gap >= 0) & (gap <= 1)).all())
    return TEXTS.judgement(
        Standing.HOLDS if within and last < peak else Standing.FAILS,
        numbers,
        where="nowhere" if within else "somewhere",
        visits=int(curves["visits"][-1]),
    )


EXPERIMENT = TEXTS.experiment(recipe=Recipe, data=data, judge=judge, draw=draw)

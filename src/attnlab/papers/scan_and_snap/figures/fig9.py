"""Fig. 9: B_n(t) for several eta_Z at a fixed ratio nu = eta_Y / eta_Z, in theory and training."""

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
ROUTES = ("printed", "corrected", "training")


@dataclass(frozen=True, kw_only=True)
class Recipe(ExperimentRecipe):
    """ratio: nu = eta_Y / eta_Z (the caption inverts it). steps: the last time shown."""

    classes: str
    ratio: float
    eta_z: tuple[float, ...]
    steps: float
    records: int


def data(recipe: Recipe, *, progress: Progress = False, keep: Path | None = None) -> xr.Dataset:
    """B_n over (eta_z, time) by three routes, t_0 of each eta_z and B_n there.

    printed: Eq. 129 as it stands. corrected: with B_n(0) = 0 and the class weight. training: B_n
    as the logits of the joint flow show it (`joint.measured_growth_bound`), from all distinct
    tokens of a class; dominant_at_t0: from the likeliest of them alone.
    """
    setting = joint.section_6(recipe.classes)
    K, M = setting.K, setting.M
    eta_z = xr.DataArray(list(recipe.eta_z), dims="eta_z", coords={"eta_z": list(recipe.eta_z)})
    eta_y = recipe.ratio * eta_z
    t0 = np.atleast_1d(theory.transition_times(K=K, M=M, eta_y=eta_y.values).t0)
    # the transition times are among the records, so that nothing is interpolated there
    times = np.union1d(np.linspace(0.0, recipe.steps, recipe.records - t0.size), t0)
    printed, corrected = [], []
    for y, z in zip(eta_y.values.tolist(), recipe.eta_z, strict=True):
        rates: dict[str, Any] = {"K": K, "M": M, "eta_y": y, "eta_z": z}
        printed.append(theory.growth_bound(times, **rates, C0=setting.C0, form="printed"))
        path = theory.common_token_path(times, **rates, rho0=setting.rho0)
        corrected.append(path.growth_bound)
    result = joint.train(setting, eta_y=eta_y, eta_z=eta_z, times=times, progress=progress)
    training, dominant = (
        joint.measured_growth_bound(setting, result, tokens).transpose("eta_z", "time")
        for tokens in (setting.distinct, np.array([setting.dominant]))
    )
    curves = xr.Dataset(
        {
            "printed": (("eta_z", "time"), np.array(printed)),
            "corrected": (("eta_z", "time"), np.array(corrected)),
            "training": training,
            "dominant": dominant,
            "t0": ("eta_z", t0),
        },
        coords={"eta_z": eta_z.values, "time": times},
        attrs={"ratio": recipe.ratio, "K": K, "M": M},
    )
    curves = curves.drop_vars(["sequence_class", "query_token", "next_token"], errors="ignore")
    at = curves[[*ROUTES, "dominant"]].sel(time=curves["t0"]).drop_vars("time")
    return curves.drop_vars("dominant").assign({f"{name}_at_t0": at[name] for name in at})


def draw(curves: xr.Dataset) -> Figure:
    """Draw a panel for each route, with its own scale: t_0 dotted, B_n(t_0) as a dot."""
    with style.page(2.9) as figure:
        axes = figure.subplots(1, 3, sharex=True)
        for ax, name in zip(axes, ROUTES, strict=True):
            joint.draw_curves(ax, curves, name, swept="eta_z", label=r"$\eta_Z$")
        TEXTS.label(axes)
        style.legend_above(figure, axes[0], title=TEXTS.legend.format(**curves.attrs))
    return figure


def judge(curves: xr.Dataset) -> Judgement:
    """Judge whether B_n(t_0) is the same for every eta_Z, and a larger eta_Z ends higher."""
    numbers: dict[str, float] = {}
    for name in ROUTES:
        at = curves[f"{name}_at_t0"]
        numbers[f"{name}_at_t0"] = float(at.mean())
        numbers[f"{name}_spread_at_t0"] = float((at.max() - at.min()) / at.mean())
    numbers["printed_start"] = float(curves["printed"][0, 0])
    numbers["dominant_at_t0"] = float(curves["dominant_at_t0"].mean())
    end = curves.isel(time=-1)
    rise = all((end[name].diff("eta_z") > 0).all() for name in ROUTES)
    spread = max(numbers[f"{name}_spread_at_t0"] for name in ROUTES)
    alike = spread < 1e-3
    ends = [f"{name} {float(end[name][0]):.3g} and {float(end[name][-1]):.3g}" for name in ROUTES]
    return TEXTS.judgement(
        Standing.CORRECTED if rise and alike else Standing.FAILS,
        numbers,
        alike="the same" if alike else "not the same",
        has="has" if rise else "does not have",
        where=", ".join(f"{numbers[f'{name}_at_t0']:.4g} ({name})" for name in ROUTES),
        spread=spread,
        by_all=numbers["corrected_at_t0"] / numbers["training_at_t0"],
        by_dominant=numbers["corrected_at_t0"] / numbers["dominant_at_t0"],
        low=float(curves["eta_z"][0]),
        high=float(curves["eta_z"][-1]),
        ends="; ".join(ends),
    )


EXPERIMENT = TEXTS.experiment(recipe=Recipe, data=data, judge=judge, draw=draw)

"""Fig. 3: the growth factor chi_l(t) for several eta_Y, in theory and in training."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from attnlab import formulas, measures
from attnlab.experiments import ExperimentRecipe, Judgement, Standing, Texts
from attnlab.files.errors import InputError
from attnlab.files.progress import Progress, in_turn
from attnlab.plots import style

from .. import theory
from . import joint_runs as joint

TEXTS = Texts.read(__file__)
ROUTES = {
    "printed": "Theorem 4 as printed: $e^{2B_n}$",
    "corrected": "Theorem 4 corrected: $e^{2B_n}$",
    "eq10": r"Eq. 10 solved: $\chi_l$",
    "sgd": r"SGD's decoder (ours): $\chi_l$",
    "training": r"training: $\chi_l$",
}
BY_OVERLAP = ("eq10", "sgd", "training")  # levels, and training
LATE_RECORDS = 181  # from the last time shown to the last one measured


@dataclass(frozen=True, kw_only=True)
class Recipe(ExperimentRecipe):
    """classes: as in Section 6; Theorem 4 is shown for the first. steps: the last time shown;
    records: how many times. late: later times at which the order of training is measured."""

    classes: tuple[str, ...]
    eta_z: float
    eta_y: tuple[float, ...]
    steps: float
    records: int
    late: tuple[float, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        beyond = [self.steps, *self.late]
        if not self.late or sorted(set(beyond)) != beyond:
            raise InputError(f"late: expected times beyond {self.steps:g}, in order")


def data(recipe: Recipe, *, progress: Progress = False, keep: Path | None = None) -> xr.Dataset:
    """chi over (overlap, eta_y, time), by five routes; overlap is f_n . f_n' at the start.

    printed: the upper bound exp(2 B_n) of Eq. 12 with B_n of Theorem 4 as it stands. corrected:
    with B_n(0) = 0 and the class weight. eq10: chi of the dominant distinct token along the
    solution of Eq. 10. sgd: along that of the next level, with the decoder that SGD trains.
    training: the same token in the joint flow, whose time counts steps as the
    theory's does; training_late: the same at the recipe's `late` times. weak: whether the overlap
    is below 1 / (K (K - 1)), so that |lambda_1| < 1 / K as Assumption 2 asks.
    """
    settings = [joint.section_6(classes) for classes in recipe.classes]
    parts = [_curves(recipe, setting, report) for setting, report in in_turn(settings, progress)]
    weak = ("overlap", [bool(part["overlap"] < 1 / (part.K * (part.K - 1))) for part in parts])
    curves = xr.concat(parts, "overlap", coords="minimal").assign_coords(weak=weak)
    return curves.assign_attrs(eta_z=recipe.eta_z)


def _curves(recipe: Recipe, setting: joint.Section6, progress: Progress) -> xr.Dataset:
    K, M = setting.K, setting.M
    times = np.linspace(0.0, recipe.steps, recipe.records)
    eta_y, eta_z = np.array(recipe.eta_y), recipe.eta_z
    dominant = int(np.searchsorted(setting.tokens, setting.dominant))
    rows: dict[str, list[np.ndarray]] = {name: [] for name in ROUTES if name != "training"}
    for rate in eta_y:
        rates: dict[str, Any] = {"eta_y": float(rate), "eta_z": eta_z}
        at = formulas.Setting(setting.P, M=M, **rates)
        printed = theory.growth_bound(times, K=K, M=M, **rates, C0=setting.C0, form="printed")
        closed = theory.common_token_path(times, K=K, M=M, **rates, rho0=setting.rho0)
        flow = theory.attention_flow(at, times)
        rows["printed"].append(np.exp(2 * printed))
        rows["corrected"].append(np.exp(2 * closed.growth_bound))
        rows["eq10"].append(theory.growth_factor(flow.logits[:, 0, dominant]))
        flow_of_sgd = formulas.sgd_flow(at, times)
        rows["sgd"].append(theory.growth_factor(flow_of_sgd.logits[:, 0, dominant]))
    late = np.array(recipe.late)
    # attention may snap later than what is shown
    beyond = np.union1d(np.geomspace(recipe.steps, late[-1], LATE_RECORDS)[1:-1], late)
    every = np.append(times, beyond)
    result = joint.train(setting, eta_y=eta_y, eta_z=eta_z, times=every, progress=progress)
    growth = measures.growth_factor(result, token=setting.dominant).transpose("eta_y", "time")
    snap = measures.snap_time(joint.class_attention(setting, result)).isel(sequence_class=0)
    t0 = theory.transition_times(K=K, M=M, eta_y=eta_y).t0
    rho = setting.rho0**-2
    E = rho * (1 - np.eye(K))
    plain = [
        theory.plain_coefficients(t, K=K, M=M, rho=rho, eta_y=float(rate)).beta
        for t, rate in zip(np.atleast_1d(t0), eta_y, strict=True)
    ]
    return xr.Dataset(
        {
            **{name: (("eta_y", "time"), np.array(values)) for name, values in rows.items()},
            "training": (("eta_y", "time"), growth.values[:, : times.size]),
            "training_late": (("eta_y", "late"), growth.sel(time=late).values),
            "t0": ("eta_y", t0),
            "snap": ("eta_y", snap.values),
            # how much larger Theorem 1's beta is than that of plain gradient descent, at t_0
            "beta_excess": ("eta_y", theory.beta(E, M=M)[0, 1] / np.array(plain)),
        },
        coords={"eta_y": eta_y, "time": times, "late": late, "overlap": rho},
        attrs={"K": K, "M": M},
    )


def draw(curves: xr.Dataset) -> Figure:
    """Theorem 4 above; below, for each overlap, the levels from Eq. 10 to training.

    Each panel has its own scale, and a dotted line at t_0 of each eta_Y.
    """
    overlaps = curves["overlap"].values
    panels = [("printed", 0), ("corrected", 0)]
    panels += [(name, i) for i in range(overlaps.size) for name in BY_OVERLAP]
    with style.page(1.0 + 1.75 * (1 + overlaps.size)) as figure:
        grid = figure.subplots(1 + overlaps.size, len(BY_OVERLAP), sharex=True)
        for ax in grid[0, 2:]:
            ax.remove()
        axes = [*grid[0, :2], *grid[1:].ravel()]
        titles = []
        for ax, (name, i) in zip(axes, panels, strict=True):
            joint.draw_curves(ax, curves.isel(overlap=i), name, swept="eta_y", label=r"$\eta_Y$")
            ax.ticklabel_format(axis="y", useOffset=False)
            titles.append(ROUTES[name] + (_overlap(curves, i) if name in BY_OVERLAP else ""))
        style.panel_titles(axes, titles)
        for ax in grid[:, 0]:
            ax.set_ylabel("growth factor")
        for ax in grid[-1]:
            ax.set_xlabel("time $t$ in steps")
        style.legend_above(
            figure,
            axes[0],
            title=rf"$\eta_Z$ = {curves.attrs['eta_z']:g}, K = {curves.attrs['K']}, "
            rf"M = {curves.attrs['M']}; overlap: $f_n·f_{{n'}}$, in- or outside Assumption 2; "
            r"dotted: $t_0$ of each $\eta_Y$; each panel has its scale",
        )
    return figure


def _overlap(curves: xr.Dataset, i: int) -> str:
    side = "inside" if curves["weak"].values[i] else "outside"
    return f"\noverlap {float(curves['overlap'][i]):.2g}, {side}"


def judge(curves: xr.Dataset) -> Judgement:
    """Judge whether a smaller eta_Y ends higher, and how large the growth is, by each route.

    The claim is the theory's, so it is judged in training where Assumption 2 holds.
    """
    end, weak = curves.isel(time=-1), curves["weak"].values
    theories = end[["printed", "corrected", "eq10"]]
    in_theory = bool((theories.diff("eta_y") < 0).to_array().all())
    # at the end of what is shown and at each late time, (overlap, time)
    late = curves["training_late"].transpose("overlap", "eta_y", "late").values
    moments = np.concatenate([end["training"].values[..., None], late], axis=-1)
    steps = np.sign(np.diff(moments, axis=1))
    kept, reversed_ = (np.all(steps == sign, axis=1) for sign in (-1, 1))
    # whether the level before training has its order, at the end of what is shown
    alike = np.all(np.sign(end["sgd"].diff("eta_y").values) == steps[..., 0], axis=1)
    times = [float(curves["time"][-1]), *curves["late"].values.tolist()]
    low, high = float(curves["eta_y"][0]), float(curves["eta_y"][-1])
    first = end.isel(eta_y=0)
    snap = curves["snap"] / curves["t0"]
    numbers = {
        "printed_start": float(curves["printed"][0, 0, 0]),
        "printed_end": float(first["printed"][0]),
        "corrected_end": float(first["corrected"][0]),
    }
    each, orders = [], []
    for i, rho in enumerate(curves["overlap"].values):
        eq10, sgd, training = (float(first[name][i]) - 1 for name in BY_OVERLAP)
        lowest, highest = (float(end(skipna=False)) for end in (snap[i].min, snap[i].max))
        found = {
            "eq10_growth": eq10,
            "sgd_growth": sgd,
            "training_growth": training,
            "training_order": float(kept[i].mean()),
            "beta_excess": float(curves["beta_excess"][i].mean()),
            "snap_lowest": lowest,
            "snap_highest": highest,
        }
        numbers |= {f"{name}_{i + 1}": value for name, value in found.items()}
        others: dict[str, Any] = {
            "side": f"overlap {rho:.2g}, {'inside' if weak[i] else 'outside'} Assumption 2",
            "order": _order(kept[i], reversed_[i], times),
            "times_smaller": eq10 / training,
            "of_training": sgd / training,
            "alike": "has" if alike[i] else "does not have",
            "time": times[0],
            "low": low,
        }
        orders.append("{order} at {side}".format(**others))
        each.append(TEXTS.part("overlap", **found, **others))
    values = [
        f"{name} {float(first[name][0]):.4g} and {float(end[name][0, -1]):.4g}" for name in ROUTES
    ]
    if not in_theory:
        standing = Standing.FAILS
    else:
        inside = weak.any() and kept[weak].all()
        standing = Standing.CORRECTED if inside else Standing.PARTLY
    return TEXTS.judgement(
        standing,
        numbers,
        has="has" if in_theory else "does not have",
        ends="ends higher, as the paper says" if in_theory else "does not end higher everywhere",
        orders=", and ".join(orders),
        each="; ".join(each),
        values="; ".join(values),
        low=low,
        high=high,
        panels=2 + len(BY_OVERLAP) * curves.sizes["overlap"],
        largest_overlap=1 / (curves.attrs["K"] * (curves.attrs["K"] - 1)),
    )


def _order(kept: np.ndarray, reversed_: np.ndarray, times: list[float]) -> str:
    """Say what training does with the order at these times."""
    span = f"from t = {times[0]:g} to {times[-1]:g}"
    if kept.all():
        return f"keeps it {span}"
    if reversed_.all():
        return f"reverses it {span}"
    when = [f"{time:g}" for time, is_kept in zip(times, kept, strict=True) if is_kept]
    return f"keeps it at t = {', '.join(when)} only" if when else f"does not keep it {span}"


EXPERIMENT = TEXTS.experiment(recipe=Recipe, data=data, judge=judge, draw=draw)

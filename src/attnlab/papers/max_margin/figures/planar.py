"""Paths of W z in the plane, and the directions of the max-margin solution."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from attnlab.auditing.runs import trained_run
from attnlab.experiments import ExperimentRecipe, Judgement, Standing
from attnlab.experiments.texts import Texts
from attnlab.files.progress import Progress, in_turn
from attnlab.plots import style

from ..runs import FROM_ZERO, compared, descent, even_ratios, instances
from ..task import TokenSelection

TEXTS = Texts.read(__file__)
NEAR = 0.1  # error of the direction at the end


@dataclass(frozen=True, kw_only=True)
class Recipe(ExperimentRecipe):
    """lengths: T of each panel, n = d = 2. seeds: the instance of each panel."""

    lengths: tuple[int, ...]
    seeds: tuple[int, ...]
    steps: int
    records: int


def data(recipe: Recipe, *, progress: Progress = False, keep: Path | None = None) -> xr.Dataset:
    """path, W z_i over (panel, step, sequence, axis), margin, W_mm z_i, error over (panel, step);
    tokens over (panel, sequence, token, axis), selected over (panel, sequence)."""
    at = even_ratios(1, recipe.steps, recipe.records)
    panels = list(zip(recipe.lengths, recipe.seeds, strict=True))
    found = [_panel(T, seed, at) for (T, seed), _ in in_turn(panels, progress)]
    return xr.concat(found, "panel", join="outer").assign_coords(T=("panel", list(recipe.lengths)))


def _panel(T: int, seed: int, at: tuple[int, ...]) -> xr.Dataset:
    task = TokenSelection(sequences=2, length=T, vocab_size=2)
    run = descent(task, FROM_ZERO, at=at, seeds=(seed,))
    of, (instance,) = compared(run).isel(seed=0), instances(run)
    W, z = trained_run(run)["matrix"].isel(seed=0), instance["z"]
    return xr.Dataset(
        {
            "path": (("step", "sequence", "axis"), np.einsum("tdk,nk->tnd", W.values, z)),
            "margin": (("sequence", "axis"), z @ of["solution"].values.T),
            "error": ("step", of["error"].values),
            "tokens": (("sequence", "token", "axis"), instance["x"]),
            "selected": ("sequence", of["chosen"].values),
        },
        {"step": list(at), "token": np.arange(T)},
    )


def draw(found: xr.Dataset) -> Figure:
    """Draw paths with dashed max-margin rays; tokens' directions stand on the rim."""
    colours = (style.DISTINCT, style.ACCENT)
    with style.page(3.4) as figure:
        axes = np.atleast_1d(figure.subplots(1, found.sizes["panel"]))
        for ax, panel in zip(axes, range(found.sizes["panel"]), strict=True):
            of = found.isel(panel=panel)
            rim = 1.15 * float(np.linalg.norm(of["path"], axis=-1).max())
            for i, colour in enumerate(colours):
                x, y = of["path"].isel(sequence=i).transpose("axis", "step").values
                ax.plot(x, y, color=colour, label=f"$W z_{i + 1}$")
                ray = of["margin"].isel(sequence=i).values
                ax.plot(*(rim * np.outer(ray, [0, 1]) / np.linalg.norm(ray)), "--", color=colour)
                tokens = of["tokens"].isel(sequence=i).dropna("token").values
                chosen = np.arange(len(tokens)) == int(of["selected"][i])
                for some, fill in ((chosen, colour), (~chosen, "none")):
                    ax.plot(*(rim * tokens[some].T), "o", mfc=fill, color=colour)
            ax.set(xlim=(-1.1 * rim, 1.1 * rim), ylim=(-1.1 * rim, 1.1 * rim), aspect="equal")
        TEXTS.label(axes.tolist())
        style.panel_titles(axes.tolist(), [f"T = {T}" for T in found["T"].values])
        style.legend_above(figure, axes[0], title=TEXTS.legend)
    return figure


def judge(found: xr.Dataset) -> Judgement:
    """Judge whether W's direction is near the solution of what it selects at the end."""
    last = found["error"].isel(step=-1).values
    errors = dict(zip(found["T"].values, map(float, last), strict=True))
    near = last < NEAR
    return TEXTS.judgement(
        Standing.of(near.all(), in_part=near.any()),
        {f"error_T{T}": error for T, error in errors.items()},
        steps=int(found["step"][-1]),
        errors=" and ".join(f"{error:.3f} (T = {T})" for T, error in errors.items()),
        panels=found.sizes["panel"],
    )


EXPERIMENT = TEXTS.experiment(recipe=Recipe, data=data, judge=judge, draw=draw)

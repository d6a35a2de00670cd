"""Paths of W z in the plane, and the directions of the max-margin solution."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from attnlab.auditing.runs import trained_run
from attnlab.experiments import ExperimentRecipe, Judgement, Standing, over_cells
from attnlab.experiments.texts import Texts
from attnlab.files.progress import Progress
from attnlab.plots import style

from .. import theory
from ..runs import FROM_ZERO, descent, even_ratios, instances
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
    """path, W z_i over (T, step, sequence, axis), margin, W_mm z_i, error over (T, step); tokens
    over (T, sequence, token, axis), selected over (T, sequence)."""
    at = even_ratios(1, recipe.steps, recipe.records)
    seeds = dict(zip(recipe.lengths, recipe.seeds, strict=True))

    def measure(T: int, _: object) -> xr.Dataset:
        run = descent(TokenSelection(2, T, 2), FROM_ZERO, at=at, seeds=(seeds[T],))
        (instance,), found = instances(run), trained_run(run).isel(seed=0)
        selected = found["log_attention"].isel(step=-1).argmax("token").values
        margin = theory.max_margin(instance["x"], instance["z"], selected).weights
        W, z = found["matrix"].values, instance["z"]
        return xr.Dataset(
            {
                "path": (("step", "sequence", "axis"), np.einsum("tdk,nk->tnd", W, z)),
                "margin": (("sequence", "axis"), z @ margin.T),
                "error": ("step", theory.direction_error(W, margin)),
                "tokens": (("sequence", "token", "axis"), instance["x"]),
                "selected": ("sequence", selected),
            },
            {"step": list(at), "token": np.arange(T)},
        )

    return over_cells(measure, progress, T=recipe.lengths)


def draw(found: xr.Dataset) -> Figure:
    """Draw paths with dashed max-margin rays; tokens' directions stand on the rim."""
    with style.page(3.4) as figure:
        axes = np.atleast_1d(figure.subplots(1, found.sizes["T"]))
        for ax, T in zip(axes, found["T"], strict=True):
            of = found.sel(T=T).dropna("token")
            rim = 1.15 * float(np.linalg.norm(of["path"], axis=-1).max())
            for i, colour in enumerate((style.DISTINCT, style.ACCENT)):
                path, ray, tokens, chosen = (
                    of[name].isel(sequence=i).values
                    for name in ("path", "margin", "tokens", "selected")
                )
                ax.plot(*path.T, color=colour, label=f"$W z_{i + 1}$")
                ax.plot(*(rim * np.outer(ray, [0, 1]) / np.linalg.norm(ray)), "--", color=colour)
                ax.plot(*(rim * tokens.T), "o", mfc="none", color=colour)
                ax.plot(*(rim * tokens[int(chosen)]), "o", color=colour)
            ax.set(xlim=(-1.1 * rim, 1.1 * rim), ylim=(-1.1 * rim, 1.1 * rim), aspect="equal")
        TEXTS.label(axes.tolist())
        style.panel_titles(axes.tolist(), [f"T = {T}" for T in found["T"].values])
        style.legend_above(figure, axes[0], title=TEXTS.legend)
    return figure


def judge(found: xr.Dataset) -> Judgement:
    """Judge whether W's direction is near the solution of what it selects at the end."""
    last = found["error"].isel(step=-1)
    errors = {int(T): float(error) for T, error in zip(last["T"], last, strict=True)}
    near = [error < NEAR for error in errors.values()]
    return TEXTS.judgement(
        Standing.of(all(near), in_part=any(near)),
        {f"error_T{T}": error for T, error in errors.items()},
        steps=int(found["step"][-1]),
        errors=" and ".join(f"{error:.3f} (T = {T})" for T, error in errors.items()),
        panels=len(errors),
    )


EXPERIMENT = TEXTS.experiment(recipe=Recipe, data=data, judge=judge, draw=draw)

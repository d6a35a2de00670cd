"""Fig. 2: the four stages of training, from a real simulation.

The paper draws them; here they are moments of one run, found by measures: the start, common tokens
suppressed, a winner emerging, and attention frozen.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from attnlab.figures import style
from attnlab.figures.finding import Finding, Outcome
from attnlab.figures.recipe import SimulationRecipe
from attnlab.results import measures
from attnlab.sweep import Progress, run_parts

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "The four stages of training"
STAGES = ("start", "common suppressed", "winner emerging", "frozen")


@dataclass(frozen=True, kw_only=True)
class Recipe(SimulationRecipe):
    """sequence_class: the class that is shown. suppressed: the second stage is when attention to
    common tokens is first below this share of its start. winner: the third, when the most attended
    token first has this many times its start. snap_fraction: the fourth is the `snap_time` at this
    fraction."""

    sequence_class: int
    suppressed: float
    winner: float
    snap_fraction: float


def data(recipe: Recipe, *, progress: Progress = False, keep: Path | None = None) -> xr.Dataset:
    """The class at its four moments, (stage, token), and its whole course, (step,).

    unnormalised: c~ = P(l|m,n) exp(z_ml) of Eq. 5, as the paper draws it. attention: c.
    """
    (part,) = run_parts(recipe, progress=progress, keep=keep)
    flat = {dim: 0 for dim in part.result["loss"].dims if dim != "step"}
    result = part.result.isel(flat)
    own = result.isel(sequence_class=recipe.sequence_class)
    drawn = own["token"].values[(result["probability"] > 0).any("sequence_class")]
    common_mass = measures.common_mass(result).isel(sequence_class=recipe.sequence_class)
    winner = int(own["attention"].isel(step=-1).argmax("token"))
    winner_attention = own["attention"].isel(token=winner, drop=True)
    snap = measures.snap_time(result, fraction=recipe.snap_fraction)
    moments = [
        0.0,
        _first(common_mass < recipe.suppressed * common_mass[0]),
        _first(winner_attention > recipe.winner * winner_attention[0]),
        float(snap.isel(sequence_class=recipe.sequence_class)),
    ]
    if not np.all(np.diff(moments) >= 0):  # also False for NaN
        raise ValueError(f"steps: the four stages are not all passed, in order; found {moments}")

    logits = own["attention_logits"].sel(query=int(own["query_token"]))
    unnormalised = own["probability"] * np.exp(logits.astype(np.float64))
    frames = xr.Dataset({"unnormalised": unnormalised, "attention": own["attention"]})
    frames = frames.sel(step=moments, token=drawn).rename(step="stage")
    is_common = ((result["probability"] > 0).sum("sequence_class") > 1).sel(token=drawn)
    return xr.Dataset(
        {
            "unnormalised": frames["unnormalised"].transpose("stage", "token"),
            "attention": frames["attention"].transpose("stage", "token"),
            "probability": own["probability"].sel(token=drawn),
            "common_mass": common_mass,
            "winner_attention": winner_attention,
            "loss": result["loss"],
        },
        attrs={"winner": winner, "sequence_class": recipe.sequence_class},
    ).drop_vars(["query", "query_token", "next_token", "sequence_class", "seed", "eta_y", "eta_z"],
                errors="ignore").assign_coords(
        stage=list(STAGES), moment=("stage", moments), common=("token", is_common.values)
    )  # fmt: skip


def draw(frames: xr.Dataset) -> Figure:
    """Bars of c~ at the four stages, above the course of the run with the stages marked."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    with style.style():
        figure = Figure(figsize=(style.PAGE_WIDTH, 3.9), layout="constrained")
        grid = figure.add_gridspec(2, 4, height_ratios=[1.15, 1])
        top = frames["unnormalised"].max().item() * 1.08
        colours = np.where(frames["common"].values, style.COMMON, style.DISTINCT)
        position = np.arange(frames.sizes["token"])
        # tokens that the class never draws carry no bar; show its own support only
        seen = frames["probability"].values > 0
        for j in range(4):
            ax = figure.add_subplot(grid[0, j])
            bars = frames["unnormalised"].isel(stage=j).values
            ax.bar(position[seen], bars[seen], width=0.9, color=colours[seen])
            style.outline(ax, position[seen], frames["probability"].values[seen])
            ax.set_ylim(0, top)
            ax.set_title(
                f"({'abcd'[j]}) {frames['stage'].values[j]}\nstep {frames['moment'].values[j]:g}",
                loc="left",
            )
            ax.set_xlabel("contextual token")
            if j == 0:
                ax.set_ylabel(r"$\tilde c_{l|m,n} = P(l|m,n)\,e^{z_{ml}}$")
            else:
                ax.tick_params(labelleft=False)

        ax = figure.add_subplot(grid[1, :])
        step = frames["step"].values
        ax.plot(step, frames["common_mass"], color=style.COMMON, label="all common tokens")
        ax.plot(
            step,
            frames["winner_attention"],
            color=style.DISTINCT,
            linestyle=style.DASHES[1],
            label=f"the winner (token {frames.attrs['winner']})",
        )
        for letter, moment in zip("abcd", frames["moment"].values, strict=True):
            ax.axvline(moment, color=style.OUTLINE, linewidth=0.7, linestyle=":")
            ax.annotate(
                letter, (moment, 1.0), xycoords=("data", "axes fraction"), xytext=(3, -2),
                textcoords="offset points", va="top", fontsize=8, fontweight="bold",
            )  # fmt: skip
        ax.set_xlabel("optimiser step")
        ax.set_ylabel("attention $c$")
        ax.set_xlim(-1, step[-1])
        ax.set_ylim(0, 0.8)
        curves = ax.get_legend_handles_labels()[0]
        figure.legend(
            handles=[
                Patch(color=style.COMMON, label="common token"),
                Patch(color=style.DISTINCT, label="distinct token"),
                Patch(facecolor="none", edgecolor=style.OUTLINE, label="P(l|m,n), the start"),
            ],
            loc="outside upper center",
            ncols=3,
        )
        ax.legend(handles=curves, loc="upper right")
    return figure


def judge(frames: xr.Dataset) -> Finding:
    """Whether the stages come in the paper's order, and how still attention is after the last."""
    a, b, c, d = frames["moment"].values
    end = float(frames["step"].values[-1])
    common, winner = frames["common_mass"], frames["winner_attention"]
    numbers = {
        "suppressed_step": float(b),
        "winner_step": float(c),
        "frozen_step": float(d),
        "common_mass_start": float(common.sel(step=a)),
        "common_mass_frozen": float(common.sel(step=d)),
        "winner_start": float(winner.sel(step=a)),
        "winner_frozen": float(winner.sel(step=d)),
        "winner_end": float(winner.isel(step=-1)),
    }
    dominant = int(frames["probability"].where(~frames["common"]).argmax("token"))
    is_likeliest = int(frames["token"].values[dominant]) == frames.attrs["winner"]
    summary = (
        f"The stages come in the paper's order. Attention to common tokens falls from "
        f"{numbers['common_mass_start']:.2f} to {numbers['common_mass_frozen']:.2f}; the distinct "
        f"token with {'the largest' if is_likeliest else 'another'} P(l|n) wins, from "
        f"{numbers['winner_start']:.3f} to {numbers['winner_frozen']:.2f}. Attention snaps at step "
        f"{d:.0f}; in the {end - d:.0f} steps that follow the winner moves by only "
        f"{abs(numbers['winner_end'] - numbers['winner_frozen']):.3f}."
    )
    moments = f"{a:.0f}, {b:.0f}, {c:.0f} and {d:.0f}"
    alt = (
        f"Four bar charts of unnormalised attention at steps {moments}: common tokens "
        f"shrink, then one distinct token grows to dominate, then nothing changes. Below, "
        f"attention to all common tokens falls from {numbers['common_mass_start']:.2f} to "
        f"{numbers['common_mass_frozen']:.2f} while the winner rises from "
        f"{numbers['winner_start']:.3f} to {numbers['winner_frozen']:.2f}."
    )
    outcome = Outcome.REPRODUCED if is_likeliest else Outcome.PARTLY
    headline = f"All four stages appear, in the paper's order: at steps {moments}."
    return Finding(outcome, headline, summary, alt, numbers)


def _first(passed: xr.DataArray) -> float:
    """The first step at which a condition holds, or NaN."""
    steps = passed["step"].values[passed.values]
    return float(steps[0]) if steps.size else np.nan

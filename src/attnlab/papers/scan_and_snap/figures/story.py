"""The story in one picture: attention scans, then snaps, on sentences about sport and the weather.

It opens the report, and is no figure of a paper: Fig. 2 has the same stages on numbered tokens, and
holds them against the paper's drawing.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from attnlab import measures
from attnlab.experiments import Judgement, SimulationRecipe, Standing, Texts
from attnlab.files.progress import Progress
from attnlab.measures import attention as roles
from attnlab.plots import style
from attnlab.plots.attention import time_axis
from attnlab.simulation import as_simulation, simulate
from attnlab.theory import predict

TEXTS = Texts.read(__file__)
STAGES = ("it looks at every word", "shared words fade", "one word has won")


@dataclass(frozen=True, kw_only=True)
class StoryRecipe(SimulationRecipe):
    """sequence_class: the class that is shown. theory: whose t_0' and t_0 are marked."""

    sequence_class: int
    theory: str


def data(
    recipe: StoryRecipe, *, progress: Progress = False, keep: Path | None = None
) -> xr.Dataset:
    """attention of one class over (step, token), of its own tokens, and P(l|m,n) where it starts.

    stage_step: the start, the step by which shared words have lost half of what they lose, and the
    snap; t0_prime, t0: when theory has scanning end and snapping begin.
    """
    simulation = as_simulation(recipe.base, classes=recipe.base.sets[0])
    result = simulate(simulation, progress=progress).squeeze(drop=True)  # one run
    said = predict(simulation, theory=recipe.theory).squeeze(drop=True)
    place = {"sequence_class": recipe.sequence_class}
    own = result.isel(place)
    drawn = np.flatnonzero(own["probability"].values > 0)
    common = measures.common_mass(result).isel(place).values
    half = result["step"].values[np.argmax(common <= (common[0] + common[-1]) / 2)]
    snap = measures.snap_time(result)
    since = float(measures.moved_since(result, snap).isel(place))
    return (
        xr.Dataset(
            {
                "attention": own["attention"].isel(token=drawn).transpose("step", "token"),
                "probability": own["probability"].isel(token=drawn),
                "common_mass": ("step", common),
                "stage_step": ("stage", [0.0, float(half), float(snap.isel(place))]),
                "moved_since_snap": since,
                "t0_prime": float(said["t0_prime"].isel(place)),
                "t0": float(said["t0"].isel(place)),
            },
            attrs={
                "query": str(own["query_name"].values),
                "next": str(own["next_name"].values),
                "theory": recipe.theory,
            },
        )
        .drop_vars([name for name in own.coords if name not in ("step", "token")], errors="ignore")
        .assign_coords(stage=list(STAGES), common=("token", roles.is_common(result).values[drawn]))
    )


def draw(frames: xr.Dataset) -> Figure:
    """Draw bars at three stages, above the course of attention with theory's clock."""
    stage_steps = [m for m in frames["stage_step"].values if np.isfinite(m)]
    with style.page(3.9) as figure:
        rows = figure.add_gridspec(2, 1, height_ratios=[1.1, 1])
        above: Any = rows[0].subgridspec(1, len(stage_steps)).subplots(sharex=True, sharey=True)
        for ax, stage_step in zip(above, stage_steps, strict=True):
            _bars(ax, frames, float(stage_step))
        course = figure.add_subplot(rows[1])
        _course(course, frames, stage_steps)
        titles = [
            f"step {stage_step:g}: {stage}"
            for stage, stage_step in zip(STAGES, stage_steps, strict=False)
        ]
        style.panel_titles([*above, course], [*titles, "the whole run"])
        last_words = f"“… {frames.attrs['query']}” → “{frames.attrs['next']}”"
        style.legend_of_roles(figure, title=f"Sentences of sport or weather: {last_words}")
    return figure


def _bars(ax: Any, frames: xr.Dataset, stage_step: float) -> None:
    position = np.arange(frames.sizes["token"])
    colours, start = style.by_role(frames["common"].values), frames["probability"]
    ax.barh(position, frames["attention"].sel(step=stage_step), height=0.8, color=colours)
    ax.vlines(start, position - 0.45, position + 0.45, color=style.OUTLINE, linewidth=1.0)
    ax.set_yticks(position, frames["token"].values)
    ax.set_ylim(position[-1] + 0.6, -0.6)
    ax.tick_params(axis="y", length=0)


def _course(ax: Any, frames: xr.Dataset, stage_steps: list[Any]) -> None:
    step = frames["step"].values
    ax.plot(step, frames["common_mass"], color=style.COMMON, label="all shared words")
    distinct = frames.isel(token=np.flatnonzero(~frames["common"].values))
    for i, word in enumerate(distinct["token"].values):
        styles: Any = {"color": style.DISTINCT, "linestyle": style.DASHES[i % len(style.DASHES)]}
        ax.plot(step, distinct["attention"].isel(token=i), label=str(word), **styles)
    for letter, stage_step in zip("abc", stage_steps, strict=False):
        _mark(ax, float(stage_step), letter, style.OUTLINE, ":")
    for letter, name in (("$t_0'$", "t0_prime"), ("$t_0$", "t0")):
        _mark(ax, float(frames[name]), letter, style.GREEN, "-")
    time_axis(ax, step, "step")
    ax.set(xlim=(-0.05, step[-1]), ylim=(0, None), ylabel="attention $c$")
    ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))


def _mark(ax: Any, at: float, letter: str, colour: str, dash: str) -> None:
    ax.axvline(at, color=colour, linewidth=0.9, linestyle=dash)
    style.letter_at(ax, at, letter, colour=colour)


def judge(frames: xr.Dataset) -> Judgement:
    """Judge whether shared words lose attention, one word wins, and the rest stands still."""
    attention, common = frames["attention"], frames["common_mass"].values
    winner = int(attention.isel(step=-1).argmax("token"))
    won = attention.isel(token=winner).values
    _, half, snap = frames["stage_step"].values
    numbers = {
        "common_start": common[0],
        "common_end": common[-1],
        "winner_start": won[0],
        "winner_end": won[-1],
        "half_step": half,
        "snap_step": snap,
        **{name: frames[name] for name in ("moved_since_snap", "t0_prime", "t0")},
    }
    as_told = common[-1] < common[0] and not bool(frames["common"][winner]) and np.isfinite(snap)
    return TEXTS.judgement(
        Standing.HOLDS if as_told else Standing.FAILS,
        {name: float(value) for name, value in numbers.items()},
        word=str(frames["token"].values[winner]),
        last=float(frames["step"][-1]),
        theory=frames.attrs["theory"],
    )


EXPERIMENT = TEXTS.experiment(recipe=StoryRecipe, data=data, judge=judge, draw=draw)

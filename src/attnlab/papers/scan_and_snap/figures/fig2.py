"""Fig. 2: the four stages of training, found in real simulations.

The paper draws them: the start, common tokens suppressed, a winner emerging, attention snapped.
Here they are steps of a run, found by measures, at rates where all can be seen and at
eta_Y >> eta_Z.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from attnlab import measures
from attnlab.auditing.fit import listed
from attnlab.experiments import Judgement, SimulationRecipe, Standing, Texts
from attnlab.files.errors import InputError
from attnlab.files.progress import Progress
from attnlab.measures import attention as roles
from attnlab.plots import style
from attnlab.sweeping import run_apart

TEXTS = Texts.read(__file__)
STAGES = ("start", "common suppressed", "winner emerging", "snapped")


@dataclass(frozen=True, kw_only=True)
class Recipe(SimulationRecipe):
    """sequence_class: the class that is shown. suppressed: shares of their attention at the start
    below which common tokens are suppressed. winner: how many times its start the winner has when
    it emerges. The first of each marks the second and the third stage; the others show what their
    order depends on. The fourth stage is the `snap_time`."""

    sequence_class: int
    suppressed: tuple[float, ...]
    winner: tuple[float, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("suppressed", "winner"):
            if not getattr(self, name):
                raise InputError(f"{name}: expected at least one threshold")


def data(recipe: Recipe, *, progress: Progress = False, keep: Path | None = None) -> xr.Dataset:
    """Return the class in each run (eta_z): at its four stages, (stage, token), and over (step,).

    unnormalised: c~ = P(l|m,n) exp(z_ml) of Eq. 5, as the paper draws it. attention: c.
    suppressed_step, winner_step: when each threshold is passed; half_suppressed, half_won: when
    half of all that common tokens lose, and the winner gains, has come. A stage that is not
    reached is NaN, and so is its attention.
    """
    (both,) = run_apart(recipe, progress=progress, keep=keep)
    single = {dim: 0 for dim in both["loss"].dims if dim not in ("step", "eta_z")}
    result = both.isel(single, drop=True)
    in_play = roles.in_play(result).values
    is_common = roles.is_common(result).values[in_play]
    runs = [_stages(recipe, result.sel(eta_z=[z]).isel(eta_z=0)) for z in result["eta_z"].values]
    frames = xr.concat(runs, "eta_z").isel(token=np.flatnonzero(in_play))
    return frames.assign_coords(
        stage=list(STAGES),
        common=("token", is_common),
        suppressed=list(recipe.suppressed),
        times=list(recipe.winner),
    ).assign_attrs(eta_y=float(both["eta_y"].values.flat[0]))


def _stages(recipe: Recipe, run: xr.Dataset) -> xr.Dataset:
    own = run.isel(sequence_class=recipe.sequence_class)
    attention = own["attention"].transpose("step", "token")
    common = measures.common_mass(run).isel(sequence_class=recipe.sequence_class)
    winner = int(attention.isel(step=-1).argmax("token"))
    won = attention.isel(token=winner, drop=True)
    suppressed = [_first(common < share * common[0]) for share in recipe.suppressed]
    emerged = [_first(won > times * won[0]) for times in recipe.winner]
    snap = measures.snap_time(run)
    snapped = float(snap.isel(sequence_class=recipe.sequence_class))
    stage_steps = [0.0, suppressed[0], emerged[0], snapped]
    logits = own["attention_logits"].sel(query=int(own["query_token"]))
    unnormalised = own["probability"] * np.exp(logits.astype(np.float64))
    frames = xr.Dataset({"unnormalised": unnormalised, "attention": attention})
    frames = frames.reindex(step=stage_steps).rename(step="stage").drop_vars("stage")
    kept = frames.transpose("stage", "token").assign(
        probability=own["probability"],
        common_mass=common,
        winner_attention=won,
        stage_step=("stage", stage_steps),
        suppressed_step=("suppressed", suppressed),
        winner_step=("times", emerged),
        winner=winner,
        half_suppressed=_first(common <= (common[0] + common[-1]) / 2),
        half_won=_first(won >= (won[0] + won[-1]) / 2),
    )
    return kept.drop_vars(
        ["query", "query_token", "next_token", "sequence_class", "seed", "eta_y"], errors="ignore"
    )


def draw(frames: xr.Dataset) -> Figure:
    """Draw bars of c~ at the four stages of the first run, above the course of every run."""
    runs = frames.sizes["eta_z"]
    with style.page(4.1) as figure:
        rows = figure.add_gridspec(2, 1, height_ratios=[1.15, 1])
        above: Any = rows[0].subgridspec(1, len(STAGES)).subplots(squeeze=False)[0]
        below: Any = rows[1].subgridspec(1, runs).subplots(squeeze=False)[0]
        first = frames.isel(eta_z=0)
        _bars(above, first)
        for i, ax in enumerate(below):
            _course(ax, frames.isel(eta_z=i))
        titles = [
            f"{stage}\n{'not reached' if np.isnan(stage_step) else f'step {stage_step:g}'}"
            for stage, stage_step in zip(STAGES, first["stage_step"].values, strict=True)
        ]
        titles += [rf"$\eta_Y/\eta_Z$ = {ratio:g}" for ratio in _ratios(frames)]
        style.panel_titles([*above, *below], titles)
        above[0].set_ylabel(r"$\tilde c_{l|m,n} = P(l|m,n)\,e^{z_{ml}}$")
        below[0].set_ylabel("attention $c$")
        below[-1].legend(loc="center right")
        handles = style.bar_patches(style.ROLES, "P(l|m,n), the start")
        figure.legend(handles=handles, loc="outside upper center", ncols=3)
    return figure


def _bars(axes: list[Any], run: xr.Dataset) -> None:
    colours = style.by_role(run["common"].values)
    position = np.arange(run.sizes["token"])
    # tokens that the class never draws carry no bar; show its own support only
    seen = run["probability"].values > 0
    for j, ax in enumerate(axes):
        bars = run["unnormalised"].isel(stage=j).values
        ax.bar(position[seen], bars[seen], width=0.9, color=colours[seen])
        style.outline(ax, position[seen], run["probability"].values[seen])
        ax.set_ylim(0, run["unnormalised"].max().item() * 1.08)
        ax.set_xlabel("contextual token")
        ax.tick_params(labelleft=j == 0)


def _course(ax: Any, run: xr.Dataset) -> None:
    step = run["step"].values
    ax.plot(step, run["common_mass"], color=style.COMMON, label="all common tokens")
    winner: Any = {"label": f"the winner (token {int(run['winner'])})", "color": style.DISTINCT}
    ax.plot(step, run["winner_attention"], linestyle=style.DASHES[1], **winner)
    for letter, stage_step in zip("abcd", run["stage_step"].values, strict=True):
        if np.isfinite(stage_step):
            ax.axvline(stage_step, color=style.OUTLINE, linewidth=0.7, linestyle=":")
            style.letter_at(ax, stage_step, letter, shift=3)
    # all that happens is early
    ax.set_xscale("symlog", linthresh=10, linscale=1.5)
    ticks = [tick for tick in (0, 5, 10, 20, 50, 100, 200) if tick <= step[-1]]
    ax.set_xticks(ticks, [str(tick) for tick in ticks])
    ax.minorticks_off()
    ax.set(xlabel="optimiser step (linear to 10)", xlim=(-0.5, step[-1]), ylim=(0, 0.8))


def judge(frames: xr.Dataset) -> Judgement:
    """Judge whether common tokens lose, then the likeliest distinct one wins, then none moves."""
    likeliest = frames["probability"].where(~frames["common"]).argmax("token")
    start, end = (frames.isel(step=step) for step in (0, -1))
    lose = end["common_mass"] < start["common_mass"]
    wins = (frames["token"].isel(token=likeliest) == frames["winner"]).values
    passed = frames["stage_step"].notnull().all("stage")
    first = frames["suppressed_step"] < frames["winner_step"]
    reached = frames["suppressed_step"].notnull() & frames["winner_step"].notnull()
    numbers: dict[str, float] = {}
    runs, short = [], []
    for i, ratio in enumerate(_ratios(frames)):
        run = frames.isel(eta_z=i)
        common, won = run["common_mass"].values, run["winner_attention"].values
        found = {
            "common_start": common[0],
            "common_end": common[-1],
            "winner_start": won[0],
            "winner_end": won[-1],
            "half_suppressed": run["half_suppressed"],
            "half_won": run["half_won"],
            "suppressed_first": first.isel(eta_z=i).sum(),
            "pairs_reached": reached.isel(eta_z=i).sum(),
            "snap_step": run["stage_step"][-1],
        }
        values = {name: float(value) for name, value in found.items()}
        numbers |= {f"{name}_{i + 1}": value for name, value in values.items()}
        at = zip(STAGES, run["stage_step"].values, strict=True)
        stages = [
            f"{stage} ({stage_step:.0f})" for stage, stage_step in at if np.isfinite(stage_step)
        ]
        others: dict[str, Any] = {
            "ratio": ratio,
            "passed": "all" if passed[i] else f"{len(stages)} of",
            "stages": ", ".join(stages),
            "wins": "the largest" if wins[i] else "another",
            "pairs": first.size // frames.sizes["eta_z"],
            "after": _after(run),
        }
        short.append(TEXTS.part("stages", count=len(STAGES), **others))
        runs.append(TEXTS.part("run", **values, **others))
    in_order = not bool((reached & ~first).any())
    order = TEXTS.part("in_order" if reached.any() else "none_reached")
    if not in_order:
        order = TEXTS.part("together")
    as_drawn = bool(lose.all()) and wins.all()
    stages_of_each = "; ".join(short)
    return TEXTS.judgement(
        Standing.of(as_drawn and in_order and passed.all(), in_part=as_drawn),
        numbers,
        stages=stages_of_each[0].upper() + stages_of_each[1:],
        stages_of_each=stages_of_each,
        order=order,
        runs=" ".join(runs),
        suppressed=listed(frames["suppressed"].values, "g"),
        times=listed(frames["times"].values, "g"),
    )


def _after(run: xr.Dataset) -> str:
    """Say what attention does once it has snapped."""
    snap, end = float(run["stage_step"][-1]), float(run["step"][-1])
    if np.isnan(snap):
        return TEXTS.part("no_snap", end=end)
    won = run["winner_attention"]
    moved = float(won[-1]) - float(won.sel(step=snap))
    return TEXTS.part("snap", snap=snap, end=end, moved=moved)


def _ratios(frames: xr.Dataset) -> list[float]:
    return [frames.attrs["eta_y"] / float(z) for z in frames["eta_z"].values]


def _first(passed: xr.DataArray) -> float:
    """Return the first step at which a condition holds, or NaN."""
    steps = passed["step"].values[passed.values]
    return float(steps[0]) if steps.size else np.nan


EXPERIMENT = TEXTS.experiment(recipe=Recipe, data=data, judge=judge, draw=draw)

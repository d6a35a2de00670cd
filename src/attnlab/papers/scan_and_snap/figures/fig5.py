"""Fig. 5: attention to the distinct tokens of one class of Syn-Small, trained with Adam."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from attnlab.experiments import Judgement, SimulationRecipe, Standing, Texts
from attnlab.files.progress import Progress
from attnlab.measures import attention as roles
from attnlab.measures import maps
from attnlab.plots import style
from attnlab.sweeping import run_apart

TEXTS = Texts.read(__file__)
IMAGE: dict[str, Any] = {
    "aspect": "auto",
    "origin": "lower",
    "cmap": "cividis",
    "vmin": 0,
    "interpolation": "nearest",
}


@dataclass(frozen=True, kw_only=True)
class Recipe(SimulationRecipe):
    """sequence_class: which is shown. favourites: how many tokens count as its choice."""

    sequence_class: int
    favourites: int


def data(recipe: Recipe, *, progress: Progress = False, keep: Path | None = None) -> xr.Dataset:
    """Attention to the class's distinct tokens over (eta, step, token), eta = eta_Y = eta_Z.

    favourite: whether the token is among the most attended at the end, (eta, token). Of several
    seeds, the first is shown.
    """
    (whole,) = run_apart(recipe, progress=progress, keep=keep)
    result = whole.isel(seed=0, ratio=0).rename(eta_z="eta")
    distinct = roles.is_distinct(result).isel(sequence_class=recipe.sequence_class)
    klass = result[["attention", "probability"]].isel(sequence_class=recipe.sequence_class)
    klass = klass.isel(token=np.flatnonzero(distinct))
    attention = klass["attention"].transpose("eta", "step", "token")
    end = attention.isel(step=-1).values
    ranks = np.argsort(np.argsort(-end, axis=-1), axis=-1)
    return xr.Dataset(
        {
            "attention": attention,
            "probability": klass["probability"],
            "favourite": (("eta", "token"), ranks < recipe.favourites),
        }
    ).drop_vars(["seed", "ratio", "sequence_class", "query_token", "next_token"])


def draw(frames: xr.Dataset) -> Figure:
    """For each eta, attention over steps as an image, and its end as bars over the start."""
    columns, tokens = frames.sizes["eta"], frames["token"].values
    with style.page(3.9) as figure:
        axes = figure.subplots(2, columns, sharey="row")
        top = float(frames["attention"].max())
        for j, (above, below) in enumerate(axes.T):
            one = frames.isel(eta=j)
            extent = (0, float(one["step"][-1]), tokens[0] - 0.5, tokens[-1] + 0.5)
            image = above.imshow(one["attention"].T, vmax=top, extent=extent, **IMAGE)
            above.set(xlabel="optimiser step", yticks=tokens[1::2])
            colours = np.where(one["favourite"].values, style.ACCENT, style.DISTINCT)
            below.bar(tokens, one["attention"].isel(step=-1), width=0.9, color=colours)
            style.outline(below, tokens, one["probability"].values)
            below.set(xlabel="distinct token $l$", xticks=tokens[1::2])
        axes[0][0].set_ylabel("distinct token $l$")
        axes[1][0].set_ylabel("attention at the end")
        style.panel_titles(
            axes[0], [rf"$\eta_Y = \eta_Z$ = {eta:g}" for eta in frames["eta"].values]
        )
        figure.colorbar(image, ax=list(axes[0]), label="attention $c_{l|n}$", fraction=0.03)
        favourites = f"the {int(frames['favourite'].isel(eta=0).sum())} most attended at the end"
        bars = {style.ACCENT: favourites, style.DISTINCT: "other distinct tokens"}
        handles = style.bar_patches(bars, "P(l|n), the start")
        figure.legend(handles=handles, loc="outside upper center", ncols=3)
    return figure


def judge(frames: xr.Dataset) -> Judgement:
    """Judge whether the favourite tokens are different sets at different rates."""
    sets = [
        sorted(frames["token"].values[frames["favourite"].isel(eta=j)].tolist())
        for j in range(frames.sizes["eta"])
    ]
    etas = [f"{eta:g}" for eta in frames["eta"].values]
    end = frames["attention"].isel(step=-1)
    entropy = [_entropy(end.isel(eta=j).values) for j in range(len(sets))]
    numbers = {
        "different_subsets": float(len({tuple(chosen) for chosen in sets})),
        "mean_favourite_smallest_eta": float(np.mean(sets[0])),
        "mean_favourite_largest_eta": float(np.mean(sets[-1])),
        "entropy_smallest_eta": entropy[0],
        "entropy_largest_eta": entropy[-1],
    }
    chosen = "; ".join(
        f"eta = {eta}: {', '.join(map(str, own))}" for eta, own in zip(etas, sets, strict=True)
    )
    differ = numbers["different_subsets"] == len(sets)
    return TEXTS.judgement(
        Standing.HOLDS if differ else Standing.PARTLY,
        numbers,
        relation="differ between the rates" if differ else "coincide at some of the rates",
        rates=len(sets),
        steps=f"{float(frames['step'][-1]):g}",
        chosen=chosen,
        etas=", ".join(etas),
        lowest=min(entropy),
        highest=max(entropy),
        start=_entropy(frames["probability"].values),
        equal=np.log(frames.sizes["token"]),
    )


def _entropy(attention: np.ndarray) -> float:
    return float(maps.entropy(attention.astype(np.float64) / attention.sum()))


EXPERIMENT = TEXTS.experiment(recipe=Recipe, data=data, judge=judge, draw=draw)

"""Fig. 4: attention of both classes of Syn-Small during training with SGD, for two eta_Y."""

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
from attnlab.sweeping import run_apart

TEXTS = Texts.read(__file__)


def data(
    recipe: SimulationRecipe, *, progress: Progress = False, keep: Path | None = None
) -> xr.Dataset:
    """attention c_n over (eta_y, step, sequence_class, token), of the contextual tokens.

    Also P(l|n), where it starts, and of each class the entropy over its distinct tokens and the
    attention to common ones. Of several seeds, the first is shown.
    """
    (whole,) = run_apart(recipe, progress=progress, keep=keep)
    result = whole.isel(seed=0, eta_z=0)
    drawn = roles.in_play(result).values
    common = roles.is_common(result).values[drawn]
    shown = result[["attention", "probability"]].isel(token=np.flatnonzero(drawn))
    dims = ("eta_y", "step", "sequence_class", "token")
    return (
        xr.Dataset(
            {
                "attention": shown["attention"].transpose(*dims),
                "probability": shown["probability"],
                "distinct_entropy": measures.distinct_entropy(result),
                "common_mass": measures.common_mass(result),
            },
            attrs={"eta_z": float(result["eta_z"])},
        )
        .drop_vars(["seed", "eta_z"])
        .assign_coords(common=("token", common))
    )


def draw(frames: xr.Dataset) -> Figure:
    """Draw a block for each eta_Y, a row for each class, a column for each step; outlined: P."""
    blocks, columns = frames.sizes["eta_y"], frames.sizes["step"]
    rows = frames.sizes["sequence_class"]
    colours = style.by_role(frames["common"].values)
    top = 1.05 * float(frames["attention"].max())
    with style.page(0.5 + blocks * (0.45 + 1.0 * rows)) as figure:
        parts: Any = figure.subfigures(blocks, 1, squeeze=False)[:, 0]
        for b, part in enumerate(parts):
            block = frames.isel(eta_y=b)
            axes = part.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
            part.suptitle(
                rf"({'abcdef'[b]}) $\eta_Y$ = {float(block['eta_y']):g}, "
                rf"$\eta_Z$ = {frames.attrs['eta_z']:g}",
                x=0.01,
                ha="left",
                fontsize=8.5,
            )
            for i in range(rows):
                start = block["probability"].isel(sequence_class=i).values
                seen = np.flatnonzero(start > 0)
                # the support is two runs of tokens: common ones and the class's own
                together = np.split(seen, np.flatnonzero(np.diff(seen) > 1) + 1)
                for j, ax in enumerate(axes[i]):
                    bars = block["attention"].isel(sequence_class=i, step=j).values
                    ax.bar(seen, bars[seen], width=1.0, color=colours[seen])
                    for run in together:
                        style.outline(ax, run, start[run])
                    ax.set_ylim(0, top)
                    if i == 0:
                        ax.set_title(f"step {int(block['step'][j])}", fontsize=7.5)
                axes[i][0].set_ylabel(f"$c_{{{i + 1}}}$")
        parts[-1].supxlabel("contextual token $l$", fontsize=8)
        handles = style.bar_patches(style.ROLES, "P(l|n), the start")
        parts[0].legend(handles=handles, loc="upper right", ncols=3)
    return figure


def judge(frames: xr.Dataset) -> Judgement:
    """Judge whether attention concentrates on the largest P(l|n), less so with a larger eta_Y."""
    end = frames.isel(step=-1)
    distinct = frames["probability"].where(~frames["common"], 0.0)
    likeliest = distinct.argmax("token")
    favoured = end["attention"].where(~frames["common"], 0.0).argmax("token")
    top = end["attention"].isel(token=likeliest).mean("sequence_class").values
    start = float(frames["probability"].isel(token=likeliest).mean())
    entropy = end["distinct_entropy"].mean("sequence_class").values
    first = float(frames["distinct_entropy"].isel(step=0).mean())
    # how much of the whole change is done at the last of the early steps
    moved = abs(frames["attention"] - frames["attention"].isel(step=0)).sum("token")
    early = (moved.isel(step=-2) / moved.isel(step=-1)).mean("sequence_class").values
    numbers = {
        "winner_start": start,
        **_ends("winner_end", top),
        "entropy_start": first,
        **_ends("entropy_end", entropy),
        **_ends("early_share", early),
    }
    agree = bool((favoured == likeliest).all())
    sparser, faster = entropy[0] < entropy[-1] < first, early[-1] > early[0]
    return TEXTS.judgement(
        Standing.HOLDS if agree and sparser and faster else Standing.FAILS,
        numbers,
        wins="wins" if agree else "does not always win",
        less_sparse="less sparse" if sparser else "no less sparse",
        faster="faster" if faster else "no faster",
        low=float(frames["eta_y"][0]),
        high=float(frames["eta_y"][-1]),
        step=int(frames["step"][-2]),
        shown=", ".join(str(moment) for moment in frames["step"].values),
    )


def _ends(name: str, by_rate: np.ndarray) -> dict[str, float]:
    """Return the numbers at the smallest and the largest eta_Y."""
    return {f"{name}_small_eta_y": float(by_rate[0]), f"{name}_large_eta_y": float(by_rate[-1])}


EXPERIMENT = TEXTS.experiment(recipe=SimulationRecipe, data=data, judge=judge, draw=draw)

"""Fig. 7: the first layer's attention to the words of one sequence, while transformers train."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from attnlab.experiments import Judgement, Standing, Texts
from attnlab.files.errors import InputError
from attnlab.files.progress import Progress
from attnlab.plots import style

from . import text_runs

TEXTS = Texts.read(__file__)
FEWEST_SEEDS = 3  # at this rate rounding errors grow, and a run is one of many that could have been


@dataclass(frozen=True, kw_only=True)
class Recipe(text_runs.TextRecipe):
    """shown_steps: the steps to show. words: how many of the probe's first words to show."""

    shown_steps: tuple[int, ...]
    words: int

    def __post_init__(self) -> None:
        super().__post_init__()
        run = self.run(self.corpus)
        missing = set(self.shown_steps) - set(run.record.clock(run.last, whole=True).tolist())
        if missing:
            raise InputError(
                f"shown_steps: step {min(missing)} is not recorded (see training.every)"
            )
        if not 1 <= self.words <= run.task.length:
            raise InputError(f"words: expected 1 to {run.task.length}")


def data(recipe: Recipe, *, progress: Progress = False, keep: Path | None = None) -> xr.Dataset:
    """Return the first layer's maps over (layers, shown_step, query, key); `word` along key.

    entropy: of the first layer over (layers, seed, step), in nats on the validation text. change:
    over (layers, seed, shown_step), how far the maps of all probes have moved since the previous
    one, as the share of a query's attention that has gone elsewhere (total variation). Of several
    learning rates and heads, the first is taken; of several seeds, its maps are shown.
    """

    def measure(result: xr.Dataset) -> xr.Dataset:
        first = result.isel(rate=0, layer=0, head=0, drop=True)
        maps = first["attention"].sel(step=list(recipe.shown_steps)).rename(step="shown_step")
        moved = abs(maps.diff("shown_step")).sum("key").mean(["probe", "query"]) / 2
        shown = {"probe": 0, "query": slice(recipe.words), "key": slice(recipe.words)}
        maps = maps.isel(shown).isel(seed=0, drop=True).rename(probe_word="word")
        part = {"attention": maps, "entropy": first["entropy"], "change": moved}
        kept = xr.Dataset(part).drop_vars(["probe", "probe_token"])
        return kept.assign_attrs(rate=float(result["rate"][0]))

    return text_runs.by_depth(recipe, measure, progress=progress, keep=keep)


def draw(frames: xr.Dataset) -> Figure:
    """Draw a row for each depth, a column for each step; a query's row holds its attention."""
    rows, columns = frames.sizes["layers"], frames.sizes["shown_step"]
    families = style.fonts()
    labels = style.visible(frames["word"].values, families)
    given: Any = {"fontfamily": families, "parse_math": False}  # a word may be $a$ as well
    hidden = np.triu(np.ones((len(labels), len(labels)), dtype=bool), 1)  # the causal mask
    with style.page(1.45 * rows + 1.1) as figure:
        axes = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
        for (i, j), ax in np.ndenumerate(axes):
            one = frames["attention"].isel(layers=i, shown_step=j).values
            seen = np.ma.masked_where(hidden, one)
            image = ax.imshow(seen, cmap="cividis", vmin=0, vmax=1, interpolation="nearest")
            ax.spines[:].set_visible(False)
            ax.tick_params(length=0)
        for ax, shown_step in zip(axes[0], frames["shown_step"].values, strict=True):
            ax.set_title(f"iteration {int(shown_step)}")
        for ax in axes[-1]:
            ax.set_xticks(range(len(labels)), labels, rotation=90, **given)
            ax.set_xlabel("attending to")
        for ax, depth in zip(axes[:, 0], frames["layers"].values, strict=True):
            ax.set_yticks(range(len(labels)), labels, **given)
            ax.set_ylabel(f"{text_runs.depth_name(int(depth))}: attending from")
        figure.colorbar(image, ax=axes, label="attention, first layer, first seed", fraction=0.02)
    return figure


def judge(frames: xr.Dataset) -> Judgement:
    """Judge in how many runs the first layer's attention becomes sparse, and slows to a quarter."""
    depths, seeds = frames["layers"].values, frames.sizes["seed"]
    entropy = frames["entropy"].isel(step=[0, -1])
    change = frames["change"].dropna("shown_step", how="all")
    sparse = entropy.isel(step=-1) < entropy.isel(step=0)
    slowed = change.isel(shown_step=-1) < text_runs.SLOWED * change.max("shown_step")
    numbers: dict[str, float] = {}
    each = []
    for depth in depths:
        ends, changes = entropy.sel(layers=depth), 100 * change.sel(layers=depth)
        found = {
            "entropy_start": ends.isel(step=0).mean(),
            "entropy_end": ends.isel(step=-1).mean(),
            "first_change": changes.isel(shown_step=0).mean() / 100,
            "last_change": changes.isel(shown_step=-1).mean() / 100,
            "sparse": sparse.sel(layers=depth).sum(),
            "slowed": slowed.sel(layers=depth).sum(),
        }
        numbers |= {f"{name}_{depth}": float(value) for name, value in found.items()}
        values = {
            "depth": text_runs.depth_name(depth),
            "first_entropy": _over_seeds(ends.isel(step=0), ".2f"),
            "last_entropy": _over_seeds(ends.isel(step=-1), ".2f"),
            "first_change": _over_seeds(changes.isel(shown_step=0), ".0f"),
            "last_change": _over_seeds(changes.isel(shown_step=-1), ".0f"),
        }
        each.append(TEXTS.part("depth", **values))
    trained = " and ".join(text_runs.depth_name(int(depth)) for depth in depths)
    few = seeds < FEWEST_SEEDS
    standing = Standing.of((sparse & slowed).all(), in_part=(sparse | slowed).any())
    return TEXTS.judgement(
        Standing.OPEN if few else standing,
        numbers,
        steps=int(frames["step"][-1]),
        sparse=int(sparse.sum()),
        slowed=int(slowed.sum()),
        runs=f"{sparse.size} runs ({seeds} seed{'s' if seeds > 1 else ''}, {trained})",
        few_seeds=" " + TEXTS.part("few_seeds") if few else "",
        rate=frames.attrs["rate"],
        corpus=frames.attrs["corpus"],
        each="; ".join(each),
        iterations=", ".join(str(int(shown_step)) for shown_step in frames["shown_step"].values),
        in_brackets="; in brackets the range over seeds" if seeds > 1 else "",
        share=100 * text_runs.SLOWED,
        words=" ".join(map(str, frames["word"].values)),
    )


def _over_seeds(values: xr.DataArray, digits: str) -> str:
    """Return the mean, and the range in brackets where there are several values."""
    low, mean, high = float(values.min()), float(values.mean()), float(values.max())
    if values.size == 1:
        return f"{mean:{digits}}"
    return f"{mean:{digits}} ({low:{digits}} to {high:{digits}})"


EXPERIMENT = TEXTS.experiment(recipe=Recipe, data=data, judge=judge, draw=draw)

"""Fig. 7: the first layer's attention to the words of one sequence, while transformers train."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from attnlab.figures import style, text_runs, words
from attnlab.figures.finding import Finding, Outcome
from attnlab.figures.text_runs import TextRecipe
from attnlab.sweep import Progress

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Attention to the words of a text while it is learnt"
# Attention counts as frozen when it changes between the last two moments by less than this share
# of what it changed between the first two.
FROZEN = 0.25


@dataclass(frozen=True, kw_only=True)
class Recipe(TextRecipe):
    """moments: the steps to show. words: how many of the probe's first words to show."""

    moments: tuple[int, ...]
    words: int

    def __post_init__(self) -> None:
        super().__post_init__()
        missing = set(self.moments) - set(self.training.moments.tolist())
        if missing:
            raise ValueError(f"moments: step {min(missing)} is not measured (see measure_every)")
        if not 1 <= self.words <= self.training.model.context:
            raise ValueError(f"words: expected 1 to {self.training.model.context}")


def data(recipe: Recipe, *, progress: Progress = False, keep: Path | None = None) -> xr.Dataset:
    """The first layer's maps over (layers, moment, query, key); `word` along key.

    entropy: of the first layer over (layers, step), in nats on the validation text. change: over
    (layers, moment), how far the maps of all probes have moved since the moment before, as the
    share of a query's attention that has gone elsewhere (total variation). Of several rates, seeds
    and heads, the first is shown.
    """
    parts = []
    for result in text_runs.run(recipe, progress=progress, keep=keep):
        first = result.isel(rate=0, seed=0, layer=0, head=0, drop=True)
        maps = first["attention"].sel(step=list(recipe.moments)).rename(step="moment")
        moved = abs(maps.diff("moment")).sum("key").mean(["probe", "query"]) / 2
        shown = {"probe": 0, "query": slice(recipe.words), "key": slice(recipe.words)}
        part = {"attention": maps.isel(shown), "entropy": first["entropy"], "change": moved}
        parts.append(xr.Dataset(part).drop_vars(["probe", "probe_token", "probe_word"]))
    word = result["probe_word"].isel(probe=0, key=slice(recipe.words)).values
    frames = xr.concat(parts, "layers").assign_coords(
        layers=list(recipe.layers), word=("key", word)
    )
    return frames.assign_attrs(corpus=recipe.corpus, rate=float(result["rate"][0]))


def draw(frames: xr.Dataset) -> Figure:
    """A row for each depth, a column for each moment; a query's row holds its attention."""
    from matplotlib.figure import Figure

    rows, columns = frames.sizes["layers"], frames.sizes["moment"]
    families = words.fonts()
    labels = words.visible(frames["word"].values, families)
    given: Any = {"fontfamily": families, "parse_math": False}  # a word may be $a$ as well
    hidden = np.triu(np.ones((len(labels), len(labels)), dtype=bool), 1)  # the causal mask
    with style.style():
        figure = Figure(figsize=(style.PAGE_WIDTH, 1.45 * rows + 1.1), layout="constrained")
        axes = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
        for i in range(rows):
            for j in range(columns):
                one = frames["attention"].isel(layers=i, moment=j).values
                image = axes[i][j].imshow(
                    np.ma.masked_where(hidden, one), cmap="cividis", vmin=0, vmax=1,
                    interpolation="nearest",
                )  # fmt: skip
                axes[i][j].spines[:].set_visible(False)
                axes[i][j].tick_params(length=0)
                if i == 0:
                    axes[i][j].set_title(f"iteration {int(frames['moment'][j])}")
            depth = text_runs.depth_name(int(frames["layers"][i]))
            axes[i][0].set_ylabel(f"{depth}: attending from")
        for ax in axes[-1]:
            ax.set_xticks(range(len(labels)), labels, rotation=90, **given)
            ax.set_xlabel("attending to")
        for ax in axes[:, 0]:
            ax.set_yticks(range(len(labels)), labels, **given)
        figure.colorbar(image, ax=axes, label="attention, first layer", fraction=0.02)
    return figure


def judge(frames: xr.Dataset) -> Finding:
    """Does the first layer's attention become sparse, and does it freeze?"""
    numbers: dict[str, float] = {}
    told = []
    for depth in frames["layers"].values:
        entropy = frames["entropy"].sel(layers=depth).values
        change = frames["change"].sel(layers=depth).dropna("moment").values
        found = {
            "entropy_start": float(entropy[0]),
            "entropy_end": float(entropy[-1]),
            "first_change": float(change[0]),
            "last_change": float(change[-1]),
        }
        numbers |= {f"{name}_{depth}": value for name, value in found.items()}
        told.append(
            f"with {text_runs.depth_name(depth)} its entropy goes from {found['entropy_start']:.2f}"
            f" to {found['entropy_end']:.2f} nats, and its maps change by "
            f"{100 * found['first_change']:.0f} % between the first two moments and by "
            f"{100 * found['last_change']:.0f} % between the last two"
        )
    depths = frames["layers"].values
    sparse = all(numbers[f"entropy_end_{d}"] < numbers[f"entropy_start_{d}"] for d in depths)
    frozen = all(
        numbers[f"last_change_{d}"] < FROZEN * numbers[f"first_change_{d}"] for d in depths
    )
    verdicts = (
        "becomes sparse" if sparse else "does not become sparse",
        "freezes" if frozen else "does not freeze",
    )
    steps, moments = int(frames["step"][-1]), [int(moment) for moment in frames["moment"].values]
    headline = f"The first layer's attention {verdicts[0]} in {steps} iterations and {verdicts[1]}."
    summary = (
        f"Over {steps} iterations at rate {frames.attrs['rate']:g} on {frames.attrs['corpus']}, "
        f"the first layer's attention {verdicts[0]} and {verdicts[1]}: {'; '.join(told)} (moments: "
        f"iterations {', '.join(map(str, moments))}). A change is the share of a query's attention "
        f"that has gone elsewhere; frozen is a last change below {100 * FROZEN:.0f} % of the first."
    )
    alt = (
        f"Attention maps of the first layer on the words "
        f"{' '.join(map(str, frames['word'].values))!r}, at iterations "
        f"{', '.join(map(str, moments))}; {'; '.join(told)}."
    )
    if sparse and frozen:
        outcome = Outcome.REPRODUCED
    else:
        outcome = Outcome.PARTLY if sparse or frozen else Outcome.DIFFERS
    return Finding(outcome, headline, summary, alt, numbers)

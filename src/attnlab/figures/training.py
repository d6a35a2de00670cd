"""A training on text: its loss, each head's attention over the steps, and the probe's maps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from attnlab.figures import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_MAPS, MOST_WORDS = 3, 16


def data(result: xr.Dataset) -> xr.Dataset:
    """Curves of each rate, mean over seeds, and maps of one run of a result of `text.train`.

    The maps are those of the first probe in the last layer's first head, at up to three moments
    spread evenly, of the rate with the lowest final loss and its first seed that did not diverge;
    of a long probe, the first words.
    """
    finite = result.where(result["diverged_step"] < 0)
    curves = finite[["validation_loss", "entropy", "effective_tokens"]].mean("seed")
    end = curves["validation_loss"].isel(step=-1)
    if not bool(end.notnull().any()):
        raise ValueError("result: every run diverged; there is nothing to draw")
    best = end["rate"].values[int(end.argmin("rate"))]
    seed = int(result["seed"][int((result["diverged_step"].sel(rate=best) < 0).argmax("seed"))])
    moments = np.unique(np.linspace(0, result.sizes["step"] - 1, MOST_MAPS).round().astype(int))
    words = slice(0, MOST_WORDS)
    maps = result["attention"].sel(rate=best, seed=seed)
    maps = maps.isel(layer=-1, head=0, probe=0, query=words, key=words, step=moments)
    shown = maps.drop_vars(["layer", "head", "probe", "rate", "seed"]).rename(step="moment")
    curves = curves.drop_vars(["probe_token", "probe_word"], errors="ignore")
    found = curves.assign(attention=shown, word=("key", maps["probe_word"].values))
    return found.assign_attrs(rate=float(best), seed=seed, layer=int(result["layer"][-1]))


def draw(found: xr.Dataset) -> Figure:
    """Above: loss, entropy and effective tokens against the step. Below: the maps."""
    from matplotlib.figure import Figure

    titles = {
        "validation_loss": "validation loss (nats)",
        "entropy": "entropy of attention (nats)",
        "effective_tokens": "effective tokens",
    }
    with style.style():
        figure = Figure(figsize=(style.PAGE_WIDTH, 5.2), layout="constrained")
        parts: Any = figure.subfigures(2, 1, height_ratios=[1, 1.25])
        upper, lower = parts
        for ax, (name, title) in zip(upper.subplots(1, 3), titles.items(), strict=True):
            _curves(ax, found[name])
            ax.set(xlabel="step", title=title)
            ax.ticklabel_format(axis="y", useOffset=False)
        _legend(upper, found)
        _maps(lower, found)
        return figure


def _curves(ax: Any, values: xr.DataArray) -> None:
    colours = style.ordered(values.sizes["rate"])
    heads = [dim for dim in ("layer", "head") if dim in values.dims]
    lines = values.stack(line=heads) if heads else values.expand_dims("line", -1)
    for i in range(values.sizes["rate"]):
        for j in range(lines.sizes["line"]):
            layer = int(lines["layer"][j]) if heads else 0
            dashes = style.DASHES[layer % len(style.DASHES)]
            ax.plot(values["step"], lines.isel(rate=i, line=j), color=colours[i], linestyle=dashes)


def _legend(figure: Any, found: xr.Dataset) -> None:
    from matplotlib.lines import Line2D

    colours = style.ordered(found.sizes["rate"])
    handles = [
        Line2D([], [], color=colour, label=f"rate {rate:g}")
        for colour, rate in zip(colours, found["rate"].values, strict=True)
    ]
    if found.sizes["layer"] > 1:
        handles += [
            Line2D(
                [], [], color="0.3", linestyle=style.DASHES[i % len(style.DASHES)],
                label=f"layer {int(layer) + 1}",
            )
            for i, layer in enumerate(found["layer"].values)
        ]  # fmt: skip
    figure.legend(handles=handles, loc="outside lower center", ncols=min(len(handles), 8))


def _maps(figure: Any, found: xr.Dataset) -> None:
    axes = np.atleast_1d(figure.subplots(1, found.sizes["moment"], sharey=True))
    words = [str(word) for word in found["word"].values]
    for ax, moment in zip(axes, found["moment"].values, strict=True):
        image = ax.imshow(found["attention"].sel(moment=moment), cmap="Greys", vmin=0, vmax=1)
        ax.set_title(f"step {int(moment)}")
        ax.set_xticks(range(len(words)), words, rotation=90, fontsize=6)
        ax.set_yticks(range(len(words)), words, fontsize=6)
        ax.tick_params(length=0)
    axes[0].set_ylabel("query")
    figure.colorbar(image, ax=axes, fraction=0.02, label="attention")
    figure.suptitle(
        f"what each word of the probe attends to: layer {found.attrs['layer'] + 1}, "
        f"rate {found.attrs['rate']:g}, seed {found.attrs['seed']}",
        fontsize=8.5,
    )

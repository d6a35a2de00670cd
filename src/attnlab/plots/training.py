"""A training on text: its loss, attention of each head over the steps and on the probe."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from attnlab.files.errors import InputError
from attnlab.measures.motion import stayed_finite
from attnlab.plots import style
from attnlab.tasks.text.corpus import join_pairs

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RATE = "learning_rate"
MOST_MAPS, MOST_WORDS = 3, 16
PANELS = {"entropy": "entropy of attention (nats)", "effective_tokens": "effective tokens"}
CURVES_HEIGHT, MAPS_HEIGHT = 1.75, 2.5  # of a layer, in inches


def data(result: xr.Dataset) -> xr.Dataset:
    """Return curves of each learning rate, mean over seeds, and attention of one run on a text.

    Attention is that on the first probe, at up to three steps spread evenly, of the learning rate
    with the lowest final loss and its first seed that did not diverge; of a long probe, the first
    words. Each layer shows its `sparsest` head, whose entropy is lowest at the end.
    """
    if RATE not in result.dims:
        result = result.expand_dims({RATE: [json.loads(result.attrs["spec"])[RATE]]})
    stayed = stayed_finite(result)
    finite = result.where(stayed)
    curves = finite[["validation_loss", *PANELS]].mean("seed")
    end = curves["validation_loss"].isel(step=-1)
    if not bool(end.notnull().any()):
        raise InputError("result: every run diverged; there is nothing to draw")
    best = end[RATE].values[int(end.argmin(RATE))]
    seed = int(result["seed"][int(stayed.sel({RATE: best}).argmax("seed"))])
    run = result.sel({RATE: best, "seed": seed}).isel(probe=0)
    moments = np.unique(np.linspace(0, result.sizes["step"] - 1, MOST_MAPS).round().astype(int))
    first = slice(0, MOST_WORDS)
    sparsest = run["entropy"].isel(step=-1, drop=True).argmin("head")
    maps = run["attention"].isel(head=sparsest, query=first, key=first, step=moments)
    shown = maps.drop_vars(["head", "probe", RATE, "seed"]).rename(step="moment")
    curves = curves.drop_vars(["probe_token", "probe_word"], errors="ignore")
    word = [str(word) for word in maps["probe_word"].values]
    if json.loads(result.attrs["spec"])["task"]["corpus"]["tokens"] == "bpe":
        word = [join_pairs([pair]) for pair in word]
    found = curves.assign(
        attention=shown.drop_vars(["probe_token", "probe_word"]),
        sparsest=("layer", result["head"].values[sparsest.values]),
        word=("key", word),
    )
    return found.assign_attrs(learning_rate=float(best), seed=seed)


def draw(found: xr.Dataset) -> Figure:
    """Above: loss, and each layer's entropy and effective tokens against the step. Below: maps."""
    from matplotlib.figure import Figure

    layers = found.sizes["layer"]
    heights = CURVES_HEIGHT * layers + 0.5, MAPS_HEIGHT * layers + 0.5
    with style.style():
        figure = Figure(figsize=(style.PAGE_WIDTH, sum(heights)), layout="constrained")
        parts: Any = figure.subfigures(2, 1, height_ratios=heights)
        upper, lower = parts
        _curves(upper, found)
        _maps(lower, found)
        return figure


def _curves(figure: Any, found: xr.Dataset) -> None:
    """Draw curves: colours are learning rates, dashes are heads, rows are layers."""
    from matplotlib.lines import Line2D

    axes = figure.subplots(found.sizes["layer"], 1 + len(PANELS), sharex=True, squeeze=False)
    rates = list(zip(found[RATE].values, style.ordered(found.sizes[RATE]), strict=True))
    heads = [(int(head), _dashes_of(i)) for i, head in enumerate(found["head"].values)]
    loss, *unused = axes[:, 0]
    loss.set(title="validation loss (nats)", xlabel="step")
    loss.tick_params(labelbottom=True)
    for ax in unused:
        ax.remove()
    for rate, colour in rates:
        loss.plot(found["step"], found["validation_loss"].sel({RATE: rate}), color=colour)
        for i, layer in enumerate(found["layer"].values):
            for ax, (name, title) in zip(axes[i, 1:], PANELS.items(), strict=True):
                for head, look in heads:
                    values = found[name].sel({RATE: rate, "layer": layer, "head": head})
                    ax.plot(found["step"], values, color=colour, **look)
                ax.set_title(title if len(axes) == 1 else f"layer {int(layer) + 1}: {title}")
    for ax in axes[-1, 1:]:
        ax.set_xlabel("step")
    for ax in (loss, *axes[:, 1:].flat):
        ax.ticklabel_format(axis="y", useOffset=False)
    handles = [
        Line2D([], [], color=colour, label=f"learning rate {rate:g}") for rate, colour in rates
    ]
    if len(heads) > 1:
        handles += [
            Line2D([], [], color="0.3", label=f"head {head + 1}", **look) for head, look in heads
        ]
    figure.legend(
        handles=handles, loc="outside lower center", ncols=min(len(handles), 6), handlelength=3
    )


def _dashes_of(head: int) -> dict[str, Any]:
    """Dashes, and markers as well for heads beyond their number."""
    turn, dashes = divmod(head, len(style.DASHES))
    return {
        "linestyle": style.DASHES[dashes],
        "markevery": 0.2,
        "marker": ("", *style.MARKERS)[turn % (len(style.MARKERS) + 1)],
    }


def _maps(figure: Any, found: xr.Dataset) -> None:
    rows, columns = found.sizes["layer"], found.sizes["moment"]
    axes = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    families = style.fonts()
    labels = style.visible(found["word"].values, families)
    for i, layer in enumerate(found["layer"].values):
        for ax, moment in zip(axes[i], found["moment"].values, strict=True):
            one = found["attention"].sel(layer=layer, moment=moment)
            image = ax.imshow(one, cmap="Greys", vmin=0, vmax=1)
            ax.set_title(f"step {int(moment)}" if i == 0 else "")
            ax.tick_params(length=0)
        head = int(found["sparsest"][i])
        axes[i][0].set_ylabel(f"layer {int(layer) + 1}, head {head + 1}: query")
    # a word may be $a$ as well, which is not a formula
    given: Any = {"fontsize": 6, "fontfamily": families, "parse_math": False}
    for ax in axes.flat:
        ax.set_xticks(range(len(labels)), labels, rotation=90, **given)
        ax.set_yticks(range(len(labels)), labels, **given)
    figure.colorbar(image, ax=axes, fraction=0.02, label="attention")
    of = ", the head of lowest entropy of each layer" if found.sizes["head"] > 1 else ""
    figure.suptitle(
        f"what each word of the probe attends to: learning rate {found.attrs[RATE]:g}, seed "
        f"{found.attrs['seed']}{of}",
        fontsize=8.5,
    )

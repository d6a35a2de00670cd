"""What attention does during training, drawn from labelled results (docs/results.md).

Each drawing shows one run: of several seeds and rates the first, so select before drawing. Classes,
moments and tokens beyond those that fit are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from attnlab.files.documents import did_you_mean
from attnlab.files.errors import InputError
from attnlab.measures import clock_of
from attnlab.measures.roles import in_play, is_common
from attnlab.plots import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Results = TypeVar("Results", xr.Dataset, xr.DataArray)
MOST_MOMENTS, MOST_CLASSES, MOST_TOKENS, MOST_LINES = 7, 6, 60, 12
COMPARED = 5  # tokens of a class
WIDE = 100.0  # times whose last is so many times their first are drawn evenly in ratio


def frames(result: xr.Dataset) -> xr.Dataset:
    """Attention of one run, of the classes and tokens that fit; `common` and names stand beside it.

    Of many tokens, those with the largest probability in the shown classes are kept.
    """
    clock = clock_of(result)
    if "attention" not in result:
        raise InputError("attention: not in the result; record it, Save(what=('attention',))")
    one = _one_run(result[["attention", "probability"]], clock)
    common, contextual = is_common(one).values, np.flatnonzero(in_play(one))
    one = one.isel(sequence_class=slice(0, MOST_CLASSES))
    weight = one["probability"].max("sequence_class").values[contextual]
    chosen = contextual[np.sort(np.argsort(-weight, kind="stable")[:MOST_TOKENS])]
    shown = one.isel(token=chosen)
    return shown.assign_coords(
        common=("token", common[chosen]),
        word=("token", [str(token) for token in shown["token"].values]),
        label=("sequence_class", _labels(one)),
    )


def bars(result: xr.Dataset) -> Figure:
    """Bars of c_n: a row per class, a column per moment; the outline is the start, P(l|m,n).

    Moments are those of Fig. 4 (0, 2, 4, 6, 8, 10 and the end) where they were recorded in a short
    run, else spread evenly in ratio.
    """
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    clock, shown = clock_of(result), frames(result)
    shown = shown.isel({clock: _few(shown[clock].values)})
    rows, columns = shown.sizes["sequence_class"], shown.sizes[clock]
    figure = Figure(figsize=(1.9 * columns + 0.6, 1.45 * rows + 1.0), layout="constrained")
    axes: Any = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    position = np.arange(shown.sizes["token"])
    colours = np.where(shown["common"].values, style.COMMON, style.DISTINCT)
    for i in range(rows):
        klass = shown.isel(sequence_class=i)
        for j in range(columns):
            ax, attention = axes[i][j], klass["attention"].isel({clock: j}).values
            ax.bar(position, attention, width=0.9, color=colours)
            ax.step(
                position, klass["probability"].values, where="mid", color=style.OUTLINE,
                linewidth=0.7,
            )  # fmt: skip
            if i == 0:
                ax.set_title(f"{clock} {float(shown[clock][j]):g}", fontsize=9)
            ax.tick_params(labelsize=7)
            ax.spines[["top", "right"]].set_visible(False)
        axes[i][0].set_ylabel(klass["label"].item(), fontsize=8)
    figure.supxlabel("contextual token", fontsize=9)
    figure.supylabel("attention $c_{l|m,n}$, by class (query → next)", fontsize=9)
    figure.legend(
        handles=[
            Patch(color=style.COMMON, label="common token"),
            Patch(color=style.DISTINCT, label="distinct token"),
            Patch(facecolor="none", edgecolor=style.OUTLINE, label="P(l|m,n), where it starts"),
        ],
        loc="outside upper center", ncols=3, fontsize=8, frameon=False,
    )  # fmt: skip
    return figure


def heatmap(result: xr.Dataset) -> Figure:
    """Attention as an image: a panel per class, tokens across, moments of training upwards."""
    clock, shown = clock_of(result), frames(result)
    moments, words = shown[clock].values, shown["word"].values
    top = float(shown["attention"].max())
    with style.style():
        figure, axes = _panels(shown["label"].values.tolist())
        for i, ax in enumerate(axes):
            image = ax.imshow(
                shown["attention"].isel(sequence_class=i).transpose(clock, "token"),
                aspect="auto", origin="lower", cmap="cividis", vmin=0, vmax=top,
                interpolation="nearest",
            )  # fmt: skip
            for ticks, texts in (
                (ax.set_yticks, [f"{moment:g}" for moment in moments]),
                (ax.set_xticks, words),
            ):
                at = np.unique(np.linspace(0, len(texts) - 1, MOST_MOMENTS).round().astype(int))
                ticks(at, [texts[k] for k in at])
            ax.set_xlabel("contextual token")
        axes[0].set_ylabel(clock)
        figure.colorbar(image, ax=list(axes), label="attention $c_{l|m,n}$")
    return figure


def curves(result: xr.Dataset, name: str = "entropy") -> Figure:
    """A measured variable during training: a panel per class, a line for each of the swept values.

    Lines are means over seeds, bands one standard deviation. What is measured of every token is
    for `bars`, `heatmap` and `compare`.
    """
    clock = clock_of(result)
    known = {str(key): of for key, of in result.data_vars.items() if clock in of.dims}
    if name not in known:
        raise InputError(f"name: {name!r} is not recorded; {did_you_mean(name, list(known))}")
    values = known[name]
    if "token" in values.dims:
        raise InputError(f"name: {name} is of single tokens; draw it with bars() or heatmap()")
    swept = [dim for dim in values.dims if dim not in ("seed", clock, "sequence_class")]
    lines = values.stack(line=swept) if swept else values.expand_dims("line")
    if lines.sizes["line"] > MOST_LINES:
        raise InputError(
            f"result: {lines.sizes['line']} lines cannot be told apart; select at most "
            f"{MOST_LINES}, .isel({swept[0]}=[0, -1])"
        )
    titles = [""]
    if "sequence_class" in lines.dims:
        lines = lines.isel(sequence_class=slice(0, MOST_CLASSES))
        titles = _labels(lines)
    with style.style():
        figure, axes = _panels(titles)
        for k, ax in enumerate(axes):
            panel = lines.isel(sequence_class=k, missing_dims="ignore")
            for i, colour in enumerate(style.ordered(panel.sizes["line"])):
                line = panel.isel(line=i)
                over = [dim for dim in ("seed",) if dim in line.dims]
                mean, std = line.mean(over).values, line.std(over).values
                moments = line[clock].values
                ax.fill_between(
                    moments, mean - std, mean + std, color=colour, alpha=0.15, linewidth=0
                )
                ax.plot(
                    moments, mean, color=colour, linestyle=style.DASHES[i % len(style.DASHES)],
                    label=", ".join(f"{dim} = {line[dim].item()}" for dim in swept),
                )  # fmt: skip
            _time_axis(ax, moments, clock)
        axes[0].set_ylabel(name.replace("_", " "))
        if swept:
            handles, named = axes[0].get_legend_handles_labels()
            figure.legend(handles, named, loc="outside upper center", ncols=min(len(named), 4))
    return figure


def compare(simulated: xr.Dataset, predicted: xr.Dataset) -> Figure:
    """Attention over time, simulated (solid) against predicted (dashed): a panel per class.

    The two must be of one schema and align exactly, as `simulate` and `predict` of one simulation
    do. A class shows the tokens that move furthest in either of them.
    """
    from matplotlib.lines import Line2D

    try:
        xr.align(simulated, predicted, join="exact")
    except ValueError as error:
        raise InputError(
            f"predicted: not of the same runs, moments and tokens as simulated ({error}); predict "
            "the same simulation"
        ) from error
    clock, solid = clock_of(simulated), frames(simulated)
    dashed = _one_run(predicted["attention"], clock)
    dashed = dashed.sel({dim: solid[dim] for dim in ("sequence_class", "token")})
    order = ("sequence_class", "token", clock)
    both = np.stack([of.transpose(*order).values for of in (solid["attention"], dashed)])
    moved = np.nanmax(abs(both - both[..., :1]), axis=(0, -1), initial=0.0)  # (class, token)
    moments = solid[clock].values
    with style.style():
        figure, axes = _panels(solid["label"].values.tolist(), width=3.6)
        for i, ax in enumerate(axes):
            far = np.sort(np.argsort(-moved[i], kind="stable")[:COMPARED])
            for colour, token in zip(style.ordered(far.size), far, strict=True):
                word = solid["word"].values[token]
                role = "common" if solid["common"].values[token] else "distinct"
                one, other = both[:, i, token]
                ax.plot(moments, one, color=colour, label=f"{word}, {role}")
                ax.plot(moments, other, color=colour, linestyle=style.DASHES[1])
            ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), title="token")
            _time_axis(ax, moments, clock)
        axes[0].set_ylabel("attention $c_{l|m,n}$")
        handles = [
            Line2D([], [], color=style.OUTLINE, linestyle=dash, label=label)
            for dash, label in zip(style.DASHES, ("simulated", "predicted"), strict=False)
        ]
        figure.legend(handles=handles, loc="outside upper center", ncols=2)
    return figure


def _panels(titles: Sequence[str], *, width: float = 2.4) -> tuple[Figure, Any]:
    """A row of axes with one scale, one for each title."""
    from matplotlib.figure import Figure

    size = max(style.PAGE_WIDTH / 2, width * len(titles)), 2.9
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(1, len(titles), sharey=True, squeeze=False)[0]
    for ax, title in zip(axes, titles, strict=True):
        ax.set_title(title)
    return figure, axes


def _time_axis(ax: Any, moments: NDArray[Any], clock: str) -> None:
    """Even in ratio where the recorded moments are far apart."""
    positive = moments[moments > 0]
    if positive.size and positive[-1] > WIDE * positive[0]:
        ax.set_xscale("symlog", linthresh=positive[0])
    ax.margins(x=0)
    ax.set_xlabel(clock)


def _few(moments: NDArray[Any]) -> list[int]:
    last = moments.size - 1
    paper = [np.flatnonzero(moments == t) for t in (0, 2, 4, 6, 8, 10)]
    if all(found.size for found in paper) and moments[-1] <= 1000:
        return sorted({*(int(found[0]) for found in paper), last})
    positive = np.flatnonzero(moments > 0)
    if not positive.size:
        return [0]
    wanted = np.geomspace(moments[positive[0]], moments[-1], MOST_MOMENTS - 1)
    return sorted({0, *(int(np.argmin(np.abs(moments - t))) for t in wanted)})


def _one_run(results: Results, clock: str) -> Results:
    """The first of them all."""
    kept = (clock, "sequence_class", "token")
    return results.isel({dim: 0 for dim in results.dims if dim not in kept})


def _labels(result: Any) -> list[str]:
    """query → next, of each class, by name where there are names."""
    if "query_name" in result.coords:
        pairs = zip(result["query_name"].values, result["next_name"].values, strict=True)
        return [f"{m} → {n}" for m, n in pairs]
    pairs = zip(result["query_token"].values, result["next_token"].values, strict=True)
    return [f"token {m} → token {n}" for m, n in pairs]

"""Drawings of attention during training, from labelled results (docs/results.md).

Each drawing shows one run: of several seeds and rates the first, so select before drawing. Classes
and tokens can be chosen, by number or by name; without, those that fit are shown. The
picture says what is left out.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterable, Sequence
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from attnlab.files.documents import did_you_mean
from attnlab.files.errors import InputError
from attnlab.measures import clock_of
from attnlab.measures.attention import in_play, is_common
from attnlab.plots import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_TIMES, MOST_LINES = 7, 12
COMPARED = 5  # tokens of a class
BAR, WIDEST = 0.11, 1.7 * style.PAGE_WIDTH  # of a bar that has a word below it; of all panels
WIDE = 100.0  # times are drawn evenly in ratio if the last is this multiple of the first
ATTENTION = "attention $c_{l|m,n}$"


Results = TypeVar("Results", xr.Dataset, xr.DataArray)
Choice = int | str | Sequence[int | str]  # of classes or tokens, by number or by name
MOST_CLASSES = 6
MOST_TOKENS, MOST_WORDS = 60, 24  # words need room to be read
LONGEST_NAME = 32  # of classes, in a heading


def bars(
    result: xr.Dataset, *, classes: Choice | None = None, tokens: Choice | None = None
) -> Figure:
    """Bars of c_n: a row per class, a column per time; the outline is the start, P(l|m,n).

    Times are those of Fig. 4 (0, 2, 4, 6, 8, 10 and the end) where they were recorded in a short
    run, else spread evenly in ratio.

    Parameters
    ----------
    result : xarray.Dataset
        Of `simulate` or `predict`; of several runs the first is drawn.
    classes : int, str or sequence of them, optional
        Which classes to show, by number or by name.
    tokens : int, str or sequence of them, optional
        Which tokens to show, by number or by name.

    Returns
    -------
    matplotlib.figure.Figure
        To show or to save.

    Examples
    --------
    >>> import attnlab
    >>> run = attnlab.Simulation("syn-small", gradient="population")
    >>> result = attnlab.simulate(run, progress=False)
    >>> figure = attnlab.plots.bars(result, classes=[0])
    >>> [ax.get_title() for ax in figure.axes]
    ['step 0', 'step 2', 'step 4', 'step 6', 'step 8', 'step 10', 'step 100']
    """
    from matplotlib.figure import Figure

    clock, shown = clock_of(result), frames(result, classes=classes, tokens=tokens)
    width = BAR * shown.sizes["token"] if has_words(shown) else 0.0
    most = MOST_TIMES if MOST_TIMES * width < WIDEST else max(3, int(WIDEST / width))
    shown = shown.isel({clock: _few(shown[clock].values, most)})
    rows, columns = shown.sizes["sequence_class"], shown.sizes[clock]
    size = max(style.PAGE_WIDTH, (width + 0.1) * columns + 0.6), 1.25 * rows + 1.0
    position = np.arange(shown.sizes["token"])
    colours = style.by_role(shown["common"].values)
    with style.style():
        figure = Figure(figsize=size, layout="constrained")
        axes: Any = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
        for i in range(rows):
            klass = shown.isel(sequence_class=i)
            for j in range(columns):
                ax, attention = axes[i][j], klass["attention"].isel({clock: j}).values
                ax.bar(position, attention, width=0.9, color=colours)
                style.outline(ax, position, klass["probability"].values)
                if i == 0:
                    ax.set_title(f"{clock} {float(shown[clock][j]):g}")
            label = klass["label"].item()
            axes[i][0].set_ylabel(label, parse_math=False, fontsize=7 if len(label) < 16 else 6)
        for ax in axes[-1]:
            _name_tokens(ax, shown)
        style.legend_of_roles(figure, title=heading(result, "Attention"))
        figure.supxlabel(_with_note("contextual token", shown), fontsize=8)
        by_class = ", by class (query → next)" if rows > 1 else ""
        figure.supylabel(f"{ATTENTION}{by_class}", fontsize=8)
    return figure


def heatmap(
    result: xr.Dataset, *, classes: Choice | None = None, tokens: Choice | None = None
) -> Figure:
    """Attention as an image: a panel per class, tokens across, training upwards.

    Parameters
    ----------
    result : xarray.Dataset
        Of `simulate` or `predict`; of several runs the first is drawn.
    classes : int, str or sequence of them, optional
        Which classes to show, by number or by name.
    tokens : int, str or sequence of them, optional
        Which tokens to show, by number or by name.

    Returns
    -------
    matplotlib.figure.Figure
        To show or to save.
    """
    clock, shown = clock_of(result), frames(result, classes=classes, tokens=tokens)
    times = shown[clock].values
    top = float(shown["attention"].max())
    with style.style():
        figure, axes = _panels(shown["label"].values.tolist())
        for i, ax in enumerate(axes):
            image = ax.imshow(
                shown["attention"].isel(sequence_class=i).transpose(clock, "token"),
                aspect="auto",
                origin="lower",
                cmap="cividis",
                vmin=0,
                vmax=top,
                interpolation="nearest",
            )
            at = np.unique(np.linspace(0, times.size - 1, MOST_TIMES).round().astype(int))
            ax.set_yticks(at, [f"{times[k]:g}" for k in at])
            _name_tokens(ax, shown)
        for ax in axes[:: style.PANELS_IN_A_ROW]:
            ax.set_ylabel(clock)
        figure.colorbar(image, ax=list(axes), label=ATTENTION)
        figure.suptitle(heading(result, "Attention"), fontsize=8.5)
        figure.supxlabel(_with_note("contextual token", shown), fontsize=8)
    return figure


def curves(result: xr.Dataset, name: str = "entropy", *, classes: Choice | None = None) -> Figure:
    """A measured variable during training: a panel per class, a line for each of the swept values.

    Lines are means over seeds, bands one standard deviation. Many values of a number have a colour
    bar in place of a legend. What is measured of every token is for `bars`, `heatmap` and
    `compare`.

    Parameters
    ----------
    result : xarray.Dataset
        Of `simulate` or `predict`.
    name : str, optional
        Of the variable.
    classes : int, str or sequence of them, optional
        Which classes to show, by number or by name.

    Returns
    -------
    matplotlib.figure.Figure
        To show or to save.
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
    looks, scale = _looks(values, swept)
    titles, note = [""], ""
    if "sequence_class" in lines.dims:
        chosen = chosen_classes(lines, classes)
        note = how_many(len(chosen), lines.sizes["sequence_class"], "classes")
        lines = lines.isel(sequence_class=chosen)
        titles = labels(lines)
    with style.style():
        figure, axes = _panels(titles)
        for k, ax in enumerate(axes):
            panel = lines.isel(sequence_class=k, missing_dims="ignore")
            for i, look in enumerate(looks):
                line = panel.isel(line=i)
                over = [dim for dim in ("seed",) if dim in line.dims]
                mean, std = line.mean(over).values, line.std(over).values
                times = line[clock].values
                ax.fill_between(
                    times, mean - std, mean + std, color=look["color"], alpha=0.15, linewidth=0
                )
                ax.plot(times, mean, **look)
            time_axis(ax, times, clock)
        for ax in axes[:: style.PANELS_IN_A_ROW]:
            ax.set_ylabel(style.label(name))
        what = name.replace("_", " ")
        title = heading(result.drop_vars(swept), f"{what[0].upper()}{what[1:]}")
        if scale is not None:
            figure.colorbar(scale[0], ax=list(axes), label=style.label(scale[1]))
        if any(look["label"] for look in looks):
            style.legend_above(figure, axes[0], ncols=4, title=title)
        else:
            figure.suptitle(title, fontsize=8.5)
        if note:
            figure.supxlabel(note, fontsize=8)
    return figure


def _looks(
    values: xr.DataArray, swept: list[Any]
) -> tuple[list[dict[str, Any]], tuple[Any, str] | None]:
    """Return colour, dash and label of each line, and of many lines the colour bar and its dim.

    Of many lines, the dim with the most values has a colour bar, and the others have dashes.
    """
    sizes = [values.sizes[dim] for dim in swept]
    points = [dict(zip(swept, at, strict=True)) for at in np.ndindex(*sizes)]

    def named(at: dict[Any, int], dims: list[Any]) -> str:
        return ", ".join(f"{style.label(dim)} = {values[dim].values[at[dim]]}" for dim in dims)

    if len(points) <= MOST_LINES:
        dashes = cycle(style.DASHES)
        colours = style.ordered(len(points))
        return [
            {"color": colour, "linestyle": next(dashes), "label": named(at, swept)}
            for colour, at in zip(colours, points, strict=True)
        ], None
    longest = max(swept, key=values.sizes.__getitem__)
    others = [dim for dim in swept if dim != longest]
    dashed = [at for at in points if at[longest] == 0]
    if len(dashed) > len(style.DASHES) or values[longest].dtype.kind not in "iuf":
        raise InputError(
            f"result: {len(points)} lines cannot be told apart; select some, "
            f".isel({longest}=[0, -1])"
        )
    scale = style.colour_scale(values[longest].values)
    looks = []
    for at in points:
        number = dashed.index({**at, longest: 0})
        colour = scale.to_rgba(values[longest].values[at[longest]])
        label = named(at, others) if at[longest] == 0 else ""
        looks.append({"color": colour, "linestyle": style.DASHES[number], "label": label})
    return looks, (scale, longest)


def compare(
    simulated: xr.Dataset,
    predicted: xr.Dataset,
    *,
    classes: Choice | None = None,
    tokens: Choice | None = None,
) -> Figure:
    """Attention over time, simulated (solid) against predicted (dashed): a panel per class.

    The two must be of one schema and align exactly, as `simulate` and `predict` of one simulation
    do. A class shows the tokens that move furthest in either of them, or those that are chosen.

    Parameters
    ----------
    simulated : xarray.Dataset
        What training does.
    predicted : xarray.Dataset
        What a theory says of it.
    classes : int, str or sequence of them, optional
        Which classes to show, by number or by name.
    tokens : int, str or sequence of them, optional
        Which tokens to show, by number or by name.

    Returns
    -------
    matplotlib.figure.Figure
        To show or to save.
    """
    from matplotlib.lines import Line2D

    try:
        xr.align(simulated, predicted, join="exact")
    except ValueError as error:
        raise InputError(
            f"predicted: not of the same runs, times and tokens as simulated ({error}); predict "
            "the same simulation"
        ) from error
    clock, solid = clock_of(simulated), frames(simulated, classes=classes, tokens=tokens)
    if tokens is not None and solid.sizes["token"] > MOST_LINES:
        raise InputError(
            f"tokens: {solid.sizes['token']} lines cannot be told apart; name at most {MOST_LINES}"
        )
    dashed = one_run(predicted["attention"], clock)
    dashed = dashed.sel({dim: solid[dim] for dim in ("sequence_class", "token")})
    order = ("sequence_class", "token", clock)
    both = np.stack([of.transpose(*order).values for of in (solid["attention"], dashed)])
    moved = np.nanmax(abs(both - both[..., :1]), axis=(0, -1), initial=0.0)  # (class, token)
    drawn = solid["probability"].transpose("sequence_class", "token").values > 0
    most = COMPARED if tokens is None else solid.sizes["token"]
    furthest = np.argsort(-np.where(drawn, moved, -1.0), axis=1, kind="stable")[:, :most]
    shown = [np.sort([t for t in row if drawn[i, t]]) for i, row in enumerate(furthest)]
    # a token has one colour in all panels
    all_shown = np.unique(np.concatenate(shown)).astype(int)
    shades = style.shades_by_role(solid["common"].values[all_shown].tolist())
    colours = dict(zip(all_shown.tolist(), shades, strict=True))
    times = solid[clock].values
    with style.style():
        figure, axes = _panels(solid["label"].values.tolist(), columns=2)
        if len(axes) > 2 and len(axes) % 2:  # the last panel fills its row
            axes[-1].set_subplotspec(axes[-1].get_gridspec()[-1, :])
        for i, ax in enumerate(axes):
            for token in shown[i].tolist():
                colour, word = colours[token], solid["word"].values[token]
                role = "common" if solid["common"].values[token] else "distinct"
                one, other = both[:, i, token]
                ax.plot(times, one, color=colour, label=f"{word}, {role}")
                ax.plot(times, other, color=colour, linestyle=style.DASHES[1])
            legend = ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), title="token")
            for text in legend.get_texts():
                text.set_parse_math(False)
            time_axis(ax, times, clock)
        for ax in axes[::2]:
            ax.set_ylabel(ATTENTION)
        handles = [
            Line2D([], [], color=style.OUTLINE, linestyle=dash, label=label)
            for dash, label in zip(style.DASHES, ("simulated", "predicted"), strict=False)
        ]
        title = heading(predicted, "Attention")
        if "theory" in predicted.attrs:
            title = f"{title}; theory: {predicted.attrs['theory']}"
        style.heading_above(figure, handles, title=title)
        notes = [solid.attrs["left_out"]]
        if tokens is None and moved.shape[1] > COMPARED:
            notes.append(f"of each class the {COMPARED} tokens that move furthest")
        if any(notes):
            figure.supxlabel("; ".join(filter(None, notes)), fontsize=8)
    return figure


def _with_note(label: str, shown: xr.Dataset) -> str:
    note = shown.attrs["left_out"]
    return f"{label}\n{note}" if note else label


def _panels(titles: list[str], *, columns: int = style.PANELS_IN_A_ROW) -> tuple[Figure, Any]:
    """Make axes with one scale, one for each title."""
    figure, axes = style.panels(len(titles), columns=columns)
    for ax, title in zip(axes, titles, strict=True):
        ax.set_title(title, parse_math=False)
    return figure, axes


def _name_tokens(ax: Any, shown: xr.Dataset) -> None:
    """Write each word below its bar; of numbers, a few."""
    names = shown["word"].values.tolist()
    if has_words(shown):
        families = style.fonts()
        given: Any = {"fontsize": 6.5, "fontfamily": families, "parse_math": False}
        ax.set_xticks(range(len(names)), style.visible(names, families), rotation=90, **given)
        return
    at = np.unique(np.linspace(0, len(names) - 1, 4).round().astype(int))
    ax.set_xticks(at, [names[k] for k in at])


def time_axis(ax: Any, times: NDArray[Any], clock: str) -> None:
    """Scale the axis evenly in ratio if the recorded times are far apart."""
    positive = times[times > 0]
    if positive.size and positive[-1] >= WIDE * positive[0]:
        ax.set_xscale("symlog", linthresh=positive[0])
        ax.xaxis.set_major_formatter("{x:g}")
    ax.margins(x=0)
    ax.set_xlabel(clock)


def _few(times: NDArray[Any], most: int) -> list[int]:
    last = times.size - 1
    paper = [np.flatnonzero(times == t) for t in (0, 2, 4, 6, 8, 10)]
    if all(found.size for found in paper) and times[-1] <= 1000 and most >= MOST_TIMES:
        return sorted({*(int(found[0]) for found in paper), last})
    return spread(times, most)


def frames(
    result: xr.Dataset, *, classes: Choice | None = None, tokens: Choice | None = None
) -> xr.Dataset:
    """Attention of one run, of the classes and tokens that fit or are chosen.

    Beside it stand `common`, the `word` of each token and the `label` of each class. Of many
    tokens, those with the largest probability in the shown classes are kept. The attribute
    `left_out` says how many of how many are shown, and is empty where all are.
    """
    clock = clock_of(result)
    if "attention" not in result:
        raise InputError("attention: not in the result; record it, Record(what='attention')")
    one = one_run(result[["attention", "probability"]], clock)
    common, contextual = is_common(one).values, in_play(one).values
    rows = chosen_classes(one, classes)
    shown = one.isel(sequence_class=rows)
    columns = _tokens(shown, tokens)
    notes = [
        runs_left_out(result["attention"], clock),
        how_many(len(rows), one.sizes["sequence_class"], "classes"),
        how_many(len(columns), int(contextual.sum()), "tokens"),
    ]
    shown = shown.isel(token=columns).assign_coords(
        common=("token", common[columns]),
        word=("token", [str(token) for token in shown["token"].values[columns]]),
        label=("sequence_class", labels(shown)),
    )
    return shown.assign_attrs(left_out=", ".join(filter(None, notes)))


def chosen_classes(result: Any, classes: Choice | None) -> list[int]:
    """Positions of the classes: those that are chosen, or as many as fit.

    A class goes by its number, by its next word, or by both words as `labels` writes them.
    """
    count = result.sizes["sequence_class"]
    if classes is None:
        return list(range(min(count, MOST_CLASSES)))
    named = labels(result)
    following = [label.rpartition(" → ")[2] for label in named]
    numbers = result["sequence_class"].values.tolist()

    def places(given: int | str) -> list[int]:
        return [i for i in range(count) if given in (numbers[i], named[i], following[i])]

    return _chosen("classes", classes, places, numbers, [*named, *following])


def _tokens(result: xr.Dataset, tokens: Choice | None) -> list[int]:
    """Positions of the tokens, in their order."""
    names = result["token"].values.tolist()
    if tokens is None:
        weight = result["probability"].max("sequence_class").values
        most = MOST_WORDS if has_words(result) else MOST_TOKENS
        likeliest = np.argsort(-weight, kind="stable")[:most]
        return [int(i) for i in np.sort(likeliest) if weight[i] > 0]
    numbers = result["token_id"].values.tolist() if has_words(result) else names

    def places(given: int | str) -> list[int]:
        return [i for i in range(len(names)) if given in (numbers[i], names[i])]

    return _chosen("tokens", tokens, places, numbers, map(str, names))


def _chosen(
    field: str,
    given: Choice,
    places: Callable[[int | str], list[int]],
    numbers: list[int],
    names: Iterable[str],
) -> list[int]:
    asked = [given] if isinstance(given, (int, str)) else list(given)
    found: list[int] = []
    for each in asked:
        here = places(each)
        if not here:
            near = difflib.get_close_matches(str(each), list(names), n=1, cutoff=0.0)
            hint = f"did you mean {near[0]!r}?"
            if isinstance(each, int):
                hint = f"they are numbered from {min(numbers)} to {max(numbers)}"
            raise InputError(f"{field}: {each!r} is not in the result; {hint}")
        found += [i for i in here if i not in found]
    if not found:
        raise InputError(f"{field}: expected at least one, got none")
    return found


def has_words(result: Any) -> bool:
    """Check whether tokens have names."""
    return "token_id" in result.coords


def labels(result: Any) -> list[str]:
    """Return "query → next" of each class, by name if there are names."""
    if "query_name" in result.coords:
        pairs = zip(result["query_name"].values, result["next_name"].values, strict=True)
        return [f"{m} → {n}" for m, n in pairs]
    pairs = zip(result["query_token"].values, result["next_token"].values, strict=True)
    return [f"token {m} → token {n}" for m, n in pairs]


def one_run(results: Results, clock: str) -> Results:
    """Return the first of all runs."""
    kept = (clock, "sequence_class", "token")
    return results.isel({dim: 0 for dim in results.dims if dim not in kept})


def runs_left_out(attention: xr.DataArray, clock: str) -> str:
    """Say which run is shown, if there are several."""
    kept = (clock, "sequence_class", "token")
    several = {dim: n for dim, n in attention.sizes.items() if dim not in kept and n > 1}
    if not several:
        return ""
    first = ", ".join(f"{dim} = {attention[dim].values[0]}" for dim in several)
    return f"1 of {int(np.prod(list(several.values())))} runs ({first})"


def how_many(shown: int, there: int, noun: str) -> str:
    """Return "6 of 20 classes"; nothing if all are shown."""
    return f"{shown} of {there} {noun}" if shown < there else ""


def heading(result: xr.Dataset, what: str) -> str:
    """Return a title: what is drawn, of which classes, at which learning rates."""
    spec = json.loads(result.attrs.get("spec", "{}"))
    classes = spec.get("task", {}).get("classes")
    title = f"{what} during training"
    if isinstance(classes, dict):  # of one set
        name = Path(str(classes["origin"])).name
        name = name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"
        title = f"{what} while {name} is learnt".replace("$", r"\$")
    rates = []
    for name in ("eta_y", "eta_z"):
        rate: Any = result[name].values.flat[0] if name in result.coords else spec.get(name)
        if rate is not None and np.ndim(rate) == 0:
            rates.append(f"{style.label(name)} = {rate:g}")
    return f"{title}: {', '.join(rates)}" if rates else title


def spread(times: NDArray[Any], most: int) -> list[int]:
    """Return the positions of at most `most` records: the first, then evenly in ratio."""
    positive = np.flatnonzero(times > 0)
    if not positive.size:
        return [0]
    wanted = np.geomspace(times[positive[0]], times[-1], most - 1)
    return sorted({0, *(int(np.argmin(np.abs(times - t))) for t in wanted)})

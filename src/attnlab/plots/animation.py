"""Attention as it moves: the bars of a run over its steps, as a GIF.

import attnlab

result = attnlab.simulate("syn-small")
attnlab.plots.animate(result, "run.gif")
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from attnlab.files.atomic import atomic_path
from attnlab.files.errors import InputError
from attnlab.files.progress import Choice as Progress
from attnlab.files.progress import reporting
from attnlab.measures import clock_of, common_mass
from attnlab.measures.attention import is_distinct
from attnlab.plots import style
from attnlab.plots.attention import Choice, frames, heading, one_run, spread, time_axis

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from PIL.Image import Image

MOST_FRAMES = 60
FRAME, FIRST, LAST = 120, 1000, 2500  # milliseconds
DPI = 100
COLOURS, NEAR = 48, 8  # of the palette that all frames share, and levels that look the same
PINNED = ("white", "black", style.COMMON, style.DISTINCT, style.ACCENT, style.OUTLINE)
MOST_BARS = 20  # of a class
ROW, STRIP = 0.17, 1.35  # height of a bar, and of the course below them, in inches
ACROSS = 3


def animate(
    result: xr.Dataset,
    path: str | os.PathLike[str],
    *,
    classes: Choice | None = None,
    tokens: Choice | None = None,
    progress: Progress = False,
) -> None:
    """Write the bars of one run over its steps as a GIF, whole or not at all.

    A panel for each class has a bar for each of its tokens, with a mark where it started; below is
    the course of attention. Frames are at most `MOST_FRAMES` of the recorded times, evenly in
    ratio.

    Parameters
    ----------
    result : xarray.Dataset
        Of `simulate` or `predict`; of several runs the first is drawn.
    path : path
        The file, NAME.gif.
    classes : int, str or sequence of them, optional
        Which classes to show, by number or by name.
    tokens : int, str or sequence of them, optional
        Which tokens to show, by number or by name.
    progress : "auto", False or callable, optional
        "auto" for a bar, False, or a function called with the fraction done.
    """
    path = Path(path)
    if path.suffix.lower() != ".gif":
        raise InputError(f"path: the name should end in .gif, got {path}")
    clock = clock_of(result)
    shown = frames(result, classes=classes, tokens=tokens)
    chosen = spread(shown[clock].values, MOST_FRAMES)
    with reporting(progress, len(chosen), f"drawing {path.name}") as report:
        report(0.0, "laying out")
        drawn = []
        for image in _images(_Drawing(result, shown), chosen):
            drawn.append(image)
            report(1.0)
    plain = list(_in_few_colours(drawn))
    duration = [FRAME] * len(plain)
    duration[0], duration[-1] = FIRST, LAST
    with atomic_path(path) as temporary:
        plain[0].save(
            temporary,
            format="GIF",
            save_all=True,
            append_images=plain[1:],
            duration=duration,
            loop=0,
            optimize=False,
        )


def _in_few_colours(images: list[NDArray[np.uint8]]) -> Iterator[Image]:
    """Yield the pictures in one palette: our colours, and those of a frame in the middle.

    What moves keeps its colour, so that the colours of one frame serve all.
    """
    from matplotlib.colors import to_rgb
    from PIL import Image

    pictures = [Image.fromarray(image) for image in images]
    ours = (255 * np.array([to_rgb(name) for name in PINNED])).round().astype(int)
    seen = np.reshape(pictures[len(images) // 2].quantize(COLOURS).getpalette() or [], (-1, 3))
    others = seen[(abs(seen[:, None] - ours).max(-1) > NEAR).all(-1)]  # white stays white
    palette = Image.new("P", (1, 1))
    palette.putpalette([*ours.ravel().tolist(), *others.ravel().tolist()])
    for picture in pictures:
        yield picture.quantize(palette=palette, dither=Image.Dither.NONE)


def _images(drawing: _Drawing, times: list[int]) -> Iterator[NDArray[np.uint8]]:
    """Yield a picture of each time; what stands still is drawn once."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(drawing.figure)
    with style.style():
        canvas.draw()
        drawing.figure.set_layout_engine("none")  # what moves must not shift the rest
        still = canvas.copy_from_bbox(drawing.figure.bbox)
        for record in times:
            canvas.restore_region(still)
            for artist in drawing.at(record):
                drawing.figure.draw_artist(artist)
            yield np.asarray(canvas.buffer_rgba())[..., :3].copy()


class _Drawing:
    """The figure, and the artists that move."""

    figure: Figure

    def __init__(self, result: xr.Dataset, shown: xr.Dataset) -> None:
        from matplotlib.figure import Figure

        self.clock = clock_of(result)
        self.times = shown[self.clock].values
        own = [_own(shown.isel(sequence_class=i)) for i in range(shown.sizes["sequence_class"])]
        across = min(len(own), ACROSS)
        down = -(-len(own) // across)
        bars = ROW * max(klass.sizes["token"] for klass in own) + 0.35
        size = style.PAGE_WIDTH, down * bars + STRIP + 0.85
        with style.style():
            self.figure = Figure(figsize=size, dpi=DPI, layout="constrained")
            rows = self.figure.add_gridspec(2, 1, height_ratios=[down * bars, STRIP])
            grid = rows[0].subgridspec(down, across)
            top = max(float(klass["attention"].max()) for klass in own)
            self.bars = [
                (*_bars(self.figure.add_subplot(grid[i // across, i % across]), klass, top), klass)
                for i, klass in enumerate(own)
            ]
            self._course(self.figure.add_subplot(rows[1]), result, shown)
            style.legend_of_roles(self.figure, title=heading(result, "Attention"))
            if shown.attrs["left_out"]:
                self.figure.supxlabel(shown.attrs["left_out"], fontsize=8)

    def _course(self, ax: Any, result: xr.Dataset, shown: xr.Dataset) -> None:
        """Attention over time, mean over the classes that are shown, and a line that moves."""
        one = one_run(result[["attention", "probability"]], self.clock)
        common = common_mass(one).sel(sequence_class=shown["sequence_class"])
        both = one.assign(distinct=is_distinct(one)).sel(sequence_class=shown["sequence_class"])
        winner = both["attention"].isel({self.clock: -1}, drop=True).argmax("token")
        won = both.isel(token=winner)
        distinct = bool(won["distinct"].all())
        ax.plot(
            self.times, common.mean("sequence_class"), color=style.COMMON, label="common tokens"
        )
        ax.plot(
            self.times,
            won["attention"].mean("sequence_class"),
            linestyle=style.DASHES[1],
            color=style.DISTINCT if distinct else style.OUTLINE,
            label=f"the {'distinct ' if distinct else ''}token that wins",
        )
        time_axis(ax, self.times, self.clock)
        ax.set_ylim(bottom=0)
        ax.set_ylabel("attention")
        ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
        self.now = ax.axvline(self.times[0], color=style.ACCENT, linewidth=1.44, animated=True)
        self.words = ax.text(
            1.02, 0.05, "", transform=ax.transAxes, fontsize=10, fontweight="bold", animated=True
        )

    def at(self, record: int) -> Iterator[Any]:
        """Yield the artists that move, as they are at one record."""
        for rectangles, marks, klass in self.bars:
            lengths = klass["attention"].isel({self.clock: record}).values
            for rectangle, length in zip(rectangles, lengths, strict=True):
                rectangle.set_width(float(length))
                yield rectangle
            yield marks
        time = float(self.times[record])
        self.now.set_xdata([time, time])
        yield self.now
        self.words.set_text(f"{self.clock} {time:g}")
        yield self.words


def _own(klass: xr.Dataset) -> xr.Dataset:
    """The tokens that a class draws, the likeliest of many."""
    weight = klass["probability"].values
    likeliest = np.sort(np.argsort(-weight, kind="stable")[:MOST_BARS])
    return klass.isel(token=[int(i) for i in likeliest if weight[i] > 0])


def _bars(ax: Any, klass: xr.Dataset, top: float) -> tuple[Any, Any]:
    """The bars of a class, its words, and marks where they start."""
    position = np.arange(klass.sizes["token"])
    families = style.fonts()
    given: Any = {"fontsize": 7.5, "fontfamily": families, "parse_math": False}
    ax.set_yticks(position, style.visible(klass["word"].values.tolist(), families), **given)
    ax.tick_params(axis="y", length=0)
    marks = ax.vlines(
        klass["probability"].values,
        position - 0.45,
        position + 0.45,
        color=style.OUTLINE,
        linewidth=1.0,
        animated=True,
    )
    ax.set(xlim=(0, 1.05 * top), ylim=(position[-1] + 0.6, -0.6))
    ax.set_title(klass["label"].item(), parse_math=False)
    bars = ax.barh(
        position,
        np.zeros(position.size),
        height=0.8,
        animated=True,
        color=style.by_role(klass["common"].values),
    )
    return bars, marks

"""Charts: the Bokeh figures of the page.

A chart is made once and filled again for each run. All frames of a run go to the browser in one
source; the player (browser/player.js) finds sources and cursors by their names, and moves through
time by copying a slice, without asking the server.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from bokeh.models import (
    ColumnDataSource,
    CustomJS,
    FixedTicker,
    HoverTool,
    LogTickFormatter,
    PrintfTickFormatter,
    Range1d,
    Span,
    Title,
)
from bokeh.plotting import figure

from attnlab.figures import style
from attnlab.playground.frames import ClassFrames

INK, SOFT = "#1f2933", "#52606d"
COLOURS = {"a": INK, "b": "#b34a00"}  # dark enough to be read as text on white
DASHES = {"a": "solid", "b": "dashed"}
MOST_LABELS = 24  # token names that fit under the bars of a panel

HOVER = [
    ("token", "@token (@role)"),
    ("P(l|n)", "@probability{0.0000}"),
    ("attention now", "@attention{0.0000}"),
    ("logit now", "@logit{0.000}"),
    ("the theory claims", "it @claimed"),
    ("by the end", "it @actual"),
]

# A click on a trace: the player goes to the frame that is nearest in (logarithmic) time.
JUMP = """
const player = cb_obj.origin.document.get_model_by_name("player")
const xs = trace.data.x
let best = 0
for (let i = 1; i < xs.length; i++) {
  if (Math.abs(Math.log(xs[i] / cb_obj.x)) < Math.abs(Math.log(xs[best] / cb_obj.x))) best = i
}
player.setv({frame: best}, {sync: false})
"""


class ClassChart:
    """Attention of one class as bars over its tokens, and below them its logits."""

    def __init__(self, name: str) -> None:
        columns = (
            "x", "token", "role", "colour", "probability", "claimed", "actual", "attention",
            "logit", "predicted",
        )  # fmt: skip
        self.frames = ColumnDataSource({"attention": [], "logit": [], "predicted": []})
        # no glyph draws the frames: as a tag of the bars they get to the browser all the same
        self.bars = ColumnDataSource(
            {column: [] for column in columns}, name=f"bars {name}", tags=[self.frames]
        )
        self.attention = _plot(190, "attention c", x_range=Range1d(-0.7, 1))
        self.attention.y_range = Range1d(0, 1)
        # labels of one width: where they change it, Bokeh lays the whole page out again
        self.attention.yaxis.formatter = PrintfTickFormatter(format="%.2f")
        self.attention.xaxis.visible = False
        self.attention.vbar(
            "x", top="attention", width=0.86, color="colour", line_color=None, source=self.bars
        )
        self.attention.scatter(
            "x", "probability", marker="dash", size=11, line_color=INK, line_width=1.5,
            source=self.bars,
        )  # fmt: skip
        self.attention.scatter(
            "x", "predicted", marker="diamond", size=8, fill_color="white",
            line_color=style.GREEN, line_width=1.5, source=self.bars,
        )  # fmt: skip
        self.logits = _plot(130, "logit z", x_range=self.attention.x_range)
        self.logits.y_range = Range1d(-1, 1)
        self.logits.yaxis.formatter = PrintfTickFormatter(format="%+.1f")
        self.logits.vbar(
            "x", top="logit", width=0.86, color="colour", line_color=None, source=self.bars
        )
        self.logits.add_layout(Span(location=0, dimension="width", line_color=SOFT))
        self.logits.yaxis.ticker.desired_num_ticks = 3
        self.logits.xaxis.major_label_orientation = math.pi / 2
        self.logits.xaxis.axis_label = "token"
        self.attention.html_attributes = _image("Bars of attention over the tokens of a class")
        self.logits.html_attributes = _image("Bars of attention logits of the same tokens")
        for plot in (self.attention, self.logits):
            plot.add_tools(HoverTool(tooltips=HOVER, mode="vline", renderers=plot.renderers[:1]))

    def fill(self, frames: ClassFrames, *, top: float, low: float, high: float) -> None:
        """Show the frames of a class; the axes span `top`, and `low` to `high` for logits.

        The bars are those of the last frame until the browser moves them to the one it is at.
        """
        size = len(frames.facts["x"])
        self.fill_sources(frames)
        self.attention.x_range.end = size - 0.3
        self.attention.y_range.end = top
        self.logits.y_range.start, self.logits.y_range.end = low, high
        ticks = list(range(0, size, math.ceil(size / MOST_LABELS)))
        names = {i: _short(frames.facts["token"][i]) for i in ticks}
        axis = self.logits.xaxis[0]
        if names != axis.major_label_overrides:  # a new axis is laid out anew, which takes long
            axis.update(ticker=FixedTicker(ticks=ticks), major_label_overrides=names)

    def fill_sources(self, frames: ClassFrames) -> None:
        """Put the numbers of a class into the sources, and leave the axes as they are."""
        of = {
            "attention": frames.attention,
            "logit": frames.logits,
            "predicted": frames.predicted,
        }
        self.frames.data = {name: v.ravel().astype(np.float32) for name, v in of.items()}
        self.bars.data = {**frames.facts, **{name: v[-1] for name, v in of.items()}}


class Traces:
    """Loss, entropy and common mass of runs A and B against time, with a cursor and t_0."""

    PLOTS = (
        ("loss", "loss", "log"),
        ("entropy", "entropy (nats)", "linear"),
        ("common", "mass on common tokens", "linear"),
    )

    def __init__(self) -> None:
        names = ("moment", "x", "loss", "entropy", "entropy_theory", "common", "common_theory")
        self.sources = {
            run: ColumnDataSource({name: [] for name in names}, name=f"traces {run}")
            for run in ("a", "b")
        }
        self.plots: list[Any] = []
        self.cursors: list[Span] = []
        self.t0: list[tuple[Span, Span]] = []
        for column, title, scale in self.PLOTS:
            plot = _plot(200, None, x_axis_type="log", y_axis_type=scale, tools="tap")
            plot.title = Title(text=title, text_color=INK, text_font_size="13px")
            plot.xaxis.axis_label = "step"
            plot.xaxis.formatter = LogTickFormatter(min_exponent=4)
            for run, source in self.sources.items():
                line = {"color": COLOURS[run], "line_dash": DASHES[run], "source": source}
                plot.line("x", column, line_width=2.2, **line)
            if column != "loss":
                plot.y_range = Range1d(0, 1)
                plot.yaxis.formatter = PrintfTickFormatter(format="%.1f")
                plot.line(
                    "x", f"{column}_theory", line_width=1.8, line_dash="dotted",
                    color=style.GREEN, source=self.sources["a"],
                )  # fmt: skip
            plot.html_attributes = _image(f"{title} against time")
            cursor = Span(
                location=1, dimension="height", line_color=INK, line_width=1,
                name=f"cursor {len(self.cursors)}",
            )  # fmt: skip
            marks = tuple(
                Span(location=None, dimension="height", line_color=style.GREEN, line_dash=dash)
                for dash in ("dotted", "dashed")
            )
            for span in (cursor, *marks):
                plot.add_layout(span)
            self.cursors.append(cursor)
            self.t0.append((marks[0], marks[1]))
            plot.js_on_event("tap", CustomJS(args={"trace": self.sources["a"]}, code=JUMP))
            self.plots.append(plot)

    def fill(self, run: str, columns: dict[str, np.ndarray] | None) -> None:
        """Show the traces of run `a` or `b`; None clears them."""
        source = self.sources[run]
        source.data = {name: [] for name in source.data} if columns is None else dict(columns)

    def frame(self, *, clock: str, last: float, most_entropy: float) -> None:
        """Say what time counts and where it ends, and how far entropy can go."""
        self.plots[1].y_range.end = most_entropy
        for plot, cursor in zip(self.plots, self.cursors, strict=True):
            plot.xaxis.axis_label = clock
            cursor.location = last  # until the browser moves it

    def mark(self, t0_prime: float, t0: float) -> None:
        """Draw Theorem 4's times; nan hides them."""
        for marks in self.t0:
            for span, time in zip(marks, (t0_prime, t0), strict=True):
                span.location = None if math.isnan(time) else time


def _plot(height: int, y_label: str | None, **given: Any) -> Any:
    plot = figure(
        height=height, sizing_mode="stretch_width", toolbar_location=None, min_border_left=56,
        min_border_right=12, **{"tools": "", **given},
    )  # fmt: skip
    plot.yaxis.axis_label = y_label
    plot.outline_line_color = None
    plot.xgrid.grid_line_color = None
    plot.ygrid.grid_line_color = "#e4e7eb"
    for axis in plot.axis:
        axis.axis_label_text_font_style = "normal"
        axis.axis_label_text_color = axis.major_label_text_color = INK
        axis.axis_label_text_font_size = "12px"
        axis.major_label_text_font_size = "11px"
        axis.minor_tick_line_color = None
        axis.axis_line_color = SOFT
    return plot


def _image(text: str) -> dict[str, str]:
    return {"role": "img", "aria-label": text}


def _short(name: str) -> str:
    return name if len(name) <= 12 else f"{name[:11]}…"

"""Stage: what one sees. The story, the player, the bars of each class and the traces."""

from __future__ import annotations

import math
from html import escape
from typing import Any

import numpy as np
import panel as pn

from attnlab.figures import style
from attnlab.playground import story
from attnlab.playground.charts import COLOURS, DASHES, ClassChart, Traces
from attnlab.playground.frames import ClassFrames, class_frames, traces
from attnlab.playground.prediction import Prediction
from attnlab.playground.run import Run
from attnlab.playground.state import View
from attnlab.playground.widgets import BROWSER, Player, Text

PAGE = (BROWSER / "page.css").read_text(encoding="utf-8")
SHOWN = {"a": 4, "b": 2}  # classes at a time; with a B, as many of A as of B


class Stage:
    """The charts, made once; `show` fills them with runs, `predict` lays the theory over them."""

    def __init__(self) -> None:
        self.player = Player(name="player")
        self.charts = {
            run: [ClassChart(f"{run} {i}") for i in range(most)] for run, most in SHOWN.items()
        }
        self.traces = Traces()
        self.legend = Text()
        self.theory_note = Text()
        self._runs: dict[str, Run] = {}
        self._frames: dict[str, list[ClassFrames]] = {}
        self._view = View()
        self._titles = {run: [Text() for _ in charts] for run, charts in self.charts.items()}
        self._panels = {
            run: [
                pn.Column(title, chart.attention, chart.logits, sizing_mode="stretch_width")
                for title, chart in zip(self._titles[run], charts, strict=True)
            ]
            for run, charts in self.charts.items()
        }
        a, b = self._panels["a"], self._panels["b"]
        self.layout = pn.Column(
            self.player,
            self.legend,
            grid("panels", a[0], b[0], a[1], b[1], *a[2:]),
            grid("traces", *self.traces.plots),
            self.theory_note,
            sizing_mode="stretch_width",
        )

    def show(self, a: Run, b: Run | None, view: View) -> None:
        """Fill the charts; the prediction comes later, when it is ready."""
        self._runs = {"a": a} if b is None else {"a": a, "b": b}
        self._view = view
        self._frames = {run: self._class_frames(run, None) for run in self._runs}
        top, low, high = _limits([each for frames in self._frames.values() for each in frames])
        for run, charts in self.charts.items():
            frames = self._frames.get(run, [])
            for i, (chart, panel) in enumerate(zip(charts, self._panels[run], strict=True)):
                panel.visible = i < len(frames)
                if panel.visible:
                    chart.fill(frames[i], top=top, low=low, high=high)
                    which = f'<span class="{run}">{run.upper()}</span> ' if b is not None else ""
                    self._titles[run][i].html = f"<h3>{which}{escape(frames[i].title)}</h3>"
        self.legend.html = _legend(b is not None, view.theory)
        if not view.theory:
            self.theory_note.html = ""
        self._fill_traces({})
        self.traces.mark(np.nan, np.nan)
        entropy = math.log(max(np.diff(a.classes.offsets)))
        self.traces.frame(clock=a.clock, last=float(a.moments[-1]), most_entropy=_above(entropy))
        self._tell()

    def predict(self, predictions: dict[str, Prediction]) -> None:
        """Lay what the theory says over the runs that are shown."""
        for run, prediction in predictions.items():
            if prediction.path is not None:
                frames = self._class_frames(run, prediction.path)
                for chart, filled in zip(self.charts[run], frames, strict=False):
                    chart.fill_sources(filled)
        self._fill_traces({run: prediction.path for run, prediction in predictions.items()})
        of_a = predictions["a"]
        self.traces.mark(of_a.t0_prime, of_a.t0)
        self.theory_note.html = f'<p class="lead">{escape(_note(of_a, self._runs["a"]))}</p>'
        self.player.version += 1

    def _class_frames(self, run: str, path: Any) -> list[ClassFrames]:
        """The frames of the classes of a run that are shown."""
        of, shown = self._runs[run], SHOWN["b" if "b" in self._runs else "a"]
        first = min(self._view.first, max(len(of.classes) - shown, 0))
        return [
            class_frames(of, sequence_class=k, head=self._view.head, path=path)
            for k in range(first, min(first + shown, len(of.classes)))
        ]

    def _tell(self) -> None:
        told = {
            name: story.tell(
                run.head(self._view.head),
                run.classes,
                first=min(self._view.first, len(run.classes) - 1),
            )
            for name, run in self._runs.items()
        }
        a, b = self._runs["a"], self._runs.get("b")
        if b is not None:  # the moment of B that is nearest to each of A
            nearest = np.abs(b.moments[None, :] - a.moments[:, None]).argmin(1)
            told["b"] = [told["b"][i] for i in nearest]
        words = [f"{a.clock} {moment:.4g}" for moment in a.moments]
        if self.player.version == 0:
            self.player.frame = len(words) - 1
        self.player.param.update(words=words, stories=told["a"], other=told.get("b", []))
        self.player.version += 1  # last: the browser then moves everything to its frame

    def first_facts(self) -> dict[str, Any]:
        """The facts about the tokens of the first class shown."""
        return self._frames["a"][0].facts

    def _fill_traces(self, paths: dict[str, Any]) -> None:
        for run in self.charts:
            of = self._runs.get(run)
            columns = None if of is None else traces(of, head=self._view.head, path=paths.get(run))
            self.traces.fill(run, columns)


def grid(name: str, *parts: Any) -> Any:
    """Parts laid out by the class `name` of page.css."""
    return pn.Column(
        *parts, css_classes=[name], stylesheets=[PAGE], sizing_mode="stretch_width", margin=0
    )


def _limits(frames: list[ClassFrames]) -> tuple[float, float, float]:
    """Above the highest bar, below the lowest and above the highest logit, over all frames.

    In round numbers: axes that stay put show what changes, and are not laid out again.
    """
    top = max(float(each.attention.max()) for each in frames)
    low = min(float(each.logits.min()) for each in frames)
    high = max(float(each.logits.max()) for each in frames)
    return min(_above(top), 1.0), -_above(-low), _above(high)


def _above(value: float) -> float:
    """The next round number: 1, 1.5, 2, 3, 5 or 7 times a power of ten."""
    value = max(value, 1e-6)
    power = 10.0 ** math.floor(math.log10(value))
    return power * next(r for r in (1.0, 1.5, 2.0, 3.0, 5.0, 7.0, 10.0) if r * power >= value)


def _legend(both: bool, theory: bool) -> str:
    keys = [
        (f"background:{style.COMMON}", "", "common token (in several classes)"),
        (f"background:{style.DISTINCT}", "", "distinct token (in one class)"),
        (f"border-color:{COLOURS['a']}", "line", "P(l|n), where attention starts"),
    ]
    if both:
        for run in ("a", "b"):
            look = f"border-color:{COLOURS[run]};border-top-style:{DASHES[run]}"
            keys.append((look, "line", f"run {run.upper()}"))
    if theory:
        look = f"border-color:{style.GREEN};border-top-style:dotted"
        of = " of run A" if both else ""
        keys.append((look, "line", f"the theory{of} (Eq. 10), t₀′ and t₀; ◇ on the bars"))
    items = "".join(f'<span><i class="{c}" style="{look}"></i>{t}</span>' for look, c, t in keys)
    return f'<div class="key">{items}</div>'


def _note(prediction: Prediction, run: Run) -> str:
    if prediction.path is None:
        return prediction.note
    end = run.moments[-1]
    beyond = ", beyond the end of this run" if prediction.t0 > end else ""
    return (
        f"Theorem 4: scanning ends at t₀′ = {prediction.t0_prime:.3g} and snapping begins at "
        f"t₀ = {prediction.t0:.3g} {run.clock}s{beyond}. The dotted curves solve Eq. 10, in which "
        "the decoder is taken to be ahead of attention; training follows them in direction more "
        "than in size."
    )

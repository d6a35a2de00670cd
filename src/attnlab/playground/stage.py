"""Stage: what one sees. The story, the player, the bars of each class and the traces.

All frames of a run go to the browser at once, which draws them (browser/stage.js) and plays and
scrubs without asking the server.
"""

from __future__ import annotations

import math
from html import escape
from typing import Any, ClassVar

import numpy as np
import param
from numpy.typing import NDArray

from attnlab.playground import story
from attnlab.playground.frames import ClassFrames, class_frames, predicted, shown_tokens, traces
from attnlab.playground.prediction import Prediction
from attnlab.playground.run import Run
from attnlab.playground.state import View
from attnlab.playground.widgets import BROWSER, LOOK, Widget
from attnlab.plots import style

SHOWN = {"a": 4, "b": 2}  # classes at a time; with a B, as many of A as of B
COLOURS = {
    "a": "#1f2933", "b": "#b34a00",  # dark enough to be read as text on white
    "common": style.COMMON, "distinct": style.DISTINCT, "theory": style.GREEN,
}  # fmt: skip
DASHES = {"a": "solid", "b": "dashed"}
PALETTE = "".join(f"--{name}: {colour}; " for name, colour in COLOURS.items())


def _browser(*names: str) -> str:
    return "\n".join((BROWSER / name).read_text(encoding="utf-8") for name in names)


class Stage(Widget):
    """`show` sends runs to the browser, `predict` what the theory says of them."""

    scene = param.Dict({})  # runs, how far their axes go, and the legend
    theory = param.Dict({})  # of the scene: a path for each run, Theorem 4's times, and a note

    _esm = _browser("drawing.js", "bars.js", "trace.js", "stage.js")
    _stylesheets: ClassVar[list[str]] = [
        LOOK, _browser("stage.css"), f":host {{ {PALETTE}}}",
    ]  # fmt: skip

    def show(self, a: Run, b: Run | None, view: View) -> None:
        """Show runs; the prediction comes later, when it is ready."""
        self._runs = {"a": a} if b is None else {"a": a, "b": b}
        self._view = view
        frames = {
            name: [
                class_frames(run, self._tokens(name, k), sequence_class=k, head=view.head)
                for k in self._classes(name)
            ]
            for name, run in self._runs.items()
        }
        top, low, high = _limits([each for of_run in frames.values() for each in of_run])
        entropy = _above(math.log(max(np.diff(a.classes.offsets))))
        self.first = frames["a"][0]
        self.theory = {}
        self.scene = {
            "runs": {name: self._sent(run, frames[name]) for name, run in self._runs.items()},
            "limits": {"top": top, "low": low, "high": high, "entropy": entropy},
            "legend": _legend(b is not None, view.theory),
        }

    def predict(self, predictions: dict[str, Prediction]) -> None:
        """Lay what the theory says over the runs that are shown."""
        of_a = predictions["a"]
        note = f'<p class="lead">{escape(_note(of_a, self._runs["a"]))}</p>'
        paths = {name: each.path for name, each in predictions.items() if each.path is not None}
        self.theory = {"note": note} | {
            name: {
                "predicted": [
                    _flat(
                        predicted(self._runs[name], path, self._tokens(name, k), sequence_class=k)
                    )
                    for k in self._classes(name)
                ],
                "marks": [of_a.t0_prime, of_a.t0],
                **traces(path),
            }
            for name, path in paths.items()
        }

    def _classes(self, name: str) -> range:
        """The classes of a run that are shown."""
        count, shown = len(self._runs[name].classes), SHOWN["b" if "b" in self._runs else "a"]
        first = min(self._view.first, max(count - shown, 0))
        return range(first, min(first + shown, count))

    def _tokens(self, name: str, sequence_class: int) -> NDArray[np.int64]:
        """The tokens that are shown: the same in runs on the same classes of one's own."""
        run = self._runs[name]
        alike = [of for of in self._runs.values() if of.setting.written == run.setting.written]
        return shown_tokens(alike, sequence_class=sequence_class, head=self._view.head)

    def _sent(self, run: Run, frames: list[ClassFrames]) -> dict[str, Any]:
        """A run as the browser draws it."""
        result, moments = run.head(self._view.head), run.moments
        first = min(self._view.first, len(run.classes) - 1)
        return {
            "clock": run.clock,
            # on a logarithmic axis the start stands at half the first moment after it
            "x": np.where(moments > 0, moments, moments[1] / 2),
            "words": [f"{run.clock} {moment:.4g}" for moment in moments],
            "stories": story.tell(result, run.classes, first=first),
            "loss": result["loss"].values.astype(np.float64),
            **traces(result),
            "classes": [
                {
                    "title": each.title,
                    "note": each.note,
                    **each.facts,
                    "attention": _flat(each.attention),
                    "logit": _flat(each.logits),
                }
                for each in frames
            ],
        }


def _flat(values: NDArray[np.float64]) -> NDArray[np.float32]:
    return values.ravel().astype(np.float32)


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
        ("background:var(--common)", "", "common token (in several classes)"),
        ("background:var(--distinct)", "", "distinct token (in one class)"),
        ("border-color:var(--a)", "line", "P(l|n), where attention starts"),
    ]
    if both:
        for run in ("a", "b"):
            look = f"border-color:var(--{run});border-top-style:{DASHES[run]}"
            keys.append((look, "line", f"run {run.upper()}"))
    if theory:
        look = "border-color:var(--theory);border-top-style:dotted"
        of = " of run A" if both else ""
        meaning = f"the theory{of} (Eq. 10), t₀′ and t₀; ◇ on the bars, △ above them"
        keys.append((look, "line", meaning))
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
        f"than in size. {prediction.note}"
    )

"""Widgets: the page's own controls, of native elements, so that keyboard, touch and screen
readers work as everywhere else. Their other half is in browser/."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import param
from panel.custom import Children, JSComponent

BROWSER = Path(__file__).parent / "browser"
LOOK = "".join((BROWSER / name).read_text(encoding="utf-8") for name in ("text.css", "widgets.css"))


def set_changed(widget: Any, **given: Any) -> None:
    """Set what differs. (Panel takes about a millisecond to find that nothing does.)"""
    changed = {name: value for name, value in given.items() if getattr(widget, name) != value}
    if changed:
        widget.param.update(**changed)


class Widget(JSComponent):
    """What all of them share: the look, and messages that come from the browser."""

    _stylesheets: ClassVar[list[str]] = [LOOK]
    _debounce: ClassVar[int] = 0  # Panel would wait 50 ms; a slider pauses in the browser already

    def __init__(self, on_message: Callable[[dict[str, Any]], None] | None = None, **given: Any):
        super().__init__(sizing_mode="stretch_width", **given)
        self._on_message = on_message

    def _handle_msg(self, data: Any) -> None:
        if self._on_message is not None and isinstance(data, dict):
            self._on_message(data)


class Text(Widget):
    """Text of the page. (A change of Panel's HTML pane lays every chart out anew.)"""

    html = param.String()

    _esm = BROWSER / "text.js"


class Range(Widget):
    """A slider over `words`; `index` is the one chosen. `unused` takes it out of use."""

    label = param.String()
    words = param.List(["0"])
    index = param.Integer(0)
    unused = param.Boolean(False)

    _esm = BROWSER / "range.js"


class Copy(Widget):
    """A button that copies `text`; a text that begins with ? is a link to the page."""

    label = param.String()
    text = param.String()

    _esm = BROWSER / "copy.js"


class Check(Widget):
    """A check box with a name."""

    label = param.String()
    value = param.Boolean(False)

    _esm = BROWSER / "check.js"


class Fold(Widget):
    """Parts of the page, or text, that open on demand. (What is in a collapsed Card of Panel's is
    laid out anew at each change, which takes long.)"""

    title = param.String()
    html = param.String()
    parts = Children(default=[])

    _esm = BROWSER / "fold.js"


class Upload(Widget):
    """A file of at most `most` bytes; its name and text come as a message."""

    label = param.String()
    most = param.Integer()

    _esm = BROWSER / "upload.js"


class Weights(Widget):
    """A table of weights to edit, one column per class; an edit comes as a message."""

    tokens = param.List([])
    classes = param.List([])
    weights = param.List([])

    _esm = BROWSER / "weights.js"

"""The widgets of the controls: they show a setting, and tell which control was turned."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import panel as pn

from attnlab.playground.controls import BY_NAME, CONTROLS, Control
from attnlab.playground.state import State
from attnlab.playground.widgets import Range, set_changed

NOTHING = "nothing: one run"
CLEARLY = 3  # notches of a slider


class ControlPanel:
    """All controls in groups, and the choice of the one that differs in run B.

    turn(name, value): called when a person turns a control. compare(name, value): called when B is
    to differ in that control; name is empty when there is to be no B.
    """

    def __init__(
        self, turn: Callable[[str, Any], None], compare: Callable[[str, Any], None]
    ) -> None:
        self._turn, self._compare = turn, compare
        self._offered: dict[str, list[Any]] = {}
        self._showing = False
        self.widgets = {control.name: self._widget(control) for control in CONTROLS}
        names = {NOTHING: "", **{control.label: control.name for control in CONTROLS}}
        self.which = pn.widgets.Select(
            label="In B, change", options=names, value="", sizing_mode="stretch_width", margin=0
        )
        self.value = Range(label="its value in B", words=["0"])
        self.which.param.watch(lambda event: self._choose(event.new), "value")
        self.value.param.watch(lambda event: self._change(event.new), "index")

    def group(self, name: str) -> list[Any]:
        """The widgets of one group, in order."""
        return [self.widgets[control.name] for control in CONTROLS if control.group == name]

    def show(self, state: State) -> None:
        """Put every widget where the state has it."""
        self._showing = True
        try:
            for control in CONTROLS:
                offered = self._offered[control.name] = control.offered(state.a)
                own, widget = getattr(state.a, control.name), self.widgets[control.name]
                off = not control.applies(state.a)
                if isinstance(widget, Range):
                    words = [control.shown(value) for value in offered]
                    set_changed(widget, words=words, index=offered.index(own), unused=off)
                else:
                    set_changed(widget, value=own, disabled=off)
            self.which.value = state.compare
            if state.b is not None:
                control = BY_NAME[state.compare]
                offered = self._offered["b"] = control.offered(state.b)
                set_changed(
                    self.value,
                    words=[control.shown(value) for value in offered],
                    index=offered.index(getattr(state.b, state.compare)),
                    label=f"{control.label}, in B",
                )
            self.value.visible = state.b is not None
        finally:
            self._showing = False

    def _widget(self, control: Control) -> Any:
        if control.is_scale:
            widget = Range(label=control.label)
            widget.param.watch(
                lambda event: self._told(control.name, self._offered[control.name][event.new]),
                "index",
            )
        else:
            options = {control.shown(value): value for value in control.values}
            widget = pn.widgets.Select(
                label=control.label,
                options=options,
                sizing_mode="stretch_width",
                margin=(0, 0, 4, 0),
            )
            widget.param.watch(lambda event: self._told(control.name, event.new), "value")
        return widget

    def _told(self, name: str, value: Any) -> None:
        if not self._showing:
            self._turn(name, value)

    def _choose(self, name: str) -> None:
        if self._showing:
            return
        if not name:
            self._compare("", None)
            return
        offered, widget = self._offered[name], self.widgets[name]
        here = widget.index if isinstance(widget, Range) else offered.index(widget.value)
        # far enough to see a difference, on the side where there is more room
        there = here + (CLEARLY if here < len(offered) / 2 else -CLEARLY)
        self._compare(name, offered[min(max(there, 0), len(offered) - 1)])

    def _change(self, index: int) -> None:
        if not self._showing:
            self._compare(self.which.value, self._offered["b"][index])

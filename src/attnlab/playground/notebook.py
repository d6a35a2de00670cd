"""The playground in a notebook: the same page in a frame, with its state shared both ways."""

from __future__ import annotations

import threading
from importlib import resources
from typing import Any

import anywidget
import traitlets

from attnlab.files.errors import InputError
from attnlab.playground.opening import opening
from attnlab.playground.single_page import single_page
from attnlab.playground.workers import Workers
from attnlab.simulation import Simulation
from attnlab.tasks.classes import SequenceClasses


class Playground(anywidget.AnyWidget):
    """The page and its state.

    simulation: the run that the page shows; set it, and the page shows another.
    state: the page's own state, {"a", "b", ...}, where a and b are documents of simulations.
    """

    _esm = (resources.files("attnlab.playground") / "widget.js").read_text()
    page = traitlets.Unicode().tag(sync=True)
    state = traitlets.Dict().tag(sync=True)

    def __init__(self, given: Simulation | SequenceClasses | str | None = None) -> None:
        state = {} if given is None else opening(given)
        super().__init__(page=single_page(api="parent"), state=state)
        self._workers = Workers(1)
        self._wanted: set[str] = set()  # questions that a page waits for
        self.on_msg(self._hear)

    def _hear(self, _: Any, question: Any, __: Any) -> None:
        """Answer a question of the page, or drop one that it has cancelled."""
        number = question["id"]
        if question.get("cancel"):
            self._wanted.discard(number)
            return
        self._wanted.add(number)

        def work() -> None:
            answer = self._workers.ask(
                question["verb"], question["document"], lambda: number not in self._wanted
            )
            self._wanted.discard(number)
            self.send({"id": number, "status": answer.status}, [answer.content])

        threading.Thread(target=work, name="playground", daemon=True).start()

    def close(self) -> None:
        """Remove the page, and end the process that computes for it."""
        super().close()
        self._workers.end()

    @property
    def simulation(self) -> Simulation:
        """The run that the controls change: B where two are compared."""
        return _read(self.state, "b" if self.state.get("b") else "a")

    @simulation.setter
    def simulation(self, given: Simulation | SequenceClasses | str) -> None:
        self.state = opening(given)

    @property
    def compared(self) -> Simulation | None:
        """Run A, where two are compared."""
        return _read(self.state, "a") if self.state.get("b") else None


def _read(state: dict[str, Any], name: str) -> Simulation:
    if name not in state:
        raise InputError("simulation: the page has not been shown yet; give play() one to start on")
    return Simulation.from_document(state[name])

"""The page in a notebook: in a frame of its own, with its state shared both ways."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from small_run import PATIENCE, of_page

import attnlab
from attnlab.files.errors import InputError
from attnlab.simulation import as_simulation

pytest.importorskip("anywidget", reason="no anywidget here: pip install 'attnlab[play]'")

SHORT = of_page(motion={"steps": 20})

# what a notebook does: a model with the widget's values, and an element to draw into
HOST = """
async ([esm, values]) => {
  const heard = {}
  globalThis.model = {
    values, sent: 0,
    get: (name) => model.values[name],
    set: (name, value) => { model.values[name] = value },
    save_changes: () => { model.sent += 1 },
    on: (name, act) => { heard[name] = act },
    off: () => {},
    questions: [], send: (question) => { model.questions.push(question) },
  }
  globalThis.answer = (id, status, text) =>
    heard["msg:custom"]({ id, status }, [new TextEncoder().encode(text).buffer])
  globalThis.changed = (name, value) => { model.values[name] = value; heard[`change:${name}`]() }
  const address = URL.createObjectURL(new Blob([esm], { type: "text/javascript" }))
  const { default: widget } = await import(address)
  globalThis.end = widget.render({ model, el: document.body })
}
"""


@pytest.fixture
def notebook(browser: Any, server: Any) -> Any:
    """A page of a notebook's own."""
    page = browser.new_page()
    page.set_default_timeout(PATIENCE)
    page.route("**/blank", lambda route: route.fulfill(body="<p>", content_type="text/html"))
    page.goto(f"{server.url}blank")
    yield page
    page.close()


def test_the_same_page_is_drawn_and_its_state_comes_back(notebook: Any) -> None:
    widget = attnlab.play(as_simulation("syn-small", gradient="population", eta_y=2.0, steps=30))
    esm = str(widget._esm)
    notebook.evaluate(HOST, [esm, {"page": widget.page, "state": widget.state}])
    frame = notebook.frame_locator("iframe")
    frame.locator("#live[data-drawn]").wait_for(state="attached")
    assert frame.locator("#step-shown").inner_text().endswith("of 30")
    assert notebook.evaluate("model.values.state.a.motion.steps") == 30
    slider = frame.locator("#control-eta_z")
    slider.focus()
    slider.press("ArrowRight")
    notebook.wait_for_function("model.sent > 0 && model.values.state.a.eta_z === 2")
    widget.state = json.loads(json.dumps(notebook.evaluate("model.values.state")))
    assert widget.simulation == as_simulation(
        widget.simulation.sets[0],
        gradient="population",
        eta_y=2.0,
        eta_z=2.0,
        steps=30,
        geometric=100,
    )
    assert widget.compared is None
    notebook.evaluate("(state) => changed('state', state)", {"a": SHORT})
    frame.locator("#step-shown", has_text="of 20").wait_for()
    refused = {"a": of_page(motion={"steps": -1})}
    notebook.evaluate("(state) => changed('state', state)", refused)
    frame.locator("#problem", has_text="steps: expected").wait_for()
    notebook.evaluate("end()")


def test_what_is_set_before_the_page_is_there_is_shown(notebook: Any) -> None:
    """As in a notebook whose cells all run at once; `play()` alone opens on the first example."""
    widget = attnlab.play()
    notebook.evaluate(HOST, [str(widget._esm), {"page": widget.page, "state": widget.state}])
    notebook.evaluate("(state) => changed('state', state)", {"a": SHORT})
    frame = notebook.frame_locator("iframe")
    frame.locator("#step-shown", has_text="of 20").wait_for()
    notebook.wait_for_function("model.values.state.a.motion.steps === 20")
    assert frame.locator("#problem").is_hidden()
    notebook.evaluate("end()")
    notebook.evaluate(HOST, [str(widget._esm), {"page": widget.page, "state": {}}])
    second = notebook.frame_locator("iframe >> nth=1")
    second.locator("#live[data-drawn]").wait_for(state="attached")
    assert second.locator("#problem").is_hidden()
    notebook.wait_for_function("model.values.state.experiment === 'opening'")
    widget.state = notebook.evaluate("model.values.state")
    assert widget.simulation.last == 100
    notebook.evaluate("end()")


def test_the_kernel_is_asked_for_what_the_page_does_not_compute(notebook: Any) -> None:
    widget = attnlab.play(as_simulation("syn-small", time=100.0))
    esm = str(widget._esm)
    notebook.evaluate(HOST, [esm, {"page": widget.page, "state": widget.state}])
    notebook.wait_for_function("model.questions.length")
    question = notebook.evaluate("model.questions[0]")
    assert question["verb"] == "simulate"
    answers: list[Any] = []
    widget.send = lambda head, buffers: answers.append((head, buffers[0]))
    widget._hear(widget, question, [])
    deadline = time.monotonic() + PATIENCE / 1000
    while not answers and time.monotonic() < deadline:
        time.sleep(0.05)
    ((head, content),) = answers
    assert head == {"id": question["id"], "status": 200}
    notebook.evaluate("(given) => answer(...given)", [head["id"], 200, content.decode()])
    frame = notebook.frame_locator("iframe")
    frame.locator("#live[data-drawn]").wait_for(state="attached")
    assert frame.locator("#step-shown").inner_text().endswith("of 100")
    notebook.evaluate(
        "changed('state', { a: { ...model.values.state.a, motion: { name: 'flow', time: 200 } } })"
    )
    notebook.wait_for_function("model.questions.length === 2")
    notebook.evaluate("end()")  # who goes leaves nothing behind that computes
    second, last = notebook.evaluate("model.questions.slice(1)")
    assert last == {"id": second["id"], "cancel": True}
    widget.close()


def test_a_widget_without_a_page_says_so() -> None:
    widget = attnlab.play()
    with pytest.raises(InputError, match="not been shown"):
        _ = widget.simulation
    widget.simulation = "syn-small"
    assert len(widget.simulation.sets[0]) == 2

"""A served page without a browser: it changes when it is asked, and not once it is gone."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from attnlab.playground.setting import Setting
from attnlab.playground.state import State

pn = pytest.importorskip("panel", reason="no Panel here: pip install 'attnlab[play]'")

from bokeh.document import Document  # noqa: E402
from bokeh.events import ConnectionLost  # noqa: E402
from bokeh.server.callbacks import NextTickCallback, TimeoutCallback  # noqa: E402

from attnlab.playground.page import Page  # noqa: E402

START = Setting(steps=50)
LIMIT = 300  # s: a busy machine is slow


def go_round(document: Document) -> None:
    """Call what is to be called next, until there is nothing left."""
    while due := [
        each for each in document.session_callbacks if isinstance(each, NextTickCallback)
    ]:
        for each in due:
            called: Any = each.callback()
            if asyncio.iscoroutine(called):
                asyncio.run(called)


def let_time_pass(document: Document) -> None:
    """Call what is to be called after a while."""
    for each in document.session_callbacks:
        if isinstance(each, TimeoutCallback):
            each.callback()


def test_what_changes_before_the_browser_asks_waits_for_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asks: list[Any] = []
    monkeypatch.setattr(type(pn.state), "onload", lambda state, answer: asks.append(answer))
    document = Document()
    page = Page(State(START), document=document)
    let_time_pass(document)
    page.controls.widgets["seed"].index += 1  # a control may be there before the whole page is
    go_round(document)
    assert (page.stage.scene, page.message.html, page.code.html) == ({}, "", "")
    (answer,) = asks
    answer()
    go_round(document)
    assert page.stage.scene["runs"]["a"]
    assert "seeds=[1]" in page.code.html


def test_a_run_is_ended_when_its_page_is_closed_and_not_shown(endless: Any) -> None:
    document = Document()
    page = Page(State(START.turned("seed", endless.seed)), document=document)
    assert endless.begun.wait(LIMIT)
    document.callbacks.trigger_event(ConnectionLost())
    assert endless.ended.wait(LIMIT)
    go_round(document)
    let_time_pass(document)
    assert (page.stage.scene, page.message.html) == ({}, "")


def test_a_run_that_ends_on_a_page_that_is_gone_is_not_shown() -> None:
    document = Document()
    page = Page(State(START), document=document)
    for destroyed in document.session_destroyed_callbacks:
        destroyed(None)  # type: ignore[arg-type]
    go_round(document)
    assert page.stage.scene == {}


def test_a_run_is_given_up_for_a_newer_wish_but_not_for_another_view_of_it(endless: Any) -> None:
    document = Document()
    page = Page(State(START.turned("seed", endless.seed)), document=document)
    assert endless.begun.wait(LIMIT)
    page.theory.value = False
    let_time_pass(document)
    assert "computing" in page.message.html
    assert not endless.ended.wait(0.05)
    page.controls.widgets["seed"].index = 0
    let_time_pass(document)
    assert endless.ended.wait(LIMIT)
    go_round(document)
    assert "seeds=[0]" in page.code.html
    assert page.message.html == ""

"""The page in a notebook: computed while one waits, and drawn with the packages' own assets."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

import attnlab
from attnlab.cli import main

pn = pytest.importorskip("panel", reason="no Panel here: pip install 'attnlab[play]'")


def test_a_slider_is_answered_without_a_server() -> None:
    from attnlab.playground.stage import Stage
    from attnlab.playground.widgets import Range

    page = attnlab.play("syn-small")
    assert pn.config.inline, "a notebook would ask for assets over the network"
    (stage,) = page.select(Stage)
    (rate,) = page.select(lambda part: isinstance(part, Range) and part.label.startswith("decoder"))

    def bars() -> Any:
        return stage.scene["runs"]["a"]["classes"][0]["attention"]

    before = bars()
    rate.index += 1
    assert bars().shape == before.shape
    assert not np.array_equal(bars(), before)
    assert stage.theory["a"]["marks"][0] > 0


def test_without_the_extra_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "panel", None)  # as if it were not installed
    with pytest.raises(ImportError, match=r"attnlab\[play\]"):
        attnlab.play()
    monkeypatch.setattr(sys, "argv", ["attnlab", "play", "--no-browser"])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    assert "pip install 'attnlab[play]'" in capsys.readouterr().err

"""The page in a notebook: computed while one waits, and drawn with the packages' own assets."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attnlab
from attnlab.cli.app import main
from attnlab.data import read_classes, write_classes

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


@pytest.fixture(scope="module")
def text_classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `attnlab text classes builtin --out classes.yaml` writes."""
    from attnlab.text import estimate_classes, open_corpus

    path = tmp_path_factory.mktemp("text") / "classes.yaml"
    write_classes(estimate_classes(open_corpus("builtin")), path)
    return path


def test_the_classes_of_a_text_are_shown_in_words_and_only_their_strongest_tokens(
    text_classes: Path,
) -> None:
    from attnlab.playground.presets import beginning
    from attnlab.playground.run import run
    from attnlab.playground.stage import Stage

    classes = read_classes(text_classes)
    assert len(classes) == 20
    page = attnlab.play(str(text_classes))
    (stage,) = page.select(Stage)
    assert len(stage.scene["runs"]["a"]["classes"]) == 4
    shown = stage.scene["runs"]["a"]["classes"][1]
    assert (
        shown["title"] == f"class 1: query the → next {classes.token_name(classes.next_token[1])}"
    )
    assert shown["note"].startswith(f"24 of {classes.support(1).size} tokens")
    assert "the" in shown["token"]
    assert shown["attention"].size == 24 * len(stage.scene["runs"]["a"]["x"])
    (picker,) = page.select(lambda part: getattr(part, "label", "").startswith("classes shown"))
    assert list(picker.options.values()) == [0, 4, 8, 12, 16]
    picker.value = 16
    shown = stage.scene["runs"]["a"]["classes"][3]
    assert shown["title"].startswith("class 19: ")
    # no token that is left out is ever attended more than those that are shown
    whole = run(beginning(classes).a).result["attention"].isel(sequence_class=19).max("step")
    assert shown["attention"].reshape(-1, 24).max(0).min() == np.sort(whole)[-24]


def test_the_command_line_opens_the_page_on_a_file(
    text_classes: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from attnlab.playground import serve

    started: list[Any] = []
    monkeypatch.setattr(serve, "server", lambda **given: given["start"])
    monkeypatch.setattr(serve, "serve", lambda made, start: started.append((made, start)))

    def play(file: Path) -> object:
        monkeypatch.setattr(sys, "argv", ["attnlab", "play", str(file), "--no-browser"])
        with pytest.raises(SystemExit) as stopped:
            main()
        return stopped.value.code

    assert play(text_classes) == 0
    ((made, start),) = started
    assert made is start
    assert start.a.sequence_classes.token_name(1) == "the"
    capsys.readouterr()
    bad = tmp_path / "bad.yaml"
    bad.write_text("vocabulary: 3\nclasses: []\n")
    for file, words in ((bad, "bad.yaml: classes: expected"), (tmp_path / "no.yaml", "no such")):
        assert play(file) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert words in line


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

"""The application: how it ends when something is wrong."""

import signal

import pytest

from attnlab.cli import app
from attnlab.text.fleet import Fleet

WORDS = " ".join(f"w{i * 3 % 17}" for i in range(4000))
TRAIN = [
    "text", "train", "words.txt", "--dim", "16", "--feed-forward", "16", "--heads", "2",
    "--context", "8", "--batch", "4", "--steps", "60", "--measure-every", "20",
    "--validation-tokens", "160", "--out",
]  # fmt: skip


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("ATTNLAB_CACHE", str(tmp_path / "cache"))
    (tmp_path / "words.txt").write_text(WORDS)
    return tmp_path


def test_an_interrupt_says_what_is_kept(call, folder, monkeypatch):
    real = Fleet.advance

    def advance(fleet, count):
        real(fleet, count)
        signal.raise_signal(signal.SIGINT)  # as Ctrl-C does

    monkeypatch.setattr(Fleet, "advance", advance)
    code, _, said = call(*TRAIN, "run", cwd=folder)
    assert code == app.INTERRUPTED
    assert "attnlab: stopped at step 1 of 60; the same settings go on from there" in said
    assert (folder / "run" / "checkpoint.safetensors").exists()


def test_an_interrupt_elsewhere_is_said_too(call, folder, monkeypatch):
    monkeypatch.setattr(Fleet, "__init__", lambda *_: signal.raise_signal(signal.SIGINT))
    code, _, said = call(*TRAIN, "run", cwd=folder)
    assert (code, said) == (app.INTERRUPTED, "attnlab: stopped\n")


def test_what_the_disk_refuses_is_one_line(call, folder, monkeypatch):
    (folder / "run").mkdir()
    (folder / "run" / "checkpoint.safetensors").mkdir()
    code, _, said = call(*TRAIN, "run", cwd=folder)
    assert code == app.BAD_INPUT
    assert said.startswith("attnlab: ")
    assert said.count("\n") == 1

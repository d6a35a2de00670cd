"""The application: how it ends when something is wrong."""

import pytest

from attnlab.cli import app
from attnlab.simulation.trainer import Trainer

WORDS = " ".join(f"w{i * 3 % 17}" for i in range(4000))
TRAIN = ["text", "train", "words.txt", "--length", "8", "--batch-size", "4", "--out"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("ATTNLAB_CACHE", str(tmp_path / "cache"))
    (tmp_path / "words.txt").write_text(WORDS)
    return tmp_path


def test_an_interrupt_names_the_step_reached(call, folder, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Trainer, "go", interrupted)
    code, _, said = call(*TRAIN, "run", cwd=folder)
    words = "attnlab: stopped at step 0 of 1,500 before the first checkpoint\n"
    assert (code, said) == (app.INTERRUPTED, words)


def test_what_the_disk_refuses_is_one_line(call, folder, monkeypatch):
    (folder / "run").mkdir()
    (folder / "run" / "checkpoint.safetensors").mkdir()
    code, _, said = call(*TRAIN, "run", cwd=folder)
    assert code == app.BAD_INPUT
    assert said.startswith("attnlab: ")
    assert said.count("\n") == 1

"""The command line, and scripts, run inside a test."""

import runpy
import sys

import pytest

from attnlab.cli import app
from attnlab.files import progress


@pytest.fixture
def call(monkeypatch, capsys):
    """Run the command line in this process, where JAX is awake; gives (exit code, out, err)."""

    def run(*arguments, cwd):
        monkeypatch.chdir(cwd)
        monkeypatch.setattr(sys, "argv", ["attnlab", *arguments])
        monkeypatch.setattr(app, "_keep_compiled_programs", lambda: None)
        monkeypatch.setattr(progress, "PATIENCE", 3600.0)  # however slow the machine is
        with pytest.raises(SystemExit) as stopped:
            app.main()
        return stopped.value.code, *capsys.readouterr()

    return run


@pytest.fixture
def script(monkeypatch, capsys):
    """Run a script in this process, where what it imports is imported; gives what it printed."""

    def run(path, *arguments, cwd):
        monkeypatch.chdir(cwd)
        monkeypatch.setattr(sys, "argv", [str(path), *arguments])
        runpy.run_path(str(path), run_name="__main__")
        return capsys.readouterr().out

    return run

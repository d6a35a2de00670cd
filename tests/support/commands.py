"""The command line, run inside a test."""

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

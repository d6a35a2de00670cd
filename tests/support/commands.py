"""The command line, and scripts, run inside a test; and many commands in forks of one process."""

import json
import os
import runpy
import subprocess
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


# Each command runs in a fork of a process that has imported the command line and no more, so that
# what it imports itself can be checked without starting Python for each.
FORKING = """
import io, json, os, sys
from attnlab.cli import app
for name in {blocked!r}: sys.modules[name] = None
found = []
for arguments, environment in {cases!r}:
    read, write = os.pipe()
    if not os.fork():
        os.environ |= environment
        sys.argv, sys.stdout = ["attnlab", *arguments], io.StringIO()
        try:
            app.main()
        except SystemExit as end:
            code = end.code
        result = code or 0, sys.stdout.getvalue(), sorted(sys.modules), sum(os.times()[:2])
        os.write(write, json.dumps(result).encode())
        os._exit(0)
    os.close(write)
    found.append(json.loads(open(read, "rb").read()))
    os.wait()
print(json.dumps(found))
"""


def in_forks(cases, *, blocked=(), **environment):
    """Run commands, each as (arguments, environment); gives (exit code, out, modules, seconds).

    blocked: modules that cannot be imported. environment: of the process that is forked.
    """
    code = FORKING.format(blocked=list(blocked), cases=[[list(a), dict(e)] for a, e in cases])
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)

"""Ctrl-C and SIGTERM: exit code 130 and one line, at any moment."""

import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import interrupts
import pytest

import attnlab
from attnlab.cli import app


def start(*arguments, before=""):
    """The command line in a process of its own, after some lines of Python."""
    code = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        f"sys.path.insert(0, {str(Path(interrupts.__file__).parent)!r})\n"
        f"{before}\n"
        "from attnlab.cli import main; main()"
    )
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, "-c", code, *map(str, arguments)], **pipes)


def last_line(process):
    """Return the last output; on a busy machine it has said before what it waits for."""
    return process.communicate()[1].splitlines()[-1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "options"),
    [
        (signal.SIGINT, ["--steps", "2e9", "--geometric", "50"]),
        (signal.SIGTERM, ["--time", "1e30", "--motion", "flow"]),
    ],
)
def test_a_simulation_that_is_stopped_writes_what_was_recorded(number, options, tmp_path):
    out = tmp_path / "run.nc"
    process = start(
        "simulate",
        "syn-small",
        *options,
        "--out",
        out,
        before="import interrupts; interrupts.wait_after_recording()",
    )
    assert process.stdout.readline() == "recorded\n"
    process.send_signal(number)
    said = last_line(process)
    assert process.returncode == app.INTERRUPTED
    assert said.startswith("attnlab: stopped at ")
    assert said.endswith(f"; what was recorded is in {out}")
    kept = attnlab.load(out)
    assert kept.sizes["time" if "flow" in options else "step"] == 2


@pytest.mark.slow
def test_a_second_ctrl_c_ends_what_cannot_stop():
    process = start(
        "simulate", "syn-small", before="import interrupts; interrupts.compile_for_ever()"
    )
    assert process.stdout.readline() == "compiling\n"
    while process.poll() is None:  # two that come too close are one
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.2)
    assert process.returncode == app.INTERRUPTED
    assert last_line(process) == "attnlab: stopped at once"


IMPORTING = """
import contextlib, os
class Press:
    def find_spec(self, name, *_):
        if name == "typer":
            with contextlib.suppress({lost}):
                os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Press())
"""
COLLECTING = """
import gc, os, time
from attnlab.cli import app
def press(*_):
    gc.callbacks.clear()
    os.kill(os.getpid(), signal.SIGTERM)
def work(**_):
    gc.callbacks.append(press)
    gc.collect()
    time.sleep(600)
app.app = work
"""


@pytest.mark.parametrize(
    "before",
    [
        IMPORTING.format(lost=""),
        IMPORTING.format(lost="BaseException"),  # as in modules that are not Python's
        COLLECTING,  # where exceptions are lost too, and the signal is given again
    ],
    ids=["importing", "lost in an import", "lost in a collection"],
)
def test_ctrl_c_ends_the_command_during_imports_and_garbage_collection(before):
    process = start("simulate", "syn-small", before=before)
    assert last_line(process) == "attnlab: stopped"
    assert process.returncode == app.INTERRUPTED

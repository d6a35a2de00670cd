"""Odd surroundings: terminals, closed streams, deleted folders, devices that are not there."""

import os
import subprocess
import sys

import pytest

import attnlab

RUN = ["simulate", "syn-small", "--gradient", "population", "--steps", "10"]


def attnlab_in_a_shell(after="", cwd=None, **environment):
    """Run the command line by a shell, with redirections."""
    words = " ".join([sys.executable, "-m", "attnlab", *RUN, after])
    return subprocess.run(
        ["sh", "-c", words], cwd=cwd, env=os.environ | environment, capture_output=True, text=True
    )


@pytest.mark.slow
def test_closed_streams_take_no_number_of_a_file(tmp_path):
    done = attnlab_in_a_shell("--out run.nc <&- >&- 2>&-", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert attnlab.load(tmp_path / "run.nc").sizes["step"] == 11


@pytest.mark.slow
def test_a_terminal_without_an_arrow_gets_it_written_out(tmp_path):
    done = attnlab_in_a_shell("--out run.nc 2>&-", cwd=tmp_path, PYTHONIOENCODING="ascii")
    assert done.returncode == 0
    assert r"\u2192" in done.stdout
    assert attnlab.load(tmp_path / "run.nc").sizes["step"] == 11  # though stderr was closed


def test_a_working_directory_that_was_deleted(tmp_path):
    words = f"mkdir gone && cd gone && rmdir ../gone && {sys.executable} -m attnlab cite"
    done = subprocess.run(["sh", "-c", words], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2
    said = "attnlab: the working directory was deleted; change to another folder\n"
    assert said in done.stderr and "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cuda", "nonsense"])
def test_a_device_that_is_not_there(name):
    done = attnlab_in_a_shell(JAX_PLATFORMS=name)
    assert done.returncode == 2
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"attnlab: JAX_PLATFORMS: JAX cannot use '{name}' on this machine")
    assert last.endswith("; unset it, or install JAX for that device")

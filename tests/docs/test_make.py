"""./lab docs: replaces only what it made, and ends with all its processes on a signal."""

import importlib.util
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from attnlab.files.errors import InputError
from attnlab.files.folders import LIST

MAKE = Path(__file__).parents[2] / "docs" / "make.py"


@pytest.fixture
def make(tmp_path, monkeypatch):
    """docs/make.py with a site of two pages, whose n-th build says n."""
    spec = importlib.util.spec_from_file_location("make", MAKE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    built = []

    def sphinx(*arguments):
        built.append(arguments)
        out = Path(arguments[-1])
        (out / "guides").mkdir(parents=True)
        (out / "index.html").write_text(str(len(built)))
        (out / "guides" / f"page-{len(built)}.html").write_text("page")
        return 0

    monkeypatch.setattr(module, "_sphinx", sphinx)
    monkeypatch.setattr(module, "NOTEBOOKS", tmp_path / "clone" / "notebooks")
    return module


def snapshot(folder):
    return {str(p): p.read_bytes() if p.is_file() else None for p in sorted(folder.rglob("*"))}


def test_a_site_is_replaced_and_its_neighbours_stay(tmp_path, make):
    home = tmp_path / "home"
    (home / "notebooks" / "thesis").mkdir(parents=True)
    (home / "notebooks" / "thesis" / "a.ipynb").write_text("mine")
    before = snapshot(home)
    for n in (1, 2):
        assert make.build(home / "site") == 0
        assert (home / "site" / "index.html").read_text() == str(n)
    assert [path.name for path in (home / "site" / "guides").iterdir()] == ["page-2.html"]
    assert snapshot(home).items() >= before.items()
    assert sorted(path.name for path in home.iterdir()) == ["notebooks", "site"]


@pytest.mark.parametrize("name", ["CNAME", "guides/notes.md", ".git/config", "empty/"])
@pytest.mark.parametrize("own", [False, True])
def test_a_folder_with_something_else_in_it_is_refused(tmp_path, make, name, own):
    site = tmp_path / "site"
    if own:
        make.build(site)
    place = site / name
    place.parent.mkdir(parents=True, exist_ok=True)
    place.mkdir() if name.endswith("/") else place.write_text("mine")
    before = snapshot(site)
    with pytest.raises(InputError, match="give --out another folder"):
        make.build(site)
    assert snapshot(site) == before


def test_a_file_that_comes_while_it_builds_stays(tmp_path, make, monkeypatch):
    site, sphinx = tmp_path / "site", make._sphinx
    make.build(site)

    def slow(*arguments):
        (site / "CNAME").write_text("mine")
        return sphinx(*arguments)

    monkeypatch.setattr(make, "_sphinx", slow)
    with pytest.raises(InputError, match="CNAME"):
        make.build(site)
    assert (site / "CNAME").read_text() == "mine" and (site / "index.html").read_text() == "1"


def test_only_listed_outputs_of_notebooks_are_removed(tmp_path, make):
    kept = tmp_path / "clone" / "notebooks"
    for name in ("0123456789abcdef", "mine"):
        (kept / name).mkdir(parents=True)
    (kept / LIST).write_text("# attnlab\n0123456789abcdef\n../home\n")
    (tmp_path / "clone" / "home").mkdir()
    make.build(tmp_path / "site")
    assert not (kept / "0123456789abcdef").exists()
    assert (kept / "mine").is_dir() and (tmp_path / "clone" / "home").is_dir()


@pytest.mark.parametrize("port", ["99999", "-1", "x", "1.5"])
def test_a_port_that_cannot_be(port):
    done = subprocess.run(
        [sys.executable, MAKE, "--serve", "--port", port], capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "--port: expected" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_and_its_notebooks_within_three_seconds(tmp_path, number):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "conf.py").write_text("extensions = ['myst_nb']\n")
    (tmp_path / "docs" / "index.md").write_text(NOTEBOOK)
    script = f"import sys; sys.argv[0] = 'make'; sys.path.insert(0, {str(MAKE.parent)!r})\n" + RUN
    process = subprocess.Popen(
        [sys.executable, "-c", script, tmp_path / "docs", "--out", tmp_path / "site"],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "MARK": str(tmp_path / "begun")},
    )
    while not (tmp_path / "begun").exists():
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.05)
    started = psutil.Process(process.pid).children(recursive=True)
    assert len(started) >= 2  # Sphinx and a kernel
    sent = time.monotonic()
    process.send_signal(number)
    said = process.communicate()[1]
    _, left = psutil.wait_procs(started, timeout=3)
    assert time.monotonic() - sent < 3
    assert (process.returncode, left) == (130, [])
    assert said.endswith("docs: stopped\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["begun", "docs", "out"]


RUN = """
from pathlib import Path
import make
make.DOCS = Path(sys.argv.pop(1))
make.NOTEBOOKS = make.DOCS.parent / "out" / "notebooks"
make.main()
"""
NOTEBOOK = """---
jupytext: {text_representation: {format_name: myst}}
kernelspec: {name: python3, display_name: Python 3}
---
# Waits

```{code-cell}
import os, pathlib, time
pathlib.Path(os.environ["MARK"]).touch()
time.sleep(600)
```
"""

"""Papers installed as packages: a whole one, a broken one, an old one and a doubled one."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from made_papers import FIELDS

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
PROJECT = """
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"
[project]
name = "{name}"
version = "0.1"
[project.entry-points."attnlab.papers"]
{name} = "{name}"
[tool.setuptools]
packages = ["{name}"]
package-dir = {{ {name} = "." }}
[tool.setuptools.package-data]
{name} = ["*.yaml"]
"""


def made(place, name, **fields):
    """A paper with a project file, as an author would have it."""
    folder = place / name
    folder.mkdir()
    (folder / "__init__.py").write_text("raise RuntimeError('imported')\n")
    (folder / "paper.yaml").write_text(yaml.safe_dump({"name": name, **FIELDS, **fields}))
    (folder / "pyproject.toml").write_text(PROJECT.format(name=name))
    return folder


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Four papers, installed beside each other."""
    place = tmp_path_factory.mktemp("papers")
    unwanted = shutil.ignore_patterns("__pycache__", "build", "*.egg-info")
    own = shutil.copytree(ROOT / "examples" / "own_paper", place / "own_paper", ignore=unwanted)
    folders = [
        own,
        made(place, "broken_paper", year="long ago"),
        made(place, "old_paper", attnlab="<0.1"),
        made(place, "joma"),
    ]
    offline = ("--no-deps", "--no-index", "--no-build-isolation", "--quiet", "--no-compile")
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "install", *offline)
    subprocess.run([*pip, "--target", place / "site", *folders], check=True)
    return place / "site"


def run(site, *arguments, cwd, code=0):
    found = os.pathsep.join([str(site), *filter(None, sys.path)])
    environment = {**os.environ, "PYTHONPATH": found, "ATTNLAB_PAPERS": ""}
    done = subprocess.run(
        [sys.executable, "-m", "attnlab", *arguments],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == code, done.stderr + done.stdout
    return done


def test_installed_papers_are_listed_and_bad_ones_take_no_other_down(site, tmp_path):
    found = json.loads(run(site, "papers", "--json", cwd=tmp_path).stdout)
    names = [row["name"] for row in found["papers"]]
    assert {"own_paper", "joma", "scan_and_snap"} <= set(names) and len(set(names)) == len(names)
    (own,) = [row for row in found["papers"] if row["name"] == "own_paper"]
    assert Path(own["folder"]) == site / "own_paper" and own["claims"] == {"holds": 2}
    reasons = {fault["name"]: fault["reason"] for fault in found["faults"]}
    assert set(reasons) == {"broken_paper", "old_paper", "joma"}
    assert "year: expected a whole number, got 'long ago'" in reasons["broken_paper"]
    assert "attnlab: needs <0.1, this is" in reasons["old_paper"]
    assert "has this name too; rename one of them" in reasons["joma"]


def test_an_installed_paper_fulfils_what_is_asked(site, tmp_path):
    found = json.loads(run(site, "check-paper", "own_paper", "--json", cwd=tmp_path).stdout)
    assert {of["standing"] for of in found["outcomes"]} == {"passed"}


def test_a_bad_paper_is_refused_with_its_reason(site, tmp_path):
    refused = run(site, "check-paper", "old_paper", cwd=tmp_path, code=2)
    assert (
        "paper: 'old_paper' cannot be used: " in refused.stderr and "needs <0.1" in refused.stderr
    )


def test_its_figure_is_reproduced(site, tmp_path):
    found = json.loads(run(site, "reproduce", "own_paper", "--json", cwd=tmp_path).stdout)
    assert [part["name"] for part in found["parts"]] == ["own_paper/early"]
    assert list(tmp_path.rglob("early.png"))

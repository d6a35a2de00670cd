"""The wheel is all that a user needs: what is installed from it runs in any folder."""

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import yaml
from packaging.metadata import Metadata

import attnlab

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The source distribution, and the wheel built from it alone, as by `python -m build`."""
    place = tmp_path_factory.mktemp("dist")
    clone = place / "clone"
    for folder in ("src", "recipes", "examples/own_paper"):
        unwanted = shutil.ignore_patterns("__pycache__", "*.egg-info")
        shutil.copytree(ROOT / folder, clone / folder, ignore=unwanted)
    for file in (path for path in ROOT.iterdir() if path.is_file()):
        shutil.copy(file, clone)
    build(clone, "sdist")
    shutil.rmtree(clone)
    (source,) = place.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        archive.extractall(place, filter="data")
    (unpacked,) = (path for path in place.iterdir() if path.is_dir())
    build(unpacked, "wheel")
    shutil.rmtree(unpacked)
    (wheel,) = place.glob("*.whl")
    return wheel, source


def build(folder, kind):
    code = f"from setuptools import build_meta; build_meta.build_{kind}('..')"
    subprocess.run([sys.executable, "-c", code], cwd=folder, check=True, capture_output=True)


def run(site, *command, cwd):
    environment = {**os.environ, "PYTHONPATH": str(site)}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def data_files(folder):
    found = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder) for path in found if path.suffix not in (".py", ".pyc")}


def test_what_is_installed_is_whole_and_finds_its_recipes(built, tmp_path):
    site = tmp_path / "site"
    offline = ("--no-deps", "--no-index", "--quiet", "--no-compile")
    subprocess.run([*PIP, "install", *offline, "--target", site, built[0]], check=True)
    assert data_files(site / "attnlab" / "recipes") == data_files(ROOT / "recipes")
    assert data_files(site / "attnlab" / "own_paper") == data_files(ROOT / "examples" / "own_paper")
    beside = ("recipes", "own_paper")
    inside = {path for path in data_files(site / "attnlab") if path.parts[0] not in beside}
    assert inside == data_files(ROOT / "src" / "attnlab")

    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    code = (
        "import attnlab, attnlab.experiments as f; print(f.recipe_for('fig2').figure, f.__file__)"
    )
    figure, module = run(site, sys.executable, "-c", code, cwd=elsewhere).split()
    assert figure == "fig2"
    assert Path(module).is_relative_to(site)
    plan = run(
        site,
        site / "bin" / "attnlab",
        "sweep",
        "scan_and_snap/fig6",
        "--dry-run",
        "--json",
        cwd=elsewhere,
    )
    assert json.loads(plan)["runs"] == 640
    run(site, site / "bin" / "attnlab", "new-paper", "my_paper", cwd=elsewhere)
    assert data_files(elsewhere / "my_paper") == data_files(ROOT / "examples" / "own_paper")


def test_one_version_everywhere():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    newest = re.search(r"^## (\d\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert {citation["version"], newest[1]} == {attnlab.__version__}


def test_the_source_distribution_is_whole_and_says_what_it_is(built):
    with tarfile.open(built[1]) as archive:
        names = {"/".join(name.split("/")[1:]) for name in archive.getnames()}
        (about,) = (n for n in archive.getnames() if n.count("/") == 1 and n.endswith("PKG-INFO"))
        described = Metadata.from_email(archive.extractfile(about).read(), validate=True)
    assert (described.name, str(described.version)) == ("attnlab", attnlab.__version__)
    assert described.description.startswith("# attnlab")
    assert described.description_content_type == "text/markdown"
    for folder in (Path("src/attnlab"), Path("recipes"), Path("examples/own_paper")):
        assert {str(folder / name) for name in data_files(ROOT / folder)} <= names

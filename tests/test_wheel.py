"""The wheel is all that a user needs: what is installed from it runs in any folder."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")


def install_wheel(place):
    """The folder into which the wheel is installed, with nothing of the clone in reach."""
    clone = place / "clone"  # building leaves things behind
    for folder in ("src", "recipes"):
        unwanted = shutil.ignore_patterns("__pycache__", "*.egg-info")
        shutil.copytree(ROOT / folder, clone / folder, ignore=unwanted)
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, clone)
    offline = ("--no-deps", "--no-index", "--quiet")
    build = (*PIP, "wheel", *offline, "--no-build-isolation", "--wheel-dir", place, clone)
    subprocess.run(build, check=True)
    (wheel,) = place.glob("*.whl")
    install = (*PIP, "install", *offline, "--no-compile", "--target", place / "site", wheel)
    subprocess.run(install, check=True)
    shutil.rmtree(clone)
    return place / "site"


def run(site, *command, cwd):
    environment = {**os.environ, "PYTHONPATH": str(site)}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def data_files(folder):
    found = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder) for path in found if path.suffix not in (".py", ".pyc")}


def test_what_is_installed_is_whole_and_finds_its_recipes(tmp_path):
    site = install_wheel(tmp_path)
    assert data_files(site / "attnlab" / "recipes") == data_files(ROOT / "recipes")
    inside = {path for path in data_files(site / "attnlab") if path.parts[0] != "recipes"}
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
        site, site / "bin" / "attnlab", "sweep", "recipes/fig6.yaml", "--dry-run", "--json",
        cwd=elsewhere,
    )  # fmt: skip
    assert json.loads(plan)["runs"] == 640

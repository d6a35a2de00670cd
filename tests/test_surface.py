"""What is public: the names that attnlab and its folders list, and nothing beside them.

tests/surface.txt has them all, a line each, so that a change of the surface is seen as one.
`./lab python tests/test_surface.py` writes it anew.
"""

import inspect
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import attnlab

ROOT = Path(__file__).parents[1]
LIST = ROOT / "tests" / "surface.txt"
FOLDERS = (
    "attnlab",
    "attnlab.auditing",
    "attnlab.authoring",
    "attnlab.experiments",
    "attnlab.formulas",
    "attnlab.measures",
    "attnlab.models",
    "attnlab.observing",
    "attnlab.papers.joma.theory",
    "attnlab.papers.scan_and_snap.theory",
    "attnlab.playground",
    "attnlab.plots",
    "attnlab.report",
    "attnlab.shelf",
    "attnlab.simulation",
    "attnlab.sweeping",
    "attnlab.tasks",
    "attnlab.tasks.classes",
    "attnlab.tasks.text",
    "attnlab.theory",
)
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs" / "guides").glob("*.md")),
    *sorted((ROOT / "docs").glob("*.md")),
]
UNTYPED = {"errata.md"}  # hands whole settings over as **dict, which mypy takes to be of one type


def surface():
    names = [f"{folder}.{name}" for folder in FOLDERS for name in import_module(folder).__all__]
    return "".join(f"{name}\n" for name in sorted(names))


def test_the_surface_is_the_one_on_record():
    recorded, found = (set(text.split()) for text in (LIST.read_text(), surface()))
    assert found == recorded, (
        f"new: {sorted(found - recorded)}; gone: {sorted(recorded - found)}; if that is meant, "
        "./lab python tests/test_surface.py writes the new list"
    )
    assert LIST.read_text() == surface()  # sorted, and each name once


def test_what_is_public_is_there_and_explained():
    for folder in FOLDERS:
        module = import_module(folder)
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.isclass(value) or inspect.isroutine(value):
                assert value.__doc__, f"{folder}.{name}"


def test_what_a_folder_does_not_list_is_private_by_name():
    for folder in FOLDERS:
        module = import_module(folder)
        others = {
            name
            for name, value in vars(module).items()
            if getattr(value, "__module__", "").startswith("attnlab")
            and not isinstance(value, ModuleType)
        }
        assert not {name for name in others - {*module.__all__} if not name.startswith("_")}, folder


def test_names_that_are_loaded_when_used_are_listed():
    assert dir(attnlab) == sorted(attnlab.__all__)
    assert attnlab.__version__


@pytest.mark.slow
def test_the_code_of_readme_and_guides_has_the_types_that_it_runs_with(tmp_path):
    """As quick as mypy's cache of the sources is warm, which `./lab test` sees to."""
    for page in PAGES:
        blocks = re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)
        if blocks and page.name not in UNTYPED:
            # the blocks of a page are read one after the other
            name = f"{page.stem.replace('-', '_').lower()}_page.py"
            (tmp_path / name).write_text("\n".join(blocks))
    values = (
        'attnlab.Simulation("syn-small", motion=attnlab.Steps(10, optimizer="adam"))',
        'attnlab.simulate("syn-small", optimizer="adam", steps=10)',
    )
    (tmp_path / "values.py").write_text("\n".join(("import attnlab", *values)))
    pages = sorted(tmp_path.iterdir())
    assert len(pages) > 5
    mypy = (sys.executable, "-m", "mypy", *pages)
    done = subprocess.run(mypy, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


if __name__ == "__main__":
    LIST.write_text(surface())

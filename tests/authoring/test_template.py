"""A new paper is the example under another name, and fulfils what is asked of one."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from attnlab.authoring import examine, new_paper, requirements
from attnlab.files.errors import InputError
from attnlab.files.shipped import template_folder
from attnlab.shelf import VARIABLE, add_folder


def code_lines(path):
    """Lines with something else than a comment or a docstring."""
    lines = [
        line for line in path.read_text().split("\n") if line.strip() and line.strip()[0] != "#"
    ]
    if path.suffix != ".py":
        return len(lines)
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    tree = ast.walk(ast.parse(path.read_text()))
    docstrings = [
        ast.get_docstring(node, clean=False) for node in tree if isinstance(node, documented)
    ]
    return len(lines) - sum(
        len([1 for line in text.split("\n") if line.strip()]) for text in docstrings if text
    )


def test_the_example_is_small():
    files = [
        path for path in template_folder().rglob("*") if path.suffix in (".py", ".yaml", ".toml")
    ]
    assert sum(map(code_lines, files)) < 120


@pytest.mark.slow
def test_it_fulfils_what_is_asked(tmp_path, monkeypatch):
    """The example itself does when it is installed: tests/test_own_paper.py."""
    monkeypatch.setenv(VARIABLE, "")  # which is put back
    folder = new_paper("fresh_paper", out=tmp_path)
    outcomes = [examine(of) for of in requirements(add_folder(folder))]
    assert {of.standing for of in outcomes} == {"passed"}, [of for of in outcomes if not of.passed]
    assert len(outcomes) == 15


def test_every_name_is_the_new_one(tmp_path):
    folder = new_paper("next_paper", out=tmp_path)
    assert folder == tmp_path / "next_paper"
    texts = [path.read_text() for path in folder.rglob("*") if path.is_file()]
    assert not any(
        word in text for text in texts for word in ("own_paper", "own-paper", "Own Paper")
    )
    inside = {path.relative_to(folder) for path in folder.rglob("*")}
    suffixes = {path.suffix for path in inside} - {""}
    assert suffixes == {".py", ".yaml", ".json", ".md", ".toml"}
    assert "short: Next Paper" in (folder / "paper.yaml").read_text()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("My-Paper", "expected lower-case words with _ between them"),
        ("class", "expected lower-case words"),
        ("../up", "expected lower-case words"),
        ("json", "a Python module is called 'json'"),
        ("scan_and_snap", "is the name of a known paper"),
        ("there", "is there already; give another folder"),
    ],
)
def test_names_that_cannot_be(name, words, tmp_path):
    (tmp_path / "there").mkdir()
    with pytest.raises(InputError, match=words):
        new_paper(name, out=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


@pytest.mark.slow
def test_its_authors_can_test_it(tmp_path):
    folder = new_paper("tested_paper", out=tmp_path)
    (tmp_path / "test_it.py").write_text(
        "import pytest\nfrom attnlab.authoring import requirements\nfrom attnlab.shelf import "
        f"add_folder\nASKED = requirements(add_folder({str(folder)!r}), verdicts=False)\n"
        "@pytest.mark.parametrize('requirement', ASKED, ids=str)\n"
        "def test_the_paper(requirement):\n    requirement()\n"
    )
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-k",
            "reference",
            "test_it.py",
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0 and "3 passed" in done.stdout, done.stdout
    assert Path(folder).is_dir()

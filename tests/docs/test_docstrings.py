"""Docstrings are the reference: their examples run, and they name all that a caller can give."""

import doctest
import inspect
import pydoc
import re
from importlib import import_module
from pathlib import Path

import pytest

from attnlab.papers.scan_and_snap import theory

SURFACE = (Path(__file__).parents[1] / "surface.txt").read_text().split()
SECTION = r"^{}\n-+\n(.*?)(?=^\w[\w ]*\n-{{3,}}\n|\Z)"


def public():
    """Every function and class that a folder lists, by where it is at home."""
    found = {}
    for folder, _, name in (full.rpartition(".") for full in SURFACE):
        value = getattr(import_module(folder or "attnlab"), name)
        if inspect.isroutine(value) or inspect.isclass(value):
            found[f"{value.__module__}.{value.__qualname__}"] = value
    return found


PUBLIC = public()
FUNCTIONS = {name: value for name, value in PUBLIC.items() if inspect.isroutine(value)}
HOMES = sorted({name.split(".")[1] for name in PUBLIC})


def listed(doc, section):
    """The names in a section of a docstring, without their types."""
    (text,) = re.findall(SECTION.format(section), doc, re.DOTALL | re.MULTILINE) or [""]
    heads = re.findall(r"^(\S.*)$", text, re.MULTILINE)
    return [name.strip(" *") for head in heads for name in head.split(" : ")[0].split(",")]


def undescribed(function):
    """The parameters of a function that its docstring does not name, and those it makes up."""
    given = [name for name in inspect.signature(function).parameters if name != "self"]
    return sorted({*given} ^ {*listed(inspect.getdoc(function) or "", "Parameters")})


def test_a_parameter_that_is_not_described_is_seen():
    def f(a, *, b=1):
        """Say.

        Parameters
        ----------
        a : int
            It.
        c
            Made up.

        Returns
        -------
        b
        """

    assert undescribed(f) == ["b", "c"]


def test_every_parameter_of_a_public_function_is_described():
    assert len(FUNCTIONS) > 150
    assert {name: undescribed(of) for name, of in FUNCTIONS.items() if undescribed(of)} == {}


def test_every_formula_has_an_example():
    formulas = [name for name in FUNCTIONS if name.startswith("attnlab.theory.")]
    assert len(formulas) > 70
    assert [name for name in formulas if ">>>" not in FUNCTIONS[name].__doc__] == []


@pytest.mark.parametrize("home", HOMES)
def test_the_examples_in_docstrings_run(home, tmp_path, monkeypatch):
    if home == "observe":
        pytest.importorskip("torch", reason="no torch here: pip install 'attnlab[observe]'")
    monkeypatch.chdir(tmp_path)
    finder, runner = doctest.DocTestFinder(recurse=False), doctest.DocTestRunner(verbose=False)
    for name, value in PUBLIC.items():
        if name.startswith(f"attnlab.{home}."):
            for test in finder.find(value, name, globs={}):
                runner.run(test)
    assert runner.summarize(verbose=False).failed == 0


def test_help_shows_readable_types():
    text = pydoc.render_doc(theory.h, renderer=pydoc.plaintext).replace("'", "")
    assert "h(t: ArrayLike, *, M: ArrayLike, eta_y: ArrayLike) -> FloatArray" in text
    assert max(map(len, text.splitlines())) <= 100
    for name, of in FUNCTIONS.items():
        assert "numpy._typing" not in str(inspect.signature(of)), name

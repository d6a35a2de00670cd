"""Docstrings are the reference: their examples run, and they name all that a caller can give."""

import doctest
import inspect
import pydoc
import re
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from attnlab.formulas import Setting
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
# Symbols of formulas are explained by their folders, whose names the examples take as imported.
FORMULA = re.compile(r"(attnlab\.formulas|attnlab\.papers\.\w+\.theory)\.")
HOMES = sorted({name.split(".")[1] for name in PUBLIC})


def listed(doc, section):
    """The names in a section of a docstring, without their types."""
    (text,) = re.findall(SECTION.format(section), doc, re.DOTALL | re.MULTILINE) or [""]
    heads = re.findall(r"^(\S.*)$", text, re.MULTILINE)
    return [name.strip(" *") for head in heads for name in head.split(" : ")[0].split(",")]


def symbols(name):
    """The symbols that are explained for a formula: in its folder, and in that of all formulas."""
    folders = {found[1], "attnlab.formulas"} if (found := FORMULA.match(name)) else set()
    return {of for folder in folders for of in listed(import_module(folder).__doc__, "Symbols")}


def undescribed(function, shared=frozenset()):
    """The parameters of a function that no docstring explains, and those that its own makes up."""
    given = {name for name in inspect.signature(function).parameters if name != "self"}
    described = {*listed(inspect.getdoc(function) or "", "Parameters")}
    return sorted((given - described - shared) | (described - given))


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
    assert undescribed(f, {"b", "c"}) == ["c"]


def test_every_parameter_of_a_public_function_is_described():
    assert len(FUNCTIONS) > 150
    missing = {name: undescribed(of, symbols(name)) for name, of in FUNCTIONS.items()}
    assert {name: found for name, found in missing.items() if found} == {}


def test_every_symbol_is_one_of_a_formula():
    formulas = [
        (FORMULA.match(name)[1], of) for name, of in FUNCTIONS.items() if FORMULA.match(name)
    ]
    for folder in {folder for folder, _ in formulas}:
        taken = [inspect.signature(of).parameters for home, of in formulas if home == folder]
        assert [
            of
            for of in listed(import_module(folder).__doc__, "Symbols")
            if not any(of in given for given in taken)
        ] == []


def test_every_formula_has_an_example():
    formulas = [name for name in FUNCTIONS if FORMULA.match(name)]
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
            globs = {}
            if found := FORMULA.match(name):
                folder = import_module(found[1])
                named = {of: getattr(folder, of) for of in folder.__all__}
                globs = {"np": np, "Setting": Setting, **named}
            for test in finder.find(value, name, globs=globs):
                runner.run(test)
    assert runner.summarize(verbose=False).failed == 0


def test_help_shows_readable_types():
    text = pydoc.render_doc(theory.h, renderer=pydoc.plaintext).replace("'", "")
    assert "h(t: ArrayLike, *, M: ArrayLike, eta_y: ArrayLike) -> FloatArray" in text
    assert max(map(len, text.splitlines())) <= 100
    for name, of in FUNCTIONS.items():
        assert "numpy._typing" not in str(inspect.signature(of)), name

"""Docstrings are the reference: their examples run, and they name all that a caller can give."""

import doctest
import inspect
import pydoc
import re
from importlib import import_module
from pathlib import Path

import pytest

from attnlab import theory

FOLDERS = ["attnlab.theory"]
SURFACE = (Path(__file__).parents[1] / "surface.txt").read_text().split()
SECTION = r"^{}\n-+\n(.*?)(?=^\w[\w ]*\n-{{3,}}\n|\Z)"


def public(folder):
    """The functions and classes that a folder lists, by name."""
    named = [name.removeprefix(f"{folder}.") for name in SURFACE if name.startswith(f"{folder}.")]
    values = {name: getattr(import_module(folder), name) for name in named if "." not in name}
    return {name: of for name, of in values.items() if inspect.isroutine(of) or inspect.isclass(of)}


def listed(doc, section):
    """The names in a section of a docstring, without their types."""
    (text,) = re.findall(SECTION.format(section), doc, re.DOTALL | re.MULTILINE) or [""]
    heads = re.findall(r"^(\S.*)$", text, re.MULTILINE)
    return [name.strip(" *") for head in heads for name in head.split(" : ")[0].split(",")]


def undescribed(function):
    """The parameters of a function that its docstring does not name, and those it makes up."""
    given = [name for name in inspect.signature(function).parameters if name != "self"]
    return sorted({*given} ^ {*listed(inspect.getdoc(function) or "", "Parameters")})


FUNCTIONS = {
    f"{folder}.{name}": of
    for folder in FOLDERS
    for name, of in public(folder).items()
    if inspect.isroutine(of)
}


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
    assert len(FUNCTIONS) > 70
    assert {name: undescribed(of) for name, of in FUNCTIONS.items() if undescribed(of)} == {}


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_examples_in_docstrings_run(folder):
    finder, runner = doctest.DocTestFinder(recurse=False), doctest.DocTestRunner(verbose=False)
    found = [
        test
        for name, of in public(folder).items()
        for test in finder.find(of, f"{folder}.{name}", globs={})
    ]
    for test in found:
        runner.run(test)
    assert runner.summarize(verbose=False).failed == 0
    assert runner.tries > len(public(folder)) / 2


def test_help_shows_readable_types():
    text = pydoc.render_doc(theory.h, renderer=pydoc.plaintext).replace("'", "")
    assert "h(t: ArrayLike, *, M: ArrayLike, eta_y: ArrayLike) -> FloatArray" in text
    assert max(map(len, text.splitlines())) <= 100
    for name, of in FUNCTIONS.items():
        assert "numpy._typing" not in str(inspect.signature(of)), name

"""Formulas and papers' theories import numpy and scipy alone, and no simulator."""

import ast
from pathlib import Path

import pytest

import attnlab
from attnlab import shelf

SOURCE = Path(attnlab.__file__).parent
PAPERS = [paper.name for paper in shelf.shelf().papers if paper.package.startswith("attnlab.")]
ALLOWED = {
    "numpy",
    "scipy",
    "math",
    "__future__",
    "collections",
    "typing",
    "dataclasses",
    "functools",
    "itertools",
    "lazy_loader",  # the names of __init__.pyi
}


@pytest.mark.parametrize("name", ["", *PAPERS])
def test_theory_imports_numpy_scipy_and_earlier_theory_alone(name):
    folder = SOURCE / "papers" / name / "theory" if name else SOURCE / "formulas"
    earlier = PAPERS[: PAPERS.index(name) + 1] if name else []
    own = ("attnlab.formulas", "attnlab.files.errors", *(f"attnlab.papers.{p}" for p in earlier))
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level != 1:  # not of this folder
                names = [node.module or ""]
            for module in names:
                inside = module.startswith(own) and module.split(".")[3:4] in ([], ["theory"])
                assert inside or module.split(".")[0] in ALLOWED, f"{path}: {module}"


@pytest.mark.parametrize("name", PAPERS)
def test_a_paper_imports_no_later_paper(name):
    later = {f"attnlab.papers.{p}" for p in PAPERS[PAPERS.index(name) + 1 :]}
    for path in (SOURCE / "papers" / name).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:
                assert ".".join(node.module.split(".")[:3]) not in later, path

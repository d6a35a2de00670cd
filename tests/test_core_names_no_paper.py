"""The core names no paper, theorem or figure: not in identifiers, strings, imports or templates.

A docstring may cite its source. The page of the playground may name papers as data.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import attnlab
from attnlab.shelf import offered, shelf

SOURCE = Path(attnlab.__file__).parent
FOLDERS = sorted(
    path.name
    for path in SOURCE.iterdir()
    if (path / "__init__.py").exists() and path.name != "papers"
)
# Numbered statements, equations, sections and figures of a source.
NUMBERED = re.compile(
    r"(?i:(?<![a-z])(theorem|lemma|corollary|remark|proposition|assumption|claim|section|"
    r"appendix|table|equation|eq|figure|fig)s?\.?[ _-]?\(?[0-9])|\bAppendi(x|ces) [A-Z]\b"
)


def names_of_papers() -> re.Pattern[str]:
    """Match papers by name, title and authors, and what they offer under a name of its own.

    Ordinary words among what is offered (heads, symmetric, sgd) are not telling; names with a
    hyphen, an underscore or a digit are.
    """
    papers = [paper for paper in shelf().papers if paper.reading != "ours"]
    words = {paper.name for paper in papers} | {paper.short for paper in papers}
    words |= {paper.title.partition(":")[0] for paper in papers}
    loose = {re.sub(r"[ _]", "[ _-]?", re.escape(word).replace("\\ ", " ")) for word in words}
    offers = {name.rpartition("/")[2] for kind in shelf().offers.values() for name in kind}
    telling = {re.escape(name) for name in offers if re.search(r"[-_0-9]", name)}
    surnames = {
        name for paper in papers for name in re.split(r",\s*|\s+and\s+", paper.authors) if name
    }
    anywhere = "|".join(sorted(loose))
    whole = "|".join(sorted(telling | surnames))
    return re.compile(rf"(?i:{anywhere})|(?<![A-Za-z])({whole})(?![A-Za-z0-9])")


def code_of_papers() -> set[str]:
    """Return the names, in their code, of the papers' theories, models and presets."""
    offers = shelf().offers
    kinds = (offers["theories"], offers["models"], offers["presets"])
    return {found.target.rpartition(":")[2] for kind in kinds for found in kind.values()}


def docstrings(tree: ast.AST) -> set[int]:
    """Return the ids of all strings that stand alone, as docstrings do."""
    return {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }


def words_of(path: Path) -> Iterator[tuple[int, str, bool]]:
    """Yield (line, text, whether it is an identifier) of a Python file."""
    tree = ast.parse(path.read_text())
    skipped = docstrings(tree)
    for node in ast.walk(tree):
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if id(node) not in skipped:
                yield line, node.value, False
        elif isinstance(node, ast.Name):
            yield line, node.id, True
        elif isinstance(node, ast.Attribute):
            yield line, node.attr, True
        elif isinstance(node, ast.arg | ast.keyword) and node.arg:
            yield line, node.arg, True
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield line, node.name, True
        elif isinstance(node, ast.alias):
            yield line, node.asname or node.name, True
            yield line, node.name, True
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield line, node.module, True


def found_in(folder: Path, *, deep: bool = True) -> list[str]:
    """Return where the Python files and templates of a folder name a paper."""
    named, code = names_of_papers(), code_of_papers()
    found = []
    for path in sorted(folder.rglob("*.py") if deep else folder.glob("*.py*")):
        where = path.relative_to(SOURCE)
        for part in where.with_suffix("").parts:
            if named.search(part) or NUMBERED.search(part):
                found.append(f"{where}: the file's name")
        for line, text, identifier in words_of(path):
            match = named.search(text) or NUMBERED.search(text)
            if match is not None:
                found.append(f"{where}:{line}: {match.group()!r} in {text[:60]!r}")
            elif identifier and (text in code or text.startswith("attnlab.papers.")):
                found.append(f"{where}:{line}: {text}")
    for path in sorted(folder.glob("*.html")):
        for match in (*named.finditer(path.read_text()), *NUMBERED.finditer(path.read_text())):
            found.append(f"{path.relative_to(SOURCE)}: {match.group()!r}")
    return found


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_of_the_core_names_no_paper(folder: str) -> None:
    found = found_in(SOURCE / folder)
    assert not found, "\n".join(found)


def test_the_package_itself_names_no_paper() -> None:
    found = found_in(SOURCE, deep=False)
    assert not found, "\n".join(found)


def test_no_theory_of_a_paper_is_asked_for_by_name() -> None:
    """Their names may be ordinary words: what is given for `theory` is looked at."""
    names = set(offered("theories"))
    for folder in FOLDERS:
        for path in sorted((SOURCE / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                given = []
                if isinstance(node, ast.keyword) and node.arg == "theory":
                    given = [node.value]
                elif isinstance(node, ast.FunctionDef):
                    given = theory_defaults(node.args)
                for value in given:
                    text = value.value if isinstance(value, ast.Constant) else None
                    assert text not in names, f"{path.relative_to(SOURCE)}:{value.lineno}: {text}"


def theory_defaults(arguments: ast.arguments) -> list[ast.expr]:
    """Return the default of an argument that is called `theory`."""
    plain = [*arguments.posonlyargs, *arguments.args]
    pairs = [
        *zip(plain[len(plain) - len(arguments.defaults) :], arguments.defaults, strict=True),
        *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
    ]
    return [value for name, value in pairs if name.arg == "theory" and value is not None]


@pytest.mark.parametrize(
    "text",
    [
        "Theorem 2",
        "theorem_2",
        "Lemma 6",
        "Eq. 10",
        "eq10",
        "Section 7",
        "Appendix D",
        "Fig. 4",
        "fig6",
        "Figs. 6",
        "recipes/fig6.yaml",
        "claim 3",
        "Assumption 1c",
        "Corollary 1",
    ],
)
def test_numbered_statements_are_found(text: str) -> None:
    assert NUMBERED.search(text)


@pytest.mark.parametrize("text", ["theorem_map", "claims", "config1", "assumption_value", "figure"])
def test_other_words_are_not(text: str) -> None:
    assert not NUMBERED.search(text)
    assert not names_of_papers().search(text)


@pytest.mark.parametrize(
    "text", ["joma_erf", "JoMA: ", "scan_and_snap", "scan and snap", "Tian et al.", "syn-small"]
)
def test_papers_and_what_they_offer_are_found(text: str) -> None:
    assert names_of_papers().search(text)

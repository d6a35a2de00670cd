"""Papers: what `paper.yaml` describes, references into their code, and where papers are found.

Code is imported from a plain folder too, which no import path leads to.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import math
import os
import re
import sys
import traceback
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from importlib import metadata
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, get_args

import attnlab
from attnlab.files.atomic import write_text
from attnlab.files.documents import check_keys, did_you_mean, nearest, read_document, shown, within
from attnlab.files.errors import InputError
from attnlab.files.memory import size_words
from attnlab.files.recipe import as_value

Offer = Literal["theories", "tasks", "models", "presets", "figures"]
Single = Literal["agreement", "expectation", "commentary", "maps", "opening"]

GROUP = "attnlab.papers"  # of entry points
BUILT_IN = Path(__file__).resolve().parents[1] / "papers"
# How to cite attnlab itself; a paper's entry is `Paper.citation`.
ATTNLAB_BIBTEX = f"""\
@software{{attnlab,
  title   = {{attnlab: a test bench for theories of how attention learns}},
  author  = {{{{The attnlab developers}}}},
  version = {{{attnlab.__version__}}},
  year    = {{2026}},
}}"""

MANIFEST, EXPECTED = "paper.yaml", "expected.json"
MAX_MANIFEST, MAX_EXPECTED = 1_000_000, 20_000_000  # bytes
CLOSE = 5e-3  # relative difference of numbers that count as the same on record
OFFERS, SINGLES = get_args(Offer), get_args(Single)
NOUNS = dict(zip(OFFERS, ("theory", "task", "model", "preset", "figure"), strict=True))
VARIABLE = "ATTNLAB_PAPERS"  # plain folders; child processes inherit it

_PACKAGE = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_NAME = re.compile(r"[a-z][a-z0-9_]*")
# no slash or colon: "paper/figure", "name:k=v"
_OFFERED = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)
_TARGET = re.compile(rf"{_MODULE.pattern}:[A-Za-z_]\w*", re.ASCII)


def import_from(folder: Path, package: str, module: str) -> ModuleType:
    """Import `module`, which is relative to `package`, the package in `folder`.

    Raises what the code raises, and ImportError if `package` was imported from another folder.
    """
    find_plain_folders()
    found = importlib.import_module(package)
    if not same_folder(os.path.dirname(found.__file__ or ""), folder):
        raise ImportError(f"{package} is already imported, from {found.__file__}; rename one")
    return importlib.import_module(f"{package}.{module}")


def folder_of(package: str) -> Path | None:
    """Return the folder of a top-level package without importing it; None if there is none.

    A module that is not a package gives its file, or its name where it has no file.
    """
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):  # a module that was put together by hand has no spec
        return Path(package)
    if spec is None:
        return None
    places = list(spec.submodule_search_locations or ())
    return Path(places[0] if places else spec.origin or package)


def failure(error: BaseException, folder: Path) -> str:
    """Return an error in words, after the lines in `folder` that led to it.

    As in "predict.py:3: theory.py:12: NameError: ..."; without lines where none did.
    """
    reason = error.msg if isinstance(error, SyntaxError) else str(error)
    return f"{lines_in(error, folder)}{type(error).__name__}: {reason}"


def lines_in(error: BaseException, folder: Path) -> str:
    """Return the lines in `folder` that led to an error, as "predict.py:3: theory.py:12: "."""
    places = [(of.filename, of.lineno) for of in traceback.extract_tb(error.__traceback__)]
    if isinstance(error, SyntaxError) and error.filename:
        places.append((error.filename, error.lineno))
    inside = [(Path(file), line) for file, line in places if Path(file).is_relative_to(folder)]
    return "".join(f"{file.relative_to(folder)}:{line}: " for file, line in inside)


@contextmanager
def naming(paper: Paper | None) -> Iterator[None]:
    """Add a note to exceptions of a paper's code: the paper's name and the lines in its folder."""
    try:
        yield
    except Exception as error:
        if paper is not None:
            error.add_note(f"in paper {paper.name}: {failure(error, paper.folder)}")
        raise


def same_folder(one: str | os.PathLike[str], other: str | os.PathLike[str]) -> bool:
    """Check whether two paths lead to the same folder."""
    return os.path.realpath(one) == os.path.realpath(other)


def plain_folders() -> list[Path]:
    """Return the folders that the environment names."""
    texts = os.environ.get(VARIABLE, "").split(os.pathsep)
    return [Path(text).resolve() for text in texts if text]


def find_plain_folders() -> None:
    """Make the packages in plain folders importable, after everything else.

    Their parents are not put on `sys.path`: all neighbours of a folder would become importable.
    """
    if _PlainFolders not in sys.meta_path:
        sys.meta_path.append(_PlainFolders)


class _PlainFolders:
    """Finder of the packages in plain folders."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        for folder in plain_folders():
            start = folder / "__init__.py"
            if folder.name == name and start.is_file():
                return importlib.util.spec_from_file_location(
                    name, start, submodule_search_locations=[str(folder)]
                )
        return None


if os.environ.get(VARIABLE):  # a worker process is sent values of a paper's classes
    find_plain_folders()


@dataclass(frozen=True, kw_only=True)
class Section:
    """A section of a paper's claims.

    section: its heading. modules: the modules of its claims, relative to the paper's package. of:
    the author of the statements.
    """

    section: str
    modules: tuple[str, ...]
    of: str = "the paper"

    def __post_init__(self) -> None:
        for i, module in enumerate(self.modules):
            if not _MODULE.fullmatch(module):
                raise InputError(
                    f"modules[{i}]: expected a module such as claims.model, got {shown(module)}"
                )


@dataclass(frozen=True, kw_only=True)
class _Manifest:
    """The fields of `paper.yaml`; its types are the schema."""

    name: str
    title: str
    short: str
    authors: str
    year: int
    question: str
    reading: Literal["printed text", "as we know it", "ours"]
    attnlab: str
    venue: str = ""
    doi: str | None = None
    arxiv: str | None = None
    bibtex: str | None = None
    theories: dict[str, str] = field(default_factory=dict, hash=False)
    tasks: dict[str, str] = field(default_factory=dict, hash=False)
    models: dict[str, str] = field(default_factory=dict, hash=False)
    presets: dict[str, str] = field(default_factory=dict, hash=False)
    figures: dict[str, str] = field(default_factory=dict, hash=False)
    claims: tuple[Section, ...] = ()
    page: str | None = None
    agreement: str | None = None
    expectation: str | None = None
    commentary: str | None = None
    maps: str | None = None
    opening: str | None = None

    def __post_init__(self) -> None:
        from packaging.specifiers import InvalidSpecifier, SpecifierSet

        if not _NAME.fullmatch(self.name):
            raise InputError(
                f"name: expected lower-case letters, digits and _, got {shown(self.name)}"
            )
        for key in ("title", "short", "authors", "question", "attnlab"):
            if not getattr(self, key).strip():
                raise InputError(f"{key}: expected text, got none; write it")
        try:
            SpecifierSet(self.attnlab)
        except InvalidSpecifier:
            raise InputError(
                f'attnlab: expected versions such as ">=0.1,<1", got {shown(self.attnlab)}'
            ) from None
        if not 1 <= self.year <= 9999:
            raise InputError(f"year: expected a year, got {self.year}")
        if self.page is not None and (
            Path(self.page).is_absolute() or ".." in Path(self.page).parts or not self.page
        ):
            raise InputError(f"page: expected a file inside the folder, got {shown(self.page)}")
        offers = [
            (within(of, name), name, target)
            for of in OFFERS
            for name, target in getattr(self, of).items()
        ]
        offers += [(of, of, target) for of in SINGLES if (target := getattr(self, of)) is not None]
        for where, name, target in offers:
            if not _OFFERED.fullmatch(name):
                raise InputError(
                    f"{where}: expected a name of letters, digits, -, _ and '.'; rename it"
                )
            if not _TARGET.fullmatch(target):
                raise InputError(
                    f'{where}: expected a reference such as "predict:Printed", got {shown(target)}'
                )


@dataclass(frozen=True, kw_only=True)
class Paper(_Manifest):
    """A paper: the fields of its `paper.yaml`, and its folder.

    Parameters
    ----------
    name : str
        The name of the folder, which commands use.
    title, authors, venue, year, doi, arxiv, bibtex
        The citation; without `bibtex`, an entry is made of the others.
    short : str
        The name in sentences.
    question : str
        What the paper asks.
    reading : {"printed text", "as we know it", "ours"}
        How we know what it says.
    attnlab : str
        The versions of attnlab that it works with, such as ``">=0.1,<1"``.
    theories, tasks, models, presets, figures : dict of str
        What it offers: references "module:name", relative to the package.
    claims : tuple of Section
        The sections of its claims.
    page : str or None
        The file of its page.
    agreement, expectation, commentary, maps, opening : str or None
        Single references that other parts of attnlab ask for; `opening` is an experiment whose
        picture a report opens with.
    folder : Path
        The paper's folder.
    package : str
        The name under which it is imported.
    """

    folder: Path
    package: str

    @cached_property
    def expected(self) -> Mapping[str, Mapping[str, Mapping[str, Any]]]:
        """Recorded results of `expected.json`, by claim and by figure; empty where there is none.

        Read when it is first asked for.
        """
        path = self.folder / EXPECTED
        found: dict[str, dict[str, dict[str, Any]]] = {"claims": {}, "figures": {}}
        if not path.exists():
            return found
        document = _read(path, most=MAX_EXPECTED)
        try:
            check_keys("", document, tuple(found), ())
            for part, entries in document.items():
                known = self.figures if part == "figures" else entries
                needed = ("standing",) if part == "figures" else ()
                check_keys(part, entries, known, ())
                for name, entry in entries.items():
                    where = within(part, name)
                    check_keys(where, entry, entry, needed)
                    if not isinstance(standing := entry.get("standing", ""), str):
                        raise InputError(f"{where}.standing: expected text, got {shown(standing)}")
        except InputError as error:
            raise InputError(f"{path}: {error}") from error
        return {**found, **document}

    def record(self, part: Literal["claims", "figures"], entries: Mapping[str, Any]) -> Path:
        """Replace one part of `expected.json`, and return its path; the other part stays."""
        if "site-packages" in self.folder.parts:
            raise InputError(f"record: {self.folder} is installed; record in a source checkout")
        path = self.folder / EXPECTED
        parts = {
            name: dict(kept) for name, kept in {**self.expected, part: entries}.items() if kept
        }
        write_text(path, json.dumps(parts, indent=2) + "\n")
        vars(self).pop("expected", None)  # read again when it is asked for
        return path

    @property
    def citation(self) -> str:
        """The BibTeX entry."""
        if self.bibtex is not None:
            return self.bibtex.strip()
        fields = {
            "title": f"{{{self.title}}}",  # twice in braces: BibTeX leaves its capitals alone
            "author": f"{{{self.authors}}}",
            "howpublished": self.venue,
            "year": str(self.year),
            "doi": self.doi,
            "eprint": self.arxiv,
        }
        lines = [f"  {key} = {{{text}}}," for key, text in fields.items() if text]
        return "\n".join([f"@misc{{{self.name},", *lines, "}"])

    def recipe_file(self, figure: str, size: str = "") -> Path:
        """Return the file of a figure's recipe; `size` is a folder of recipes at another size."""
        return self.folder / "recipes" / size / f"{figure}.yaml"

    def claim_modules(self) -> Iterator[tuple[str, str, str]]:
        """Yield (section, whose statements, module) of the claims, in the order of the sections."""
        for part in self.claims:
            for module in part.modules:
                yield part.section, part.of, module

    def mentions(self, module: str, claims: Collection[str]) -> bool:
        """Check whether the text of a module has one of these ids of claims in it."""
        path = self.folder.joinpath(*module.split(".")).with_suffix(".py")
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        return any(f'"{name}"' in text for name in claims)

    def load(self, module: str) -> ModuleType:
        """Import a module of this paper; `module` is relative to the package.

        An import that fails is an InputError that says what and why: one paper takes no other down.
        """
        try:
            return import_from(self.folder, self.package, module)
        except (Exception, SystemExit) as error:
            own = error.__traceback__
            while own and not Path(own.tb_frame.f_code.co_filename).is_relative_to(self.folder):
                own = own.tb_next  # the lines that import a paper are not to blame
            raise InputError(
                f"paper {self.name}: {module} cannot be imported: "
                f"{failure(error, self.folder)}; mend {self.folder}, or take the paper away"
            ) from error.with_traceback(own)


@dataclass(frozen=True)
class Reference:
    """Something in a paper's code, named "module:name"; imported by `load` and not before."""

    paper: Paper
    target: str

    def load(self) -> Any:
        """Import the module and return what the reference names."""
        module, _, name = self.target.partition(":")
        try:
            return getattr(self.paper.load(module), name)
        except AttributeError as error:
            raise InputError(
                f"paper {self.paper.name}: {self.target}: {module} has no {name!r}; correct it in "
                f"{self.paper.folder / MANIFEST}"
            ) from error


def standing(entry: Mapping[str, Any]) -> str:
    """Return how a figure or a claim stands, in words; empty where nothing is on record.

    A claim may have a verdict on paper and one in training: both are named where they differ.
    """
    found = dict.fromkeys(entry.get(key) for key in ("standing", "verdict", "training"))
    first, *other = [str(of) for of in found if of] or [""]
    if not other:
        return first
    training = other[0] if other[0].endswith("in training") else f"{other[0]} in training"
    return f"{first} on paper and {training}"


def recorded_number(value: float, before: float | None) -> float:
    """Return a number as it goes on record: to four significant digits, or as it is recorded.

    Rounding and solvers move a number by far less than `CLOSE`, so that one that is this close to
    the recorded number is the same.
    """
    if before is not None and math.isclose(value, before, rel_tol=CLOSE, abs_tol=1e-12):
        return before
    return float(f"{value:.4g}")


def read_paper(folder: Path, *, package: str) -> Paper:
    """Read the paper in a folder, which is imported as `package`; only `paper.yaml` is read."""
    path = folder / MANIFEST
    document = _read(path, most=MAX_MANIFEST)
    try:
        check_keys("", document, _Manifest.__dataclass_fields__, ("name",))
        sections = document.get("claims")
        for i, part in enumerate(sections if isinstance(sections, list) else ()):
            check_keys(f"claims[{i}]", part, Section.__dataclass_fields__, ("section", "modules"))
        found: _Manifest = as_value("", document, _Manifest)
        if found.name != folder.name:
            raise InputError(
                f"name: expected {folder.name!r}, as the folder is called, got {found.name!r}; "
                "rename one of them"
            )
        if not (folder / "__init__.py").is_file():
            raise InputError("the folder has no __init__.py; add an empty one")
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    return Paper(**vars(found), folder=folder, package=package)


def _read(path: Path, *, most: int) -> Any:
    if path.is_file() and path.stat().st_size > most:
        raise InputError(f"{path}: larger than {size_words(most)}; keep results in other files")
    return read_document(path, noun="papers", advice="see the papers that come with attnlab")


@dataclass(frozen=True)
class Fault:
    """A paper, or something that it offers, that cannot be used: its name, where, and why."""

    name: str
    where: str
    reason: str


@dataclass(frozen=True)
class Shelf:
    """The usable papers by year, arXiv number and name; what cannot be used; what they offer."""

    papers: tuple[Paper, ...]
    faults: tuple[Fault, ...]
    offers: dict[str, dict[str, Reference]] = field(repr=False, hash=False)


def shelf() -> Shelf:
    """Find the papers: those that come with attnlab, installed packages, and plain folders.

    Only each paper's `paper.yaml` is read. A paper that cannot be used is named among the faults.

    Returns
    -------
    Shelf
        The papers and the faults; the same value until the plain folders change.

    Examples
    --------
    >>> from attnlab.shelf import shelf
    >>> [fault.reason for fault in shelf().faults]
    []
    """
    return _find(os.environ.get(VARIABLE, ""))


def add_folder(path: str | os.PathLike[str]) -> Paper:
    """Add the paper in a plain folder, for this process and the processes that it starts.

    Parameters
    ----------
    path : path
        A folder with a `paper.yaml`.

    Returns
    -------
    Paper
        The paper. A folder that is known already is not added again.
    """
    folder = Path(path).resolve()
    if os.pathsep in str(folder):
        raise InputError(f"{folder}: a paper's path cannot have {os.pathsep!r} in it; move it")
    before = os.environ.get(VARIABLE)
    if not any(same_folder(known.folder, folder) for known in shelf().papers):
        os.environ[VARIABLE] = os.pathsep.join(filter(None, [before, str(folder)]))
    for known in shelf().papers:
        if same_folder(known.folder, folder):
            return known
    reasons = [fault.reason for fault in shelf().faults if fault.where == str(folder)]
    if before is None:
        del os.environ[VARIABLE]
    else:
        os.environ[VARIABLE] = before
    raise InputError(reasons[-1])


def paper(name: str) -> Paper:
    """Return the paper of this name; of one that cannot be used, say why.

    Parameters
    ----------
    name : str
        The paper's name, which is that of its folder.
    """
    found = {known.name: known for known in shelf().papers}
    if name in found:
        return found[name]
    for fault in shelf().faults:
        if fault.name == name:
            raise InputError(f"paper: {name!r} cannot be used: {fault.reason}")
    raise InputError(f"paper: {name!r} is not known; {did_you_mean(name, found)}")


def offered(kind: Offer) -> dict[str, Reference]:
    """Return what all papers offer of a kind, by name; figures by "paper/figure".

    Parameters
    ----------
    kind : {"theories", "tasks", "models", "presets", "figures"}
        What is offered.
    """
    return dict(shelf().offers[kind])


def import_offered(kind: Offer, wanted: str = "") -> None:
    """Import what papers offer of a kind under the name `wanted`, or all of it where none does.

    A broken paper takes no other down.
    """
    offers = offered(kind)
    for offer in [offers[wanted]] if wanted in offers else offers.values():
        with suppress(InputError):
            offer.load()


def reference(kind: Offer, name: str) -> Reference:
    """Return the reference of this kind and name.

    Parameters
    ----------
    kind : {"theories", "tasks", "models", "presets", "figures"}
        What is offered.
    name : str
        The name in the paper's `paper.yaml`; of a figure, "paper/figure".
    """
    known = shelf().offers[kind]
    if name in known:
        return known[name]
    lost = ", ".join(fault.name for fault in shelf().faults)
    ending = f"; cannot be used: {lost} (attnlab papers says why)" if lost else ""
    raise InputError(f"{NOUNS[kind]}: {name!r} is not known; {did_you_mean(name, known)}{ending}")


def single(kind: Single) -> list[tuple[Paper, Reference]]:
    """Return the papers that have this single reference, with it, in the order of the papers.

    Parameters
    ----------
    kind : str
        The field of `paper.yaml`: "agreement", "expectation", "commentary" and so on.
    """
    targets = [(known, getattr(known, kind)) for known in shelf().papers]
    return [(known, Reference(known, target)) for known, target in targets if target is not None]


def figure(name: str) -> tuple[Paper, str, Reference]:
    """Return the paper, the name and the reference of a figure.

    Parameters
    ----------
    name : str
        ``"fig6"``, where one paper alone has a figure of that name, or ``"paper/fig6"``.
    """
    known = shelf().offers["figures"]
    whose, slash, short = name.rpartition("/")
    if slash:
        choices = [f"{paper(whose).name}/{short}"]
    else:
        choices = [full for full in known if full.endswith(f"/{short}")]
    if len(choices) > 1:
        raise InputError(f"figure: several papers have {short!r}; say {' or '.join(choices)}")
    if not choices or choices[0] not in known:
        names = [full for full in known if full.startswith(f"{whose}/")] if slash else known
        words = names if slash else [full.partition("/")[2] for full in names]
        of = f"of {whose}" if slash else "known"
        raise InputError(f"figure: {name!r} is not {of}; {did_you_mean(name, words)}")
    found = known[choices[0]]
    return found.paper, short, found


def require_claims(names: Iterable[str], *, paper_name: str | None = None) -> None:
    """Refuse ids of claims that are neither on record nor in the text of a paper's claims.

    Nothing is imported, so that a mistyped id is refused at once.

    Parameters
    ----------
    names : iterable of str
        The ids.
    paper_name : str, optional
        The paper whose claims they are; by default any.
    """
    papers = shelf().papers if paper_name is None else (paper(paper_name),)
    known: list[str] = []
    for of in papers:
        with suppress(InputError):  # of a bad expected.json, which takes no other paper down
            known += of.expected["claims"]
    for name in names:
        if name not in known and not any(
            of.mentions(module, [name]) for of in papers for _, _, module in of.claim_modules()
        ):
            raise unknown_claim(name, known, paper_name)


def unknown_claim(name: str, known: Iterable[str], paper_name: str | None) -> InputError:
    """Return the error for an id of a claim that no paper, or not this one, has."""
    near = nearest(name, known, most=3)
    others = "attnlab audit --paper NAME lists a paper's"
    whose = "known" if paper_name is None else f"of {paper_name}"
    hint = f"did you mean {', '.join(near)}?" if near else others
    return InputError(f"claim: {name!r} is not {whose}; {hint}")


def figures(*, ours: bool) -> tuple[str, ...]:
    """Return the figures of all papers, as "paper/figure", paper by paper; imports none of them.

    Parameters
    ----------
    ours : bool
        Those of what is ours (`reading: ours` in paper.yaml), or those of all other papers.

    Returns
    -------
    tuple of str
        Their names.
    """
    papers = [paper for paper in shelf().papers if (paper.reading == "ours") is ours]
    return tuple(f"{paper.name}/{name}" for paper in papers for name in paper.figures)


def recipe_file(name: str) -> Path:
    """Return the file of a recipe: the file itself, or that of a figure by its name.

    Parameters
    ----------
    name : str
        A file, or a figure as `figure` takes it.
    """
    if os.path.splitext(name)[1] or os.path.exists(name):
        return Path(name)
    whose, short, _ = figure(name)
    return whose.recipe_file(short)


@lru_cache(maxsize=8)
def _find(_: str) -> Shelf:  # the environment is what it is kept by
    papers: dict[str, Paper] = {}
    faults: list[Fault] = []
    for source in (_built_in(), _installed(), _plain()):
        for found in sorted(source, key=_by_year):
            if isinstance(found, Fault):
                faults.append(found)
                continue
            kept = papers.setdefault(found.name, found)
            if not same_folder(kept.folder, found.folder):
                reason = f"{found.folder}: {kept.folder} has this name too; rename one of them"
                faults.append(Fault(found.name, str(found.folder), reason))
    ordered = sorted(papers.values(), key=_by_year)
    offers: dict[str, dict[str, Reference]] = {kind: {} for kind in OFFERS}
    for known in papers.values():  # earlier sources first: names of attnlab's papers stay
        for kind in OFFERS:
            for name, target in getattr(known, kind).items():
                # figures may have one name in several papers
                full = f"{known.name}/{name}" if kind == "figures" else name
                owner = offers[kind].setdefault(full, Reference(known, target)).paper
                if owner is not known:
                    reason = (
                        f"{known.folder / MANIFEST}: {kind}.{name}: {owner.name} offers a "
                        f"{NOUNS[kind]} of this name; rename it"
                    )
                    faults.append(Fault(name, str(known.folder), reason))
    for kind, named in offers.items():
        by_year = sorted(named.items(), key=lambda item: ordered.index(item[1].paper))
        offers[kind] = dict(by_year)
    return Shelf(tuple(ordered), tuple(faults), offers)


def _by_year(found: Paper | Fault) -> tuple[int, str, str]:
    if isinstance(found, Fault):
        return (0, "", found.name)
    # numbers of arXiv are in order of time; what has none comes last in its year
    return (found.year, found.arxiv or "~", found.name)


def _built_in() -> Iterator[Paper | Fault]:
    for path in BUILT_IN.glob(f"*/{MANIFEST}"):
        yield _paper_in(path.parent, package=f"attnlab.papers.{path.parent.name}")


def _installed() -> Iterator[Paper | Fault]:
    try:
        points = list(metadata.entry_points(group=GROUP))
    except Exception as error:  # a damaged file of any installed package
        yield Fault("installed packages", GROUP, f"entry points: cannot be read: {error}")
        return
    for point in points:
        where = f'entry point {point.name} = "{point.value}"'
        if not _PACKAGE.fullmatch(point.value):
            reason = (
                "expected a top-level package, such as own_paper, so that finding it imports "
                "nothing; move the paper to the top level of its distribution"
            )
        elif (folder := folder_of(point.value)) is None:
            reason = f"there is no package {point.value}; install it again, or remove it"
        else:
            yield _paper_in(folder, package=point.value)
            continue
        yield Fault(point.name, where, f"{where}: {reason}")


def _plain() -> Iterator[Paper | Fault]:
    for folder in plain_folders():
        other = folder_of(folder.name) if _PACKAGE.fullmatch(folder.name) else None
        if other is None or same_folder(other, folder):
            yield _paper_in(folder, package=folder.name)
        else:
            reason = f"{folder}: a Python module has this name too ({other}); rename the folder"
            yield Fault(folder.name, str(folder), reason)


def _paper_in(folder: Path, *, package: str) -> Paper | Fault:
    from packaging.specifiers import SpecifierSet

    try:
        found = read_paper(folder.resolve(), package=package)
        here = attnlab.__version__
        if not SpecifierSet(found.attnlab).contains(here, prereleases=True):
            raise InputError(
                f"{folder / MANIFEST}: attnlab: needs {found.attnlab}, this is {here}; install a "
                "version of attnlab or of the paper that fits"
            )
    except InputError as error:
        return Fault(folder.name, str(folder), str(error))
    return found

"""A paper as its `paper.yaml` describes it, and references into its code."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from attnlab.files.documents import check_keys, read_document, shown, within
from attnlab.files.errors import InputError
from attnlab.files.memory import size_words
from attnlab.files.recipe import as_value
from attnlab.shelf.loading import import_from

MANIFEST, EXPECTED = "paper.yaml", "expected.json"
MAX_MANIFEST, MAX_EXPECTED = 1_000_000, 20_000_000  # bytes
OFFERS = ("theories", "models", "presets", "figures")
SINGLES = ("agreement", "expectation", "commentary", "maps", "opening")

_NAME = re.compile(r"[a-z][a-z0-9_]*")
_OFFERED = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9_.-]*"
)  # no slash or colon: "paper/figure", "name:k=v"
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)
_TARGET = re.compile(rf"{_MODULE.pattern}:[A-Za-z_]\w*", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Section:
    """A section of a paper's claims.

    section: its heading. modules: where its claims stand, relative to the paper's package. of:
    whose statements they are.
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
        for kind in OFFERS:
            for name, target in getattr(self, kind).items():
                _check_offer(within(kind, name), name, target)
        for kind in SINGLES:
            if (target := getattr(self, kind)) is not None:
                _check_offer(kind, kind, target)


@dataclass(frozen=True, kw_only=True)
class Paper(_Manifest):
    """A paper: the fields of its `paper.yaml`, and where it stands.

    Parameters
    ----------
    name : str
        The name of the folder, by which the paper is called in commands.
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
    theories, models, presets, figures : dict of str
        What it offers: references "module:name", relative to the package.
    claims : tuple of Section
        Where its claims stand.
    page : str or None
        The file of its page.
    agreement, expectation, commentary, maps, opening : str or None
        Single references that other parts of attnlab ask for; `opening` is an experiment whose
        picture a report opens with.
    folder : Path
        Where it stands.
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
                    check_keys(within(part, name), entry, entry, needed)
                    standing = entry.get("standing", "")
                    if not isinstance(standing, str):
                        where = within(within(part, name), "standing")
                        raise InputError(f"{where}: expected text, got {shown(standing)}")
        except InputError as error:
            raise InputError(f"{path}: {error}") from error
        return {**found, **document}

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

    def load(self, module: str) -> ModuleType:
        """Import a module of this paper; `module` is relative to the package.

        An import that fails is an InputError that says what and why: one paper takes no other down.
        """
        try:
            return import_from(self.folder, self.package, module)
        except (Exception, SystemExit) as error:
            reason = f"{type(error).__name__}: {error}"
            raise InputError(
                f"paper {self.name}: {module} cannot be imported: {reason}; mend "
                f"{self.folder}, or take the paper away"
            ) from error


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


def _check_offer(where: str, name: str, target: str) -> None:
    if not _OFFERED.fullmatch(name):
        raise InputError(f"{where}: expected a name of letters, digits, -, _ and '.'; rename it")
    if not _TARGET.fullmatch(target):
        raise InputError(
            f'{where}: expected a reference such as "predict:Printed", got {shown(target)}'
        )

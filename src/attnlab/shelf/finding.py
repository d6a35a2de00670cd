"""Find the papers, and look up by name what they offer."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Literal

import attnlab
from attnlab.files.documents import did_you_mean
from attnlab.files.errors import InputError
from attnlab.shelf.loading import VARIABLE, folder_of, plain_folders, same_folder
from attnlab.shelf.manifest import MANIFEST, OFFERS, Paper, Reference, read_paper

Offer = Literal["theories", "models", "presets", "figures"]
Single = Literal["agreement", "expectation", "commentary", "maps", "opening"]

GROUP = "attnlab.papers"  # of entry points
BUILT_IN = Path(__file__).resolve().parents[1] / "papers"
NOUNS = {"theories": "theory", "models": "model", "presets": "preset", "figures": "figure"}

_PACKAGE = re.compile(r"[A-Za-z_]\w*", re.ASCII)


@dataclass(frozen=True)
class Fault:
    """A paper, or something that it offers, that cannot be used: its name, where, and why."""

    name: str
    where: str
    reason: str


@dataclass(frozen=True)
class Shelf:
    """The papers that can be used, by year and name; what cannot; what they offer, by kind."""

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
        The paper. A folder that is on the shelf already is not added again.
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
    raise InputError(f"paper: {name!r} is not on the shelf; {did_you_mean(name, found)}")


def offered(kind: Offer) -> dict[str, Reference]:
    """Return what all papers offer of a kind, by name; figures by "paper/figure".

    Parameters
    ----------
    kind : {"theories", "models", "presets", "figures"}
        What is offered.
    """
    return dict(shelf().offers[kind])


def reference(kind: Offer, name: str) -> Reference:
    """Return the reference of this kind and name.

    Parameters
    ----------
    kind : {"theories", "models", "presets", "figures"}
        What is offered.
    name : str
        The name in the paper's `paper.yaml`; of a figure, "paper/figure".
    """
    known = shelf().offers[kind]
    if name in known:
        return known[name]
    lost = ", ".join(fault.name for fault in shelf().faults)
    ending = f"; cannot be used: {lost} (attnlab papers says why)" if lost else ""
    raise InputError(
        f"{NOUNS[kind]}: {name!r} is not on the shelf; {did_you_mean(name, known)}{ending}"
    )


def single(kind: Single) -> list[tuple[Paper, Reference]]:
    """Return the papers that have this single reference, with it, in the order of the shelf.

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
        of = f"of {whose}" if slash else "on the shelf"
        raise InputError(f"figure: {name!r} is not {of}; {did_you_mean(name, words)}")
    found = known[choices[0]]
    return found.paper, short, found


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
    owners: dict[tuple[str, str], Paper] = {}
    for known in papers.values():  # earlier sources first: nobody takes over a name of attnlab's
        for kind in OFFERS:
            for name in getattr(known, kind):
                owner = owners.setdefault((kind, _full(kind, known, name)), known)
                if owner is not known:
                    reason = (
                        f"{known.folder / MANIFEST}: {kind}.{name}: {owner.name} offers a "
                        f"{NOUNS[kind]} of this name; rename it"
                    )
                    faults.append(Fault(name, str(known.folder), reason))
    ordered = tuple(sorted(papers.values(), key=_by_year))
    offers = {
        kind: {
            full: Reference(known, target)
            for known in ordered
            for name, target in getattr(known, kind).items()
            for full in [_full(kind, known, name)]
            if owners[kind, full] is known
        }
        for kind in OFFERS
    }
    return Shelf(ordered, tuple(faults), offers)


def _by_year(found: Paper | Fault) -> tuple[int, str]:
    return (found.year if isinstance(found, Paper) else 0, found.name)


def _full(kind: str, known: Paper, name: str) -> str:
    """Return the name under which something is offered; figures may repeat across papers."""
    return f"{known.name}/{name}" if kind == "figures" else name


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
                f"{where}: expected a top-level package, such as own_paper, so that finding it "
                "imports nothing; move the paper to the top level of its distribution"
            )
            yield Fault(point.name, where, reason)
            continue
        folder = folder_of(point.value)
        if folder is None:
            reason = f"{where}: there is no package {point.value}; install it again, or remove it"
            yield Fault(point.name, where, reason)
        else:
            yield _paper_in(folder, package=point.value)


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

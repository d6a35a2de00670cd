"""What was made, as a record beside its files, so that it can be told apart from new work.

That is a folder of files and a sealed record, `part.json`, that is written last. The record holds a
key (the digest of everything that decides the content) and the SHA-256 of each file: what was made
is reused when its key is the one asked for, and it and its files are as they were written.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

from attnlab.experiments.estimate import unsettled
from attnlab.files.errors import InputError
from attnlab.files.regular import open_regular
from attnlab.files.sealed import read_sealed, write_sealed

RECORD = "part.json"


@dataclass(frozen=True)
class Made:
    """A finished experiment, or the audit.

    Parameters
    ----------
    name : str
        Of the experiment, "paper/figure" where it belongs to a paper; also its folder.
    key : str
        Of what it was made with.
    title : str
        In a few words.
    about : str
        The claim.
    outcome, headline, summary, alt, numbers, standing
        The judgement; `outcome` is `standing` in words.
    regression_bounds : mapping
        Of each number, by the recipe.
    settings : mapping
        What it was made with, to be shown.
    files : mapping
        Name to SHA-256.
    seconds : float
        How long it took when it was made.
    made_at : str
        When.
    versions : mapping
        Of the libraries.
    source : str, optional
        Whose it is.
    caption : str, optional
        What that is.
    table : sequence, optional
        The texts of a table to be shown with it, its heading first, if any.
    halves : Sequence[mapping, optional
        Of a study, the numbers on each half of its seeds.
    reused : bool, optional
        Whether it was there already.
    """

    name: str
    key: str
    title: str
    about: str
    outcome: str
    headline: str
    summary: str
    alt: str
    numbers: Mapping[str, float]
    regression_bounds: Mapping[str, Sequence[float]]
    settings: Mapping[str, str]
    files: Mapping[str, str]
    seconds: float
    made_at: str
    versions: Mapping[str, str]
    standing: str = ""
    source: str = "the paper"
    caption: str = ""
    table: Sequence[Sequence[str]] = ()
    halves: Sequence[Mapping[str, float]] = ()
    reused: bool = field(default=False, compare=False)

    def out_of_bounds(self) -> dict[str, float]:
        """The numbers that are outside their regression bounds, NaN if absent."""
        found = {name: self.numbers.get(name, float("nan")) for name in self.regression_bounds}
        return {
            name: value
            for name, value in found.items()
            if not self.regression_bounds[name][0] <= value <= self.regression_bounds[name][1]
        }

    def unsettled(self) -> dict[str, float]:
        """The numbers of a study in which the halves of its seeds do not agree, with how many
        errors they differ by."""
        return unsettled(self.halves) if self.halves else {}


def write_record(folder: Path, made: Made, *, inside: Path | None = None) -> None:
    """Declare it finished. inside: the output folder that `folder` is in."""
    document = {key: value for key, value in asdict(made).items() if key != "reused"}
    write_sealed(folder / RECORD, document, inside=inside or folder)


def read_record(folder: Path, key: str | None) -> Made | None:
    """What is in `folder`, if it is what that `key` asks for and nothing was changed.

    None asks for whatever is there.
    """
    try:
        document = read_sealed(folder / RECORD, remedy="make it again")
        if set(document) != {item.name for item in fields(Made)} - {"reused"}:
            return None  # written by another version
        if key is not None and document["key"] != key:
            return None
        made = Made(**document, reused=True)
        intact = all(file_digest(folder / name) == sha for name, sha in made.files.items())
    except (OSError, ValueError, TypeError):
        return None
    return made if intact else None


def the_record(folder: Path) -> Made:
    """What is in `folder`, whichever it is; an error that says so where there is none."""
    made = read_record(folder, None)
    if made is None:
        raise InputError(f"{folder}: nothing was made there, or it was changed; make it first")
    return made


def file_digest(path: Path) -> str:
    """The SHA-256 of a file."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

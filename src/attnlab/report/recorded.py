"""Studies as recorded: what the documentation shows of a run, for a report that has not made it.

A study takes a minute or two, and a report should not wait for all of them. So the run behind each
page docs/PAPER/NAME.md is kept beside it, NAME.json, with the digest of the page's picture. Only a
clone has these; without them a report shows the studies that were made in its own folder.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

from attnlab.experiments import Made
from attnlab.experiments.made import file_digest
from attnlab.files.sealed import read_sealed, write_sealed
from attnlab.files.shipped import documentation


@dataclass(frozen=True)
class ShownStudy:
    """A study and its picture. recorded: whether it is that of the documentation, and was not made
    in the folder of the report."""

    made: Made
    picture: bytes
    recorded: bool


def write_recorded(docs: Path, made: Made) -> None:
    """Keep a study beside its page, whose picture is drawn already."""
    record, picture = _places(docs, made.name)
    kept = asdict(replace(made, files={picture.name: file_digest(picture)}))
    del kept["reused"]
    write_sealed(record, kept, inside=docs)


def read_recorded(name: str, docs: Path | None = None) -> ShownStudy | None:
    """A study as the documentation has it; None where there is none, or it was changed."""
    docs = docs or documentation()
    if docs is None:
        return None
    record, picture = _places(docs, name)
    try:
        document = read_sealed(record, remedy="make it again")
        if set(document) != {item.name for item in fields(Made)} - {"reused"}:
            return None  # written by another version
        made = Made(**document, reused=True)
        if made.files != {picture.name: file_digest(picture)}:
            return None
    except (OSError, ValueError):
        return None
    return ShownStudy(made, picture.read_bytes(), recorded=True)


def _places(docs: Path, name: str) -> tuple[Path, Path]:
    """Return the record and the picture of "paper/figure"."""
    return docs / f"{name}.json", docs / "images" / f"{name}.png"

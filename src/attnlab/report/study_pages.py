"""The pages of our own studies: what was found goes from a run into docs/, with its picture.

python -m attnlab.report.study_pages out docs          # all studies
python -m attnlab.report.study_pages out docs NAME     # some of them
python -m attnlab.report.study_pages --wikitext out-wikitext docs NAME    # at paper size, on a text

A page docs/PAPER/NAME.md is written by hand, but for what stands between marks; so is the list
docs/PAPER/README.md. The run behind it goes into NAME.json next to it, with the digest of the
page's picture; lists and gallery are made from these records. A study takes a minute or two, and a
report that has not made it shows what was recorded. Only a clone has these; without them a report
shows the studies that were made in its own folder.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from attnlab.experiments import Part, experiment, figures
from attnlab.experiments.running import file_digest, seal_record, the_record, unseal_record
from attnlab.files.atomic import write_text
from attnlab.files.errors import InputError
from attnlab.files.markdown import table
from attnlab.files.shipped import documentation
from attnlab.report.gallery import (
    AT_PAPER_SIZE,
    STUDIES,
    at_paper_size,
    draw_small,
    studies,
    study_verdicts,
)
from attnlab.report.page import capitalised

BEGIN, END = "<!-- found: begin -->", "<!-- found: end -->"
FOUND = (BEGIN, END)


@dataclass(frozen=True)
class ShownStudy:
    """A study and its picture. recorded: whether it is that of the documentation, and was not made
    in the folder of the report."""

    made: Part
    picture: bytes
    recorded: bool


def write_recorded(docs: Path, made: Part) -> None:
    """Write the record of a study next to its page, whose picture is drawn already."""
    record, picture = _places(docs, made.name)
    seal_record(record, replace(made, files={picture.name: file_digest(picture)}), inside=docs)


def read_recorded(name: str, docs: Path | None = None) -> ShownStudy | None:
    """Return a study as the documentation has it; None where there is none, or it was changed."""
    docs = docs or documentation()
    if docs is None:
        return None
    record, picture = _places(docs, name)
    try:
        made = unseal_record(record)
        if made.files != {picture.name: file_digest(picture)}:
            return None
    except (OSError, ValueError):
        return None
    return ShownStudy(made, picture.read_bytes(), recorded=True)


def _places(docs: Path, name: str) -> tuple[Path, Path]:
    """Return the record and the picture of "paper/figure"."""
    return docs / f"{name}.json", docs / "images" / f"{name}.png"


def between_marks(page: str, text: str, marks: tuple[str, str] = FOUND) -> str:
    """The page with `text` between its marks."""
    first, last = marks
    before, begin, rest = page.partition(first)
    _, end, after = rest.partition(last)
    if not begin or not end:
        raise InputError(f"page: expected the marks {first} and {last}, one after the other")
    return f"{before}{first}\n{text}\n{last}{after}"


def found(made: Part) -> str:
    """Return the findings of a study as Markdown: answer, summary, picture and numbers."""
    rows = [["number", "found", "on each half of the seeds", "regression bounds"]]
    for name, (low, high) in made.regression_bounds.items():
        each = " and ".join(f"{half[name]:.4g}" for half in made.halves)
        rows.append([f"`{name}`", _number(made, name), each, f"{low:g} to {high:g}"])
    return (
        f"**{capitalised(made.outcome)}.** {made.summary}\n\n"
        f"![{made.alt}](../images/{made.name}.png)\n\n{table(rows)}\n"
    )


def _number(made: Part, name: str) -> str:
    """A number with its error or its interval; a share with its count, and without an error that
    no seed shows."""
    if f"{name}_low" in made.numbers:
        low, high = (made.numbers[f"{name}_{end}"] for end in ("low", "high"))
        return f"{made.numbers[name]:.4g} ({low:.4g} to {high:.4g})"
    error, total = (made.numbers.get(f"{name}_{what}") for what in ("error", "total"))
    sure = f" ± {error:.2g}" if error or (error is not None and total is None) else ""
    count = "" if total is None else f" ({made.numbers[f'{name}_hits']:.0f} of {total:.0f})"
    return f"{made.numbers[name]:.4g}{sure}{count}"


def write_pages(out: Path, docs: Path, names: Sequence[str]) -> None:
    """Bring the pages and pictures of studies up to date with the run in `out`."""
    for name in names:
        made = the_record(out / name)
        draw_small(name, out, docs / "images" / f"{name}.png")
        write_recorded(docs, made)
        _rewrite(docs / f"{name}.md", found(made))
    write_lists(docs)


def write_paper_size(out: Path, docs: Path, names: Sequence[str]) -> None:
    """Bring the parts of pages that are about WikiText up to date with the run in `out`."""
    for name in names:
        picture = f"images/{name}-wikitext.png"
        draw_small(name, out, docs / picture)
        text = f"{at_paper_size(name, out)}\n![{Path(name).name} on WikiText-2](../{picture})"
        _rewrite(docs / f"{name}.md", text, AT_PAPER_SIZE)
    write_lists(docs)


def write_lists(docs: Path) -> None:
    """Bring the lists of studies, docs/PAPER/README.md, and the gallery up to date with the
    records."""
    lists: dict[Path, list[list[str]]] = {}
    for name, (outcome, headline) in study_verdicts(docs).items():
        path, short = (docs / name).parent / "README.md", Path(name).name
        lists.setdefault(path, [["study", "what was found", ""]])
        lists[path].append([f"[{short}]({short}.md)", headline, outcome])
    for path, rows in lists.items():
        _rewrite(path, table(rows))
    before = (docs / "gallery.md").read_text(encoding="utf-8").partition(STUDIES)[0]
    write_text(docs / "gallery.md", f"{before}{studies(docs)}")


def _rewrite(path: Path, text: str, marks: tuple[str, str] = FOUND) -> None:
    page = between_marks(path.read_text(encoding="utf-8"), text, marks)
    write_text(path, page)


if __name__ == "__main__":
    at_size = sys.argv[1] == "--wikitext"
    made_in, pages, *given = sys.argv[1 + at_size :]
    chosen = [experiment(name).full_name for name in given] or figures(ours=True)
    (write_paper_size if at_size else write_pages)(Path(made_in), Path(pages), chosen)

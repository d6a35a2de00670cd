"""The pages of the studies: what was found goes from a run into docs/studies/, with its picture.

python -m attnlab.report.study_pages out docs           # all studies
python -m attnlab.report.study_pages out docs length    # some; the others' rows stay as they are

A page is written by hand, but for what stands between the two marks; so are the questions in the
list docs/studies/README.md.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from attnlab.files.atomic import atomic_path
from attnlab.files.errors import InputError
from attnlab.files.netcdf import load
from attnlab.plots.style import style
from attnlab.report.part import Part, the_record
from attnlab.studies import NAMES, study

BEGIN, END = "<!-- found: begin -->", "<!-- found: end -->"
DPI = 110  # pictures of a page on a screen, not on paper


def between_marks(page: str, text: str) -> str:
    """The page with `text` between its marks."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise InputError(f"page: expected the marks {BEGIN} and {END}, one after the other")
    return f"{before}{BEGIN}\n{text}\n{END}{after}"


def found(part: Part) -> str:
    """What a study found, as Markdown: the answer, the words, the picture and the numbers."""
    rows = []
    for name, (low, high) in part.regression_bounds.items():
        each = " and ".join(f"{half[name]:.4g}" for half in part.halves)
        rows.append(f"| `{name}` | {_number(part, name)} | {each} | {low:g} to {high:g} |")
    heading = "| number | found | on each half of the seeds | regression bounds |"
    table = "\n".join([heading, "|---|---|---|---|", *rows])
    return (
        f"**{part.outcome[0].upper()}{part.outcome[1:]}.** {part.summary}\n\n"
        f"![{part.alt}](../images/studies/{part.name}.png)\n\n{table}\n"
    )


def _number(part: Part, name: str) -> str:
    """A number with its error; a share with its count, and without an error that no seed shows."""
    error, total = (part.numbers.get(f"{name}_{what}") for what in ("error", "total"))
    sure = f" ± {error:.2g}" if error or (error is not None and total is None) else ""
    count = "" if total is None else f" ({part.numbers[f'{name}_hits']:.0f} of {total:.0f})"
    return f"{part.numbers[name]:.4g}{sure}{count}"


def write_pages(out: Path, docs: Path, names: Sequence[str] = NAMES) -> None:
    """Bring the pages and pictures of studies up to date with the run in `out`."""
    parts = {name: the_record(out / name) for name in names}
    (docs / "images" / "studies").mkdir(parents=True, exist_ok=True)
    rows = _rows((docs / "studies" / "README.md").read_text(encoding="utf-8"))
    for name, part in parts.items():
        with style():
            picture = study(name).draw(load(out / name / f"{name}.nc"))
        with atomic_path(docs / "images" / "studies" / f"{name}.png") as temporary:
            picture.savefig(temporary, format="png", dpi=DPI, metadata={"Software": None})
        _rewrite(docs / "studies" / f"{name}.md", found(part))
        headline = part.headline.replace("|", "\\|")  # a bar would end the cell
        rows[name] = f"| [{name}]({name}.md) | {headline} | {part.outcome} |"
    table = "\n".join(["| study | what was found | |", "|---|---|---|", *rows.values()])
    _rewrite(docs / "studies" / "README.md", table)


def _rows(page: str) -> dict[str, str]:
    """The row of each study, as it stands in the list."""
    lines = page.splitlines()
    return {name: next(s for s in lines if s.startswith(f"| [{name}](")) for name in NAMES}


def _rewrite(path: Path, text: str) -> None:
    page = between_marks(path.read_text(encoding="utf-8"), text)
    with atomic_path(path) as temporary:
        temporary.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    write_pages(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:] or NAMES)

"""The gallery: docs/gallery.md and its pictures, from what `attnlab reproduce` made.

python -m attnlab.report.gallery out docs
python -m attnlab.report.gallery out docs out-wikitext    # the figures at paper size, too
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

import xarray as xr
from jinja2 import Template

from attnlab.experiments import Part, experiment, figures, recipe_for
from attnlab.experiments.running import the_record, unseal_record
from attnlab.files.atomic import atomic_path, write_text
from attnlab.files.markdown import raw_template, table
from attnlab.files.netcdf import load
from attnlab.files.shipped import PACKAGE
from attnlab.report.page import by_paper, capitalised, figure_title
from attnlab.shelf import figure, shelf

DPI = 110  # pictures of a page on a screen, not on paper

STUDIES = "## Studies of our own\n"  # begins the last part of the page
WIKITEXT = "wikitext"  # recipes at paper size
# around what the page of a study says of them
AT_PAPER_SIZE = ("<!-- wikitext: begin -->", "<!-- wikitext: end -->")

_FINDING = re.compile(r"^\*\*(.+?)\.\*\* (.+)$", re.MULTILINE)


def paper_size_command(name: str) -> str:
    """Return the command for an experiment on text at paper size."""
    return f"./lab reproduce {name} --recipes {WIKITEXT} --out out-wikitext"


def gallery(made: Sequence[Part], docs: Path) -> str:
    """Return the page: what a paper says with each figure, what was found, and how.

    A paper none of whose figures is in `made` keeps the part that it has in `docs`.
    """

    def entry(part: Part) -> tuple[Part, str, str, str]:
        path = docs / WIKITEXT / f"{part.name}.md"
        larger = path.read_text(encoding="utf-8") if path.exists() else ""
        return part, *verdict(part.outcome, part.headline, larger), larger

    papers = [(of, [entry(part) for part in members]) for of, members in by_paper(made).items()]
    new = sections(_template("gallery.md.jinja").render(papers=papers) + studies(docs))
    found = {**sections((docs / "gallery.md").read_text(encoding="utf-8")), **new}
    titles = ["# Gallery", *(f"## {paper.short}" for paper in shelf().papers), STUDIES.strip()]
    return "".join(found[title] for title in titles if title in found)


def sections(page: str) -> dict[str, str]:
    """Return the introduction, the part of each paper and the studies, by title."""
    parts = re.split(r"^(?=## )", page, flags=re.MULTILINE)
    return {part.partition("\n")[0].partition(" (")[0]: part for part in parts}


def studies(docs: Path) -> str:
    """Return the last part of the page: the studies, as their records in docs/ have them."""
    shown = []
    for name, (outcome, headline) in study_verdicts(docs).items():
        paper, short, _ = figure(name)
        has_both = paper.recipe_file(short, WIKITEXT).is_file()
        about = recipe_for(name).about or ""
        shown.append((experiment(name), headline, outcome, about, has_both))
    return _template("studies.md.jinja").render(studies=shown).rstrip("\n") + "\n"


def _template(name: str) -> Template:
    return raw_template(
        "attnlab.report",
        name,
        capitalised=capitalised,
        title=figure_title,
        table=table,
        sources=_sources,
        recipe=_recipe,
        command=paper_size_command,
    )


def verdict(outcome: str, headline: str, larger: str) -> tuple[str, str]:
    """Return outcome and headline of an experiment, those at paper size first where it has them.

    larger: what `at_paper_size` wrote, or a page that holds it; empty where there is none.
    """
    finding = _FINDING.search(larger)
    if finding is None:
        return outcome, headline
    there, found = finding.groups()
    there = there[0].lower() + there[1:]
    return there, f"At paper size: {found} At laptop size ({outcome}): {headline}"


def study_verdicts(docs: Path) -> dict[str, tuple[str, str]]:
    """Return outcome and headline of each study that has a record in `docs`."""
    found = {}
    for name in figures(ours=True):
        record, page = docs / f"{name}.json", docs / f"{name}.md"
        if record.is_file():
            made, text = unseal_record(record), page.read_text(encoding="utf-8")
            larger = text.partition(AT_PAPER_SIZE[0])[2].partition(AT_PAPER_SIZE[1])[0]
            found[name] = verdict(made.outcome, made.headline, larger)
    return found


def _sources(name: str) -> str:
    """Return the command, the recipe and the code of a figure."""
    paper, _, reference = figure(name)
    file = f"{reference.target.partition(':')[0].replace('.', '/')}.py"
    code = f"[{Path(file).name}]({_link(paper.folder / file)})"
    return f"`./lab reproduce {name}` · recipe {_recipe(name)} · code {code}"


def _recipe(name: str, size: str = "") -> str:
    paper, short, _ = figure(name)
    path = paper.recipe_file(short, size)
    return f"[{path.relative_to(paper.folder).as_posix()}]({_link(path)})"


def _link(path: Path) -> str:
    """Return a link from docs/ to a file of a paper that comes with attnlab."""
    return f"../src/attnlab/{path.relative_to(PACKAGE).as_posix()}"


def write_gallery(out: Path, docs: Path, wikitext: Path | None = None) -> None:
    """Draw the figures from their data in `out` at a modest size, and write the page.

    Papers with no folder in `out` keep their pictures and their part of the page.

    wikitext: what `paper_size_command` made. It is kept in docs/wikitext, and not needed again.
    """
    made = [the_record(out / name) for name in figures(ours=False) if (out / name).parent.is_dir()]
    for part in made:
        draw_small(part.name, out, docs / "images" / f"{part.name}.png")
    if wikitext is not None:
        for name in [part.name for part in made if (wikitext / part.name).is_dir()]:
            draw_small(name, wikitext, docs / "images" / f"{name}-wikitext.png")
            path = docs / WIKITEXT / f"{name}.md"
            path.parent.mkdir(parents=True, exist_ok=True)
            write_text(path, at_paper_size(name, wikitext))
    write_text(docs / "gallery.md", gallery(made, docs))


def draw_small(name: str, out: Path, path: Path) -> None:
    """Draw an experiment again from its data in `out`, for a page."""
    picture = experiment(name).draw(_data(name, out))
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(path) as temporary:
        picture.savefig(temporary, format="png", dpi=DPI, metadata={"Software": None})


def _data(name: str, out: Path) -> xr.Dataset:
    return load(out / name / f"{Path(name).name}.nc")


def at_paper_size(name: str, out: Path) -> str:
    """Return what was found on WikiText, with the experiment's table if it has one."""
    shown, data = experiment(name), _data(name, out)
    judgement = shown.judge(data)
    lines = [
        f"At paper size, on WikiText-2 (`{paper_size_command(name)}`), trained on its test split "
        "and judged on its validation split.",
        f"**{capitalised(shown.in_words(judgement.standing))}.** {judgement.headline}",
        judgement.summary.removeprefix(judgement.headline).strip(),
    ]
    if shown.table:
        lines.append(table(shown.table(data).shown()))
    return "\n\n".join(lines) + "\n"


if __name__ == "__main__":
    write_gallery(*map(Path, sys.argv[1:]))

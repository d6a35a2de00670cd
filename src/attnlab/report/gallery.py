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

from attnlab.experiments import Made, experiment, figures, recipe_for
from attnlab.experiments.made import the_record
from attnlab.files.atomic import atomic_path
from attnlab.files.netcdf import load
from attnlab.files.shipped import PACKAGE
from attnlab.report.page import by_paper, capitalised, figure_title
from attnlab.shelf import figure

DPI = 110  # pictures of a page on a screen, not on paper

HEAD = """# Gallery

The figures of the papers, made by one command:

    ./lab reproduce

It writes to `out/`: for each figure a folder in that of its paper, with PNG and PDF and its data
as CSV and netCDF, the audit, and `report.html` with settings, verdicts and numbers. Each entry has
what the paper says beside what was found, what the picture shows, its data and its code; published
values stand where they are known. Experiments on text come at two sizes: the verdict is that at
paper size, on WikiText-2, and that at laptop size is named beside it. This page is made from it by
`./lab python -m attnlab.report.gallery out docs`.
"""
STUDIES = """## Studies of our own

What the papers leave open. `./lab reproduce` with the names of these makes them, each with its data
in a folder of its name.
"""
WIKITEXT = "wikitext"  # recipes at paper size


_FINDING = re.compile(r"^\*\*(.+?)\.\*\* (.+)$", re.MULTILINE)


def paper_size_command(name: str) -> str:
    """Return the command for an experiment on text at paper size."""
    return f"./lab reproduce {name} --recipes {WIKITEXT} --out out-wikitext"


def gallery(made: Sequence[Made], docs: Path) -> str:
    """Return the page: what a paper says with each figure beside what was found, and how."""
    shown = [HEAD]
    for paper, members in by_paper(made).items():
        shown.append(f"## {paper.short} ({paper.authors}, {paper.venue} {paper.year})\n")
        for part in members:
            path = docs / WIKITEXT / f"{part.name}.md"
            larger = path.read_text(encoding="utf-8") if path.exists() else ""
            shown.append(entry(part, larger))
            if larger:
                picture = f"images/{part.name}-wikitext.png"
                shown.append(
                    f"![{figure_title(part.name)} on WikiText-2]({picture})\n\n{larger}\n"
                    f"Recipe {_recipe(part.name, WIKITEXT)}\n"
                )
    return "\n".join([*shown, studies(docs)])


def studies(docs: Path) -> str:
    """Return the last part of the page: the studies, as their lists in docs/ have them."""
    rows = study_rows(docs)
    return "\n".join([STUDIES, *(study_entry(name, *row) for name, row in rows.items())])


def refresh_studies(docs: Path) -> None:
    """Bring the studies of the page up to date with their lists."""
    before = (docs / "gallery.md").read_text(encoding="utf-8").partition(STUDIES)[0]
    with atomic_path(docs / "gallery.md") as temporary:
        temporary.write_text(f"{before}{studies(docs)}", encoding="utf-8")


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


def entry(part: Made, larger: str = "") -> str:
    """Return a figure: claim, finding, picture, what it shows, numbers, and how to make it."""
    outcome, headline = verdict(part.outcome, part.headline, larger)
    data = [f"`out/{part.name}/{file}`" for file in part.files if file.endswith((".csv", ".nc"))]
    title = figure_title(part.name)
    lines = [
        f"### {title}. {part.title}",
        f"{capitalised(part.source)}: {part.about}",
        f"**{capitalised(outcome)}.** {headline}",
        f"Ours, not the paper's: {part.settings['ours']}." if "ours" in part.settings else "",
        f"![{title}: {part.title}](images/{part.name}.png)",
        f"What it shows: {part.alt}",
        f"{part.caption}\n\n{markdown(part.table)}" if part.table else "",
        f"{_sources(part.name)} · data {', '.join(data)}",
    ]
    return "\n\n".join(filter(None, lines)) + "\n"


def study_entry(name: str, headline: str, outcome: str) -> str:
    """Return a study: what is asked, what was found, picture, and how to make it."""
    study, about = experiment(name), recipe_for(name).about or ""
    paper, short, _ = figure(name)
    larger = f" · at paper size `{paper_size_command(name)}`, {_recipe(name, WIKITEXT)}"
    has_both = paper.recipe_file(short, WIKITEXT).is_file()
    lines = [
        f"### {figure_title(name)}. {study.title}",
        about,
        f"**{capitalised(outcome)}.** {headline}",
        f"![{figure_title(name)}: {study.title}](images/{name}.png)",
        f"{_sources(name)} · data `out/{name}/{short}.csv`, `out/{name}/{short}.nc` · "
        f"[page]({name}.md){larger if has_both else ''}",
    ]
    return "\n\n".join(lines) + "\n"


def study_rows(docs: Path) -> dict[str, list[str]]:
    """Return headline and outcome of each study, from the list of its paper, README.md."""
    found = {}
    for name in figures(ours=True):
        path, short = (docs / name).parent / "README.md", Path(name).name
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        for row in [line for line in lines if line.startswith(f"| [{short}](")]:
            _, headline, outcome = re.split(r"(?<!\\)\|", row.strip("| "))
            found[name] = [headline.strip().replace("\\|", "|"), outcome.strip()]
    return found


def markdown(table: Sequence[Sequence[str]]) -> str:
    """A table, its heading first; lines within a cell stay apart."""
    heading, *rows = table
    cells = [heading, ["---"] * len(heading), *rows]
    lines = (" | ".join(cell.replace("|", "\\|") for cell in row) for row in cells)
    return "\n".join(f"| {line} |".replace("\n", "<br>") for line in lines)


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

    wikitext: what `paper_size_command` made. It is kept in docs/wikitext, and not needed again.
    """
    made = [the_record(out / name) for name in figures(ours=False)]
    for part in made:
        draw_small(part.name, out, docs / "images" / f"{part.name}.png")
    if wikitext is not None:
        for name in [part.name for part in made if (wikitext / part.name).is_dir()]:
            draw_small(name, wikitext, docs / "images" / f"{name}-wikitext.png")
            path = docs / WIKITEXT / f"{name}.md"
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_path(path) as temporary:
                temporary.write_text(at_paper_size(name, wikitext), encoding="utf-8")
    with atomic_path(docs / "gallery.md") as temporary:
        temporary.write_text(gallery(made, docs), encoding="utf-8")


def draw_small(name: str, out: Path, path: Path) -> None:
    """Draw an experiment again from its data in `out`, for a page."""
    picture = experiment(name).draw(_data(name, out))
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(path) as temporary:
        picture.savefig(temporary, format="png", dpi=DPI, metadata={"Software": None})


def _data(name: str, out: Path) -> xr.Dataset:
    return load(out / name / f"{Path(name).name}.nc")


def at_paper_size(name: str, out: Path) -> str:
    """What was found on WikiText, with the numbers where an experiment has a table of them."""
    shown, data = experiment(name), _data(name, out)
    judgement = shown.judge(data)
    lines = [
        f"At paper size, on WikiText-2 (`{paper_size_command(name)}`), trained on its test split "
        "and judged on its validation split.",
        f"**{capitalised(shown.in_words(judgement.standing))}.** {judgement.headline}",
        judgement.summary.removeprefix(judgement.headline).strip(),
    ]
    if shown.table:
        lines.append(markdown(shown.table(data).shown()))
    return "\n\n".join(lines) + "\n"


if __name__ == "__main__":
    write_gallery(*map(Path, sys.argv[1:]))

"""The gallery: docs/gallery.md and its pictures, from what `attnlab reproduce` made.

python -m attnlab.report.gallery out docs
python -m attnlab.report.gallery out docs out-wikitext    # the figures at paper size, too
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from attnlab.experiments import Made, experiment, names_of, recipe_for
from attnlab.experiments.catalogue import by_paper, module_of
from attnlab.experiments.made import the_record
from attnlab.files.atomic import atomic_path
from attnlab.files.netcdf import load
from attnlab.files.shipped import recipe_folder
from attnlab.report.page import capitalised, figure_title
from attnlab.shelf import paper

DPI = 110  # pictures of a page on a screen, not on paper

HEAD = """# Gallery

The figures of the papers, made by one command:

    ./lab reproduce

It writes to `out/`: for each figure a folder with PNG and PDF and its data as CSV and netCDF, the
audit, and `report.html` with settings, verdicts and numbers. Each entry has what the paper says
beside what was found, what the picture shows, its data and its code; published values stand where
they are known. Experiments on text come at two sizes: the verdict is that at paper size, on
WikiText-2, and that at laptop size is named beside it. This page is made from it by
`./lab python -m attnlab.report.gallery out docs`.
"""
STUDIES = """## Studies of our own

What the papers leave open ([all about them](studies/README.md)). `./lab study` makes them, each
with its data in a folder of its name.
"""


_FINDING = re.compile(r"^\*\*(.+?)\.\*\* (.+)$", re.MULTILINE)


def paper_size_command(name: str) -> str:
    """The command for an experiment on text at paper size, by its recipe in recipes/wikitext."""
    verb = "reproduce" if experiment(name).kind == "figure" else "study"
    return f"./lab {verb} {name} --recipes recipes/wikitext --out out-wikitext"


def gallery(made: Mapping[str, Made], docs: Path) -> str:
    """The page: what the paper says with each figure beside what was found, recipe and command."""
    shown = [HEAD]
    first = {names[0]: paper(folder) for folder, names in by_paper(made).items()}
    for name, part in made.items():
        if name in first:
            paper = first[name]
            shown.append(f"## {paper.short} ({paper.authors}, {paper.venue} {paper.year})\n")
        path = docs / "wikitext" / f"{name}.md"
        larger = path.read_text(encoding="utf-8") if path.exists() else ""
        shown.append(entry(name, part, larger))
        if larger:
            shown.append(
                f"![{figure_title(name)} on WikiText-2](images/{name}-wikitext.png)\n\n{larger}\n"
                f"Recipe [recipes/wikitext/{name}.yaml](../recipes/wikitext/{name}.yaml)\n"
            )
    return "\n".join([*shown, studies(docs)])


def studies(docs: Path) -> str:
    """The last part of the page: the studies, as their list in docs/ has them."""
    rows = study_rows((docs / "studies" / "README.md").read_text(encoding="utf-8"))
    return "\n".join([STUDIES, *(study_entry(name, *rows[name]) for name in names_of("study"))])


def refresh_studies(docs: Path) -> None:
    """Bring the studies of the page up to date with their list."""
    figures = (docs / "gallery.md").read_text(encoding="utf-8").partition(STUDIES)[0]
    with atomic_path(docs / "gallery.md") as temporary:
        temporary.write_text(f"{figures}{studies(docs)}", encoding="utf-8")


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


def entry(name: str, part: Made, larger: str = "") -> str:
    """A figure: claim, finding, picture, what it shows, numbers, and how to make it."""
    outcome, headline = verdict(part.outcome, part.headline, larger)
    data = [f"`out/{name}/{file}`" for file in part.files if file.endswith((".csv", ".nc"))]
    lines = [
        f"### {figure_title(name)}. {part.title}",
        f"{capitalised(part.source)}: {part.about}",
        f"**{capitalised(outcome)}.** {headline}",
        f"Ours, not the paper's: {part.settings['ours']}." if "ours" in part.settings else "",
        f"![{figure_title(name)}: {part.title}](images/{name}.png)",
        f"What it shows: {part.alt}",
        f"{part.caption}\n\n{markdown(part.table)}" if part.table else "",
        f"`./lab reproduce {name}` · {_sources(name, f'recipes/{name}.yaml')} · data "
        f"{', '.join(data)}",
    ]
    return "\n\n".join(filter(None, lines)) + "\n"


def study_entry(name: str, headline: str, outcome: str) -> str:
    """A study: what is asked, what was found, picture, and how to make it."""
    study, about = experiment(name), recipe_for(name).about or ""
    larger = f"recipes/wikitext/study-{name}.yaml"
    at_paper_size = f" · at paper size `{paper_size_command(name)}`, [{larger}](../{larger})"
    has_both = (recipe_folder() / "wikitext" / f"study-{name}.yaml").is_file()
    lines = [
        f"### {capitalised(name)}. {study.title}",
        about,
        f"**{capitalised(outcome)}.** {headline}",
        f"![{capitalised(name)}: {study.title}](images/studies/{name}.png)",
        f"`./lab study {name}` · {_sources(name, f'recipes/study-{name}.yaml')} · data "
        f"`out/{name}/{name}.csv`, `out/{name}/{name}.nc` · [page](studies/{name}.md)"
        + (at_paper_size if has_both else ""),
    ]
    return "\n\n".join(lines) + "\n"


def study_rows(page: str) -> dict[str, list[str]]:
    """Headline and outcome of each study, from their list."""
    found = {}
    for name in names_of("study"):
        row = next(line for line in page.splitlines() if line.startswith(f"| [{name}]("))
        _, headline, outcome = re.split(r"(?<!\\)\|", row.strip("| "))
        found[name] = [headline.strip().replace("\\|", "|"), outcome.strip()]
    return found


def markdown(table: Sequence[Sequence[str]]) -> str:
    """A table, its heading first; lines within a cell stay apart."""
    heading, *rows = table
    cells = [heading, ["---"] * len(heading), *rows]
    lines = (" | ".join(cell.replace("|", "\\|") for cell in row) for row in cells)
    return "\n".join(f"| {line} |".replace("\n", "<br>") for line in lines)


def _sources(name: str, recipe: str) -> str:
    return f"recipe [{recipe}](../{recipe}) · code [{name}.py](../src/{_code(name)})"


def write_gallery(out: Path, docs: Path, wikitext: Path | None = None) -> None:
    """Draw the figures from their data in `out` at a modest size, and write the page.

    wikitext: what `paper_size_command` made. It is kept in docs/wikitext, and not needed again.
    """
    for folder in ("images", "wikitext"):
        (docs / folder).mkdir(parents=True, exist_ok=True)
    made = {name: the_record(out / name) for name in names_of("figure")}
    for name in made:
        draw_small(name, out, docs / "images" / f"{name}.png")
    if wikitext is not None:
        for name in [name for name in made if (wikitext / name).is_dir()]:
            draw_small(name, wikitext, docs / "images" / f"{name}-wikitext.png")
            with atomic_path(docs / "wikitext" / f"{name}.md") as temporary:
                temporary.write_text(at_paper_size(name, wikitext), encoding="utf-8")
    with atomic_path(docs / "gallery.md") as temporary:
        temporary.write_text(gallery(made, docs), encoding="utf-8")


def _code(name: str) -> str:
    """The file of an experiment."""
    return f"{module_of(name).replace('.', '/')}.py"


def draw_small(name: str, out: Path, path: Path) -> None:
    """Draw an experiment again from its data in `out`, for a page."""
    picture = experiment(name).draw(load(out / name / f"{name}.nc"))
    with atomic_path(path) as temporary:
        picture.savefig(temporary, format="png", dpi=DPI, metadata={"Software": None})


def at_paper_size(name: str, out: Path) -> str:
    """What was found on WikiText, with the numbers where an experiment has a table of them."""
    figure, data = experiment(name), load(out / name / f"{name}.nc")
    judgement = figure.judge(data)
    lines = [
        f"At paper size, on WikiText-2 (`{paper_size_command(name)}`), trained on its test split "
        "and judged on its validation split.",
        f"**{capitalised(figure.in_words(judgement.standing))}.** {judgement.headline}",
        judgement.summary.removeprefix(judgement.headline).strip(),
    ]
    if figure.table:
        lines.append(markdown(figure.table(data).shown()))
    return "\n\n".join(lines) + "\n"


if __name__ == "__main__":
    write_gallery(*map(Path, sys.argv[1:]))

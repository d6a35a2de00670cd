"""The gallery: docs/gallery.md and its pictures, from what `attnlab reproduce` made.

python -m attnlab.report.gallery out docs
python -m attnlab.report.gallery out docs out-wikitext    # the figures at paper size, too
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from attnlab.experiments import Made, experiment, names_of
from attnlab.experiments.catalogue import by_paper, module_of, papers
from attnlab.experiments.made import the_record
from attnlab.files.atomic import atomic_path
from attnlab.files.netcdf import load
from attnlab.report.page import capitalised, figure_title

DPI = 110  # pictures of a page on a screen, not on paper

HEAD = """# Gallery

The figures of the papers, made by one command:

    ./lab reproduce

It writes to `out/`: for each figure a folder with PNG and PDF and its data as CSV and netCDF, the
audit, and `report.html` with settings, verdicts and numbers. This page is made from it by
`./lab python -m attnlab.report.gallery out docs`.
"""


# Figures on text come at laptop size, and at paper size by the recipes in recipes/wikitext.
PAPER_SIZE = "./lab reproduce {name} --recipes recipes/wikitext --out out-wikitext"


def gallery(made: Mapping[str, Made], docs: Path) -> str:
    """The page: what the paper says with each figure beside what was found, recipe and command."""
    shown = [HEAD]
    first = {names[0]: papers()[folder] for folder, names in by_paper(made).items()}
    for name, part in made.items():
        if name in first:
            paper = first[name]
            shown.append(f"## {paper.name} ({paper.authors}, {paper.venue} {paper.year})\n")
        ours = "ours" in part.settings
        shown.append(
            f"### {figure_title(name)}. {part.title}\n\n"
            f"{capitalised(part.source)}: {part.about}\n\n"
            f"**{capitalised(part.outcome)}.** {part.headline}\n\n"
            + (f"Ours, not the paper's: {part.settings['ours']}.\n\n" if ours else "")
            + f"![{figure_title(name)}: {part.title}](images/{name}.png)\n\n"
            f"`./lab reproduce {name}` · recipe [recipes/{name}.yaml](../recipes/{name}.yaml) · "
            f"code [{name}.py](../src/{_code(name)})\n"
        )
        at_paper_size = docs / "wikitext" / f"{name}.md"
        if at_paper_size.exists():
            shown.append(
                f"![{figure_title(name)} on WikiText-2](images/{name}-wikitext.png)\n\n"
                f"{at_paper_size.read_text(encoding='utf-8')}\n"
                f"`{PAPER_SIZE.format(name=name)}` · recipe "
                f"[recipes/wikitext/{name}.yaml](../recipes/wikitext/{name}.yaml)\n"
            )
    return "\n".join(shown)


def write_gallery(out: Path, docs: Path, wikitext: Path | None = None) -> None:
    """Draw the figures from their data in `out` at a modest size, and write the page.

    wikitext: what `PAPER_SIZE` made; kept in docs/wikitext, so that the page can be made without.
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
        "At paper size, on WikiText-2, trained on its test split and judged on its validation "
        f"split. **{capitalised(figure.in_words(judgement.standing))}.** {judgement.summary}",
    ]
    if figure.table:
        heading, *rows = figure.table(data).shown()
        cells = [heading, ["---"] * len(heading), *rows]
        lines.append("\n".join(f"| {' | '.join(row)} |".replace("\n", "<br>") for row in cells))
    return "\n\n".join(lines) + "\n"


if __name__ == "__main__":
    write_gallery(*map(Path, sys.argv[1:]))

"""The gallery: docs/gallery.md and its pictures, from what `attnlab reproduce` made.

python -m attnlab.report.gallery out docs
python -m attnlab.report.gallery out docs out-wikitext    # the figures at paper size, too
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from attnlab.figures import NAMES, figure
from attnlab.files.atomic import atomic_path
from attnlab.files.netcdf import load
from attnlab.report.page import figure_title
from attnlab.report.part import Part, the_record

DPI = 110  # pictures of a page on a screen, not on paper

HEAD = """# Gallery

The figures of "Scan and Snap", made by one command:

    ./lab reproduce

It writes to `out/`: for each figure a folder with PNG and PDF and its data as CSV and netCDF, the
audit, and `report.html` with settings, verdicts and numbers. This page is made from it by
`./lab python -m attnlab.report.gallery out docs`.
"""


# Figures that come at laptop size, and at paper size by the recipes in recipes/wikitext.
ON_TEXT = ("fig7", "fig10")
PAPER_SIZE = "./lab reproduce {name} --recipes recipes/wikitext --out out-wikitext"


def gallery(parts: Mapping[str, Part], docs: Path) -> str:
    """The page: what the paper says with each figure beside what was found, recipe and command."""
    shown = [HEAD]
    for name, part in parts.items():
        ours = "ours" in part.settings
        shown.append(
            f"## {figure_title(name)}. {part.title}\n\n"
            f"The paper: {part.about}\n\n"
            f"**{_sentence(part.outcome)}** {part.headline}\n\n"
            + (f"Ours, not the paper's: {part.settings['ours']}.\n\n" if ours else "")
            + f"![{figure_title(name)}: {part.title}](images/{name}.png)\n\n"
            f"`./lab reproduce {name}` · recipe [recipes/{name}.yaml](../recipes/{name}.yaml) · "
            f"code [figures/{name}.py](../src/attnlab/figures/{name}.py)\n"
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
    parts = {name: the_record(out / name) for name in NAMES}
    for name in NAMES:
        _draw(name, out, docs / "images" / f"{name}.png")
    if wikitext is not None:
        for name in ON_TEXT:
            _draw(name, wikitext, docs / "images" / f"{name}-wikitext.png")
            with atomic_path(docs / "wikitext" / f"{name}.md") as temporary:
                temporary.write_text(_at_paper_size(name, wikitext), encoding="utf-8")
    with atomic_path(docs / "gallery.md") as temporary:
        temporary.write_text(gallery(parts, docs), encoding="utf-8")


def _draw(name: str, out: Path, path: Path) -> None:
    picture = figure(name).draw(load(out / name / f"{name}.nc"))
    with atomic_path(path) as temporary:
        picture.savefig(temporary, format="png", dpi=DPI, metadata={"Software": None})


def _at_paper_size(name: str, out: Path) -> str:
    """What was found on WikiText, with the numbers where a figure has a table of them."""
    module, data = figure(name), load(out / name / f"{name}.nc")
    finding = module.judge(data)
    lines = [
        "At paper size, on WikiText-2, trained on its test split and judged on its validation "
        f"split. **{_sentence(finding.outcome)}** {finding.summary}",
    ]
    if hasattr(module, "table"):
        rows = module.table(data)
        cells = [list(rows[0]), ["---"] * len(rows[0])]
        cells += [[f"{value:.4g}" for value in row.values()] for row in rows]
        lines.append("\n".join(f"| {' | '.join(row)} |" for row in cells))
    return "\n\n".join(lines) + "\n"


def _sentence(outcome: str) -> str:
    return f"{outcome[0].upper()}{outcome[1:]}."


if __name__ == "__main__":
    write_gallery(*map(Path, sys.argv[1:]))

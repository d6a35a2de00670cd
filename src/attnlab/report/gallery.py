"""The gallery: docs/gallery.md and its pictures, from what `attnlab reproduce` made.

python -m attnlab.report.gallery out docs
"""

from __future__ import annotations

import sys
from pathlib import Path

from attnlab.figures import NAMES, figure, recipe_for
from attnlab.report.page import figure_title
from attnlab.results import atomic_path, load

DPI = 110  # pictures of a page on a screen, not on paper

HEAD = """# Gallery

The synthetic and theory figures of "Scan and Snap", made by one command:

    ./lab reproduce

It writes to `out/`: for each figure a folder with PNG and PDF and its data as CSV and netCDF, the
audit, and `report.html` with settings, verdicts and numbers. This page is made from it by
`./lab python -m attnlab.report.gallery out docs`.
"""


def gallery() -> str:
    """The page: every figure with its claim, its recipe and its command."""
    parts = [HEAD]
    for name in NAMES:
        module, recipe = figure(name), recipe_for(name)
        parts.append(
            f"## {figure_title(name)}. {module.TITLE}\n\n"
            f"{recipe.about}\n\n"
            f"![{figure_title(name)}: {module.TITLE}](images/{name}.png)\n\n"
            f"`./lab reproduce {name}` · recipe [recipes/{name}.yaml](../recipes/{name}.yaml) · "
            f"code [figures/{name}.py](../src/attnlab/figures/{name}.py)\n"
        )
    return "\n".join(parts)


def write_gallery(out: Path, docs: Path) -> None:
    """Draw the figures from their data in `out` at a modest size, and write the page."""
    (docs / "images").mkdir(parents=True, exist_ok=True)
    for name in NAMES:
        picture = figure(name).draw(load(out / name / f"{name}.nc"))
        with atomic_path(docs / "images" / f"{name}.png") as temporary:
            picture.savefig(temporary, format="png", dpi=DPI, metadata={"Software": None})
    with atomic_path(docs / "gallery.md") as temporary:
        temporary.write_text(gallery(), encoding="utf-8")


if __name__ == "__main__":
    write_gallery(Path(sys.argv[1]), Path(sys.argv[2]))

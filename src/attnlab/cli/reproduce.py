"""attnlab reproduce: every figure, the audit and the report, with a display of what is left."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from attnlab.cli import options
from attnlab.cli.arguments import completing, figures_by_paper
from attnlab.cli.parts import tell_parts, watching_parts
from attnlab.files.progress import LOADING, waiting

PAPERS = figures_by_paper()
PARTS = (*(name for figures in PAPERS.values() for name in figures), "audit", "report")
HELP = """Make the papers' figures, the audit and one HTML report.

Without arguments everything is made, in under 8 minutes on two cores. Name parts to make only
some: fig2 to fig12, joma for all about that paper, audit. It ends in report.html about these; name
report as well, or alone, for a page with all that is there, and with the studies. What is there
already is reused unless its recipe (recipes/fig6.yaml and so on) or the code has changed. Figs. 7
and 10, on text, come at laptop size; recipes/wikitext has them at paper size.

\b
Examples:
  attnlab reproduce
  attnlab reproduce fig6 fig9 --out results
  attnlab reproduce joma
  attnlab reproduce fig6 --seeds 40
  attnlab reproduce report
  attnlab reproduce fig7 fig10 --recipes recipes/wikitext --out out-wikitext

Exit code 0; 1 when a number is outside the regression bounds of its recipe, or a verdict of the
audit is not the recorded one; 2 for bad input.
"""


def reproduce_verb(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PART]...",
            help="fig2 ... fig12, joma, audit, report.",
            autocompletion=completing(*PAPERS, *PARTS),
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="Where everything goes.")] = Path("out"),
    seeds: Annotated[
        int | None, typer.Option(help="Seeds of Figs. 6, 11 and 12; 10 unless given.")
    ] = None,
    recipes: Annotated[Path | None, typer.Option(help="A folder with recipes of your own.")] = None,
    as_json: options.AsJson = False,
) -> None:
    with waiting(LOADING, quiet=as_json):
        from attnlab.playground.page_files import single_page
        from attnlab.report import reproduce

    with watching_parts(as_json) as watch:
        done = reproduce(
            names or [], out=out, recipes=recipes, seeds=seeds, watch=watch,
            playground=single_page(),
        )  # fmt: skip
    tell_parts(done, as_json=as_json)

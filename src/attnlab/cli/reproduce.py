"""attnlab reproduce: the figures of papers, the audit and the report, and what is left of them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from attnlab.cli import options
from attnlab.cli.arguments import completing
from attnlab.cli.parts import show_parts, watching_parts
from attnlab.files.errors import InputError
from attnlab.files.progress import LOADING, waiting
from attnlab.shelf import add_folder, offered, shelf

FIGURES = tuple(offered("figures"))
PAPERS = tuple(dict.fromkeys(name.partition("/")[0] for name in FIGURES))
OURS = tuple(known.name for known in shelf().papers if known.reading == "ours" and known.figures)
NAMES = (*PAPERS, *(name.partition("/")[2] for name in FIGURES), "audit", "report", *FIGURES)
SOME = next(iter(FIGURES), "paper/figure").rpartition("/")  # an example
HELP = f"""Make the figures of papers, the audit and one HTML report.

Without arguments it makes the figures of all papers but our own studies, the audit and the report,
in under 8 minutes on two cores. Name parts to make only some: a paper ({", ".join(PAPERS)}), a
figure, audit. Our studies ({", ".join(OURS)}) are made where they are named, in 10 minutes more.

It ends in report.html about these; name report as well, or alone, for a page with all that is
there. What is there already is reused unless its recipe, in the folder recipes/ of its paper, or
the code has changed. --recipes takes a folder with recipes of yours, or the name of one among a
paper's: wikitext has experiments on text at paper size, which come at laptop size otherwise.

\b
Examples:
  attnlab reproduce
  attnlab reproduce {SOME[0]} --out results
  attnlab reproduce {"".join(SOME)}
  attnlab reproduce {SOME[2]} --seeds 40
  attnlab reproduce {" ".join(OURS)} report

Numbers of a study are found again on each half of its seeds. Exit code 0; 1 when these halves
differ by more than three errors, a number is outside the regression bounds of its recipe, or a
verdict of the audit is not the recorded one; 2 for bad input.
"""


def reproduce_verb(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PART]...",
            help="PAPER, PAPER/FIGURE, FIGURE, audit or report.",
            autocompletion=completing(*NAMES),
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="Where everything goes.")] = Path("out"),
    seeds: Annotated[
        int | None, typer.Option(help="Seeds of what is averaged over some; the recipe's.")
    ] = None,
    recipes: Annotated[
        Path | None, typer.Option(help="A folder with recipes of yours, or one of the papers'.")
    ] = None,
    paper: Annotated[
        list[Path] | None, typer.Option(help="A folder with a paper of your own; repeatable.")
    ] = None,
    record: Annotated[
        bool, typer.Option("--record", help="Write what was found into the papers' expected.json.")
    ] = False,
    as_json: options.AsJson = False,
) -> None:
    if record and not (seeds is None and recipes is None):
        raise InputError(
            "record: expected the papers' own recipes; leave out --seeds and --recipes"
        )
    for folder in paper or ():
        add_folder(folder)
    with waiting(LOADING, quiet=as_json):
        from attnlab.experiments.recording import record as write
        from attnlab.playground.page_files import single_page
        from attnlab.report import reproduce

    with watching_parts(as_json) as watch:
        done = reproduce(
            names or [], out=out, recipes=recipes, seeds=seeds, watch=watch,
            playground=single_page(),
        )  # fmt: skip
    written = write(done.made) if record else []
    show_parts(done, written, as_json=as_json)

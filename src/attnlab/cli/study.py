"""attnlab study: the studies of what the paper leaves open, with a bar that tells what is left."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from attnlab.cli import options
from attnlab.cli.arguments import completing, recipe_names
from attnlab.cli.parts import tell_parts, watching_parts
from attnlab.files.progress import LOADING, waiting

NAMES = recipe_names("study-*")
HELP = f"""Run the studies of what the paper leaves open: each makes a figure, data and numbers.

Without arguments all {len(NAMES)} are made, in under 10 minutes on two cores: {" ".join(NAMES[:3])}
{" ".join(NAMES[3:])}. What is there already is reused unless its recipe
(recipes/study-length.yaml and so on) or the code has changed. docs/studies/ says what was found.

\b
Examples:
  attnlab study
  attnlab study length --out results
  attnlab study spurious heads --seeds 40

Every number is found again on each half of the seeds. Exit code 0; 1 when these halves differ by
more than three errors, or a number is outside the regression bounds of its recipe; 2 for bad input.
"""


def study_verb(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME]...", help="Studies by name.", autocompletion=completing(*NAMES)
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="Where everything goes.")] = Path("out"),
    seeds: Annotated[int | None, typer.Option(help="Seeds; the recipe's unless given.")] = None,
    recipes: Annotated[Path | None, typer.Option(help="A folder with recipes of your own.")] = None,
    as_json: options.AsJson = False,
) -> None:
    with waiting(LOADING, quiet=as_json):
        from attnlab.report import make_studies

    with watching_parts(as_json) as watch:
        done = make_studies(names or [], out=out, recipes=recipes, seeds=seeds, watch=watch)
    tell_parts(done, as_json=as_json)

"""attnlab reproduce: the figures of papers, the audit and the report, and what is left of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from attnlab.cli.exit_codes import NOT_AS_RECORDED
from attnlab.cli.printing import say, say_json, say_written, show_table
from attnlab.files.errors import InputError
from attnlab.files.progress import LOADING, waiting
from attnlab.report.parts import chosen_parts
from attnlab.shelf import add_folder

if TYPE_CHECKING:
    from attnlab.experiments import Part
    from attnlab.report import Reproduction


def reproduce_verb(
    parts: list[str] | None = None,
    *,
    out: Path = Path("out"),
    seeds: int | None = None,
    recipes: Path | None = None,
    paper: list[Path] | None = None,
    record: bool = False,
    as_json: bool = False,
) -> None:
    """Make the figures of papers, the audit and one HTML report.

    Without arguments it makes the figures of all papers but our own studies, the audit and the
    report, in under 8 minutes on two cores. Name parts to make only some: a paper, a figure, audit.
    Our studies are made where they are named, in 10 minutes more.

    It ends in report.html about these; name report as well, or alone, for a page with all that is
    there. What is there already is reused unless its recipe, in the folder recipes/ of its paper,
    or the code has changed. --recipes takes a folder with recipes of yours, or the name of one
    among a paper's: wikitext has experiments on text at paper size, which come at laptop size
    otherwise.

    \b
    Examples:
      attnlab reproduce
      attnlab reproduce PAPER --out results
      attnlab reproduce PAPER/FIGURE
      attnlab reproduce FIGURE --seeds 40
      attnlab reproduce studies report

    Numbers of a study are found again on each half of its seeds. Exit code 0; 1 when these halves
    differ by more than three errors, a number is outside the regression bounds of its recipe, or a
    verdict of the audit is not the recorded one; 2 for bad input.

    Options
    -------
    parts : [PART]...
        PAPER ({papers}), PAPER/FIGURE, FIGURE, audit or report.
    out
        Where everything goes.
    seeds
        Seeds of what is averaged over some; the recipe's.
    recipes
        A folder with recipes of yours, or one of the papers'.
    paper
        A folder with a paper of your own; repeatable.
    record
        Write what was found into the papers' expected.json.
    """
    if record and not (seeds is None and recipes is None):
        raise InputError(
            "record: expected the papers' own recipes; leave out --seeds and --recipes"
        )
    for folder in paper or ():
        add_folder(folder)
    chosen_parts(parts or [])  # a mistyped name is refused before JAX is loaded
    with waiting(LOADING, quiet=as_json):
        from attnlab.experiments.running import record as write
        from attnlab.playground.single_page import single_page
        from attnlab.report import reproduce

    done = reproduce(
        parts or [],
        out=out,
        recipes=recipes,
        seeds=seeds,
        progress=False if as_json else "auto",
        tell=lambda line: None if as_json else say(line, error=True),
        playground=single_page(),
    )
    written = write(done.made) if record else []
    if as_json:
        document = {
            "out": str(done.out),
            "report": str(done.report),
            "seconds": round(done.seconds, 2),
            "parts": [_made_document(done.out, made) for made in done.made],
        }
        say_json(document)
    else:
        _print_parts(done)
        say_written(*written)
    if any(made.out_of_bounds() or made.unsettled() for made in done.made):
        raise typer.Exit(NOT_AS_RECORDED)


def _made_document(out: Path, made: Part) -> dict[str, Any]:
    texts = ("name", "title", "standing", "outcome", "headline", "summary", "made_at", "reused")
    return {
        **{name: getattr(made, name) for name in texts},
        "claim": made.about,
        "numbers": dict(made.numbers),
        "regression_bounds": {name: list(b) for name, b in made.regression_bounds.items()},
        "out_of_bounds": made.out_of_bounds(),
        "halves": [dict(half) for half in made.halves],
        "unsettled": made.unsettled(),
        "settings": dict(made.settings),
        "files": [str(out / made.name / name) for name in made.files],
        "seconds": round(made.seconds, 2),
        "versions": dict(made.versions),
    }


def _print_parts(done: Reproduction) -> None:
    """Print a table of what was found, what is not as recorded, and where everything is."""
    from attnlab.experiments.estimate import MOST_APART, apart

    rows = [{"part": of.name, "": of.outcome, "what was found": of.headline} for of in done.made]
    if rows:
        show_table(rows)
    for made in done.made:
        for name, value in made.out_of_bounds().items():
            low, high = made.regression_bounds[name]
            say(
                f"{made.name}: {name} = {value:.4g} is outside its regression bounds, {low:g} to "
                f"{high:g}"
            )
        unsettled = made.unsettled()
        if made.halves and not unsettled:
            by = apart(made.halves)
            say(
                f"{made.name}: the halves of its seeds agree in {len(by)} numbers; at most "
                f"{max(by.values(), default=0.0):.1f} errors apart"
            )
        for name, errors in unsettled.items():
            first, second = (half[name] for half in made.halves)
            say(
                f"{made.name}: {name} is {first:.4g} on one half of the seeds and {second:.4g} on "
                f"the other, {errors:.1f} errors apart (at most {MOST_APART:g}): take more "
                "(--seeds)"
            )
    say(f"{done.report} ({done.seconds:.0f} s)")

"""attnlab audit: every claim put to the test, or the theories on your classes."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from attnlab.cli import options
from attnlab.cli.arguments import PAPERS, PICTURES, PRESETS, check_writable, completing
from attnlab.cli.audit_tables import show
from attnlab.cli.exit_codes import NOT_AS_RECORDED
from attnlab.defaults import ETA_Y, ETA_Z
from attnlab.files.errors import InputError
from attnlab.files.progress import LOADING, on_terminal, repeating, waiting

if TYPE_CHECKING:
    from collections.abc import Callable

    from attnlab.auditing import Audit

HELP = """Put every claim of the papers to the test, or the theories to classes of yours.

Without CLASSES: each claim is predicted, measured and judged on built-in settings, against the
formulas and against training, and compared with the verdict on record (exit code 1 if one has
changed); --record puts what was found on record, in expected.json of each paper. With --claim: how
it was read, its hypotheses with their values, its checks, and the counterexample. With CLASSES (a
preset or a file): which assumptions hold, with their values; how far each theory is from training,
and how the error changes from one to the next; the fate of each token and the snap of each class,
predicted and simulated; and what that comes to, in words. --plot draws attention as predicted (by
the last theory that speaks) and in training. The rates are those of attnlab simulate unless they
are given.

\b
Examples:
  attnlab audit
  attnlab audit --paper PAPER
  attnlab audit --claim ID --claim ANOTHER
  attnlab audit recipes/classes-two-words.yaml --eta-y 10 --eta-z 1
  attnlab audit recipes/classes-two-words.yaml --html mine.html --plot mine.png
  attnlab audit recipes/classes-two-words.yaml --claim ID --json
"""


class Picture(NamedTuple):
    """A PNG and what it shows."""

    png: bytes | None
    caption: str


def audit_verb(
    classes: Annotated[
        str | None,
        typer.Argument(
            help="A preset or a file of sequence classes.", autocompletion=completing(*PRESETS)
        ),
    ] = None,
    eta_y: Annotated[
        float | None,
        typer.Option(help=f"Rate of the decoder Y, with CLASSES (default {ETA_Y:g})."),
    ] = None,
    eta_z: Annotated[
        float | None,
        typer.Option(help=f"Rate of the attention Z, with CLASSES (default {ETA_Z:g})."),
    ] = None,
    steps: Annotated[
        float | None, typer.Option(help="Flow time, with CLASSES (default 100 t_0).")
    ] = None,
    claim: Annotated[
        list[str] | None, typer.Option("--claim", help="Only this claim; may be repeated.")
    ] = None,
    paper: Annotated[
        str | None,
        typer.Option(
            help="Claims of this paper only: its name, or a folder.",
            autocompletion=completing(*PAPERS),
        ),
    ] = None,
    recording: Annotated[
        bool, typer.Option("--record", help="Write what was found to expected.json of the papers.")
    ] = False,
    html: Annotated[Path | None, typer.Option(help="Write one self-contained page.")] = None,
    plot: Annotated[
        Path | None,
        typer.Option(help="Draw prediction against training, with CLASSES (PNG, PDF, SVG)."),
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    check_writable(html, (".html", ".htm"), "html")
    check_writable(plot, PICTURES, "plot")
    rates = {"eta_y": eta_y, "eta_z": eta_z, "steps": steps}
    given = {name: value for name, value in rates.items() if value is not None}
    if classes is None and plot is not None:
        raise InputError("plot: it is of classes of yours; give CLASSES with it")
    if classes is None and given:
        option = next(iter(given)).replace("_", "-")
        raise InputError(f"{option}: the built-in settings have their own; give CLASSES with it")
    if classes is not None and (paper is not None or recording):
        option = "paper" if paper is not None else "record"
        raise InputError(f"{option}: it is for the claims on built-in settings; leave CLASSES out")
    written: list[Path] = []
    if classes is None:
        document, written = _all(claim or [], paper, recording, as_json)
        picture = None
    else:
        found = _trial(classes, given, claim or [], as_json)
        document = found.document()
        picture = _draw(found, html, plot, as_json)
    if html is not None:
        _write(document, html, picture)
    if as_json:
        print(json.dumps(document, indent=2, allow_nan=False))
    else:
        show(document, html, plot, *written)
    if recording or classes is not None:
        return
    if any(not found["as_recorded"] for found in document["claims"]):
        raise typer.Exit(NOT_AS_RECORDED)


def _all(
    ids: list[str], paper: str | None, recording: bool, quiet: bool
) -> tuple[dict[str, Any], list[Path]]:
    """Examine claims; return the document, and the files in which it was recorded."""
    with waiting(LOADING, quiet=quiet):
        from attnlab.auditing import examine_all, record, select, whole_audit
        from attnlab.auditing.built_in import amount, readable
        from attnlab.auditing.document import audit_document

    name = None if paper is None else _name_of(paper)
    maps = None
    if ids:
        claims = select(ids, paper=name)
        with _progress(len(claims), quiet) as tell:
            findings = examine_all(claims, tell=tell)
    else:
        papers = [] if name is None else [name]
        for fault in readable(papers)[1]:
            print(fault, file=sys.stderr)
        with _progress(amount(papers), quiet) as tell:
            findings, maps = whole_audit(papers, tell=tell)
    return audit_document(findings, maps or None), record(findings) if recording else []


def _name_of(paper: str) -> str:
    """Return the name of a paper that is given by its name, or by its folder."""
    from attnlab.shelf import add_folder

    return add_folder(paper).name if Path(paper).is_dir() else paper


def _trial(text: str, given: dict[str, Any], ids: list[str], quiet: bool) -> Audit:
    with waiting(LOADING, quiet=quiet):
        from attnlab.auditing import audit, select
        from attnlab.data import classes_from

    classes = classes_from(text)
    claims = select(ids) if ids else ()
    with _progress(len(claims) + 1, quiet) as tell:
        return audit(classes, claims=claims, tell=tell, **given)


def _draw(found: Audit, html: Path | None, plot: Path | None, quiet: bool) -> Picture | None:
    """Prediction against training, written to `plot`, and as a PNG where there is a page."""
    if html is None and plot is None:
        return None
    if not found.trial.predicted:
        if plot is not None:
            raise InputError("plot: no theory says anything here, so there is nothing to draw")
        return None
    with waiting("drawing", quiet=quiet):
        from io import BytesIO

        from attnlab.files.atomic import atomic_path
        from attnlab.plots import compare

        name = list(found.trial.predicted)[-1]
        figure = compare(found.trial.simulated, found.trial.predicted[name])
        if plot is not None:
            with atomic_path(plot) as temporary:
                figure.savefig(temporary, format=plot.suffix[1:], dpi=160)
        made = BytesIO()
        figure.savefig(made, format="png", dpi=160)
    caption = f"Attention in training (solid) and as {name} predicts it (dashed), class by class."
    return Picture(made.getvalue(), caption)


@contextmanager
def _progress(total: int, quiet: bool) -> Iterator[Callable[[str], None]]:
    """A bar on a terminal, lines elsewhere; the yielded function names what comes next."""
    told: list[str] = []
    if quiet:
        yield told.append
        return
    if not on_terminal():
        with repeating(lambda: f"{told[-1]}: {len(told) - 1} of {total} done" if told else "audit"):
            yield told.append
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"),
    )  # fmt: skip
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total)

        def tell(name: str) -> None:
            bar.update(task, description=name, completed=len(told))
            told.append(name)

        yield tell


def _write(document: dict[str, Any], path: Path, picture: Picture | None) -> None:
    from attnlab.auditing.html import page
    from attnlab.files.atomic import atomic_path

    with atomic_path(path) as temporary:
        shown = picture or Picture(None, "")
        text = page(document, picture=shown.png, caption=shown.caption)
        temporary.write_text(text, encoding="utf-8")

"""attnlab audit: test every claim of the papers, or the theories on your own run."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from attnlab.cli import options
from attnlab.cli.exit_codes import NOT_AS_RECORDED
from attnlab.cli.options import PICTURES, check_writable
from attnlab.cli.printing import say_json, say_written, show
from attnlab.files.errors import InputError
from attnlab.files.progress import LOADING, reporting, waiting
from attnlab.shelf import add_folder
from attnlab.shelf.papers import require_claims

if TYPE_CHECKING:
    from collections.abc import Callable

    from attnlab.auditing import Audit


def audit_verb(
    given: str | None = None,
    *,
    claim: list[str] | None = None,
    paper: str | None = None,
    recording: bool = False,
    prior: str | None = None,
    html: Path | None = None,
    plot: Path | None = None,
    as_json: bool = False,
    **settings: Any,
) -> None:
    """Test the papers' claims, or the theories on your own classes.

    Without an argument: each claim is predicted, measured and judged on built-in settings, against
    the formulas and against training, and compared with the verdict on record (exit code 1 if one
    has changed); --record writes the verdicts to expected.json of each paper. With --claim: how the
    claim was read, its hypotheses with their values, its checks, and the counterexample.

    With classes or a run (a preset or a file, as in attnlab simulate, and its options): which
    assumptions hold, with their values; how far each theory is from training, and how the error
    changes from one theory to the next; the fate of each token and the snap of each class,
    predicted and simulated; and a conclusion in words. Classes alone are trained by gradient flow,
    in float64, until long after the predicted transition. --plot draws attention as the last theory
    that applies predicts it, and in training.

    \b
    Examples:
      attnlab audit
      attnlab audit --paper PAPER
      attnlab audit --claim ID --claim ANOTHER
      attnlab audit recipes/classes-two-words.yaml --eta-y 10 --eta-z 1
      attnlab audit recipes/classes-two-words.yaml --html mine.html --plot mine.png
      attnlab audit recipes/classes-two-words.yaml --claim ID --json

    Claims
    ------
    claim
        Only this claim; may be repeated.
    paper
        Claims of this paper only: its name, or a folder.
    recording : --record
        Write the verdicts to expected.json of the papers.

    Output
    ------
    html
        Write one self-contained page.
    plot
        Draw prediction against training, with CLASSES (PNG, PDF, SVG).
    """
    check_writable(html, (".html", ".htm"), "html")
    check_writable(plot, PICTURES, "plot")
    of_classes = {"plot": plot, "prior": prior, **settings}
    asked = [name.replace("_", "-") for name, value in of_classes.items() if value is not None]
    if given is None and asked:
        raise InputError(f"{asked[0]}: the built-in settings have their own; give CLASSES with it")
    if given is not None and (paper is not None or recording):
        option = "paper" if paper is not None else "record"
        raise InputError(f"{option}: it is for the claims on built-in settings; leave CLASSES out")
    if paper is not None and Path(paper).is_dir():
        paper = add_folder(paper).name
    require_claims(claim or (), paper_name=paper)
    written: list[Path] = []
    picture: dict[str, Any] = {}
    if given is None:
        document, written = _all(claim or [], paper, recording, as_json)
    else:
        found = _audited(given, prior, settings, claim or [], as_json)
        document = found.document()
        picture = _draw(found, html, plot, as_json)
    from attnlab.auditing.document import in_markdown, page
    from attnlab.files.atomic import write_text

    if html is not None:
        write_text(html, page(document, **picture))
    if as_json:
        say_json(document)
    else:
        show(in_markdown(document))
        say_written(html, plot, *written)
    if recording or given is not None:
        return
    changed = any(not found["as_recorded"] for found in document["claims"])
    if changed or document.get("broken"):
        raise typer.Exit(NOT_AS_RECORDED)


def _all(
    ids: list[str], paper: str | None, recording: bool, quiet: bool
) -> tuple[dict[str, Any], list[Path]]:
    """Examine claims; return the document, and the files in which it was recorded."""
    with waiting(LOADING, quiet=quiet):
        from attnlab.auditing import examine_all, record, whole_audit
        from attnlab.auditing.catalogue import amount, find, readable
        from attnlab.auditing.document import audit_document

    maps = None
    if ids:
        claims, faults = find(ids, paper=paper)
        if not claims:
            raise InputError("; ".join(faults))
        with _progress(len(claims), quiet) as tell:
            findings = examine_all(claims, tell=tell)
    else:
        papers = [] if paper is None else [paper]
        faults = readable(papers)[1]
        with _progress(amount(papers), quiet) as tell:
            findings, maps = whole_audit(papers, tell=tell)
    for fault in faults:
        print(fault, file=sys.stderr)
    document = audit_document(findings, maps or None)
    if ids and faults:  # claims that were asked for
        document["broken"] = faults
    return document, record(findings) if recording else []


def _audited(
    given: str, prior: str | None, settings: dict[str, Any], ids: list[str], quiet: bool
) -> Audit:
    with waiting(LOADING, quiet=quiet):
        from attnlab.auditing import audit, select

    known = options.read(given, prior)
    claims = select(ids) if ids else ()
    with _progress(len(claims) + 1, quiet) as tell:
        return audit(known, claims=claims, tell=tell, **settings)


def _draw(found: Audit, html: Path | None, plot: Path | None, quiet: bool) -> dict[str, Any]:
    """Write prediction against training to `plot`; return what a page shows of it."""
    if html is None and plot is None:
        return {}
    if not found.run.predicted:
        if plot is not None:
            raise InputError("plot: no theory applies here, so there is nothing to draw")
        return {}
    with waiting("drawing", quiet=quiet):
        from io import BytesIO

        from attnlab.plots import compare
        from attnlab.plots.style import save

        name = list(found.run.predicted)[-1]
        figure = compare(found.run.simulated, found.run.predicted[name])
        if plot is not None:
            save(figure, plot)
        made = BytesIO()
        figure.savefig(made, format="png", dpi=160)
    caption = f"Attention in training (solid) and as {name} predicts it (dashed), class by class."
    return {"picture": made.getvalue(), "caption": caption}


@contextmanager
def _progress(total: int, quiet: bool) -> Iterator[Callable[[str], None]]:
    """Show progress; the yielded function is called with the name of each piece before its turn."""
    with reporting(False if quiet else "auto", total, "audit") as report:
        begun = itertools.count()
        yield lambda name: report(min(next(begun), 1), name)  # the one before it is done

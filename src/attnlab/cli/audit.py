"""attnlab audit: test every claim of the papers, or the theories on your own run."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attnlab.cli import options
from attnlab.cli.arguments import PAPERS, PICTURES, check_writable, completing
from attnlab.cli.exit_codes import NOT_AS_RECORDED
from attnlab.cli.printing import or_dash, plain_console, print_table, say_written
from attnlab.files.errors import InputError
from attnlab.files.progress import LOADING, reporting, waiting
from attnlab.shelf import add_folder

if TYPE_CHECKING:
    from collections.abc import Callable

    from attnlab.auditing import Audit

MOST_ROWS = 40
FEW = 3  # claims that are shown with how they were read and tested
COLOURS = {
    "exact": "green",
    "holds": "cyan",
    "corrected": "yellow",
    "fails": "red",
    "premise fails in training": "magenta",
    "outside assumptions": "magenta",
    "we cannot tell": "dim",
}


def audit_verb(
    given: options.MaybeGiven = None,
    claim: Annotated[
        list[str] | None,
        typer.Option("--claim", help="Only this claim; may be repeated.", rich_help_panel="Claims"),
    ] = None,
    paper: Annotated[
        str | None,
        typer.Option(
            help="Claims of this paper only: its name, or a folder.",
            autocompletion=completing(*PAPERS),
            rich_help_panel="Claims",
        ),
    ] = None,
    recording: Annotated[
        bool,
        typer.Option(
            "--record",
            help="Write the verdicts to expected.json of the papers.",
            rich_help_panel="Claims",
        ),
    ] = False,
    prior: options.Prior = None,
    html: Annotated[
        Path | None,
        typer.Option(help="Write one self-contained page.", rich_help_panel=options.OUTPUT),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            help="Draw prediction against training, with CLASSES (PNG, PDF, SVG).",
            rich_help_panel=options.OUTPUT,
        ),
    ] = None,
    as_json: options.AsJson = False,
    **settings: Any,
) -> None:
    """Test every claim of the papers, or the theories on your own classes.

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
    written: list[Path] = []
    picture: dict[str, Any] = {}
    if given is None:
        document, written = _all(claim or [], paper, recording, as_json)
    else:
        found = _trial(given, prior, settings, claim or [], as_json)
        document = found.document()
        picture = _draw(found, html, plot, as_json)
    if html is not None:
        from attnlab.auditing.document import page
        from attnlab.files.atomic import write_text

        write_text(html, page(document, **picture))
    if as_json:
        print(json.dumps(document, indent=2, allow_nan=False))
    else:
        show(document, html, plot, *written)
    if recording or given is not None:
        return
    if any(not found["as_recorded"] for found in document["claims"]):
        raise typer.Exit(NOT_AS_RECORDED)


def _all(
    ids: list[str], paper: str | None, recording: bool, quiet: bool
) -> tuple[dict[str, Any], list[Path]]:
    """Examine claims; return the document, and the files in which it was recorded."""
    with waiting(LOADING, quiet=quiet):
        from attnlab.auditing import examine_all, record, select, whole_audit
        from attnlab.auditing.catalogue import amount, readable
        from attnlab.auditing.document import audit_document

    name = add_folder(paper).name if paper is not None and Path(paper).is_dir() else paper
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


def _trial(
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
    if not found.trial.predicted:
        if plot is not None:
            raise InputError("plot: no theory applies here, so there is nothing to draw")
        return {}
    with waiting("drawing", quiet=quiet):
        from io import BytesIO

        from attnlab.plots import compare
        from attnlab.plots.style import save

        name = list(found.trial.predicted)[-1]
        figure = compare(found.trial.simulated, found.trial.predicted[name])
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


def show(document: dict[str, Any], *written: Path | None) -> None:
    """Print all that is in the document of an audit, and which files were written."""
    console = plain_console()
    if "trial" in document:
        _show_trial(console, document["trial"])
    if "claims" in document:
        _show_claims(console, document, compare="trial" not in document)
    for knob, table in document.get("breakdown", {}).items():
        _show_map(console, knob, table)
    if "trial" in document:
        console.print("\nConclusion", style="bold")
        for comment in document["trial"]["commentary"].values():
            for sentence in comment["sentences"]:
                console.print(sentence)
    say_written(*written)


def _show_claims(console: Any, document: dict[str, Any], compare: bool) -> None:
    """Print a table for each paper, and for claims of no paper."""
    claims = document["claims"]
    for name in dict.fromkeys(found["paper"] for found in claims):
        if name:
            of = document["papers"][name]
            console.print(f"\n{of['short']} ({of['year']}; {of['reading']})", style="bold")
        rows = [_row(found, compare) for found in claims if found["paper"] == name]
        columns = ["claim", "statement", "formulas", "in training"]
        print_table(console, [*columns, "recorded"] if compare else columns, rows)
    if len(claims) <= FEW:
        for found in claims:
            _show_claim(console, found)
    if compare:
        moved = [found["id"] for found in claims if not found["as_recorded"]]
        count = f"{len(claims)} claims, all" if len(claims) != 1 else "1 claim,"
        told = f"{len(moved)} not as recorded: {', '.join(moved)}" if moved else "as recorded"
        console.print(f"{count.removesuffix(' all') if moved else count} {told}")


def _row(found: dict[str, Any], compare: bool) -> list[Any]:
    from rich.text import Text

    cells = []
    for verdict, number in (("verdict", "number"), ("training", "training_number")):
        cell = Text(found[verdict] or "", style=COLOURS.get(found[verdict], ""))
        if found[verdict] and found["reading"] == "as we know it":
            cell.append(", as we know it", style="default")
        if found[number]:
            cell.append(f"\n{found[number]}", style="default")
        cells.append(cell)
    same = "same" if found["as_recorded"] else _recorded(found)
    now = [same.split()] if compare else []
    name = f"{found['id']} (ours)" if found["ours"] else found["id"]
    return [name.split(), found["statement"].split(), *cells, *now]


def _show_claim(console: Any, found: dict[str, Any]) -> None:
    """Print how one claim was read and tested."""
    console.print(f"\n{found['id']} ({found['source']})", style="bold")
    console.print(found["how"])
    console.print(f"read as: {found['relation']}")
    if found["hypotheses"]:
        _show_hypotheses(console, found["hypotheses"])
    if found["checks"]:
        columns = ("check", "form", "read as", "error", "tolerance", "")
        rows = [
            [*_words(of, "about", "form", "relation"), of["error"], of["tolerance"], _met(of)]
            for of in found["checks"]
        ]
        print_table(console, columns, rows)
    if found["holds_from"]:
        console.print(f"in training it holds {found['holds_from']}")
    if found["counterexample"]:
        console.print(found["counterexample"])


def _show_hypotheses(console: Any, items: list[dict[str, Any]]) -> None:
    columns = ("asked by", "hypothesis", "read as", "value", "needed", "")
    needed = [f"{of['sign']} {or_dash(of['needed'])}" for of in items]
    rows = [
        [*_words(of, "asked_by", "says", "read_as"), of["value"], limit, _met(of)]
        for of, limit in zip(items, needed, strict=True)
    ]
    print_table(console, columns, rows, right=("needed",))


def _words(item: dict[str, Any], *keys: str) -> list[list[str]]:
    """Return texts of an item as cells that are folded between their words."""
    return [item[key].split() for key in keys]


def _met(item: dict[str, Any]) -> Any:
    from rich.text import Text

    return Text("holds") if item["holds"] else Text("does not hold", style="red")


def _recorded(found: dict[str, Any]) -> str:
    recorded = found["recorded"]
    said = [recorded["verdict"], recorded["training"] and f"in training {recorded['training']}"]
    return f"was {', '.join(filter(None, said))}" if any(said) else "not recorded"


def _show_map(console: Any, knob: str, table: dict[str, Any]) -> None:
    console.print(f"\nWhere theory breaks, over {table['title']}", style="bold")
    columns = [knob, *(f"{table['column']} {value:g}" for value in table["columns"])]
    for kind in table["kinds"]:
        console.print(kind["caption"], style="dim")
        rows = [
            [f"{label:g}", *(f"{value:.3g}" for value in row)]
            for label, row in zip(table["rows"], kind["values"], strict=True)
        ]
        print_table(console, columns, rows, right=columns)


def _show_trial(console: Any, trial: dict[str, Any]) -> None:
    console.print(
        f"{trial['classes']}: eta_y = {trial['eta_y']:g}, eta_z = {trial['eta_z']:g}, joint flow "
        f"to time {trial['time']:.4g}",
        soft_wrap=True,
    )
    _show_hypotheses(console, trial["assumptions"])
    _show_ladder(console, trial["ladder"])
    for name, reason in trial["silent"].items():
        console.print(f"{name} says nothing here: {reason}")
    _show_fates(console, trial)
    names = [rung["theory"] for rung in trial["ladder"]["rungs"]]
    span = trial["transition"]
    when = f"; predicted transition: {span[0]:.4g} <= t <= {span[1]:.4g}" if span else ""
    console.print(f"\nSnap of each class{when}")
    rows = [[row["sequence_class"], row["next"], *_moments(row)] for row in trial["snap"]]
    columns = ("class", "next", *names, "training")
    print_table(console, columns, rows[:MOST_ROWS], right=(*names, "training"))
    console.print(
        ">=: attention still moves at the end; -: it never moved, or records are too unequal",
        style="dim",
    )


def _show_ladder(console: Any, ladder: dict[str, Any]) -> None:
    """Print each theory's error against training, and what its assumptions cost."""
    when = " and ".join(
        f"the {at} (time {time:.4g})" for at, time in zip(ladder["at"], ladder["time"], strict=True)
    )
    columns = [f"{what}, {at}" for what in ("z", "attention") for at in ladder["at"]]
    console.print(
        f"\nLargest error of each theory at {when}; in z, relative to the largest |z| of training"
    )
    rungs = [[of["theory"], *of["z_error"], *of["attention_error"]] for of in ladder["rungs"]]
    print_table(console, ("theory", *columns), rungs, right=columns)
    for sentence in ladder["costs"]:
        console.print(sentence)


def _show_fates(console: Any, trial: dict[str, Any]) -> None:
    from rich.text import Text

    names = [rung["theory"] for rung in trial["ladder"]["rungs"]]
    console.print("\nFate of each token: its z at the end, by each theory and in training")
    kept = {None: "", True: "as claimed", False: Text("not as claimed", style="red")}
    rows = [
        [
            *(row[key] for key in ("query", "token", "role", "claimed")),
            *row["predicted"].values(),
            row["simulated"],
            kept[row["as_claimed"]],
        ]
        for row in trial["fates"][:MOST_ROWS]
    ]
    columns = ("query", "token", "role", "theorem", *names, "training", "")
    print_table(console, columns, rows, right=(*names, "training"))
    if len(trial["fates"]) > MOST_ROWS:
        console.print(f"... {len(trial['fates']) - MOST_ROWS} more tokens; --json prints them all")


def _moments(row: dict[str, Any]) -> list[str]:
    """Return the cells of a row of times, with >= where attention still moves at the end."""
    times = {**row["predicted"], "training": row["simulated"]}
    later = row["at_least"]
    return [f">= {later[name]:.4g}" if name in later else or_dash(of) for name, of in times.items()]

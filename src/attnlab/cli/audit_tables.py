"""What an audit found, as tables on a terminal: claims, maps, and theories on your classes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from attnlab.cli.printing import or_dash, plain_console, print_table, say_written

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
    """How one claim was read and tested."""
    console.print(f"\n{found['id']} ({found['source']})", style="bold")
    console.print(found["how"])
    console.print(f"read as: {found['relation']}")
    if found["hypotheses"]:
        _show_hypotheses(console, found["hypotheses"])
    if found["checks"]:
        print_table(
            console,
            ("check", "form", "read as", "error", "tolerance", ""),
            [
                [
                    check["about"].split(), check["form"], check["relation"].split(),
                    or_dash(check["error"]), or_dash(check["tolerance"]), _met(check["holds"]),
                ]
                for check in found["checks"]
            ],
            right=("error", "tolerance"),
        )  # fmt: skip
    if found["holds_from"]:
        console.print(f"in training it holds {found['holds_from']}")
    if found["counterexample"]:
        console.print(found["counterexample"])


def _show_hypotheses(console: Any, items: list[dict[str, Any]]) -> None:
    print_table(
        console,
        ("asked by", "hypothesis", "read as", "value", "needed", ""),
        [
            [
                item["asked_by"].split(), item["says"].split(), item["read_as"].split(),
                or_dash(item["value"]), f"{item['sign']} {or_dash(item['needed'])}",
                _met(item["holds"]),
            ]
            for item in items
        ],
        right=("value", "needed"),
    )  # fmt: skip


def _met(holds: bool) -> Any:
    from rich.text import Text

    return Text("holds") if holds else Text("does not hold", style="red")


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
    console.print(f"\nSnap of each class{_transition(trial['transition'])}")
    print_table(
        console,
        ("class", "next", *names, "training"),
        [
            [str(row["sequence_class"]), row["next"], *_moments(row)]
            for row in trial["snap"][:MOST_ROWS]
        ],
        right=("class", *names, "training"),
    )
    console.print(
        ">=: attention still moves at the end; -: it never moved, or records are too unequal",
        style="dim",
    )


def _transition(span: list[float] | None) -> str:
    return "" if span is None else f"; predicted transition: {span[0]:.4g} <= t <= {span[1]:.4g}"


def _show_ladder(console: Any, ladder: dict[str, Any]) -> None:
    """Each theory's error against training, and what its assumptions cost."""
    when = " and ".join(
        f"the {at} (time {time:.4g})" for at, time in zip(ladder["at"], ladder["time"], strict=True)
    )
    columns = [f"{what}, {at}" for what in ("z", "attention") for at in ladder["at"]]
    console.print(
        f"\nLargest error of each theory at {when}; in z, relative to the largest |z| of training"
    )
    print_table(
        console,
        ("theory", *columns),
        [
            [rung["theory"], *map(or_dash, (*rung["z_error"], *rung["attention_error"]))]
            for rung in ladder["rungs"]
        ],
        right=columns,
    )
    for sentence in ladder["costs"]:
        console.print(sentence)


def _show_fates(console: Any, trial: dict[str, Any]) -> None:
    from rich.text import Text

    names = [rung["theory"] for rung in trial["ladder"]["rungs"]]
    console.print("\nFate of each token: its z at the end, by each theory and in training")
    rows = []
    for row in trial["fates"][:MOST_ROWS]:
        kept = {None: "", True: "as claimed", False: Text("not as claimed", style="red")}[
            row["as_claimed"]
        ]
        rows.append([row["query"], row["token"], row["role"], row["claimed"],
                     *_predicted_and_simulated(row), kept])  # fmt: skip
    print_table(
        console, ("query", "token", "role", "theorem", *names, "training", ""), rows,
        right=(*names, "training"),
    )  # fmt: skip
    if len(trial["fates"]) > MOST_ROWS:
        console.print(f"... {len(trial['fates']) - MOST_ROWS} more tokens; --json prints them all")


def _predicted_and_simulated(row: dict[str, Any]) -> list[str]:
    return [or_dash(value) for value in (*row["predicted"].values(), row["simulated"])]


def _moments(row: dict[str, Any]) -> list[str]:
    """The cells of a row of times, with >= where attention still moves at the end."""
    times = {**row["predicted"], "training": row["simulated"]}
    later = row["at_least"]
    return [f">= {later[name]:.4g}" if name in later else or_dash(of) for name, of in times.items()]

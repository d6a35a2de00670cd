"""Summary of a result: a row for each learning rate, head and class, as a table or a document."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from attnlab.cli.printing import plain_console, print_table

if TYPE_CHECKING:
    import xarray as xr
    from rich.console import Console

    from attnlab.simulation import Simulation

MOST_ROWS = 40
WIDTH_IN_A_PIPE = 120  # of the table: there is no edge to keep within


def about(result: xr.Dataset, *names: str) -> dict[str, Any]:
    """Return what a result says about how it was made, as plain data: these attributes as well."""
    said = {name: json.loads(result.attrs[name]) for name in ("spec", "versions")}
    return said | {name: result.attrs[name] for name in names}


def wide_console() -> Console:
    """Return a console whose tables are not folded where they go into a pipe."""
    console = plain_console()
    if not console.is_terminal:
        console.width = WIDTH_IN_A_PIPE
    return console


def in_a_line(run: Simulation) -> str:
    """Return the classes, data and motion of a run in a line."""
    task, size = run.task, run.gradient.size
    length = "T to infinity" if task.infinite else f"T = {task.length}"
    drawn = "" if task.training_set is None else f" of a training set of {task.training_set}"
    gradient = f"population{drawn}" if size is None else f"batches of {size}{drawn}"
    names = ", ".join(dict.fromkeys(of.name for of in run.optimizers.values()))
    motion = f"{run.last:g} steps of {names}" if names else f"gradient flow to time {run.last:g}"
    return f"{run.sets[0].origin}: {length}, {gradient}, {motion}"


def summarise(result: xr.Dataset, classes: Any) -> list[dict[str, Any]]:
    """Return a row per learning rates, head and class: means over seeds of what was recorded."""
    from attnlab import measures
    from attnlab.measures.motion import FEWEST_RECORDS

    clock = measures.clock_of(result)
    if "attention" in result and result.sizes[clock] >= FEWEST_RECORDS:
        snap = measures.snap_time(result)
        result = result.assign(snap=snap, moved_since=measures.moved_since(result, snap))
    several = [dim for dim in ("eta_y", "eta_z", "head") if dim in result.dims]
    stacked = result.stack(point=several) if several else result.expand_dims("point")
    rows = []
    for i in range(stacked.sizes["point"]):
        point = stacked.isel(point=i)
        for k in range(len(classes)):
            row: dict[str, Any] = {dim: point[dim].item() for dim in several}
            row["sequence_class"] = k
            row["query"] = classes.token_name(int(classes.query[k]))
            row["next"] = classes.token_name(int(classes.next_token[k]))
            of_class = point.isel(sequence_class=k)
            if "attention" in point:
                last = of_class["attention"].isel({clock: -1}).mean("seed")
                dominant = int(last.argmax("token"))
                row["dominant_token"] = classes.token_name(dominant)
                row["dominant_attention"] = float(last[dominant])
            if "entropy" in point:
                for name in ("entropy", "common_mass"):
                    ends = of_class[name].mean("seed").isel({clock: [0, -1]}).values
                    row[f"{name}_start"], row[f"{name}_end"] = map(float, ends)
            if "snap" in point:
                row[f"snap_{clock}"] = _mean(of_class["snap"])
                row["moved_since_snap"] = _mean(of_class["moved_since"])
            rows.append(row)
    return rows


def print_summary(
    console: Console, summary: list[dict[str, Any]], clock: str, times: tuple[str, ...] = ()
) -> None:
    """Print the rows as a table; what is absent in them has no column.

    times: names of predicted times, which have columns of their own.
    """
    titles = {
        "eta_y": "eta_y",
        "eta_z": "eta_z",
        "head": "head",
        "sequence_class": "class",
        "query": "query",
        "next": "next",
        "dominant_token": "winner",
        "dominant_attention": "attention",
        "entropy": "entropy",
        "common_mass": "common mass",
        f"snap_{clock}": f"snap {clock}",
        "moved_since_snap": "moved since",
    } | {name: name for name in times}
    shown = [key for key in titles if key in summary[0] or f"{key}_start" in summary[0]]
    cells = [[_cell(row, key) for key in shown] for row in summary[:MOST_ROWS]]
    numbers = [titles[key] for key in shown if key not in ("query", "next")]
    print_table(console, [titles[key] for key in shown], cells, right=numbers, tight=True)
    if len(summary) > MOST_ROWS:
        console.print(f"... {len(summary) - MOST_ROWS} more rows; --json prints them all")
    if f"snap_{clock}" in shown and any(row[f"snap_{clock}"] is None for row in summary):
        console.print(
            f"snap {clock}: - where attention still moves at the end, or records are too unequal",
            style="dim",
        )


def _mean(values: xr.DataArray) -> float | None:
    """Return the mean over the seeds that have a value; None where no seed has one."""
    value = float(values.mean("seed"))
    return value if value == value else None


def _cell(row: dict[str, Any], key: str) -> str:
    # As many digits as are the same on every machine; --json has all of them.
    if f"{key}_start" in row:
        return f"{row[f'{key}_start']:.2f} → {row[f'{key}_end']:.2f}"
    value = row[key]
    if value is None:
        return "-"
    digits = {"dominant_attention": 3, "moved_since_snap": 2}.get(key, 4)
    return f"{value:.{digits}g}" if isinstance(value, float) else str(value)

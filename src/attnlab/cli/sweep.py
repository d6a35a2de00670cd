"""attnlab sweep: a grid by recipe, resumed where it was left; and how it stands."""

from __future__ import annotations

import math
import re
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from attnlab.cli.exit_codes import FAILED_RUNS, STOPPED
from attnlab.cli.options import PICTURES, check_writable
from attnlab.cli.printing import say, say_json, say_written, show_table
from attnlab.files.errors import InputError
from attnlab.files.progress import LOADING, in_words, reporting, waiting

if TYPE_CHECKING:
    from attnlab.sweeping import Executor, Plan, Status
    from attnlab.sweeping.driver import Ran

MOST_CAUSES = 10
UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def sweep_verb(
    recipe: str,
    directory: Path | None = None,
    *,
    out: Path | None = None,
    executor: str = "local",
    workers: int = 0,
    address: str = "local",
    cpus_per_task: float = 1.0,
    gpus_per_task: float = 0.0,
    memory_budget: str | None = None,
    plot: Path | None = None,
    dry_run: bool = False,
    as_json: bool = False,
) -> None:
    """Run a grid of simulations on one machine or a cluster.

    RECIPE is a YAML or JSON file with a task (sequence classes or a text), a grid over any settings
    of a run, and its other settings (docs/guides/sweeps.md); or PAPER/FIGURE, the recipe of a
    figure that is a sweep. Results go to --out: one file for each group of runs, table.csv with a
    row for each cell, and a ledger. The same command resumes a sweep that was stopped, and computes
    only what is missing or damaged.

    \b
    Examples:
      attnlab sweep recipes/text-rates.yaml --dry-run
      attnlab sweep grid.yaml --out grid --workers 2 --plot grid.png
      attnlab sweep status grid
      attnlab sweep grid.yaml --out grid --executor ray --address auto --gpus-per-task 0.25

    From Python, attnlab.open_sweep("grid") gives one labelled dataset.

    Exit code 0; 1 when it had to stop (a full disk, say); 2 for bad input; 3 when a run failed.

    Options
    -------
    recipe : RECIPE|status
        A file, or PAPER/FIGURE.
    directory : DIR
        After `status`: the sweep to look at.
    out
        The directory of the sweep.
    executor
        local or ray.
    workers
        Processes of the local executor; 0 runs in this one.
    address
        Ray: local (started here), auto, or HOST:PORT.
    cpus_per_task
        Ray: cores for each group.
    gpus_per_task
        Ray: GPUs for each group; 0.25 lets four share one.
    memory_budget
        Memory for a group, as 512M or 4G; 1G unless given.
    plot
        Draw the entropy of attention over the grid (PNG, PDF).
    dry_run
        Print the plan and stop.
    """
    if recipe == "status":
        _status(directory or out, as_json)
        return
    if directory is not None:
        raise InputError(f"{directory}: one recipe at a time; name the directory with --out")
    with waiting(LOADING, quiet=as_json):
        from attnlab.files.recipe import read_recipe
        from attnlab.shelf import recipe_file
        from attnlab.sweeping import Stopped, SweepRecipe, make_plan, run_in
        from attnlab.sweeping.directory import planned_budget
        from attnlab.sweeping.plan import MEMORY_BUDGET

    check_writable(plot, PICTURES, "plot")
    chosen = _executor(executor, workers, address, cpus_per_task, gpus_per_task)
    budget = None if memory_budget is None else _bytes(memory_budget)
    if budget is None and out is not None:
        budget = planned_budget(out)  # the same groups as before
    if budget is None:
        budget = MEMORY_BUDGET
    with waiting(f"planning {recipe}", quiet=as_json):
        plan = make_plan(read_recipe(recipe_file(recipe), SweepRecipe), memory_budget=budget)
    if dry_run:
        _show_plan(plan, as_json)
        return
    if out is None:
        raise InputError("out: missing; name the directory of the sweep with --out")
    try:
        with reporting(False if as_json else "auto", plan.runs, f"sweep in {out}") as report:
            ran = run_in(out, plan, executor=chosen, report=report)
    except Stopped as problem:
        say(f"attnlab: {problem}", error=True)
        raise typer.Exit(STOPPED) from None
    _show_result(out, plan, ran, as_json)
    if plot is not None and ran.index.failed_runs < plan.runs:
        _draw(out, plot, as_json)
    if ran.index.failed_runs:
        raise typer.Exit(FAILED_RUNS)


def _executor(name: str, workers: int, address: str, cpus: float, gpus: float) -> Executor:
    from attnlab.sweeping import Local, Ray

    # both, so that what is given for the other one is checked as well
    executors: dict[str, Executor] = {"local": Local(workers), "ray": Ray(address, cpus, gpus)}
    if name not in executors:
        raise InputError(f"executor: expected {' or '.join(executors)}, got {name!r}")
    return executors[name]


def _bytes(text: str) -> float:
    found = re.fullmatch(r"([0-9.]+)([KMGT]?)(i?B)?", text, re.IGNORECASE)
    try:
        size = float(found[1]) * UNITS[found[2].upper()] if found else 0.0
    except ValueError:
        size = 0.0
    if not 0 < size < math.inf:
        raise InputError(f"memory_budget: expected 512M or 4G, got {text!r}")
    return size


def _show_plan(plan: Plan, as_json: bool) -> None:
    from attnlab.files.memory import size_words
    from attnlab.sweeping.plan import plan_document

    document = plan_document(plan)
    if as_json:
        say_json(document)
        return
    say(
        f"{document['cells']} cells x {document['seeds']} seeds = {document['runs']} runs in "
        f"{document['groups']} groups, {document['compilations']} compilations"
    )
    columns = {
        "settings": "settings",
        "example": "for example",
        "groups": "groups",
        "runs_per_group": "runs each",
        "memory": ("memory", ">"),
        "time": ("time", ">"),
    }
    rows = [
        {**of, "memory": size_words(of["memory_bytes"]), "time": in_words(of["seconds"])}
        for of in document["shapes"]
    ]
    show_table(rows, columns)
    say(
        f"about {in_words(document['seconds'])} on two cores, "
        f"{size_words(document['memory_bytes'])} of memory besides JAX's own, "
        f"{size_words(document['file_bytes'])} of records before compression"
    )


def _draw(out: Path, plot: Path, as_json: bool) -> None:
    with waiting(f"drawing {plot}", quiet=as_json):
        from attnlab.plots import grid
        from attnlab.plots.style import save
        from attnlab.sweeping import open_sweep

        save(grid(open_sweep(out)), plot)
    say_written(None if as_json else plot)


def _show_result(out: Path, plan: Plan, ran: Ran, as_json: bool) -> None:
    causes = {group.key: group.cause for group in ran.index.groups if group.cause}
    failed = ran.index.failed_runs
    if as_json:
        document = {
            "out": str(out),
            "table": str(out / "table.csv"),
            "runs": plan.runs,
            "failed_runs": failed,
            "groups": len(plan.groups),
            "kept": ran.kept,
            "computed": ran.computed,
            "causes": causes,
            "seconds": round(ran.seconds, 2),
        }
        say_json(document)
        return
    say(
        f"{plan.runs - failed} of {plan.runs} runs in {out} ({ran.computed} groups computed, "
        f"{ran.kept} there already, {in_words(ran.seconds)})"
    )
    _print_causes(causes, failed)


def _status(directory: Path | None, as_json: bool) -> None:
    if directory is None:
        raise InputError("status: name the directory of a sweep, as in: attnlab sweep status DIR")
    with waiting(f"looking at {directory}", quiet=as_json):
        from attnlab.sweeping import status

        found = status(directory)
    if as_json:
        say_json({**asdict(found), "waiting": found.waiting})
    else:
        _print_status(directory, found)


def _print_status(directory: Path, found: Status) -> None:
    state = "complete" if found.complete else "running" if found.running else "not complete"
    say(
        f"{directory}: {state}; {found.done} of {found.groups} groups done, {found.running} "
        f"running, {found.waiting} waiting, {found.failed} failed; "
        f"{found.runs_done} of {found.runs} runs"
    )
    for words in found.damaged:
        say(words)
    _print_causes(found.causes, found.failed_runs)


def _print_causes(causes: dict[str, str], failed_runs: int) -> None:
    if failed_runs:
        say(f"{failed_runs} runs failed:")
    for key, cause in list(causes.items())[:MOST_CAUSES]:
        say(f"  group {key}: {cause}")
    if len(causes) > MOST_CAUSES:
        say(f"  and {len(causes) - MOST_CAUSES} more groups; --json prints them all")

"""The directory of a sweep: plan.json, groups/, ledger.jsonl, and at the end table.csv, index.json.

index.json is written last. Without it, or with one of another plan, a sweep is not whole.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import xarray as xr

from attnlab.results import DamagedFile, atomic_path
from attnlab.results.code import digest_of
from attnlab.results.provenance import provenance
from attnlab.sweep.executor import Executor
from attnlab.sweep.index import index_document, index_from
from attnlab.sweep.plan import Plan
from attnlab.sweep.run import Ran, Stopped, Watcher, run_plan
from attnlab.sweep.store import Folder
from attnlab.sweep.table import table
from attnlab.sweep.whole import whole

PLAN, INDEX, TABLE = "plan.json", "index.json", "table.csv"


def run_in(
    directory: Path, plan: Plan, *, executor: Executor | None = None, watch: Watcher | None = None
) -> Ran:
    """Run a plan in a directory, or what is missing of it there."""
    if directory.exists() and not directory.is_dir():
        raise ValueError(f"out: {directory} is not a folder")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if _read(directory / PLAN).get("digest") != plan.digest:
            (directory / INDEX).unlink(missing_ok=True)
            _write(directory / PLAN, _plan_record(plan))
        ran = run_plan(plan, Folder(directory), executor=executor, watch=watch)
        with atomic_path(directory / TABLE) as temporary:
            temporary.write_text(table(ran.index, ran.numbers), encoding="utf-8")
        document = index_document(ran.index)
        record = {
            "plan": plan.digest,
            "sha256": digest_of(document),
            "attrs": provenance({"recipe": asdict(plan.recipe)}, failed_runs=ran.index.failed_runs),
            "index": document,
        }
        _write(directory / INDEX, record)
    except (OSError, Stopped) as problem:
        reason = problem.strerror if isinstance(problem, OSError) else problem
        raise Stopped(f"{directory}: {reason}") from problem
    return ran


def open_sweep(directory: str | Path) -> xr.Dataset:
    """Open a finished sweep as one labelled dataset, whose arrays are read when they are used.

    Its dims are the swept parameters, `seed`, and those of a single run (see docs/results.md).
    `finished` is False for the runs that failed, which are NaN from then on; table.csv has the
    summary. A sweep of which groups are missing is refused: run it again to finish it.
    """
    directory = Path(directory)
    state = status(directory)
    if not state.complete:
        raise ValueError(
            f"{directory}: {state.done} of {state.groups} groups are done; run the same "
            "`attnlab sweep` again to finish it"
        )
    record = _read(directory / INDEX)
    if digest_of(record["index"]) != record["sha256"]:
        raise DamagedFile(directory / INDEX, "its content does not match its checksum")
    return whole(index_from(record["index"]), Folder(directory).read).assign_attrs(record["attrs"])


@dataclass(frozen=True)
class Status:
    """How a sweep stands: groups by state, runs, and the causes of what failed, by group.

    done: with a result, even if runs in it diverged. failed: without. complete: every group was
    settled, the table and the index are written.
    """

    groups: int
    done: int
    running: int
    failed: int
    runs: int
    runs_done: int
    failed_runs: int
    causes: dict[str, str]
    complete: bool

    @property
    def waiting(self) -> int:
        return self.groups - self.done - self.running - self.failed


def status(directory: str | Path) -> Status:
    """Look at a sweep from outside, while it runs or afterwards; nothing is changed."""
    directory = Path(directory)
    plan = _read(directory / PLAN)
    if not plan:
        raise ValueError(f"{directory}: not the directory of a sweep (it has no {PLAN})")
    store = Folder(directory)
    there = {path.stem for path in (directory / "groups").glob("*.nc")}
    last = {entry["group"]: entry for entry in store.ledger.entries()}
    runs: dict[str, int] = {}
    for key, count in plan["groups"]:
        runs[key] = runs.get(key, 0) + count
    done = {key for key in runs if key in there}
    running = {key for key in runs.keys() - done if store.claims.is_taken(key)}
    noted = {key: last.get(key, {}) for key in runs}
    left = runs.keys() - done - running
    failed = {key for key in left if noted[key].get("state") == "failed"}
    settled = done | failed
    return Status(
        groups=len(runs),
        done=len(done),
        running=len(running),
        failed=len(failed),
        runs=sum(runs.values()),
        runs_done=sum(runs[key] for key in done),
        failed_runs=sum(noted[key].get("failed_runs", 0) for key in settled),
        causes={key: noted[key]["cause"] for key in settled if noted[key].get("cause")},
        complete=settled == set(runs) and _read(directory / INDEX).get("plan") == plan["digest"],
    )


def planned_budget(directory: Path) -> float | None:
    """The memory budget that the sweep in a directory was planned with."""
    budget: float | None = _read(directory / PLAN).get("memory_budget")
    return budget


def _plan_record(plan: Plan) -> dict[str, Any]:
    return {
        "digest": plan.digest,
        "memory_budget": plan.memory_budget,
        "groups": [[group.key, group.runs] for group in plan.groups],
    }


def _read(path: Path) -> dict[str, Any]:
    """A JSON file of ours, or nothing if it is not there or not whole."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def _write(path: Path, document: dict[str, Any]) -> None:
    with atomic_path(path) as temporary:
        temporary.write_text(json.dumps(document), encoding="utf-8")

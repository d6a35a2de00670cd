"""The directory of a sweep: plan.json, groups/, ledger.jsonl, and at the end table.csv, index.json.

index.json is written last. Without it, or with one of another plan, a sweep is not whole. Both JSON
files and every line of the ledger are sealed, and the index has the checksum of the table.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import xarray as xr

from attnlab.files.atomic import atomic_path
from attnlab.files.errors import InputError
from attnlab.files.folders import claim
from attnlab.files.netcdf import DamagedFile
from attnlab.files.progress import Report
from attnlab.files.provenance import provenance
from attnlab.files.recipe import plain, read_dataclass
from attnlab.files.regular import NotAFile, open_regular
from attnlab.files.sealed import read_sealed, write_sealed
from attnlab.sweeping.driver import Ran, Stopped, run_plan
from attnlab.sweeping.executor import Executor
from attnlab.sweeping.group import check_key
from attnlab.sweeping.index import Index, table, whole
from attnlab.sweeping.plan import Plan
from attnlab.sweeping.store import FILES, RESUME, Folder

PLAN, INDEX, TABLE = "plan.json", "index.json", "table.csv"


def run_in(
    directory: Path, plan: Plan, *, executor: Executor | None = None, report: Report | None = None
) -> Ran:
    """Run a plan in a directory, or the part that is missing there.

    Parameters
    ----------
    directory : path
        Folder of the results.
    plan : Plan
        From `make_plan`.
    executor : Executor, optional
        Runs the groups; by default this process.
    report : callable, optional
        Called with the number of runs just done, and a note (`attnlab.files.progress.reporting`).

    Returns
    -------
    Ran
        Groups found and computed, and the index.
    """
    try:
        claim(directory, (PLAN, INDEX, TABLE, *FILES))
        before = _planned_or_none(directory)
        if before is None or before.digest != plan.digest:
            (directory / INDEX).unlink(missing_ok=True)
            write_sealed(directory / PLAN, asdict(_planned(plan)), inside=directory)
        ran = run_plan(plan, Folder(directory), executor=executor, report=report)
        rows = table(ran.index, ran.numbers).encode()
        with atomic_path(directory / TABLE, inside=directory) as temporary:
            temporary.write_bytes(rows)
        spec = {"recipe": plan.recipe.to_document()}
        record = {
            "plan": plan.digest,
            "table": hashlib.sha256(rows).hexdigest(),
            "attrs": provenance(spec, failed_runs=ran.index.failed_runs),
            "index": plain(ran.index, defaults=True),
        }
        write_sealed(directory / INDEX, record, inside=directory)
    except (OSError, Stopped) as problem:
        reason = getattr(problem, "strerror", None) or problem
        raise Stopped(f"{directory}: {reason}") from problem
    return ran


def open_sweep(directory: str | Path) -> xr.Dataset:
    """Open a finished sweep as one labelled dataset, whose arrays are read when they are used.

    Its dims are the swept settings, `seed`, and those of a single run (see docs/results.md).
    `finished` is False for the runs that failed, which are NaN from then on; table.csv has the
    summary. A sweep with missing groups is refused: run it again to finish it.

    Parameters
    ----------
    directory : str or path
        Folder of a sweep that was run with `out`.

    Returns
    -------
    xarray.Dataset
        All results, read lazily. Tokens that have the same names in all settings are labelled by
        them.
    """
    directory = Path(directory)
    planned = _read_plan(directory)
    finished = _read_finished(directory)
    there = _groups_there(directory)
    if not (finished and finished.describes(planned, there)):
        done = sum(key in there for key in planned.runs)
        raise InputError(
            f"{directory}: {done} of {len(planned.runs)} groups are done; run the same "
            "`attnlab sweep` again to finish it"
        )
    return whole(finished.index, Folder(directory).read).assign_attrs(finished.attrs)


@dataclass(frozen=True)
class Status:
    """State of a sweep: groups by state, runs, and the causes of failures.

    Parameters
    ----------
    groups : int
        Number of groups.
    done : int
        Groups with a result, even if runs in it diverged.
    running : int
        Groups that are being computed.
    failed : int
        Groups without a result.
    runs : int
        Number of runs.
    runs_done : int
        Runs of the groups that are done.
    failed_runs : int
        Runs that failed.
    causes : mapping
        Causes of failures, by group.
    complete : bool
        True if every group is settled, and table and index are written.
    damaged : tuple, optional
        Damaged files, in words; the next run makes them again.
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
    damaged: tuple[str, ...] = ()

    @property
    def waiting(self) -> int:
        return self.groups - self.done - self.running - self.failed


def status(directory: str | Path) -> Status:
    """Return the state of a sweep, while it runs or afterwards; nothing is changed.

    Groups are counted by their files; damage is found when they are read, or by the next run.

    Parameters
    ----------
    directory : str or path
        Folder of a sweep.

    Returns
    -------
    Status
        The state.
    """
    directory = Path(directory)
    planned = _read_plan(directory)
    store = Folder(directory)
    entries, torn = store.ledger.read()
    damaged = [f"{store.ledger.path.name}: {torn} of its lines cannot be read"] if torn else []
    finished = None
    try:
        finished = _read_finished(directory)
        if finished is not None:
            finished.check_table(directory)
    except (DamagedFile, NotAFile) as problem:
        damaged.append(str(problem))
    noted: dict[Any, dict[str, Any]] = {entry.get("group"): entry for entry in entries}
    if finished is not None and finished.plan == planned.digest:
        noted = finished.noted()
    there = _groups_there(directory)
    runs = planned.runs
    done = runs.keys() & there
    running = {key for key in runs.keys() - done if store.is_locked(key)}
    left = runs.keys() - done - running
    failed = {key for key in left if noted.get(key, {}).get("state") == "failed"}
    settled = {key: noted.get(key, {}) for key in runs if key in done | failed}
    return Status(
        groups=len(runs),
        done=len(done),
        running=len(running),
        failed=len(failed),
        runs=sum(runs.values()),
        runs_done=sum(runs[key] for key in done),
        failed_runs=sum(entry.get("failed_runs", 0) for entry in settled.values()),
        causes={key: entry["cause"] for key, entry in settled.items() if entry.get("cause")},
        complete=finished is not None and finished.describes(planned, there),
        damaged=tuple(damaged),
    )


def planned_budget(directory: Path) -> float | None:
    """Return the memory budget that the sweep in a directory was planned with."""
    planned = _planned_or_none(directory)
    return None if planned is None else planned.memory_budget


@dataclass(frozen=True)
class _Planned:
    """plan.json: the digest of the plan, and the runs of each group."""

    digest: str
    memory_budget: float
    runs: dict[str, int]

    def __post_init__(self) -> None:
        for key in self.runs:
            check_key(key)


def _planned(plan: Plan) -> _Planned:
    runs: dict[str, int] = {}
    for group in plan.groups:  # the same one several times where the grid repeats itself
        runs[group.key] = runs.get(group.key, 0) + group.runs
    return _Planned(plan.digest, plan.memory_budget, runs)


def _planned_or_none(directory: Path) -> _Planned | None:
    """Return the plan in a directory; None if it cannot be read."""
    try:
        return _read_plan(directory)
    except InputError:
        return None


def _read_plan(directory: Path) -> _Planned:
    path = directory / PLAN
    try:
        with _ours(path):
            return _Planned(**read_sealed(path, remedy=RESUME))
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(f"{directory}: not the directory of a sweep (it has no {PLAN})") from None


@dataclass(frozen=True)
class _Finished:
    """index.json: the index, once every group is settled, and the checksum of the table."""

    plan: str
    table: str
    attrs: dict[str, Any]
    index: Index

    def describes(self, planned: _Planned, there: set[str]) -> bool:
        """Return True if it belongs to this plan and to the groups that are there."""
        return self.plan == planned.digest and all(
            (group.key in there) == (group.schema is not None) for group in self.index.groups
        )

    def noted(self) -> dict[str, dict[str, Any]]:
        """Return the last entry of the ledger for each group."""
        found: dict[str, dict[str, Any]] = {}
        for group in self.index.groups:
            state = "done" if group.schema is not None else "failed"
            same = found.setdefault(group.key, {"state": state, "failed_runs": 0})
            same["failed_runs"] += group.failed_runs
            same["cause"] = group.cause
        return found

    def check_table(self, directory: Path) -> None:
        path = directory / TABLE
        with suppress(FileNotFoundError), open_regular(path) as file:
            if hashlib.file_digest(file, "sha256").hexdigest() == self.table:
                return
        raise DamagedFile(path, "not what was written", RESUME)


def _read_finished(directory: Path) -> _Finished | None:
    path = directory / INDEX
    try:
        with _ours(path):
            record = read_sealed(path, remedy=RESUME)
            return _Finished(**{**record, "index": read_dataclass("index", record["index"], Index)})
    except FileNotFoundError:
        return None


@contextmanager
def _ours(path: Path) -> Iterator[None]:
    """Report sealed files with other contents as damaged."""
    try:
        yield
    except DamagedFile:
        raise
    except (LookupError, TypeError, ValueError, AttributeError) as problem:
        raise DamagedFile(path, f"not from attnlab: {problem}", RESUME) from None


def _groups_there(directory: Path) -> set[str]:
    return {path.stem for path in (directory / "groups").glob("*.nc")}

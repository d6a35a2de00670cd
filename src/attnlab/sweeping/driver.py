"""The driver computes the missing groups of a plan and keeps them."""

import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attnlab.files.progress import Report
from attnlab.sweeping.executor import Answer, Executor, Local
from attnlab.sweeping.group import Group
from attnlab.sweeping.index import Index, IndexMaker
from attnlab.sweeping.plan import Plan
from attnlab.sweeping.store import Store

POLL_SECONDS = 0.5  # between looks at groups that another driver has locked


@dataclass(frozen=True)
class Ran:
    """Outcome of a driver: groups found and computed, the index, and the summary numbers over
    (setting, cell, seed)."""

    index: Index
    numbers: Mapping[str, NDArray[np.float64]]
    kept: int
    computed: int
    seconds: float


class Stopped(RuntimeError):
    """A sweep could not go on: its results so far are kept, and the same command resumes it."""


def run_plan(
    plan: Plan, store: Store, *, executor: Executor | None = None, report: Report | None = None
) -> Ran:
    """Compute the groups that the store does not hold yet; `report` is called as runs end.

    A run that diverges, or a group that raises, is recorded as failed and the rest goes on; the
    next sweep tries a group that raised again. The driver waits for groups that another one has
    locked, and takes them over if that driver dies.
    """
    return _Driver(plan, store, executor or Local(), report).go()


class _Driver:
    def __init__(self, plan: Plan, store: Store, executor: Executor, report: Report | None) -> None:
        self.plan, self.store, self.executor, self.report = plan, store, executor, report
        self.maker = IndexMaker(plan)
        self.todo: dict[str, list[Group]] = {}  # several where the grid repeats itself
        self.locked: set[str] = set()  # by us, and given to the executor
        self.computed = 0
        self.present = 0  # runs of the group that was locked last
        self.settled = 0  # runs of the groups that are done or failed
        self.failed = 0
        self.reported = 0.0  # runs

    def go(self) -> Ran:
        begun = time.perf_counter()
        for group in self.plan.groups:
            self.todo.setdefault(group.key, []).append(group)
        self._tell(0.0, "looking for groups that are there already")
        kept = [key for key in self.todo if self.store.holds(key)]
        for key in kept:
            self._found(key)
        self._tell(self.settled)  # at once: what was there already does not count for the pace
        try:
            self._compute()
        except OSError as problem:
            raise Stopped(
                f"{problem.strerror or problem}: {self._done()} are kept; "
                "put that right and run the same command again"
            ) from problem
        except KeyboardInterrupt:
            raise KeyboardInterrupt(
                f"stopped; {self._done()} are kept, and the same command goes on from there"
            ) from None
        finally:
            self.store.release_all()
        seconds = time.perf_counter() - begun
        return Ran(self.maker.index(), self.maker.numbers, len(kept), self.computed, seconds)

    def _done(self) -> str:
        total = len(self.plan.groups)
        return f"{total - sum(map(len, self.todo.values()))} of {total} groups"

    def _tell(self, runs: float, note: str = "") -> None:
        """Report the number of runs done in all, and a note."""
        if self.report is not None:
            failed = f", {self.failed} runs failed" if self.failed else ""
            self.report(runs - self.reported, note or f"{self._done()}{failed}")
            self.reported = runs

    def _compute(self) -> None:
        while self.todo:
            # closed, so that no worker is left behind when a result cannot be kept
            with closing(self.executor.run(self._free(), self._within)) as answers:
                for group, answer in answers:
                    self._settle(group, answer)
                    self.locked.remove(group.key)
                    self.store.release(group.key)
            if self.locked:  # we would wait for ourselves
                raise RuntimeError(f"{self.executor} took groups and lost them: {self.locked}")
            for key in list(self.todo):  # of other drivers, who may be done
                if self.store.holds(key):
                    self._found(key)
            if self.todo:
                others = f"waiting for {len(self.todo)} groups that another driver computes"
                self._tell(self.settled, others)
                time.sleep(POLL_SECONDS)

    def _free(self) -> Iterator[Group]:
        """Yield the groups that no other driver has locked."""
        for key, (group, *_) in list(self.todo.items()):
            if not self.store.lock(key):
                continue
            if self.store.holds(key):  # since we last looked
                self.store.release(key)
                self._found(key)
                continue
            self.store.note(key, "running", runs=group.runs)
            self.present = group.runs
            self.locked.add(key)
            yield group

    def _within(self, fraction: float) -> None:
        self._tell(self.settled + fraction * self.present)

    def _settle(self, group: Group, answer: Answer) -> None:
        if answer.dataset is None:
            self.store.note(
                group.key,
                "failed",
                cause=answer.cause,
                failed_runs=group.runs,
                traceback=answer.traceback,
            )
            for same in self.todo.pop(group.key):
                self.maker.add_failed(same, answer.cause)
                self.settled, self.failed = self.settled + same.runs, self.failed + same.runs
            self._tell(self.settled)
            return
        self.store.write(group.key, answer.dataset)
        self.computed += 1
        self.store.note(
            group.key,
            "done",
            runs=group.runs,
            failed_runs=int((answer.dataset["diverged_step"] >= 0).sum()),
            seconds=round(float(answer.dataset.attrs["seconds"]), 3),
            cause=answer.dataset.attrs["cause"],
        )
        self._found(group.key)
        self._tell(self.settled)

    def _found(self, key: str) -> None:
        """Add a group that the store holds to the index."""
        with self.store.read(key) as contents:
            for group in self.todo.pop(key):
                entry = self.maker.add(group, contents)
                self.settled += group.runs
                self.failed += len(entry.diverged)

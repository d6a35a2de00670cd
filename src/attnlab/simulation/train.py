"""train_run(): the one trainer, for any task and model, or any learner."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import jax
import numpy as np
import xarray as xr

from attnlab.dynamics.divergence import Diverged
from attnlab.dynamics.stopping import Interrupted, Pace, Stopping, answering
from attnlab.files.checkpoint import (
    Arrays,
    Checkpoint,
    check_arrays,
    read_checkpoint,
    write_checkpoint,
)
from attnlab.files.errors import InputError
from attnlab.files.folders import claim, refuse_foreign
from attnlab.files.memory import require_memory
from attnlab.files.netcdf import DamagedFile, load, save
from attnlab.files.progress import Choice, Report, reporting
from attnlab.files.provenance import provenance
from attnlab.simulation.groups import KINDS, Failure, Group, parts_of
from attnlab.simulation.run import Run

FILES = CHECKPOINT, RESULT = "checkpoint.safetensors", "result.nc"
CHECKPOINT_SHARE = 0.05  # of the time is spent on checkpoints at most
NUMBERS = 1  # raised where other numbers come out: older checkpoints are refused
RECORD = "record/"
COPIES = 5  # of the parameters: gradient, two moments of Adam, an update


def train_run(
    run: Run, *, out: str | Path | None = None, checkpoint_seconds: float = 30.0,
    progress: Choice = "auto",
) -> xr.Dataset:  # fmt: skip
    """Train a run, for all its seeds and learning rates at once, and return what was recorded.

    Parameters
    ----------
    run : Run
        What is learned, what learns, and how.
    out : path, optional
        A folder for checkpoints and the result. A run that was interrupted goes on from there with
        bit-identical results on the same machine; another run is refused.
    checkpoint_seconds : float, optional
        The least time between checkpoints.
    progress : {"auto", True, False} or callable, optional
        Whether to show how far it is, or a function that is called with the fraction done.

    Returns
    -------
    xarray.Dataset
        With dims (swept learning rates, seed, step or time, the model's own).

    Raises
    ------
    Diverged
        When numbers leave the finite range; it carries what was recorded.
    Interrupted
        On Ctrl-C; so does it.
    """
    folder = None if out is None else Path(out)
    begun = time.perf_counter()
    trainer = Trainer(run, folder, checkpoint_seconds)
    if folder is not None and trainer.done == trainer.clock.size:
        with suppress(FileNotFoundError, DamagedFile):  # or it is made again
            return load(folder / RESULT)
    stopped = False
    with reporting(progress, 1.0, "training") as report:
        try:
            answering(lambda stopping: trainer.go(report, stopping))
        except KeyboardInterrupt:
            stopped = True
        except jax.errors.JaxRuntimeError as problem:
            if "RESOURCE_EXHAUSTED" not in str(problem):
                raise
            raise MemoryError(f"seeds: {str(problem).splitlines()[0]}; take fewer") from problem
    device = jax.devices()[0]
    dataset = trainer.dataset().assign_attrs(
        provenance(
            run.document, digest=run.digest, dtype=run.dtype,
            device=f"{device.platform}: {device.device_kind}", seconds=time.perf_counter() - begun,
        )
    )  # fmt: skip
    if stopped:
        raise Interrupted(trainer.last_words(), dataset if trainer.done else None)
    if trainer.failures:
        raise Diverged(trainer.explain(), dataset)
    if folder is not None:
        save(dataset, folder / RESULT, inside=folder)
    return dataset


class Trainer:
    """Takes all groups of a run from record to record."""

    def __init__(self, run: Run, folder: Path | None, least: float) -> None:
        self.run, self.folder, self.least = run, folder, least
        shapes = {name: run.recorded_shapes[name] for name in run.what}
        self.bytes = sum(of.size * of.dtype.itemsize for of in shapes.values())
        self.clock = run.record.clock(run.motion, self.bytes)
        self._require_memory()
        self.values: Arrays = {}
        self.failures: dict[tuple[int, int], Failure] = {}
        self.done = 0  # records
        self.groups: list[Group] = []
        self.kept = None if folder is None else self._found(folder)
        self.written, self.cost = time.perf_counter(), 0.0
        if self.kept is not None:
            self.done = self.kept.step

    def go(self, report: Report, stopping: Stopping) -> None:
        """Advance from record to record, to the end, until all runs have failed or until asked to
        stop."""
        cores = self._workers()
        kind = KINDS[self.run.motion.clock]
        with self.run.numbers():
            for part in parts_of(self.run, cores):
                self.groups.append(kind(self.run, part))
                if stopping.asked:
                    return
            if self.folder is not None:
                claim(self.folder, FILES)
            self._restore()
        self._compile()
        pace, told = Pace(), 0.0
        with ThreadPoolExecutor(min(cores, len(self.groups))) as pool:

            def advance(group: Group) -> bool:
                with self.run.numbers():  # a setting of each thread
                    return group.advance(float(self.clock[self.done]), pace)

            while self.done < self.clock.size:
                there = False
                while not there:
                    if stopping.asked:
                        stopping.keeping = True
                        self._keep()
                        return
                    there = all(list(pool.map(advance, self.groups)))
                    fraction = self._fraction()
                    report(fraction - told, None)
                    told = fraction
                    waited = time.perf_counter() - self.written
                    if waited > max(self.least, self.cost / CHECKPOINT_SHARE):
                        self._keep()
                self._record()
                if len(self.failures) == math.prod(self.run.shape):
                    return
        self._keep()

    def _workers(self) -> int:
        """Number of groups that advance side by side: XLA leaves cores idle in small operations."""
        if jax.default_backend() != "cpu" or not self.run.motion.side_by_side:
            return 1
        return os.cpu_count() or 1

    def _compile(self) -> None:
        """Compile what the groups share, once: take no step, and record nothing."""

        def in_thread(work: Callable[[], Any]) -> None:
            with self.run.numbers():
                work()

        with ThreadPoolExecutor(2) as pool:
            list(pool.map(in_thread, (self.groups[0].compile, self.groups[0].observe)))

    def dataset(self) -> xr.Dataset:
        """Return what was recorded, labelled."""
        run, rates = self.run, self.run.rates
        outer = (*rates.dims, "seed")
        sizes = [of.size for of in rates.dims.values()]
        labels = run.learner.labels
        variables: dict[str, Any] = {}
        for name, values in self.values.items():
            values = np.moveaxis(values[:, :, : self.done], 1, 0)  # point seed record ...
            inner = labels.get(name, tuple(f"{name}_{i}" for i in range(values.ndim - 3)))
            if len(inner) != values.ndim - 3:
                raise InputError(
                    f"labels: {name} has {values.ndim - 3} dims, got the names {inner}"
                )
            shape = (*sizes, *values.shape[1:])
            variables[name] = (*outer, run.motion.clock, *inner), values.reshape(shape)
        if self.failures:
            diverged = np.full(run.shape[::-1], -1.0)
            for (seed, point), (step, _) in self.failures.items():
                diverged[point, seed] = step
            variables["diverged_step"] = outer, diverged.reshape(*sizes, run.shape[0])
        clock = self.clock[: self.done]
        if run.motion.clock == "step":
            clock = clock.astype(np.int64)
        coords = {**rates.dims, "seed": list(run.seeds), run.motion.clock: clock}  # type: ignore[arg-type]
        return xr.Dataset(variables, coords)

    def explain(self) -> str:
        """Say which run diverged first, where and why."""
        (seed, point), (step, what) = min(self.failures.items(), key=lambda item: item[1])
        others = len(self.failures) - 1
        return (
            f"{what} at {self.run.motion.clock} {step:g} ({self.run.rates.describe(point)}"
            f"seed {self.run.seeds[seed]})"  # type: ignore[index]
            + (f", and {others} more of {math.prod(self.run.shape)} runs" if others else "")
            + "; what was recorded before is in the error's `dataset`. Try smaller learning rates."
        )

    def last_words(self) -> str:
        """Say where a run was stopped."""
        reached = min((group.reached for group in self.groups), default=0.0)
        kept = "" if self.folder is None else f"; the same run goes on from there ({self.folder})"
        return f"stopped at {self.run.motion.clock} {reached:g} of {self.clock[-1]:g}{kept}"

    def _record(self) -> None:
        for group in self.groups:
            with self.run.numbers():
                found = group.observe()
            failed = group.failures()
            where = group.part.seeds, group.part.points
            for name, of in found.items():
                if name not in self.values:
                    shape = (*self.run.shape, self.clock.size, *of.shape[2:])
                    self.values[name] = np.full(shape, np.nan, of.dtype)
                for seed, point in failed:
                    of = of.copy() if not of.flags.writeable else of
                    of[seed, point] = np.nan
                self.values[name][:, :, self.done][where] = of
            self._note(group, failed)
        self.done += 1  # last: another thread may take what is there

    def _note(self, group: Group, failed: dict[tuple[int, int], Failure]) -> None:
        """Remember the failures of a group by seed and point of the run."""
        first = group.part.seeds.start or 0, group.part.points.start or 0
        for (seed, point), failure in failed.items():
            self.failures[first[0] + seed, first[1] + point] = failure

    def _fraction(self) -> float:
        reached, last = min(group.reached for group in self.groups), float(self.clock[-1])
        if self.run.motion.clock == "step":
            return reached / max(last, 1.0)
        return float(np.log1p(reached) / np.log1p(last)) if last else 1.0

    def _require_memory(self) -> None:
        """Refuse what would not fit, by the field that asks for most."""
        parameters = jax.tree.leaves(self.run._start_shapes)
        numbers = sum(of.size * np.dtype(self.run.dtype).itemsize for of in parameters)
        require_memory("seeds", COPIES * numbers * math.prod(self.run.shape), "take fewer runs")
        require_memory("record", self.bytes * self.clock.size, "record less, or less often")

    def _identity(self) -> dict[str, Any]:
        return {**self.run.document, "numbers": NUMBERS}

    def _found(self, folder: Path) -> Checkpoint | None:
        """The checkpoint to go on from, if there is one."""
        if not folder.parent.is_dir():
            raise InputError(f"out: the folder {folder.parent} does not exist; make it first")
        refuse_foreign(folder, FILES)
        if not (folder / CHECKPOINT).exists():
            return None
        kept = read_checkpoint(folder / CHECKPOINT)
        here = self._identity()
        for name in sorted(kept.spec.keys() | here.keys()):
            if kept.spec.get(name) != here.get(name):
                raise InputError(
                    f"out: {folder} holds another run ({name}: {kept.spec.get(name)} there, "
                    f"{here.get(name)} here); give another folder, or the same settings to go on"
                )
        return kept

    def _restore(self) -> None:
        if self.kept is None:
            return
        arrays = self.kept.arrays
        for i, group in enumerate(self.groups):
            own = f"{i}/"
            shapes = {own + name: of.shape for name, of in group.arrays().items()}
            check_arrays(Path(CHECKPOINT), arrays, shapes)
            group.restore({name[len(own) :]: arrays[name] for name in shapes})
            self._note(group, group.failures())
        self.values = {
            name[len(RECORD) :]: of.copy() for name, of in arrays.items() if name.startswith(RECORD)
        }

    def _keep(self) -> None:
        """Write a checkpoint."""
        if self.folder is None:
            return
        begun = time.perf_counter()
        arrays = {RECORD + name: of for name, of in self.values.items()}
        for i, group in enumerate(self.groups):
            arrays |= {f"{i}/{name}": of for name, of in group.arrays().items()}
        checkpoint = Checkpoint(self._identity(), self.done, arrays)
        write_checkpoint(self.folder / CHECKPOINT, checkpoint, inside=self.folder)
        self.written = time.perf_counter()
        self.cost = self.written - begun

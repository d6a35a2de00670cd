"""simulate(): the one trainer, for any task and model, or any learner."""

from __future__ import annotations

import os
import threading
import time
import warnings
from collections.abc import Hashable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import xarray as xr

from attnlab.files.checkpoint import Arrays, Checkpoint, read_checkpoint, write_checkpoint
from attnlab.files.errors import InputError
from attnlab.files.folders import claim, refuse_foreign
from attnlab.files.netcdf import DamagedFile, load, save
from attnlab.files.numerics import NUMERICS
from attnlab.files.progress import Choice, Report, reporting
from attnlab.files.provenance import provenance
from attnlab.simulation.groups import KINDS, Group, Recorded, inside, stacks
from attnlab.simulation.learner import Learner
from attnlab.simulation.program import numbers
from attnlab.simulation.settings import as_simulation
from attnlab.simulation.simulation import Simulation
from attnlab.simulation.stopping import Diverged, Interrupted, Pace, Stopping, answering
from attnlab.tasks.base import Task
from attnlab.tasks.sequences import Classes, Sequences

FILES = CHECKPOINT, RESULT = "checkpoint.safetensors", "result.nc"
CHECKPOINT_SHARE = 0.05  # of the time is spent on checkpoints at most
# Paces of the programs that are compiled already.
PACES: dict[Hashable, Pace] = {}
ADVICE = {
    "step": "Try smaller learning rates.",
    "time": "Try learning rates closer to each other, a shorter time (some flows reach infinity "
    "there) or more steps (Flow.most_steps).",
}


def simulate(
    simulation: Simulation | Task | Learner | Classes,
    *,
    out: str | Path | None = None,
    checkpoint_seconds: float = 30.0,
    progress: Choice = "auto",
    **settings: Any,
) -> xr.Dataset:
    """Train a run, for all its seeds and learning rates at once, and return what was recorded.

    Parameters
    ----------
    simulation : Simulation, Task, Learner, SequenceClasses, str or sequence of classes
        A `Simulation`, which explains every field, or its task.
    out : path, optional
        A folder for checkpoints and the result. A run that was interrupted goes on from there with
        bit-identical results on the same machine; another run is refused.
    checkpoint_seconds : float, optional
        The least time between checkpoints.
    progress : {"auto", True, False} or callable, optional
        Show a progress bar, or call a function with the fraction completed.
    **settings
        Fields of the simulation, and settings inside them by their flat names: eta_y, eta_z,
        learning_rate, steps, time, length, batch_size, optimizer, momentum, init, seeds, every, ...
        They replace those of a `Simulation`.

    Returns
    -------
    xarray.Dataset
        With dims (swept learning rates, seed, step or time, the model's own); docs/results.md
        describes it, and `Simulation.of` gives the value back.

    Raises
    ------
    Diverged
        When numbers leave the finite range; it carries what was recorded.
    Interrupted
        On Ctrl-C; so does it.

    Examples
    --------
    >>> import attnlab
    >>> run = attnlab.Simulation("syn-small", gradient="population", eta_y=[1, 2])
    >>> attnlab.simulate(run, progress=False).attention.dims
    ('eta_y', 'seed', 'step', 'sequence_class', 'token')
    """
    run = as_simulation(simulation, **settings)
    for words in run.cautions:
        warnings.warn(words, stacklevel=2)
    folder = None if out is None else Path(out)
    begun = time.perf_counter()
    run.learner.require_memory(run)
    keeper = Keeper(run, folder, checkpoint_seconds)
    if folder is not None and keeper.finished:
        with suppress(FileNotFoundError, DamagedFile):  # or it is made again
            found = load(folder / RESULT)
            if "diverged_step" not in found:  # a run that diverged diverges again
                return found
    trainer, stopped = Trainer(run, keeper), False
    with reporting(progress, trainer.total, run.title) as report:
        try:
            answering(partial(trainer.go, report))
        except KeyboardInterrupt:
            stopped = True
        except jax.errors.JaxRuntimeError as problem:
            if "RESOURCE_EXHAUSTED" not in str(problem):
                raise
            raise MemoryError(str(problem).splitlines()[0]) from problem
    recorded, device = trainer.recorded(), jax.devices()[0]
    if stopped:
        recorded.drop_the_rest()
    attrs = provenance(
        run.spec,
        device=f"{device.platform}: {device.device_kind}",
        dtype=run.dtype,
        seconds=time.perf_counter() - begun,
        **run.learner.attrs(run),
    )
    if words := run.learner.warning(run):
        attrs["rounding"] = words
        warnings.warn(words, stacklevel=2)
    dataset = _labelled(run, recorded).assign_attrs(attrs)
    if stopped:
        words = f"stopped at {trainer.position()}{keeper.last_words()}"
        raise Interrupted(words, dataset if recorded.count else None)
    if recorded.failures:
        raise Diverged(_explain(run, recorded), dataset)
    if folder is not None:
        save(dataset, folder / RESULT, inside=folder)
    return dataset


class Trainer:
    """Advances all runs of a simulation to their end, groups side by side."""

    def __init__(self, run: Simulation, keeper: Keeper) -> None:
        self.run, self.keeper = run, keeper
        self.groups: list[Group] = []
        self.total = len(run.tables) * run.grid.runs

    def go(self, report: Report, stopping: Stopping) -> None:
        """Compile, then advance; asks `stopping` between calls into compiled code."""
        kind = KINDS[self.run.clock]
        with numbers(self.run):
            for members in stacks(self.run):
                programs = members[0].programs
                pace = PACES.get(programs, Pace())
                made = [kind(stack, runs, pace) for stack in members for runs in stack.groups()]
                if programs not in PACES:
                    made[0].compile()
                    PACES[programs] = pace
                self.groups += made
                if stopping.asked:
                    return
            self.keeper.restore(self.groups)
        # XLA leaves a processor's cores idle in the small operations between matrix products; two
        # groups side by side fill them.
        side_by_side = jax.default_backend() == "cpu" and self.run.motion.side_by_side
        workers = min(len(self.groups), os.cpu_count() or 1) if side_by_side else 1

        keep = partial(self.keeper.keep_if_due, self.groups)
        with ThreadPoolExecutor(workers) as pool:
            work = [pool.submit(group.go, report, stopping, keep) for group in self.groups]
            try:
                for done in as_completed(work):
                    done.result()
            except BaseException:
                stopping.asked = True  # the others need not go on
                raise
        stopping.keeping = stopping.asked
        self.keeper.keep(self.groups)

    def recorded(self) -> Recorded:
        """Return what was recorded up to now; the groups may still be at work."""
        out = Recorded(self.run.record_steps)
        for group in self.groups:
            out.gather(self.run, group.runs, group.recorded)  # repeats agree with themselves
        if len(out.failures) == self.total:  # none went on: keep what was reached
            out.keep_before(max(step for step, _ in out.failures.values()))
        return out

    def position(self) -> str:
        """Return how far the runs are, in words."""
        clock, last = self.run.clock, self.run.record_steps[-1]
        reached = sorted({group.reached if group.begun else 0 for group in self.groups} or {0})
        form = "," if clock == "step" else ".4g"
        if len(reached) > 1:
            return f"{clock}s {reached[0]:{form}} to {reached[-1]:{form}} of {last:{form}}"
        return f"{clock} {reached[0]:{form}} of {last:{form}}"


class Keeper:
    """Writes checkpoints to a folder, if there is one, seldom enough to cost little."""

    def __init__(self, run: Simulation, folder: Path | None, least: float) -> None:
        self.run, self.folder, self.least = run, folder, least
        self.last, self.cost, self.written = time.perf_counter(), 0.0, False
        self.lock = threading.Lock()
        self.kept = None if folder is None else self._found(folder)

    @property
    def finished(self) -> bool:
        """True if the checkpoint is of a run that has ended."""
        return self.kept is not None and self.kept.step == int(self.run.record_steps.size)

    def restore(self, groups: list[Group]) -> None:
        """Put the groups where they were when the checkpoint was taken."""
        if self.folder is None:
            return
        claim(self.folder, FILES)
        if self.kept is None:
            return
        for i, group in enumerate(groups):
            if own := inside(self.kept.arrays, f"{i}/"):
                group.restore(self.folder / CHECKPOINT, own)

    def keep_if_due(self, groups: list[Group]) -> None:
        """Write a checkpoint if the last is old; another thread that writes one is enough."""
        if self.folder is None or not self.lock.acquire(blocking=False):
            return
        try:
            waited = time.perf_counter() - self.last
            if waited > max(self.least, self.cost / CHECKPOINT_SHARE):
                self._write(groups)
        finally:
            self.lock.release()

    def keep(self, groups: list[Group]) -> None:
        """Write a checkpoint."""
        if self.folder is not None:
            with self.lock:
                self._write(groups)

    def last_words(self) -> str:
        """Return how to resume a run that was stopped, as the end of a message."""
        if self.folder is None:
            return ""
        if not self.written:
            return " before the first checkpoint"
        return f"; the same settings go on from there (out: {self.folder})"

    def _write(self, groups: list[Group]) -> None:
        assert self.folder is not None
        begun = time.perf_counter()
        arrays: Arrays = {}
        for i, group in enumerate(groups):
            arrays |= {f"{i}/{name}": of for name, of in group.arrays().items()}
        least = min(group.recorded.count for group in groups)
        checkpoint = Checkpoint(self._identity(), least, arrays)
        write_checkpoint(self.folder / CHECKPOINT, checkpoint, inside=self.folder)
        self.written, self.last = True, time.perf_counter()
        self.cost = self.last - begun

    def _identity(self) -> dict[str, Any]:
        """Return what a checkpoint belongs to; another version of jax may round otherwise."""
        return {"digest": self.run.digest, **self.run.spec, "numbers": NUMERICS["simulation"]}

    def _found(self, folder: Path) -> Checkpoint | None:
        """Return the checkpoint to go on from, if there is one."""
        if not folder.parent.is_dir():
            raise InputError(f"out: the folder {folder.parent} does not exist; make it first")
        refuse_foreign(folder, FILES)
        if not (folder / CHECKPOINT).exists():
            return None
        kept = read_checkpoint(folder / CHECKPOINT)
        there, here = _leaves(kept.spec), _leaves(self._identity())
        if any(there.get(name) != here[name] for name in ("digest", "numbers")):
            differ = (name for name in sorted(there.keys() | here.keys()) if name != "digest")
            name = next((name for name in differ if there.get(name) != here.get(name)), "digest")
            raise InputError(
                f"out: {folder} holds another run ({name}: {there.get(name)} there, "
                f"{here.get(name)} here); give another folder, or the same settings to go on"
            )
        if not 0 <= kept.step <= self.run.record_steps.size:
            raise DamagedFile(folder / CHECKPOINT, f"it has {kept.step:,} records, too many")
        return kept


def _leaves(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return all settings by their paths: model.layers and so on."""
    found: dict[str, Any] = {}
    for name, value in document.items():
        inner = _leaves(value) if isinstance(value, Mapping) else None
        found |= {name: value} if inner is None else {f"{name}.{n}": v for n, v in inner.items()}
    return found


def _labelled(run: Simulation, recorded: Recorded) -> xr.Dataset:
    """Return what was recorded, with its labels, and the steps at which runs diverged."""
    dataset = run.learner.dataset(run, recorded.values, recorded.steps)
    if recorded.failures:
        diverged = np.full((len(run.tables), len(run.seeds), run.grid.points), -1.0)  # type: ignore[arg-type]
        for place, (step, _) in recorded.failures.items():
            diverged[place] = step
        labelled = xr.Variable(("setting", *run.grid.dims()), run.grid.label(diverged))
        several = "setting" in dataset.dims
        dataset["diverged_step"] = labelled if several else labelled.squeeze("setting")
    return dataset


def _explain(run: Simulation, recorded: Recorded) -> str:
    place, (step, what) = min(recorded.failures.items(), key=lambda item: item[1])
    setting, seed, point = place
    where = run.grid.describe(seed, point)
    if len(run.tables) > 1:
        of_classes = isinstance(run.task, Sequences)
        named = run.sets[setting].origin if of_classes else f"setting {setting}"
        where = f"{named}, {where}"
    others, total = len(recorded.failures) - 1, len(run.tables) * run.grid.runs
    return (
        f"{what} at {run.clock} {step:g} ({where})"
        + (f", and {others} more of {total} runs diverged" if others else "")
        + f"; what was recorded before is in the error's `dataset`. {ADVICE[run.clock]}"
    )

"""Trajectory: the checkpoints of one training, measured one after the other on one probe.

Snapshots are kept in a folder, each in a file that is whole or absent.
"""

from __future__ import annotations

import gc
import hashlib
import json
import os
import warnings
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr

from attnlab.files.checkpoint import Checkpoint as Kept
from attnlab.files.checkpoint import read_checkpoint, write_checkpoint
from attnlab.files.errors import InputError
from attnlab.files.folders import claim, make_folder
from attnlab.files.netcdf import DamagedFile, save
from attnlab.files.numerics import numerics
from attnlab.files.progress import Choice, reporting
from attnlab.files.provenance import provenance
from attnlab.measures.arrays import is_torch, to_numpy
from attnlab.measures.received import heavy_hitters
from attnlab.observing.checkpoints import Checkpoint, Lint, find_checkpoints, lint
from attnlab.observing.history import History
from attnlab.observing.layer_statistics import HEAVY, Labels, LayerStatistics, label_of
from attnlab.observing.model_files import as_input_error, load_model, some_of
from attnlab.observing.probe import make_probe
from attnlab.observing.report_page import expected
from attnlab.observing.snapshot import Snapshot, random_twice, take_snapshot, with_repeated
from attnlab.observing.statistics import MIN_KEYS
from attnlab.observing.training import LearningRate, sums_of_checkpoints
from attnlab.observing.weights import WeightStatistics

FORMAT = 2  # of the files of a SnapshotFolder
RESULT = "result.nc"
STEPS, ROLLED_BACK = "steps", "rolled-back"
TORCH = str(torch.__version__)
_PREFIX, _SUFFIX = "step-", ".safetensors"
_UNFIT = "its configuration does not fit its weights, or the probe"


class SnapshotFolder:
    """Snapshots of one training in a folder, from which a later call goes on.

    key: settings that have to be the same for that. names: the files that belong to it.
    """

    def __init__(
        self,
        folder: Path,
        key: Mapping[str, Any],
        names: Sequence[str] = (STEPS, ROLLED_BACK, RESULT),
    ) -> None:
        if not folder.parent.is_dir():
            raise InputError(f"out: the folder {folder.parent} does not exist; make it first")
        claim(folder, names)
        self.folder, self._key = folder, {**key, "format": FORMAT}

    def records(self) -> Iterator[tuple[int, float | None, Snapshot]]:
        """Yield the step, the learning rate spent and the snapshot of all steps, in their order."""
        for step in sorted(self._steps()):
            try:
                found = self.read(step)
            except DamagedFile as problem:
                warnings.warn(f"{problem}; goes on without step {step}", stacklevel=4)
                continue
            yield step, found.spec["learning_rate_sum"], unpack(found.spec, found.arrays)

    def read(self, step: int, **key: str) -> Kept:
        """Return the file of a step; refuse another probe or other settings.

        key: settings of this step alone, as given to `write`.
        """
        found = read_checkpoint(self._path(step))
        if found.spec.get("key") != json.loads(json.dumps({**self._key, **key})):
            raise InputError(
                f"out: {self.folder} holds another observation of step {step} (another model, "
                "weights, probe or options); give another folder, or the settings from before"
            )
        return found

    def write(self, step: int, snapshot: Snapshot, about: Mapping[str, Any], **key: str) -> None:
        """Write the snapshot of a step, and other values `about` it."""
        path = self._path(step)
        make_folder(path.parent, inside=self.folder)
        spec, arrays = pack(snapshot)
        spec |= {"key": {**self._key, **key}, **about}
        write_checkpoint(path, Kept(spec, step, arrays), inside=self.folder)

    def roll_back(self, step: int) -> None:
        """Move the files from `step` on aside: the training goes on from an earlier state."""
        later = [self._path(number) for number in self._steps() if number >= step]
        if not later:
            return
        places = (self.folder / ROLLED_BACK / str(number) for number in range(1, 10**9))
        aside = next(place for place in places if not place.exists())
        make_folder(aside.parent, inside=self.folder)
        make_folder(aside, inside=self.folder)
        for path in later:
            os.replace(path, aside / path.name)

    def save(self, result: xr.Dataset) -> None:
        """Write the whole result."""
        save(result, self.folder / RESULT, inside=self.folder)

    def _path(self, step: int) -> Path:
        return self.folder / STEPS / f"{_PREFIX}{step}{_SUFFIX}"

    def _steps(self) -> list[int]:
        found = (self.folder / STEPS).glob(f"{_PREFIX}*{_SUFFIX}")
        numbers = (path.name[len(_PREFIX) : -len(_SUFFIX)] for path in found)
        return [int(number) for number in numbers if number.isdecimal()]


def pack(snapshot: Snapshot) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a snapshot as JSON and arrays. (netCDF would take longer for its many small arrays
    than the model.)"""
    arrays: dict[str, Any] = {}
    groups = []
    for i, group in enumerate(snapshot.groups):
        labels = group.labels
        about = {name: getattr(labels, name) for name in ("kind", "min_keys", "kernel")}
        groups.append({"layers": list(group.layers), **about})
        given = {"tokens": labels.tokens, "row_query": labels.row_query}
        arrays |= {f"{i}/labels/{name}": v for name, v in given.items() if v is not None}
        arrays |= {f"{i}/{name}": to_numpy(v) for name, v in group.arrays.items() if name != HEAVY}
    for i, layer in enumerate(snapshot.order):
        weights = snapshot.weights.values.get(layer, {})
        arrays |= {f"weights/{i}/{name}": values for name, values in weights.items()}
    words = {"unseen": snapshot.unseen, "unrecognised": snapshot.weights.unrecognised}
    spec = {name: dict(one) for name, one in words.items()}
    return {**spec, "groups": groups, "order": list(snapshot.order)}, arrays


def unpack(spec: Mapping[str, Any], arrays: Mapping[str, Any]) -> Snapshot:
    """Return the snapshot that `pack` was given."""
    folders: dict[str, dict[str, Any]] = defaultdict(dict)
    for name, found in arrays.items():
        place, _, own = name.rpartition("/")
        folders[place][own] = found
    groups = []
    for i, about in enumerate(spec["groups"]):
        of_group = folders[f"{i}"]
        if "received_total" in of_group:
            of_group[HEAVY] = heavy_hitters(of_group["received_total"])
        layers = tuple(about.pop("layers"))
        groups.append(LayerStatistics(layers, of_group, Labels(**about, **folders[f"{i}/labels"])))
    values = {}
    for i, layer in enumerate(spec["order"]):  # a number alone is kept as a list of one
        found = folders[f"weights/{i}"]
        values[layer] = {
            n: v.reshape(v.shape if label_of(n).dims else ()) for n, v in found.items()
        }
    weights = WeightStatistics(values, dict(spec["unrecognised"]))
    return Snapshot(tuple(groups), tuple(spec["order"]), dict(spec["unseen"]), weights)


def digest(probe: Any) -> str:
    """Return a hash that identifies a probe."""
    several = dict(enumerate(probe)) if isinstance(probe, tuple) else {"": probe}
    parts = probe if isinstance(probe, Mapping) else several
    sha = hashlib.sha256()
    for name in sorted(parts):
        value = parts[name]
        values = np.ascontiguousarray(to_numpy(value) if is_torch(value) else value)
        sha.update(f"{name} {values.dtype} {values.shape}".encode())
        sha.update(repr(value).encode() if values.dtype == object else values.data)
    return sha.hexdigest()


def observe_model(
    folder: str | Path,
    probe: Any,
    *,
    rows: int | None = None,
    min_keys: int = MIN_KEYS,
    device: str = "cpu",
    text: Any = None,
    names: Any = None,
) -> xr.Dataset:
    """Measure the model of a folder as it is.

    Nothing is downloaded, and none of its code is run. A model is refused if its weights, or the
    attention weights of one of its heads, are not finite numbers.

    Parameters
    ----------
    folder : path
        A model as transformers saves it, with weights as safetensors.
    probe : tensor, mapping or tuple
        Token ids (sequence, position), or anything else that `attnlab.observe` takes.
    rows : int, optional
        Number of queries to sample, of all sequences together; None measures all.
    min_keys : int, optional
        Queries that see fewer keys are left out.
    device : str, optional
        Device on which it runs.
    text : tensor, array or list, optional
        Tokens that the model learns from: then the attribute `theory` says, for the page, what
        theory expects of them.
    names : tokenizer or sequence of str, optional
        The names of tokens, for that.

    Returns
    -------
    xarray.Dataset
        Over (layer, head).
    """
    path = Path(folder).expanduser()
    snapshot = _snapshot(path, probe, rows, min_keys, device)
    if wrong := _not_finite(snapshot):
        raise InputError(
            f"{path}: the attention of {some_of(wrong)} is not a finite number on this probe, "
            "though the weights are; the model has diverged"
        )
    history = History()
    history.add(0, snapshot)
    found = history.means()
    spec = {"model": path.name, "rows": rows, "min_keys": min_keys, "probe": digest(probe)}
    found.attrs = provenance(spec, torch=TORCH) | history.words | _theory(found, text, names)
    return found


def observe_checkpoints(
    where: str | Path | Sequence[str | Path] | Sequence[Checkpoint],
    probe: Any,
    *,
    pattern: str | None = None,
    out: str | Path | None = None,
    rows: int | None = None,
    min_keys: int = MIN_KEYS,
    device: str = "cpu",
    learning_rate: LearningRate | None = None,
    progress: Choice = "auto",
    text: Any = None,
    names: Any = None,
) -> xr.Dataset:
    """Measure a training by its checkpoints.

    The files are read first (`attnlab.observing.lint`). A step whose file cannot hold the
    weights of that step is left out, and no snap is claimed across it; the attribute `lint` has all
    faults. The attribute `not_finite` has, by step, the modules whose attention is not a finite
    number; if that is so at every step, it is an error. One model is in memory at a time.

    Parameters
    ----------
    where : path, or sequence of paths or Checkpoint
        As for `find_checkpoints`.
    probe : tensor, mapping or tuple
        Token ids (sequence, position), or anything else that `attnlab.observe` takes.
    pattern : str, optional
        As for `find_checkpoints`.
    out : path, optional
        A folder in which each step is kept when it is measured, and the result; the same call
        resumes where an earlier one was stopped.
    rows : int, optional
        Number of queries to sample, of all sequences together; None measures all.
    min_keys : int, optional
        Queries that see fewer keys are left out.
    device : str, optional
        Device on which it runs.
    learning_rate : float or callable, optional
        The learning rate, or a function of the step (0 for the first) that returns it. By default
        it is read from the log of transformers' Trainer in the last checkpoint; without either no
        snap is claimed.
    progress : {"auto", True, False} or callable, optional
        Show progress, or call a function with the fraction done.
    text : tensor, array or list, optional
        Tokens that the model learns from: then the attribute `theory` says, for the page,
        whether the first layer did what theory expects of them.
    names : tokenizer or sequence of str, optional
        The names of tokens, for that.

    Returns
    -------
    xarray.Dataset
        Over (step, layer, head).
    """
    checkpoints = _checkpoints(where, pattern)
    linted = lint(checkpoints, progress=progress)
    sound = [one for one in checkpoints if one.step not in linted.unusable]
    if not sound:
        raise InputError(f"checkpoints: none can be used: {linted.faults[0].words}")
    settings = {"rows": rows, "min_keys": min_keys, "probe": digest(probe)}
    kept = None
    if out is not None:
        key = {**settings, "torch": TORCH, "numerics": numerics("measures"), "repeated": True}
        kept = SnapshotFolder(Path(out), key, (STEPS, RESULT))
    history = History()
    steps = [one.step for one in sound]
    sums = sums_of_checkpoints(steps, [one.path for one in sound], learning_rate)
    wrong: dict[int, list[str]] = {}
    with reporting(progress, len(sound), "measuring checkpoints") as report:
        for i, one in enumerate(sound):
            report(0, one.name)
            # a folder may be trained into again
            own = {"model": str(one.path.resolve()), "weights": linted.digests[one.step]}
            snapshot = None if kept is None else _read_again(kept, one.step, own)
            if snapshot is None:
                snapshot = _snapshot(one.path, probe, rows, min_keys, device)
                if kept is not None:
                    kept.write(one.step, snapshot, {}, **own)
            history.add(one.step, snapshot, learning_rate_sum=None if sums is None else sums[i])
            if modules := _not_finite(snapshot):
                wrong[one.step] = modules
            report(1)
    result = history.dataset(faulty=_around(linted, steps))
    if not bool(result["entropy"].notnull().any()):
        raise InputError(
            "checkpoints: at no step is attention a finite number on this probe, though the "
            "weights are; the training has diverged"
        )
    spec = {"checkpoints": [one.name for one in sound], **settings}
    result.attrs |= provenance(spec, torch=TORCH, lint=json.dumps(linted.document()))
    result.attrs["not_finite"] = json.dumps(wrong)
    result.attrs |= _theory(result, text, names)
    if kept is not None:
        kept.save(result)
    return result


def _theory(found: xr.Dataset, text: Any, names: Any) -> dict[str, str]:
    return {} if text is None else {"theory": json.dumps(expected(found, text, names))}


def _checkpoints(where: Any, pattern: str | None) -> tuple[Checkpoint, ...]:
    listed = not isinstance(where, str | Path)
    if listed and where and all(isinstance(one, Checkpoint) for one in where):
        return tuple(sorted(where, key=lambda one: one.step))
    return find_checkpoints(where, pattern=pattern)


def _read_again(kept: SnapshotFolder, step: int, key: Mapping[str, str]) -> Snapshot | None:
    """Return the snapshot of an earlier call; None where it has to be measured again."""
    with suppress(FileNotFoundError, DamagedFile):
        found = kept.read(step, **key)
        with suppress(KeyError, TypeError, ValueError, AttributeError):  # changed since
            return unpack(found.spec, found.arrays)
    return None


def _around(linted: Lint, steps: Sequence[int]) -> list[int]:
    """Return the steps that follow one left out, and those at a break."""
    after = {
        next((step for step in steps if step > missing), steps[-1]) for missing in linted.unusable
    }
    return sorted({*after, *(step for step in linted.breaks if step in steps)})


def _snapshot(folder: Path, probe: Any, rows: int | None, min_keys: int, device: str) -> Snapshot:
    model = load_model(folder, device=device)
    try:
        given = make_probe(model, probe)
        try:
            snapshot = take_snapshot(model, given, rows=rows, min_keys=min_keys)
            if given.side.tokens is None:
                return snapshot
            return with_repeated(snapshot, model, random_twice(model, given), min_keys=min_keys)
        except InputError:
            raise
        except Exception:
            # A configuration may load and not run. If the model alone runs, it is our bug.
            problem = f"{folder}: the model cannot be run on the probe"
            with as_input_error(problem, _UNFIT), torch.no_grad():
                given.on(torch.device(device)).run(model)
            raise
    finally:
        del model
        gc.collect()  # models are in reference cycles; two would not fit into memory


def _not_finite(snapshot: Snapshot) -> list[str]:
    """Return the modules with a head whose attention is finite in no sequence."""
    found = []
    for group in snapshot.groups:
        # (layer, sequence, head); a head whose queries all see too few keys has neither
        entropy, keys = (
            np.isfinite(to_numpy(group.arrays[name])).any(axis=1)
            for name in ("entropy", "visible_keys")
        )
        wrong = (keys & ~entropy).any(axis=1)
        found += [name for name, is_wrong in zip(group.layers, wrong, strict=True) if is_wrong]
    return found

"""Measurements on the disk, each in a file that is whole or not there."""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from attnlab.files.errors import InputError
from attnlab.files.folders import claim, make_folder
from attnlab.files.netcdf import DamagedFile, save
from attnlab.measures.arrays import is_torch, to_numpy
from attnlab.observing.behind import Behind
from attnlab.observing.moment import Moment
from attnlab.text.checkpoint import Checkpoint, read_checkpoint, write_checkpoint

RESULT = "result.nc"
STEPS, ROLLED_BACK = "steps", "rolled-back"
_PREFIX, _SUFFIX = "step-", ".safetensors"
_NUMBERS = "biuf"  # kinds of dtypes
Record = tuple[int, float | None, Moment]


class StepFolder:
    """Measurements of one training in a folder, with which a later observer goes on.

    key: what has to be the same for that (the probe and the settings).
    """

    def __init__(self, folder: Path, key: Mapping[str, Any]) -> None:
        if not folder.parent.is_dir():
            raise InputError(f"out: the folder {folder.parent} does not exist; make it first")
        claim(folder, (STEPS, ROLLED_BACK, RESULT))
        self.folder, self._key = folder, json.loads(json.dumps(key))

    def records(self) -> Iterator[Record]:
        """Yield step, learning rate spent and measurement of all steps, in their order; refused
        where they are of another probe or other settings."""
        for step, path in sorted(self._files()):
            try:
                found = read_checkpoint(path)
            except DamagedFile as problem:
                warnings.warn(f"{problem}; goes on without step {step}", stacklevel=4)
                continue
            if found.spec.get("key") != self._key:
                raise InputError(
                    f"out: {self.folder} holds another observation (of another model, or with "
                    "another probe or other options); give another folder, or what was given "
                    "before to go on"
                )
            yield step, found.spec["learning_rate_sum"], unpacked(found.spec, found.arrays)

    def keep(self, step: int, moment: Moment, learning_rate_sum: float | None) -> None:
        """Write a measurement."""
        path = self.folder / STEPS / f"{_PREFIX}{step}{_SUFFIX}"
        make_folder(path.parent, inside=self.folder)
        spec, arrays = packed(moment)
        spec |= {"key": self._key, "learning_rate_sum": learning_rate_sum}
        write_checkpoint(path, Checkpoint(spec, step, arrays), inside=self.folder)

    def roll_back(self, step: int) -> None:
        """Put the files from `step` on aside: the training goes on from an earlier state."""
        later = [path for number, path in self._files() if number >= step]
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

    def _files(self) -> list[tuple[int, Path]]:
        found = (self.folder / STEPS).glob(f"{_PREFIX}*{_SUFFIX}")
        numbers = ((path.name[len(_PREFIX) : -len(_SUFFIX)], path) for path in found)
        return [(int(number), path) for number, path in numbers if number.isdecimal()]


def packed(moment: Moment) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a measurement as JSON and arrays. (netCDF would take longer for its many small arrays
    than the model.)"""
    arrays: dict[str, Any] = {}
    behind = moment.behind.values
    for i, (module, layer) in enumerate(moment.layers.items()):
        arrays |= {
            f"{i}/{name}": np.asarray(v.values)
            for name, v in layer.variables.items()
            if v.dtype.kind in _NUMBERS
        }
        arrays |= {f"{i}/behind/{name}": v for name, v in behind.get(module, {}).items()}
    spec = {
        "unseen": dict(moment.unseen), "unrecognised": dict(moment.behind.unrecognised),
        "layers": [
            _label(name, layer) | {"behind": {n: v.shape for n, v in behind.get(name, {}).items()}}
            for name, layer in moment.layers.items()
        ],
    }  # fmt: skip
    return spec, arrays


def unpacked(spec: Mapping[str, Any], arrays: Mapping[str, Any]) -> Moment:
    """Return the measurement that `packed` was given."""
    layers = {
        label["module"]: _layer(label, arrays, f"{i}/") for i, label in enumerate(spec["layers"])
    }
    behind = Behind(
        {
            label["module"]: {
                # a number alone is kept as a list of one
                name: arrays[f"{i}/behind/{name}"].reshape(shape)
                for name, shape in label["behind"].items()
            }
            for i, label in enumerate(spec["layers"])
        },
        dict(spec["unrecognised"]),
    )
    return Moment.of(layers, dict(spec["unseen"]), behind)


def digest(probe: Any) -> str:
    """Return a hash by which a probe is known again."""
    several = dict(enumerate(probe)) if isinstance(probe, tuple) else {"": probe}
    parts = probe if isinstance(probe, Mapping) else several
    sha = hashlib.sha256()
    for name in sorted(parts):
        value = parts[name]
        values = np.ascontiguousarray(to_numpy(value) if is_torch(value) else value)
        sha.update(f"{name} {values.dtype} {values.shape}".encode())
        sha.update(repr(value).encode() if values.dtype == object else values.data)
    return sha.hexdigest()


def _label(module: str, layer: xr.Dataset) -> dict[str, Any]:
    """Return all of a layer's dataset but its numbers."""
    return {
        "module": module, "attrs": layer.attrs, "coords": list(layer.coords),
        "variables": {n: [list(v.dims), v.attrs] for n, v in layer.variables.items()},
        "words": {
            n: v.values.tolist() for n, v in layer.variables.items()
            if v.dtype.kind not in _NUMBERS
        },
    }  # fmt: skip


def _layer(label: dict[str, Any], arrays: Mapping[str, Any], prefix: str) -> xr.Dataset:
    """Return the dataset that `_label` and the numbers were made of."""
    variables = {
        name: (dims, label["words"].get(name, arrays.get(prefix + name)), attrs)
        for name, (dims, attrs) in label["variables"].items()
    }
    return xr.Dataset(variables, attrs=label["attrs"]).set_coords(label["coords"])

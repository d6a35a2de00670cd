"""Checkpoints: the state of a training in one safetensors file, written atomically."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlab.files.atomic import atomic_path
from attnlab.files.errors import InputError
from attnlab.files.netcdf import DamagedFile
from attnlab.files.regular import open_regular

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """State of a training.

    spec: the settings; a training resumes only from the same ones.
    step: number of steps taken. Random numbers are functions of seed and step, so a generator has
        no other state.
    arrays: parameters, the optimiser's memory, and everything measured so far.
    """

    spec: Mapping[str, Any]
    step: int
    arrays: Arrays


def write_checkpoint(path: Path, checkpoint: Checkpoint, *, inside: Path | None = None) -> None:
    """Replace the file at `path` atomically by this checkpoint.

    inside: the output folder, where `path` is in one.
    """
    from safetensors.numpy import save

    arrays = {name: np.ascontiguousarray(array) for name, array in checkpoint.arrays.items()}
    about = {"spec": json.dumps(checkpoint.spec, sort_keys=True), "step": str(checkpoint.step)}
    content = save(arrays, metadata={**about, "sha256": _digest(about, arrays)})
    with atomic_path(path, inside=inside) as temporary:
        temporary.write_bytes(content)


def read_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint; raise DamagedFile if it changed since it was written."""
    from safetensors import SafetensorError, safe_open

    try:
        with open_regular(path), safe_open(path, framework="numpy") as file:
            about = dict(file.metadata() or {})
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise DamagedFile(path, str(error)) from None
    if about.pop("sha256", None) != _digest(about, arrays):
        raise DamagedFile(path, "its content does not match its checksum")
    try:
        spec, step = json.loads(about["spec"]), int(about["step"])
    except (KeyError, ValueError):
        spec = None
    if not isinstance(spec, dict):
        raise DamagedFile(path, "it has no settings")
    return Checkpoint(spec, step, arrays)


def check_arrays(path: Path, arrays: Arrays, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Refuse an undamaged checkpoint whose arrays have other names or shapes than `shapes`."""
    for name, shape in shapes.items():
        if name not in arrays or arrays[name].shape != shape:
            found = f"of shape {arrays[name].shape}" if name in arrays else "missing"
            raise InputError(
                f"{path}: written by another version of attnlab ({name} is {found}, here {shape}); "
                "train anew, in another folder"
            )


def arrays_of(tree: Any) -> Arrays:
    """Return the leaves of a tree by their paths."""
    import jax

    leaves, _ = jax.tree.flatten_with_path(tree)
    return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves}


def tree_of(arrays: Arrays, like: Any) -> Any:
    """Return a tree with the structure of `like` and these arrays as its leaves."""
    import jax

    leaves, shape = jax.tree.flatten_with_path(like)
    names = [jax.tree_util.keystr(path) for path, _ in leaves]
    return jax.tree.unflatten(shape, [jax.numpy.asarray(arrays[name]) for name in names])


def _digest(about: Mapping[str, str], arrays: Arrays) -> str:
    sha = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        sha.update(f"{name} {array.dtype} {array.shape}".encode())
        sha.update(array.data)
    return sha.hexdigest()

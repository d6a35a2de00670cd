"""Lint of checkpoints: what is wrong with the files of a trajectory, before it is believed.

Public suites contain steps whose files hold the weights of another step. Attention that "stands
still" between two such files has not snapped.
"""

from __future__ import annotations

import hashlib
import math
import reprlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attnlab.files.errors import InputError
from attnlab.files.progress import Choice, reporting
from attnlab.observing.checkpoints import Checkpoint
from attnlab.observing.weights import CONFIG, as_input_error, read_object, tensors_of

SAMPLED = 64  # entries of each tensor that are kept, to tell how far weights are apart
NEAR_FINAL = 0.05  # of the way to a neighbour: nearer than this to the final weights is a jump
# of a configuration, what says nothing about the model
_VOLATILE = {"_name_or_path", "transformers_version", "torch_dtype", "dtype", "use_cache"}


@dataclass(frozen=True)
class Fault:
    """Something that is wrong with some checkpoints.

    Parameters
    ----------
    kind : str
        "identical" (several steps have the same weights), "final" (a step has the weights of the
        last one), "config", "tensors" or "dtype" (it changes at this step), "nan", "unreadable".
    steps : tuple
        Those concerned; of a change, the step before it and the one from which it holds.
    words : str
        What was found.
    """

    kind: str
    steps: tuple[int, ...]
    words: str


@dataclass(frozen=True)
class Lint:
    """What is wrong with a trajectory.

    Parameters
    ----------
    steps : tuple
        Those that were looked at.
    faults : tuple
        In the order of their steps.
    digests : mapping
        By step, what the weights that could be read are known again by.
    """

    steps: tuple[int, ...]
    faults: tuple[Fault, ...]
    digests: Mapping[int, str] = field(default_factory=dict, compare=False, repr=False)

    @property
    def unusable(self) -> tuple[int, ...]:
        """Steps whose files do not hold the model of that step, or might not."""
        kinds = ("identical", "final", "nan", "unreadable")
        return tuple(sorted({s for f in self.faults if f.kind in kinds for s in f.steps}))

    @property
    def breaks(self) -> tuple[int, ...]:
        """Steps from which on the model is another: before and after do not compare."""
        kinds = ("config", "tensors", "dtype")
        return tuple(sorted({f.steps[-1] for f in self.faults if f.kind in kinds}))

    def document(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return {
            "steps": list(self.steps), "faults": [asdict(fault) for fault in self.faults],
            "unusable": list(self.unusable), "breaks": list(self.breaks),
        }  # fmt: skip


@dataclass(frozen=True, eq=False)
class Print:
    """What is kept of a checkpoint's files: enough to tell whether two hold the same.

    digest: of all tensors, by name. sample: some entries of each tensor, as float32.
    """

    step: int
    digest: str
    shapes: dict[str, tuple[int, ...]]
    dtypes: dict[str, str]
    not_finite: tuple[str, ...]
    config: dict[str, Any]
    sample: NDArray[np.float32]


def lint(checkpoints: Sequence[Checkpoint], *, progress: Choice = False) -> Lint:
    """Look through the files of a trajectory: every tensor is read and hashed.

    Nothing is run: weights are read as data, from safetensors alone. A step whose files cannot be
    read is a fault of its own, and the others are looked at all the same.

    Parameters
    ----------
    checkpoints : sequence of Checkpoint
        Of `find_checkpoints`.
    progress : {"auto", True, False} or callable, optional
        Whether to show how far it is, or a function that is called with the fraction done.

    Returns
    -------
    Lint
        The faults, if there are any.
    """
    prints: list[Print] = []
    faults: list[Fault] = []
    with reporting(progress, len(checkpoints), "reading weights") as report:
        for checkpoint in sorted(checkpoints, key=lambda c: c.step):
            report(0, checkpoint.name)
            try:
                prints.append(print_of(checkpoint))
            except (InputError, OSError) as problem:
                faults.append(Fault("unreadable", (checkpoint.step,), str(problem)))
            report(1)
    looks: tuple[Callable[[Sequence[Print]], Iterator[Fault]], ...]
    looks = (_identical, _jumps, _not_finite, _changes)
    faults += [fault for look in looks for fault in look(prints)]
    steps = tuple(sorted(checkpoint.step for checkpoint in checkpoints))
    faults.sort(key=lambda fault: (fault.steps, fault.kind))
    return Lint(steps, tuple(faults), {one.step: one.digest for one in prints})


def print_of(checkpoint: Checkpoint) -> Print:
    """The print of one checkpoint's files."""
    shapes, dtypes, samples, wrong, sha = {}, {}, [], [], hashlib.blake2b(digest_size=32)
    for name, tensor in tensors_of(checkpoint.path):
        shapes[name], dtypes[name] = tuple(tensor.shape), str(tensor.dtype).removeprefix("torch.")
        sha.update(f"{name} {dtypes[name]} {shapes[name]}".encode())
        problem = f"{checkpoint.path}: {name!r}: torch cannot compute with {dtypes[name]}"
        with as_input_error(problem, "save the weights in another dtype"):
            sha.update(tensor.contiguous().flatten().view(torch.uint8).numpy().data)
            if tensor.is_floating_point():
                numbers = tensor.float() if tensor.itemsize == 1 else tensor  # float8 knows little
                if not bool(numbers.isfinite().all()):
                    wrong.append(name)
                samples.append(_sample(numbers))
    return Print(
        checkpoint.step, sha.hexdigest(), shapes, dtypes, tuple(wrong), _config(checkpoint.path),
        np.concatenate(samples) if samples else np.zeros(0, np.float32),
    )  # fmt: skip


def _config(folder: Path) -> dict[str, Any]:
    config = read_object(folder, CONFIG)
    return {key: value for key, value in config.items() if key not in _VOLATILE}


def _sample(tensor: Tensor) -> NDArray[np.float32]:
    flat = tensor.flatten()
    ends = (0, max(0, flat.numel() - 1), min(SAMPLED, flat.numel()))
    places = torch.linspace(*ends, dtype=torch.float64).long()  # float32 knows no place above 2^24
    found: NDArray[np.float32] = flat[places].float().numpy()
    return found


def _identical(prints: Sequence[Print]) -> Iterator[Fault]:
    by_digest: dict[str, list[int]] = {}
    for one in prints:
        by_digest.setdefault(one.digest, []).append(one.step)
    last = prints[-1].step if prints else None
    for steps in by_digest.values():
        if len(steps) > 1 and steps[-1] == last:
            yield Fault(
                "final", tuple(steps[:-1]),
                f"{_steps(steps[:-1])} holds the weights of the last step, {last}",
            )  # fmt: skip
        elif len(steps) > 1:
            yield Fault("identical", tuple(steps), f"{_steps(steps)} hold the same weights")


def _jumps(prints: Sequence[Print]) -> Iterator[Fault]:
    """Steps that are far nearer to the final weights than to the steps beside them.

    Their files may be rounded otherwise, so that they are not identical.
    """
    last = prints[-1] if prints else None
    for before, one, after in zip(prints, prints[1:-1], prints[2:], strict=False):
        if last is None or one.digest == last.digest:
            continue  # told already
        way = min(_distance(one, before), _distance(one, after) if after is not last else math.inf)
        if math.isfinite(way) and _distance(one, last) < NEAR_FINAL * way:
            yield Fault(
                "final", (one.step,),
                f"step {one.step} holds nearly the weights of the last step, {last.step}",
            )  # fmt: skip


def _not_finite(prints: Sequence[Print]) -> Iterator[Fault]:
    for one in prints:
        if one.not_finite:
            names = ", ".join(one.not_finite[:3])
            more = "" if len(one.not_finite) <= 3 else f" and {len(one.not_finite) - 3} more"
            yield Fault("nan", (one.step,), f"step {one.step}: not finite numbers in {names}{more}")


def _changes(prints: Sequence[Print]) -> Iterator[Fault]:
    for before, one in pairwise(prints):
        steps = (before.step, one.step)
        keys = sorted(
            key
            for key in before.config.keys() | one.config.keys()
            if before.config.get(key) != one.config.get(key)
        )
        if keys:
            told = ", ".join(
                f"{reprlib.repr(key)[1:-1]} {_brief(before, key)} -> {_brief(one, key)}"
                for key in keys[:3]
            )
            yield Fault("config", steps, f"step {one.step}: another configuration ({told})")
        if before.shapes != one.shapes:
            names = sorted(
                name
                for name in before.shapes.keys() | one.shapes.keys()
                if before.shapes.get(name) != one.shapes.get(name)
            )
            yield Fault(
                "tensors", steps, f"step {one.step}: other tensors ({', '.join(names[:3])})"
            )
        elif before.dtypes != one.dtypes:
            kinds = sorted(set(before.dtypes.values())), sorted(set(one.dtypes.values()))
            told = " -> ".join(", ".join(kind) for kind in kinds)
            yield Fault("dtype", steps, f"step {one.step}: another dtype ({told})")


def _brief(one: Print, key: str) -> str:
    """Return a setting of a configuration for a message."""
    return reprlib.repr(one.config.get(key))


def _distance(one: Print, other: Print) -> float:
    if one.sample.shape != other.sample.shape:
        return math.inf
    return float(np.linalg.norm(one.sample.astype(np.float64) - other.sample))


def _steps(steps: Sequence[int]) -> str:
    return f"step {steps[0]}" if len(steps) == 1 else f"steps {', '.join(map(str, steps))}"

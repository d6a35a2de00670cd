"""Checkpoints of a training: find them, and lint their files before they are used.

Public suites contain steps whose files hold the weights of another step. Attention that "stands
still" between two such files has not snapped.
"""

from __future__ import annotations

import glob
import hashlib
import math
import os
import re
import reprlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import regex
import torch
from numpy.typing import NDArray
from torch import Tensor

from attnlab.files.errors import InputError
from attnlab.files.progress import Choice, reporting
from attnlab.files.regular import read_regular
from attnlab.observing.model_files import CONFIG, as_input_error, read_object, some_of, tensors_of

# names that people give: step143000, step_20k, checkpoint-500, stage1-step1000-tokens5B
STEP = re.compile(
    r"(?:step|checkpoint|ckpt|iter)s?[-_]?0*(\d+)((?:[kM](?![a-z0-9]))?)(?![0-9])", re.IGNORECASE
)
STAGE = re.compile(r"(stage\d+(?:-ingredient\d+)?)-")  # OLMo counts steps anew in each
THOUSANDS = {"": 1, "k": 1_000, "m": 1_000_000}
MOST_STEP = 2**63 - 1  # in a dataset
MOST_FOUND = 10_000  # folders of a glob
MOST_PATTERN = 1000  # characters
PATTERN_SECONDS = 10.0  # for all names; a pattern can take exponential time
_COMMIT = re.compile(r"[0-9A-Za-z_-][0-9A-Za-z_.-]*")  # content of a ref: a folder's name
MOST_REF = 1000  # bytes
_REPOSITORY = "models--"  # prefix of repositories in the Hugging Face cache
_KINDS = (
    "a folder with checkpoint-N folders, a repository of the Hugging Face cache with revisions "
    "(step1000), or folders that a pattern in quotes finds ('runs/*')"
)
SAMPLED = 64  # entries of each tensor that are kept, to measure the distance of weights
NEAR_FINAL = 0.05  # of the distance to a neighbour: nearer to the final weights is a jump
# keys of a configuration that do not describe the model
_VOLATILE = {"_name_or_path", "transformers_version", "torch_dtype", "dtype", "use_cache"}


@dataclass(frozen=True)
class Checkpoint:
    """A model at one step of its training.

    Parameters
    ----------
    step : int
        The optimizer step in its name.
    path : path
        Its folder, with config.json and weights.
    name : str
        Name of the folder or the revision.
    """

    step: int
    path: Path
    name: str


def find_checkpoints(
    where: str | Path | Sequence[str | Path], *, pattern: str | None = None
) -> tuple[Checkpoint, ...]:
    """Find the checkpoints of one training, ordered by step.

    Parameters
    ----------
    where : str or path or sequence
        A folder whose folders are checkpoints (as the Trainer leaves them); a repository of the
        Hugging Face cache, whose revisions are; a glob, or a list, of such folders.
    pattern : str, optional
        A regular expression whose first group is the step; names without a match are left out.
        Without it, names as step1000, step_20k, checkpoint-500 and stage1-step1000-tokens5B are
        understood.

    Returns
    -------
    tuple of Checkpoint
        By step.

    Examples
    --------
    >>> from pathlib import Path
    >>> from attnlab.observing import find_checkpoints
    >>> for name in ("checkpoint-500", "checkpoint-1000", "late10"):  # as a training leaves them
    ...     Path("out", name).mkdir(parents=True)
    ...     _ = Path("out", name, "config.json").write_text("{}")
    >>> [found.step for found in find_checkpoints("out/checkpoint-*")]
    [500, 1000]
    >>> [found.name for found in find_checkpoints("out", pattern=r"late(\\d+)")]
    ['late10']
    """
    if pattern is not None:
        _check_pattern(pattern)
    named = [model for place in _places(where) for model in _models_in(place)]
    names = [name for name, _ in named]
    found = [
        Checkpoint(step, path, name)
        for (name, path), step in zip(named, _steps(names, pattern), strict=True)
        if step is not None
    ]
    if not found:
        some = ", ".join(sorted(names)[:5])
        if some and pattern is not None:
            raise InputError(f"pattern: {pattern!r} fits none of {some}; write it for such names")
        seen = f"found {some}, whose names have no step" if some else "no model is there"
        raise InputError(f"checkpoints: {where}: {seen}; give {_KINDS}, and a pattern for the step")
    _refuse_several(found, pattern)
    return tuple(sorted(found, key=lambda checkpoint: checkpoint.step))


def _places(where: str | Path | Sequence[str | Path]) -> list[Path]:
    """Return the folders of a path, a glob or a list of these."""
    if not isinstance(where, str | Path):
        return [place for one in where for place in _places(one)]
    text = os.path.expanduser(where)
    found = [Path(text)] if os.path.isdir(text) else _globbed(text)
    folders = [path for path in found if path.is_dir()]
    if not folders:
        raise InputError(f"checkpoints: {where}: no such folder; give {_KINDS}")
    return folders


def _globbed(text: str) -> list[Path]:
    """Return the paths that a glob finds, in bounded time."""
    parts = Path(text).parts
    wild = next((i for i, part in enumerate(parts) if glob.has_magic(part)), len(parts))
    if ".." in parts[wild:]:  # a/*/../*/..: each part multiplies what is found
        raise InputError(f"checkpoints: {text}: '..' after a wildcard; name the folder itself")
    found = list(islice(glob.iglob(text), MOST_FOUND + 1))
    if len(found) > MOST_FOUND:
        raise InputError(
            f"checkpoints: {text}: finds more than {MOST_FOUND:,}; give a narrower pattern"
        )
    return [Path(path) for path in sorted(found)]


def _models_in(place: Path) -> Iterator[tuple[str, Path]]:
    """Yield the models of a folder: itself, revisions of a cached repository, or its folders."""
    if _has_model(place) and not _steps_in(place):
        yield place.name, place
    elif (place / "snapshots").is_dir():
        yield from _revisions(place)
    else:
        for inner in sorted(path for path in place.iterdir() if path.is_dir()):
            if _has_model(inner):
                yield inner.name, _within(place, inner)
            elif (inner / "snapshots").is_dir() and inner.name.startswith(_REPOSITORY):
                yield from _revisions(_within(place, inner))


def _has_model(folder: Path) -> bool:
    """Check for a configuration, even a broken link, which lint reports as unreadable."""
    return os.path.lexists(folder / CONFIG)


def _steps_in(place: Path) -> bool:
    """Check whether a folder has checkpoints beside its model, as the Trainer's has."""
    return any(
        STEP.search(path.name) and _has_model(path) for path in place.iterdir() if path.is_dir()
    )


def _revisions(repository: Path) -> Iterator[tuple[str, Path]]:
    """Yield the revisions of a cached repository, by name.

    A repository whose only revision is `main` is one of a suite with a repository for each step;
    then its name gives the step.
    """
    refs = repository / "refs"
    names = {
        str(path.relative_to(refs)): _within(repository, repository / "snapshots" / _commit(path))
        for path in sorted(refs.rglob("*"))
        if path.is_file() and not path.name.startswith(".")
    }
    there = {name: path for name, path in names.items() if _has_model(path)}
    if set(there) == {"main"}:
        yield repository.name.removeprefix(_REPOSITORY), there["main"]
    else:
        yield from there.items()


def _commit(ref: Path) -> str:
    """Return the name of the snapshot that a ref points to."""
    content = read_regular(ref, most=MOST_REF, advice="that is not a ref; delete it")
    text = content.decode("ascii", errors="replace").strip()
    if not _COMMIT.fullmatch(text):
        raise InputError(
            f"{ref}: damaged ({text[:60]!r} is not the name of a commit); delete it, or fetch the "
            "revision again"
        )
    return text


def _within(place: Path, inner: Path) -> Path:
    """Return a folder in `place`; refuse a link that leads elsewhere."""
    real = Path(os.path.realpath(inner))
    if not real.is_relative_to(os.path.realpath(place)):
        raise InputError(
            f"checkpoints: {inner} is a link to {real}, outside of {place}; refused, name that "
            "folder itself (or find it by a pattern in quotes)"
        )
    return inner


def _check_pattern(pattern: str) -> None:
    try:
        groups = regex.compile(pattern).groups if len(pattern) <= MOST_PATTERN else None
    except (regex.error, OverflowError, RecursionError) as problem:
        raise InputError(f"pattern: {pattern!r} is not a regular expression ({problem})") from None
    if groups is None:
        raise InputError(f"pattern: longer than {MOST_PATTERN} characters; write step(\\d+)")
    if groups < 1:
        raise InputError(f"pattern: {pattern!r} has no group for the step; write step(\\d+)")


def _steps(names: Sequence[str], pattern: str | None) -> list[int | None]:
    """Return the step in each name, None for a name that does not match."""
    if pattern is None:
        found = map(STEP.search, names)
        return [m and _step(m[0], m[1], THOUSANDS[m[2].lower()]) for m in found]
    expression, end = regex.compile(pattern), time.monotonic() + PATTERN_SECONDS
    try:
        matches = [
            expression.search(name, timeout=max(1e-3, end - time.monotonic())) for name in names
        ]
    except TimeoutError:
        raise InputError(
            f"pattern: {pattern!r} is not done with {len(names)} names after "
            f"{PATTERN_SECONDS:g} seconds; write a plainer one, such as step(\\d+)"
        ) from None
    return [match and _step(match[0], match[1]) for match in matches]


def _step(whole: str, digits: str | None, unit: int = 1) -> int:
    try:
        step = int(digits or "") * unit
    except ValueError:
        raise InputError(
            f"pattern: {whole!r} gives the step {digits!r}, which is not a whole number"
        ) from None
    if not 0 <= step <= MOST_STEP:
        raise InputError(
            f"checkpoints: {whole!r} gives the step {step}; expected 0 to 2^63 - 1; give a pattern "
            "for the step"
        )
    return step


def _refuse_several(found: Sequence[Checkpoint], pattern: str | None) -> None:
    stages = sorted({m[1] for c in found if (m := STAGE.search(c.name)) is not None})
    if len(stages) > 1:
        raise InputError(
            f"checkpoints: of several stages ({', '.join(stages)}), each of which counts its own "
            rf"steps; name one with the pattern {stages[0]}-step(\d+)"
        )
    by_step: dict[int, Checkpoint] = {}
    for checkpoint in found:
        other = by_step.setdefault(checkpoint.step, checkpoint)
        if other is not checkpoint:
            raise InputError(
                f"checkpoints: {other.name} and {checkpoint.name} are both of step "
                f"{checkpoint.step}; give a pattern that tells trainings apart, or fewer folders"
            )


@dataclass(frozen=True)
class Fault:
    """A fault of some checkpoints.

    Parameters
    ----------
    kind : str
        "identical" (several steps have the same weights), "final" (a step has the weights of the
        last one), "config", "tensors" or "dtype" (it changes at this step), "nan", "unreadable".
    steps : tuple
        Steps with the fault; of a change, the step before it and the first one after it.
    words : str
        Description of the fault.
    """

    kind: str
    steps: tuple[int, ...]
    words: str


@dataclass(frozen=True)
class Lint:
    """Faults of a trajectory.

    Parameters
    ----------
    steps : tuple
        Steps that were read.
    faults : tuple
        Faults in the order of their steps.
    digests : mapping
        Digests of the weights that could be read, by step.
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
        """Return the same for JSON."""
        about = {"unusable": list(self.unusable), "breaks": list(self.breaks)}
        faults = [asdict(fault) for fault in self.faults]
        return {"steps": list(self.steps), "faults": faults, **about}


@dataclass(frozen=True, eq=False)
class Print:
    """Fingerprint of a checkpoint's files, to compare it with others.

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
    """Read and hash every tensor of a trajectory, and list the faults of its files.

    Nothing is run: weights are read as data, from safetensors only. Files that cannot be read are a
    fault, and the others are read all the same.

    Parameters
    ----------
    checkpoints : sequence of Checkpoint
        Result of `find_checkpoints`.
    progress : {"auto", True, False} or callable, optional
        Show progress, or call a function with the fraction done.

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
    for check in (_identical, _jumps, _not_finite, _config_changes):
        faults += check(prints)
    steps = tuple(sorted(checkpoint.step for checkpoint in checkpoints))
    faults.sort(key=lambda fault: (fault.steps, fault.kind))
    return Lint(steps, tuple(faults), {one.step: one.digest for one in prints})


def print_of(checkpoint: Checkpoint) -> Print:
    """Return the fingerprint of one checkpoint's files."""
    shapes, dtypes, samples, wrong, sha = {}, {}, [], [], hashlib.blake2b(digest_size=32)
    for name, tensor in tensors_of(checkpoint.path):
        shapes[name], dtypes[name] = tuple(tensor.shape), str(tensor.dtype).removeprefix("torch.")
        sha.update(f"{name} {dtypes[name]} {shapes[name]}".encode())
        problem = f"{checkpoint.path}: {name!r}: torch cannot compute with {dtypes[name]}"
        with as_input_error(problem, "save the weights in another dtype"):
            sha.update(tensor.contiguous().flatten().view(torch.uint8).numpy().data)
            if tensor.is_floating_point():
                numbers = (
                    tensor.float() if tensor.itemsize == 1 else tensor
                )  # float8 lacks isfinite
                if not bool(numbers.isfinite().all()):
                    wrong.append(name)
                samples.append(_sampled(numbers))
    sample = np.concatenate(samples) if samples else np.zeros(0, np.float32)
    config, wrong_names = _config(checkpoint.path), tuple(wrong)
    return Print(checkpoint.step, sha.hexdigest(), shapes, dtypes, wrong_names, config, sample)


def _config(folder: Path) -> dict[str, Any]:
    config = read_object(folder, CONFIG)
    return {key: value for key, value in config.items() if key not in _VOLATILE}


def _sampled(tensor: Tensor) -> NDArray[np.float32]:
    flat = tensor.flatten()
    ends = (0, max(0, flat.numel() - 1), min(SAMPLED, flat.numel()))
    index = torch.linspace(*ends, dtype=torch.float64).long()  # float32 is exact up to 2^24 only
    found: NDArray[np.float32] = flat[index].float().numpy()
    return found


def _identical(prints: Sequence[Print]) -> Iterator[Fault]:
    by_digest: dict[str, list[int]] = {}
    for one in prints:
        by_digest.setdefault(one.digest, []).append(one.step)
    for *steps, end in by_digest.values():
        if steps and end == prints[-1].step:
            words = f"{_step_words(steps)} holds the weights of the last step, {end}"
            yield Fault("final", tuple(steps), words)
        elif steps:
            words = f"{_step_words([*steps, end])} hold the same weights"
            yield Fault("identical", (*steps, end), words)


def _jumps(prints: Sequence[Print]) -> Iterator[Fault]:
    """Yield steps that are far nearer to the final weights than to the steps beside them.

    Their files may be rounded otherwise, so that they are not identical.
    """
    last = prints[-1] if prints else None
    for before, one, after in zip(prints, prints[1:-1], prints[2:], strict=False):
        if last is None or one.digest == last.digest:
            continue  # reported by `_identical`
        next_one = _distance(one, after) if after is not last else math.inf
        nearest = min(_distance(one, before), next_one)
        if math.isfinite(nearest) and _distance(one, last) < NEAR_FINAL * nearest:
            words = f"step {one.step} holds nearly the weights of the last step, {last.step}"
            yield Fault("final", (one.step,), words)


def _not_finite(prints: Sequence[Print]) -> Iterator[Fault]:
    for one in prints:
        if one.not_finite:
            words = f"step {one.step}: not finite numbers in {some_of(one.not_finite)}"
            yield Fault("nan", (one.step,), words)


def _config_changes(prints: Sequence[Print]) -> Iterator[Fault]:
    for before, one in pairwise(prints):
        steps = (before.step, one.step)
        if keys := _differing(before.config, one.config):
            changes = ", ".join(
                f"{reprlib.repr(key)[1:-1]} {reprlib.repr(before.config.get(key))} -> "
                f"{reprlib.repr(one.config.get(key))}"
                for key in keys[:3]
            )
            yield Fault("config", steps, f"step {one.step}: another configuration ({changes})")
        if names := _differing(before.shapes, one.shapes):
            words = f"step {one.step}: other tensors ({', '.join(names[:3])})"
            yield Fault("tensors", steps, words)
        elif before.dtypes != one.dtypes:
            kinds = [", ".join(sorted(set(some.dtypes.values()))) for some in (before, one)]
            yield Fault("dtype", steps, f"step {one.step}: another dtype ({' -> '.join(kinds)})")


def _differing(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return the keys whose values differ, in order."""
    return sorted(key for key in before.keys() | after if before.get(key) != after.get(key))


def _distance(one: Print, other: Print) -> float:
    if one.sample.shape != other.sample.shape:
        return math.inf
    return float(np.linalg.norm(one.sample.astype(np.float64) - other.sample))


def _step_words(steps: Sequence[int]) -> str:
    return f"step {steps[0]}" if len(steps) == 1 else f"steps {', '.join(map(str, steps))}"

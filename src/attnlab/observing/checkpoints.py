"""Checkpoints of a training: found where training and publishing leave them, in their order."""

from __future__ import annotations

import glob
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from attnlab.files.errors import InputError
from attnlab.files.regular import read_regular
from attnlab.observing.weights import CONFIG

# step143000, step_20k, checkpoint-500, stage1-step1000-tokens5B: what people call them
STEP = re.compile(
    r"(?:step|checkpoint|ckpt|iter)s?[-_]?0*(\d+)((?:[kM](?![a-z0-9]))?)(?![0-9])", re.IGNORECASE
)
STAGE = re.compile(r"(stage\d+(?:-ingredient\d+)?)-")  # OLMo counts the steps of each anew
THOUSANDS = {"": 1, "k": 1_000, "m": 1_000_000}
MOST_STEP = 2**63 - 1  # which a dataset can hold
MOST_FOUND = 10_000  # folders of a glob
MOST_PATTERN = 1000  # characters
PATTERN_SECONDS = 10.0  # for all names; a pattern can take exponential time
_COMMIT = re.compile(r"[0-9A-Za-z_-][0-9A-Za-z_.-]*")  # what a ref says: a folder's name
MOST_REF = 1000  # bytes
# Run in a process of its own, because nothing stops a match from within.
_MATCH = """
import json, re, sys
pattern, names = json.load(sys.stdin)
found = [re.search(pattern, name) for name in names]
json.dump([match and [match[0], match[1]] for match in found], sys.stdout)
"""
_REPOSITORY = "models--"  # how the Hugging Face cache begins the name of one
_KINDS = (
    "a folder with checkpoint-N folders, a repository of the Hugging Face cache with revisions "
    "(step1000), or folders that a pattern in quotes finds ('runs/*')"
)


@dataclass(frozen=True)
class Checkpoint:
    """A model at one step of its training.

    Parameters
    ----------
    step : int
        The optimiser step that its name gives.
    path : path
        The folder that holds it, with config.json and weights.
    name : str
        Of the folder or the revision.
    """

    step: int
    path: Path
    name: str


def find_checkpoints(
    where: str | Path | Sequence[str | Path], *, pattern: str | None = None
) -> tuple[Checkpoint, ...]:
    """The checkpoints of one training, ordered by step.

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
    named = [(name, path) for place in _places(where) for name, path in _models_in(place)]
    found = [
        Checkpoint(step, path, name)
        for (name, path), step in zip(named, _steps(named, pattern), strict=True)
        if step is not None
    ]
    if not found:
        names = ", ".join(sorted(name for name, _ in named)[:5])
        if names and pattern is not None:
            raise InputError(f"pattern: {pattern!r} fits none of {names}; write it for such names")
        seen = f"found {names}, whose names have no step" if names else "no model is there"
        raise InputError(f"checkpoints: {where}: {seen}; give {_KINDS}, and a pattern for the step")
    _refuse_several(found, pattern)
    return tuple(sorted(found, key=lambda checkpoint: checkpoint.step))


def _places(where: str | Path | Sequence[str | Path]) -> list[Path]:
    """The folders that are meant."""
    if not isinstance(where, str | Path):
        return [place for one in where for place in _places(one)]
    text = os.path.expanduser(where)
    found = [Path(text)] if os.path.isdir(text) else _globbed(text)
    folders = [path for path in found if path.is_dir()]
    if not folders:
        raise InputError(f"checkpoints: {where}: no such folder; give {_KINDS}")
    return folders


def _globbed(text: str) -> list[Path]:
    """Return what a glob finds, in bounded time."""
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
    """The models of a folder: itself, the revisions of a cached repository, or its folders."""
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
    """Check for a configuration, of whatever kind: lint says that a broken link cannot be read."""
    return os.path.lexists(folder / CONFIG)


def _steps_in(place: Path) -> bool:
    """Whether a folder has checkpoints beside the model in it, as the Trainer's has."""
    return any(
        STEP.search(path.name) and _has_model(path) for path in place.iterdir() if path.is_dir()
    )


def _revisions(repository: Path) -> Iterator[tuple[str, Path]]:
    """The revisions of a cached repository that are there, by name.

    One whose only revision is `main` is one point of a suite that has a repository for each; then
    the name of the repository tells the step.
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
    """Return the name of the snapshot that a ref says."""
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
        groups = re.compile(pattern).groups if len(pattern) <= MOST_PATTERN else None
    except (re.error, OverflowError, RecursionError) as problem:
        raise InputError(f"pattern: {pattern!r} is not a regular expression ({problem})") from None
    if groups is None:
        raise InputError(f"pattern: longer than {MOST_PATTERN} characters; write step(\\d+)")
    if groups < 1:
        raise InputError(f"pattern: {pattern!r} has no group for the step; write step(\\d+)")


def _steps(named: Sequence[tuple[str, Path]], pattern: str | None) -> list[int | None]:
    """Return the step that each name gives, None for a name that does not match."""
    if pattern is None:
        found = [STEP.search(name) for name, _ in named]
        return [m and _step(m[0], m[1], THOUSANDS[m[2].lower()]) for m in found]
    asked = json.dumps([pattern, [name for name, _ in named]])
    command = [sys.executable, "-I", "-S", "-c", _MATCH]
    try:
        done = subprocess.run(
            command, input=asked, capture_output=True, text=True, check=True,
            timeout=PATTERN_SECONDS,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise InputError(
            f"pattern: {pattern!r} is not done with {len(named)} names after "
            f"{PATTERN_SECONDS:g} seconds; write a plainer one, such as step(\\d+)"
        ) from None
    except subprocess.CalledProcessError as problem:
        last = problem.stderr.strip().splitlines()[-1:]
        raise InputError(f"pattern: {pattern!r} cannot be matched ({''.join(last)})") from None
    return [match and _step(*match) for match in json.loads(done.stdout)]


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

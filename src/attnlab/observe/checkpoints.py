"""Checkpoints of a training: found where training and publishing leave them, in their order."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from attnlab.files.errors import InputError
from attnlab.observe.weights import CONFIG

# step143000, step_20k, checkpoint-500, stage1-step1000-tokens5B: what people call them
STEP = re.compile(
    r"(?:step|checkpoint|ckpt|iter)s?[-_]?0*(\d+)((?:[kM](?![a-z0-9]))?)(?![0-9])", re.IGNORECASE
)
STAGE = re.compile(r"(stage\d+(?:-ingredient\d+)?)-")  # OLMo counts the steps of each anew
THOUSANDS = {"": 1, "k": 1_000, "m": 1_000_000}
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
    >>> from attnlab.observe import find_checkpoints
    >>> for name in ("checkpoint-500", "checkpoint-1000", "late10"):  # as a training leaves them
    ...     Path("out", name).mkdir(parents=True)
    ...     _ = Path("out", name, "config.json").write_text("{}")
    >>> [found.step for found in find_checkpoints("out/checkpoint-*")]
    [500, 1000]
    >>> [found.name for found in find_checkpoints("out", pattern=r"late(\\d+)")]
    ['late10']
    """
    try:
        step_of = None if pattern is None else re.compile(pattern)
    except re.error as problem:
        raise InputError(f"pattern: {pattern!r} is no regular expression ({problem})") from None
    if step_of is not None and step_of.groups < 1:
        raise InputError(f"pattern: {pattern!r} has no group for the step; write step(\\d+)")
    named = [(name, path) for place in _places(where) for name, path in _models_in(place)]
    found = []
    for name, path in named:
        match = (step_of or STEP).search(name)
        if match is not None:
            found.append(Checkpoint(_step(match), path, name))
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
    found = [Path(text)] if os.path.isdir(text) else [Path(p) for p in sorted(glob.glob(text))]
    folders = [path for path in found if path.is_dir()]
    if not folders:
        raise InputError(f"checkpoints: {where}: no such folder; give {_KINDS}")
    return folders


def _models_in(place: Path) -> Iterator[tuple[str, Path]]:
    """The models of a folder: itself, the revisions of a cached repository, or its folders."""
    if (place / CONFIG).is_file() and not _steps_in(place):
        yield place.name, place
    elif (place / "snapshots").is_dir():
        yield from _revisions(place)
    else:
        for inner in sorted(path for path in place.iterdir() if path.is_dir()):
            if (inner / CONFIG).is_file():
                yield inner.name, inner
            elif (inner / "snapshots").is_dir() and inner.name.startswith(_REPOSITORY):
                yield from _revisions(inner)


def _steps_in(place: Path) -> bool:
    """Whether a folder has checkpoints beside the model in it, as the Trainer's has."""
    return any(
        STEP.search(path.name) and (path / CONFIG).is_file()
        for path in place.iterdir()
        if path.is_dir()
    )


def _revisions(repository: Path) -> Iterator[tuple[str, Path]]:
    """The revisions of a cached repository that are there, by name.

    One whose only revision is `main` is one point of a suite that has a repository for each; then
    the name of the repository tells the step.
    """
    refs = repository / "refs"
    names = {
        str(path.relative_to(refs)): repository / "snapshots" / path.read_text().strip()
        for path in sorted(refs.rglob("*"))
        if path.is_file()
    }
    there = {name: path for name, path in names.items() if (path / CONFIG).is_file()}
    if set(there) == {"main"}:
        yield repository.name.removeprefix(_REPOSITORY), there["main"]
    else:
        yield from there.items()


def _step(match: re.Match[str]) -> int:
    unit = match[2].lower() if match.re is STEP else ""
    try:
        return int(match[1]) * THOUSANDS[unit]
    except (TypeError, ValueError):
        raise InputError(
            f"pattern: {match[0]!r} gives the step {match[1]!r}, which is no whole number"
        ) from None


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

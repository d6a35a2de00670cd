"""Save: what is recorded during a run, and when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attnlab.files.errors import InputError, require_whole
from attnlab.files.memory import require_memory

WHAT = ("attention", "logits", "loss", "statistics")
DEFAULT_RECORDS = 101
# By default a run keeps no more than this, and takes fewer records of a large problem.
DEFAULT_BYTES = 256 * 2**20
STEP_BYTES = 32  # of a step or time, while they are found


@dataclass(frozen=True)
class Save:
    """What to record and when; one way of saying when, or none for the default.

    By default, 101 evenly spaced records (geometric ones for `Flow`), fewer where they would
    take more than 256 MiB.

    Parameters
    ----------
    what : str or sequence, optional
        Any of "attention" (c_{l|m,n}), "logits" (z), "loss" and "statistics" (entropy, entropy over
        distinct tokens, common-token mass, effective tokens; per class). Statistics are computed
        where the run is and cost little; attention costs classes x vocabulary a record.
    every : int, optional
        Steps 0, every, 2 every, ... and the last.
    geometric : int, optional
        0 and about this many times in even ratios up to the last.
    at : sequence, optional
        Exactly these steps (or times of `Flow`); the run ends at the last of them.
    """

    what: str | Sequence[str] = WHAT
    every: int | None = None
    geometric: int | None = None
    at: Sequence[float] | None = None

    def __post_init__(self) -> None:
        what = (self.what,) if isinstance(self.what, str) else tuple(self.what)
        for item in what:
            if item not in WHAT:
                raise InputError(f"what: {item!r} cannot be recorded; choose from {WHAT}")
        if not what:
            raise InputError(f"what: name at least one of {WHAT}")
        object.__setattr__(self, "what", what)
        if sum(x is not None for x in (self.every, self.geometric, self.at)) > 1:
            raise InputError("every, geometric, at: give at most one of them")
        if self.every is not None:
            require_whole("every", self.every, 1)
        if self.geometric is not None:
            require_whole("geometric", self.geometric, 2)
        if self.at is not None:
            at = tuple(float(t) for t in np.atleast_1d(np.asarray(self.at, dtype=np.float64)))
            if not at or not np.all(np.isfinite(at)) or list(at) != sorted(set(at)) or at[0] < 0:
                raise InputError("at: expected increasing times from 0 on")
            object.__setattr__(self, "at", at)

    def steps(self, last: int, bytes_per_record: int) -> NDArray[np.int64]:
        """The optimiser steps to record at, 0 being the start."""
        if self.at is not None:
            at = np.asarray(self.at)
            if np.any(at != np.floor(at)):
                raise InputError("at: optimiser steps are whole numbers")
            _require_inside(at, last)
            return at.astype(np.int64)
        self._require_room(last, last + 1, bytes_per_record)
        if self.every is not None:
            return np.unique(np.append(np.arange(0, last + 1, self.every), last))
        if self.geometric is not None:
            inner = np.rint(np.geomspace(1, max(last, 1), self.geometric)).astype(np.int64)
            return np.unique(np.concatenate([[0], inner[inner <= last], [last]]))
        count = _default_count(bytes_per_record)
        return np.unique(np.rint(np.linspace(0, last, min(count, last + 1))).astype(np.int64))

    def times(self, last: float, bytes_per_record: int) -> NDArray[np.float64]:
        """The flow times to record at."""
        if self.at is not None:
            _require_inside(np.asarray(self.at), last)
            return np.asarray(self.at)
        self._require_room(last, np.inf, bytes_per_record)
        if self.every is not None:
            return np.unique(np.append(np.arange(0, last, self.every, dtype=np.float64), last))
        count = self.geometric or _default_count(bytes_per_record)
        return np.concatenate([[0.0], np.geomspace(min(1.0, last / 1e3), last, max(count - 1, 1))])

    def _require_room(self, last: float, most: float, bytes_per_record: int) -> None:
        """Refuse more records than there is room for; there are `most` at best."""
        name = "every" if self.every is not None else "geometric"
        count = last / self.every if self.every is not None else (self.geometric or 0)
        needed = STEP_BYTES * count + bytes_per_record * min(count, most)
        require_memory(name, needed, "record less often")


def _default_count(bytes_per_record: int) -> int:
    return int(np.clip(DEFAULT_BYTES // max(bytes_per_record, 1), 2, DEFAULT_RECORDS))


def _require_inside(at: NDArray[np.float64], last: float) -> None:
    if at[-1] > last:
        raise InputError(f"at: {at[-1]:g} is after the last step {last:g}; raise steps")

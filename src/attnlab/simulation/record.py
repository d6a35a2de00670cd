"""Record: the quantities that are recorded during a run, and the steps or times."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from attnlab.files.errors import InputError, require_whole
from attnlab.files.memory import require_memory
from attnlab.tasks.base import Task

DEFAULT_RECORDS = 101
# By default a run keeps no more than this, and takes fewer records of a large problem.
DEFAULT_BYTES = 256 * 2**20
STEP_BYTES = 32  # of a step or time, while they are found


@dataclass(frozen=True)
class Record:
    """The records of a run; give one of `every`, `geometric` and `at`, or none for the default.

    By default 101 evenly spaced records (geometric ones in flow time), fewer where they would take
    more than 256 MiB.

    Parameters
    ----------
    what : str or sequence, optional
        Names to record; of sequence-class models "attention" (c_{l|m,n}), "logits" (z), "loss" and
        "statistics", all by default. The loss is that of the batch about to be taken, or of the
        population; statistics are entropy, entropy over distinct tokens, common-token mass and
        effective tokens, per class. Of other models: "loss", "parameters", and whatever the model
        or task captures; by default all that is captured but parameters and arrays with an entry
        for each example of the probe.
    every : int or "doubling", optional
        Steps 0, every, 2 every, ... and the last; or 0, 1, 2, 4, 8, ... and the last.
    geometric : int, optional
        0 and about this many steps or times in even ratios up to the last.
    at : sequence, optional
        Exactly these steps or times; the run ends at the last of them.
    probe : int, optional
        Examples in the fixed batch, drawn by seed, on which the model is captured. With
        `Population()` it is the population.
    evaluate : mapping, optional
        Other tasks by name; the loss on a fixed batch of each is recorded as `loss_<name>`.
    """

    what: str | Sequence[str] | None = None
    every: int | Literal["doubling"] | None = field(
        default=None, metadata={"instead_of": ("geometric", "at")}
    )
    geometric: int | None = field(default=None, metadata={"instead_of": ("every", "at")})
    at: Sequence[float] | None = field(
        default=None, metadata={"instead_of": ("every", "geometric")}
    )
    probe: int = 8
    evaluate: dict[str, Task] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.what is not None:
            what = (self.what,) if isinstance(self.what, str) else tuple(self.what)
            if not what:
                raise InputError("what: name at least one thing to record, such as 'loss'")
            object.__setattr__(self, "what", what)
        if sum(x is not None for x in (self.every, self.geometric, self.at)) > 1:
            raise InputError("every, geometric, at: give at most one of them")
        if self.every is not None and self.every != "doubling":
            require_whole("every", self.every, 1)
        if self.geometric is not None:
            require_whole("geometric", self.geometric, 2)
        if self.at is not None:
            at = tuple(float(t) for t in np.atleast_1d(np.asarray(self.at, dtype=np.float64)))
            if not at or not np.all(np.isfinite(at)) or list(at) != sorted(set(at)) or at[0] < 0:
                raise InputError("at: expected increasing times from 0 on")
            object.__setattr__(self, "at", at)
        require_whole("probe", self.probe, 1)
        object.__setattr__(self, "evaluate", dict(self.evaluate))

    def __hash__(self) -> int:
        others = tuple(sorted((name, of) for name, of in self.evaluate.items()))
        return hash((self.what, self.every, self.geometric, self.at, self.probe, others))

    def clock(
        self, last: float, *, whole: bool, bytes_per_record: int = 0
    ) -> NDArray[np.int64] | NDArray[np.float64]:
        """Return the steps (`whole` numbers) or times to record at, up to the last."""
        if self.at is not None:
            at = np.asarray(self.at)
            if whole and np.any(at != np.floor(at)):
                raise InputError("at: optimizer steps are whole numbers")
            if at[-1] > last:
                name = "step" if whole else "time"
                raise InputError(f"at: {at[-1]:g} is after the last {name} {last:g}; raise {name}s")
            return at.astype(np.int64) if whole else at
        count, name = self.count(last)
        most = last + 1 if whole else np.inf
        needed = STEP_BYTES * count + bytes_per_record * min(count, most)
        require_memory(name, needed, "record less often")
        if self.every == "doubling":
            doubling = 2.0 ** np.arange(int(np.log2(max(last, 1))) + 1)
            chosen = np.unique(np.concatenate([[0.0], doubling, [last]]))
        elif self.every is not None:
            chosen = np.unique(np.append(np.arange(0, last, self.every, dtype=np.float64), last))
        elif whole and self.geometric is None:
            few = min(_default_count(bytes_per_record), int(last) + 1)
            chosen = np.unique(np.rint(np.linspace(0, last, few)))
        elif whole:
            inner = np.rint(np.geomspace(1, max(last, 1), self.geometric or 2))
            chosen = np.unique(np.concatenate([[0], inner[inner <= last], [last]]))
        else:
            few = self.geometric or _default_count(bytes_per_record)
            inner = np.geomspace(min(1.0, last / 1e3), last, max(few - 1, 1))
            chosen = np.concatenate([[0.0], inner])
        return chosen.astype(np.int64) if whole else chosen

    def count(self, last: float) -> tuple[float, str]:
        """Return about how many records were asked for, 0 by default, and the field that asks."""
        if isinstance(self.every, int):
            return last / self.every, "every"
        return float(self.geometric or 0), "geometric"


def _default_count(bytes_per_record: int) -> int:
    return int(np.clip(DEFAULT_BYTES // max(bytes_per_record, 1), 2, DEFAULT_RECORDS))

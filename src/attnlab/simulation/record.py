"""Record: what is recorded during a run, and when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from attnlab.dynamics.save import Save
from attnlab.files.errors import InputError, require_whole
from attnlab.simulation.motion import Motion
from attnlab.tasks import Task


@dataclass(frozen=True)
class Record:
    """Times and names to record; one of `at`, `every` and `geometric`, or none for the default.

    By default 101 evenly spaced records (geometric ones in flow time), fewer where they would take
    more than 256 MiB.

    Parameters
    ----------
    what : sequence of str, optional
        "loss" (of the batch about to be taken, or of the population), "parameters", and whatever
        the model or learner captures, such as "attention". By default the loss and all that is
        captured but arrays with a dim "sequence", which has an entry for each example of the probe.
    every : int, optional
        Steps 0, every, 2 every, ... and the last.
    geometric : int, optional
        0 and about this many steps or times in even ratios up to the last.
    at : sequence, optional
        Exactly these steps or times; the run ends at the last of them.
    probe : int, optional
        Examples in the fixed batch, drawn by seed, on which is captured. With `Population()` it is
        the population.
    evaluate : mapping, optional
        Other tasks by name; the loss on a fixed batch of each is recorded as `loss_<name>`.
    """

    what: Sequence[str] | None = None
    every: int | None = None
    geometric: int | None = None
    at: Sequence[float] | None = None
    probe: int = 8
    evaluate: Mapping[str, Task] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.what is not None:
            what = (self.what,) if isinstance(self.what, str) else tuple(self.what)
            if not what:
                raise InputError("what: name at least one thing to record, such as 'loss'")
            object.__setattr__(self, "what", what)
        when = Save("loss", self.every, self.geometric, self.at)  # which checks them
        object.__setattr__(self, "at", when.at)
        require_whole("probe", self.probe, 1)
        object.__setattr__(self, "evaluate", dict(self.evaluate))

    def clock(self, motion: Motion, bytes_per_record: int) -> NDArray[np.float64]:
        """Return the steps or times to record at."""
        save = Save("loss", self.every, self.geometric, self.at)
        if motion.clock == "step":
            return save.steps(int(motion.last), bytes_per_record).astype(np.float64)
        return save.times(float(motion.last), bytes_per_record)

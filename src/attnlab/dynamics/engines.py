"""Engines: where the gradient comes from at each step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from attnlab.defaults import BATCH_SIZE, LENGTH
from attnlab.files.errors import InputError
from attnlab.files.recipe import Named

LONGEST = 2**31 - 1  # tokens are counted in 32 bits
MOST_STEPS = 2**31 - 1  # and steps too


class Engine(Named):
    """Where the gradient comes from."""

    length: float = np.inf  # T, of the sequences


@dataclass(frozen=True)
class Sampled(Engine):
    """Finite sequences: at each step, `batch_size` sequences of `length` tokens (T, query
    included) are drawn, their T - 1 contextual tokens i.i.d. from P(l|m,n).

    With `sequences`, each seed draws a training set of so many sequences once, and batches come
    from it, uniformly with replacement; a batch size of None, or of `sequences`, takes the whole
    set at each step.
    """

    length: int = LENGTH
    batch_size: int | None = BATCH_SIZE
    sequences: int | None = None

    def __post_init__(self) -> None:
        require_whole("length", self.length, 2)
        if self.length > LONGEST:
            raise InputError(f"length: expected at most {LONGEST:,} tokens, got {self.length}")
        if self.sequences is not None:
            require_whole("sequences", self.sequences, 1)
        elif self.batch_size is None:
            raise InputError("batch_size: None takes a whole training set; give `sequences` too")
        if self.batch_size is not None:
            require_whole("batch_size", self.batch_size, 1)

    @property
    def rows(self) -> int:
        """Sequences in a step."""
        size = self.sequences if self.batch_size is None else self.batch_size
        assert size is not None
        return size


@dataclass(frozen=True)
class Limit(Engine):
    """T to infinity (Lemma 2): a sequence is its class. Each step averages over `batch_size`
    classes drawn by their prior, or takes the expected gradient (None)."""

    batch_size: int | None = None

    def __post_init__(self) -> None:
        if self.batch_size is not None:
            require_whole("batch_size", self.batch_size, 1)


@dataclass(frozen=True)
class Flow(Engine):
    """Continuous time: the gradient flow of the expected loss for T to infinity.

    Time is measured in expected-gradient steps: dY/dt = -eta_y dL/dY, dZ/dt = -eta_z dL/dZ, so
    one unit of time is one small step of ``Limit()``. Integrated adaptively; `rtol` and `atol`
    default to what the dtype can carry. A run that has not arrived after `most_steps` steps of the
    solver (by default 100,000) is given up, as `Diverged`.
    """

    rtol: float | None = None
    atol: float | None = None
    most_steps: int | None = None

    def __post_init__(self) -> None:
        self.require_precision("float64")
        if self.most_steps is not None:
            require_whole("most_steps", self.most_steps, 1)
            if self.most_steps > MOST_STEPS:
                raise InputError(
                    f"most_steps: expected at most {MOST_STEPS:,}, got {self.most_steps}"
                )

    def require_precision(self, dtype: str) -> None:
        """Refuse tolerances that numbers of the dtype cannot meet."""
        numbers = np.finfo(dtype)
        least = {"rtol": 10 * float(numbers.eps), "atol": float(numbers.tiny)}
        for name, smallest in least.items():
            value = getattr(self, name)
            if value is not None and not smallest <= value < np.inf:
                raise InputError(
                    f"{name}: expected a number of at least {smallest:.1e} in {dtype}, got {value}"
                )


def require_whole(field_name: str, value: Any, least: int) -> None:
    """Refuse what is not a whole number of at least so much."""
    try:
        whole = not isinstance(value, bool) and int(value) == value >= least
    except (OverflowError, TypeError, ValueError):  # infinite, or no number at all
        whole = False
    if not whole:
        raise InputError(
            f"{field_name}: expected a whole number of at least {least}, got {value!r}"
        )

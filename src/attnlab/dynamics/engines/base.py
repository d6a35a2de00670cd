"""Engine: where the gradient comes from at each step."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from numpy.typing import NDArray

from attnlab.data.classes import SequenceClasses
from attnlab.defaults import MOMENTUM
from attnlab.dynamics.batch import Batch
from attnlab.dynamics.layout import Sizes, TokenMap
from attnlab.dynamics.optimizers import Optimizer
from attnlab.dynamics.positions import Position
from attnlab.dynamics.rows import RowSource
from attnlab.dynamics.save import Save
from attnlab.dynamics.stepping import SteppingBatch
from attnlab.files.errors import InputError, require_whole
from attnlab.files.recipe import Named

if TYPE_CHECKING:
    from attnlab.dynamics.models import Model

MOST_STEPS = 2**31 - 1  # counted in 32 bits


class Engine(Named, ABC):
    """Where the gradient comes from; subclasses are frozen dataclasses.

    An engine of one's own says what draws the rows of a step (`source`); the rest is as for
    sequences that are drawn at each step, unless it is said.

    Attributes
    ----------
    length
        T, of the sequences.
    clock
        Whether runs are recorded by "step" or by "time".
    batch
        What advances runs.
    usual_momentum
        Of an sgd that is given none.
    row_kind
        What a row has a mass for: every token in play ("tokens"); the tokens of its class alone,
        where the layout sets them apart ("slots", see `Layout`); or it is a whole class
        ("classes"), whose exchangeable tokens may be lumped.
    """

    length: float = math.inf
    clock: ClassVar[Literal["step", "time"]] = "step"
    batch: ClassVar[type[Batch]] = SteppingBatch
    usual_momentum: ClassVar[float] = MOMENTUM
    row_kind: ClassVar[Literal["tokens", "slots", "classes"]] = "tokens"

    @abstractmethod
    def source(
        self, classes: SequenceClasses, where: TokenMap, position: Position | None
    ) -> RowSource:
        """What draws the rows of a step.

        where: the place of each token. position: how the distance to the query counts for the
        model; None where only the counts of tokens matter.
        """

    @property
    def distances(self) -> int:
        """T - 1, the contextual tokens of a sequence; 0 for T to infinity."""
        return 0 if math.isinf(self.length) else int(self.length) - 1

    def rows_per_step(self, num_classes: int) -> int:
        """How many rows a step has."""
        return num_classes

    def check(self, steps: Any, dtype: str, optimizer: Optimizer) -> None:
        """Refuse what does not go with the engine."""
        require_whole("steps", steps, 1)
        if steps > MOST_STEPS:
            raise InputError(f"steps: expected at most {MOST_STEPS:,}, got {steps}")

    def record_steps(self, save: Save, last: float, bytes_per_record: int) -> NDArray[Any]:
        """The steps, or times, to record at."""
        return save.steps(int(last), bytes_per_record)

    # -- what a run costs, roughly ------------------------------------------------------------

    def numbers(self, sizes: Sizes, model: Model) -> dict[str, int]:
        """Numbers that its rows take in memory, by the field that asks for them."""
        return {}

    def draws(self, classes: SequenceClasses) -> float:
        """Numbers that are drawn in a step."""
        return 0.0

    def table_bytes(self, classes: SequenceClasses) -> float:
        """Bytes of the tables that are drawn from, for a set of classes."""
        return 0.0

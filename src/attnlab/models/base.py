"""Model: what learns, as settings; its parameters are trees of arrays in named groups."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import jax

from attnlab.tasks import Task

Params = dict[str, Any]  # a tree of arrays for each group


class Model(ABC):
    """A model that learns. Subclass it as a frozen dataclass of settings, without arrays.

    Two methods are enough. `dims` names the dims of what `apply` captures; what is not named there
    is recorded with dims of its own name. Learning rates, optimizers and starts are given by
    group; the groups in `fixed` never move.
    """

    @property
    def dims(self) -> Mapping[str, tuple[str, ...]]:
        """Dims of each captured array; "sequence" is the example of a batch."""
        return {}

    @property
    def fixed(self) -> tuple[str, ...]:
        """Groups that are not trained, whatever the run says."""
        return ()

    @abstractmethod
    def init(self, key: jax.Array, task: Task, data: Any) -> Params:
        """Return the parameters at the start, by group."""

    @abstractmethod
    def apply(
        self, params: Params, inputs: Any, *, key: jax.Array | None = None
    ) -> tuple[Any, dict[str, jax.Array]]:
        """Return the outputs and what can be recorded, by name.

        `key` draws dropout; without it nothing is dropped. What a compiled caller does not use is
        not computed, so that capturing costs nothing while training.
        """

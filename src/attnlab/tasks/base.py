"""Task: what is learned, as settings; an instance of it is drawn by seed."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax

from attnlab.files.errors import InputError


class Batch(NamedTuple):
    """Examples; the leading axis of every array is the example.

    inputs: what a model is given, an array or a tree of arrays.
    target: labels (whole numbers), probabilities or numbers, as the loss expects.
    mask: which targets count, of the shape of the losses; all by default.
    weight: of each example, such as its probability; equal by default.
    """

    inputs: Any
    target: Any = None
    mask: Any = None
    weight: Any = None


class Task:
    """A task to be learned. Subclass it as a frozen dataclass of settings, without arrays.

    What belongs to one instance (transition matrices, a graph, a training set) is drawn from a key
    and passed as an argument, so that one compiled program serves all instances. `batch` or
    `population` is enough; a task with a population can be learnt by gradient flow.

    A `Transformer` asks a task for three numbers: `vocab_size` (tokens, or the width of vectors),
    `length` (positions) and `outputs` (by default vocab_size).
    """

    vocab_size: int
    length: int

    @property
    def outputs(self) -> int:
        """Numbers that a model returns for each prediction."""
        return self.vocab_size

    def draw(self, key: jax.Array) -> Any:
        """Draw an instance: a tree of arrays of the same shapes for every key."""
        return ()

    def batch(self, data: Any, key: jax.Array, step: jax.Array, size: int) -> Batch:
        """Draw the `size` examples of a training step."""
        raise InputError(f"gradient: {type(self).__name__} has no batches; use Population()")

    def population(self, data: Any) -> Batch | None:
        """Return all examples with their weights, or None where they cannot be listed."""
        return None

    def references(self, data: Any, batch: Batch) -> dict[str, jax.Array]:
        """Return log-probabilities of rules to compare a model with, shaped as its outputs."""
        return {}

    def loss(self, data: Any, outputs: Any, batch: Batch) -> jax.Array:
        """Return the losses of the examples, for ``loss="task"``; see `Batch.mask`."""
        raise InputError(f"loss: {type(self).__name__} has no loss of its own; name one")

"""Task: the settings of a learning problem; an instance of it is drawn by seed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

from attnlab.files.errors import InputError
from attnlab.files.recipe import Named
from attnlab.shelf.papers import import_offered, offered

if TYPE_CHECKING:
    import jax


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


class Task(Named):
    """A task to be learned. Subclass it as a frozen dataclass of settings, without arrays.

    What belongs to one instance (transition matrices, a graph, a training set) is drawn from a key
    and passed as an argument, so that one compiled program serves all instances. `batch` or
    `population` is enough; a task with a population can be learnt by gradient flow.

    A `Transformer` asks a task for three numbers: `vocab_size` (tokens, or the width of vectors),
    `length` (positions) and `outputs` (by default vocab_size).

    Attributes
    ----------
    momentum
        Momentum of an sgd that is given none.
    learner
        "module:name" of a function (run) -> Learner, where the task has a learner of its own.
    default_model
        "module:name" of a function () -> Model, where the task has a model by default.
    """

    vocab_size: int
    length: int
    momentum: ClassVar[float] = 0.0
    learner: ClassVar[str] = ""
    default_model: ClassVar[str] = ""

    @classmethod
    def kinds(cls, wanted: str = "") -> dict[str, type[Self]]:
        """Return tasks by name; those that papers on the shelf offer are imported here."""
        import attnlab.tasks as shipped

        for name in dir(shipped):
            getattr(shipped, name)  # a class is known once it is imported
        if cls is Task and (wanted in offered("tasks") or wanted not in super().kinds()):
            import_offered("tasks", wanted)
        return super().kinds(wanted)

    @property
    def outputs(self) -> int:
        """Numbers that a model returns for each prediction."""
        return self.vocab_size

    def tables(self) -> list[dict[str, Any]]:
        """Return arrays that all seeds share, a mapping for each of the settings that run together.

        `data` then has them together with what is drawn, and `draw` takes them after the key.
        """
        return [{}]

    def draw(self, key: jax.Array) -> Any:
        """Draw an instance: a tree of arrays of the same shapes for every key.

        A task with `tables` takes them too, as a second argument.
        """
        return {}

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

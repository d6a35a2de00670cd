"""Model: the settings of a model; its parameters are trees of arrays in named groups."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from attnlab.files.recipe import Named
from attnlab.shelf.papers import import_offered, offered

if TYPE_CHECKING:
    import jax

    from attnlab.tasks.base import Batch, Task

Params = dict[str, Any]  # a tree of arrays for each group
Precision = Literal["default", "highest", "bfloat16"]
OutputLoss = Literal["cross_entropy", "square", "logistic"]  # of outputs and their targets
LossName = Literal[OutputLoss, "task"]


class Model(Named, ABC):
    """A model that learns. Subclass it as a frozen dataclass of settings, without arrays.

    Two methods are enough: `init` and `apply`. `dims` names the dims of what `apply` captures;
    what is not named there is recorded with dims of its own name. Learning rates, optimizers and
    starts are given by group; the groups in `fixed` never move. In documents a model stands by the
    name of its class, in lower case: ``{name: transformer, layers: 2}``.

    Attributes
    ----------
    symbols
        Symbols of the groups' learning rates, where they have any: decoder eta_y, attention eta_z.
    words
        Names of groups in messages, where these are not enough.
    """

    symbols: ClassVar[Mapping[str, str]] = {}
    words: ClassVar[Mapping[str, str]] = {}

    @classmethod
    def kinds(cls, wanted: str = "") -> dict[str, type[Self]]:
        """Return models by name; those that papers on the shelf offer are imported here."""
        import attnlab.models as shipped

        for name in dir(shipped):
            getattr(shipped, name)  # a class is known once it is imported
        if cls is Model and (wanted in offered("models") or wanted not in super().kinds()):
            import_offered("models", wanted)
        return super().kinds(wanted)

    @property
    def dims(self) -> Mapping[str, tuple[str, ...]]:
        """Dims of each captured array; "sequence" is the example of a batch."""
        return {}

    @property
    def fixed(self) -> tuple[str, ...]:
        """Groups that are never trained."""
        return ()

    def check(self, run: Any) -> None:
        """Refuse, with an `InputError`, a run that the model has no meaning for."""

    def record_numbers(self, run: Any) -> int | None:
        """Return the numbers of one record of one run, where known without compiled code."""
        return None

    def rate_factor(self, group: str) -> float:
        """Return the factor of a group's learning rate."""
        return 1.0

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

    def loss(
        self,
        params: Params,
        batch: Batch,
        loss: OutputLoss,
        *,
        key: jax.Array | None = None,
        precision: Precision = "default",
    ) -> jax.Array:
        """Return the mean of the named loss over what counts in a batch.

        Override it where the loss and its gradient can be computed without the outputs.
        `precision` is that of matrix products; a model may use bfloat16 for its largest arrays
        where it says so.
        """
        from attnlab.models.losses import losses_of, mean_loss

        outputs, _ = self.apply(params, batch.inputs, key=key)
        return mean_loss(losses_of(loss, outputs, batch.target), batch)

    def gather_rows(self, params: Params, batch: Batch) -> tuple[Params, Batch]:
        """Return the parameters that a training step on this batch reads, and the batch for them.

        A large table can be replaced by the rows that the batch reads. The loss is the same, and
        so are its gradient and the gradient's norm but for the entries that are left out, where
        the gradient is 0. An optimizer that leaves entries without a gradient as they are
        (`Optimizer.keeps_still`) can move these parameters in place of all.
        """
        return params, batch

    def scatter_rows(self, params: Params, gathered: Params, batch: Batch) -> Params:
        """Return `params` with the parameters of `gathered`, after a step, written into them."""
        return gathered

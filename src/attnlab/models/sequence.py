"""SequenceModel: base of the models on sequence classes, which have an exact path."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from numpy.typing import NDArray

from attnlab.files.errors import InputError
from attnlab.models.base import Model, Params
from attnlab.models.positions import Position
from attnlab.tasks.classes.classes import SequenceClasses
from attnlab.tasks.sequences import Mixture

if TYPE_CHECKING:
    import jax

    from attnlab.tasks.base import Task


class SequenceModel(Model):
    """A model whose groups are `decoder` (learning rate eta_y) and `attention` (eta_z).

    Attributes
    ----------
    exact
        "module:name" of the class that computes with the layout of sequence classes, loaded when a
        run begins. Models without one take the general path.
    heads
        Number of heads; with several, attention and its logits have a leading axis for them.
    cancels
        True if the gradient of a logit is a difference of two terms of the size of Y.
    words
        Names of the groups in messages.
    """

    symbols: ClassVar[Mapping[str, str]] = {"decoder": "eta_y", "attention": "eta_z"}
    words: ClassVar[Mapping[str, str]] = {
        "decoder": "the decoder Y",
        "attention": "the attention logits Z",
    }
    exact: ClassVar[str] = ""
    heads: int = 1
    cancels: ClassVar[bool] = False

    @property
    def neutral_logit(self) -> float:
        """The logit at which attention leaves a token's frequency as it is: the zero start."""
        return 0.0

    @property
    def distance_bias(self) -> Position | None:
        """Bias by distance to the query; None where only the counts of tokens matter."""
        return None

    def extra_dims(self) -> Mapping[str, tuple[str, ...]]:
        """Return the dims of what is recorded with the logits, beside them."""
        return {}

    def extra_coords(self, sizes: Mapping[str, int]) -> dict[str, NDArray[Any]]:
        """Return the labels along dims that are the model's own, of these sizes."""
        return {}

    def extra_numbers(self, classes: SequenceClasses) -> int:
        """Return how many numbers are recorded with the logits, beside them, where many."""
        return 0

    def record_numbers(self, run: Any) -> int | None:
        """Return the numbers of one record of one run, but for statistics, on the exact path."""
        if not run.is_exact:
            return None
        classes, what = run.sets[0], run.record.what or ("attention", "logits")
        rows = ("attention" in what) * len(classes) + ("logits" in what) * classes.queries.size
        beside = ("logits" in what) * self.extra_numbers(classes)
        return int(self.heads * rows * classes.vocab_size + beside) * len(run.sets)

    def init(self, key: jax.Array, task: Task, data: Any) -> Params:
        """Return the parameters at the start, on the general path."""
        raise InputError(f"exact: {type(self).__name__} has only the exact path; leave it on")

    def apply(
        self, params: Params, inputs: Any, *, key: jax.Array | None = None
    ) -> tuple[Any, dict[str, jax.Array]]:
        """Return the outputs and what can be recorded, on the general path."""
        raise InputError(f"exact: {type(self).__name__} has only the exact path; leave it on")

    def check(self, run: Any) -> None:
        """Refuse given logits: there may be no parameters that make them."""
        if run.is_exact and not isinstance(run.init, str):
            raise InputError(
                f"init: {type(self).__name__} starts from 'zero' or 'uniform', not from given "
                "logits"
            )


def token_mass(inputs: Any, vocab_size: int) -> tuple[jax.Array, jax.Array]:
    """Return the counts or probabilities (B, M) of contextual tokens, and the queries (B,)."""
    import jax
    import jax.numpy as jnp

    if isinstance(inputs, Mixture):
        return inputs.probs, inputs.query
    context, query = inputs[:, :-1], inputs[:, -1]
    return jnp.sum(jax.nn.one_hot(context, vocab_size), axis=1), query

"""Model: what is trained, and which attention it makes.

Whatever a model trains is grouped in two: what learns at rate eta_y and what learns at eta_z.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from attnlab.data.classes import SequenceClasses
from attnlab.dynamics import gradient
from attnlab.dynamics.gradient import Block, Parameters, Rows
from attnlab.dynamics.layout import Layout, Sizes, TokenMap, dense_layout
from attnlab.dynamics.positions import Position
from attnlab.dynamics.start import Init, Start
from attnlab.files.errors import InputError
from attnlab.files.recipe import Named
from attnlab.shelf import offered

if TYPE_CHECKING:
    from attnlab.dynamics.engines import Engine
    from attnlab.dynamics.simulation import Simulation


class Model(Named, ABC):
    """What is trained; subclasses are frozen dataclasses, whose fields are static.

    A model of one's own says where it begins (`begin`), what it puts out for a row (`outputs`) and
    what it calls its attention logits; loss, gradient and attention follow from these. All of them
    are pure functions of arrays that are compiled; `fixed` is whatever `begin` says stays fixed.

    Attributes
    ----------
    heads
        How many attend; with several, attention and its logits have a leading axis for them.
    groups
        What learns at eta_y and at eta_z, as news of a diverged run name them.
    cancels
        Whether the gradient of a logit is a difference of two terms of the size of Y.
    """

    heads: int = 1
    cancels: ClassVar[bool] = False
    groups: ClassVar[tuple[str, str]] = ("the decoder Y", "the attention logits Z")

    @classmethod
    def kinds(cls) -> dict[str, type[Self]]:
        """Return models by name; those that papers on the shelf offer are imported here."""
        if cls is Model:
            for offer in offered("models").values():
                with suppress(InputError):  # a broken paper takes no other model down
                    offer.load()
        return super().kinds()

    # -- what is learnt ---------------------------------------------------------------------

    @abstractmethod
    def begin(
        self, layout: Layout, start: Start, random: bool, key: jax.Array
    ) -> tuple[Any, Parameters]:
        """What stays fixed, and what is trained, at the start; `random` for init="uniform"."""

    @abstractmethod
    def outputs(self, layout: Layout, rows: Rows, trained: Parameters, fixed: Any) -> jax.Array:
        """The decoder's logits of each row, (N, J)."""

    @abstractmethod
    def attention_logits(self, layout: Layout, trained: Parameters, fixed: Any) -> Block:
        """z in the layout's blocks."""

    def class_attention(self, layout: Layout, trained: Parameters, fixed: Any) -> Block:
        """c_{l|m,n} of Eq. 5 for each class."""
        attend = partial(gradient.attention, layout)
        Z = self.attention_logits(layout, trained, fixed)
        return (jax.vmap(attend) if self.heads > 1 else attend)(Z)

    def loss(self, layout: Layout, rows: Rows, trained: Parameters, fixed: Any) -> jax.Array:
        """The mean loss over rows."""
        logits = self.outputs(layout, rows, trained, fixed)
        return jnp.sum(rows.weight * self.loss_and_error(layout, rows, logits)[0])

    def loss_and_error(
        self, layout: Layout, rows: Rows, logits: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """The loss of each row, (N,), and the slope of their mean for the outputs, (N, J): cross
        entropy, and the error alpha - x_{T+1} in the form that does not cancel late in training."""
        _, cross_entropy, error = gradient.prediction(layout, rows, logits)
        return cross_entropy, error

    def loss_and_gradient(
        self, layout: Layout, rows: Rows, trained: Parameters, fixed: Any
    ) -> tuple[jax.Array, Parameters]:
        """The loss and its gradient for what is trained: the error pulled back through the
        outputs."""
        logits, pull_back = jax.vjp(lambda w: self.outputs(layout, rows, w, fixed), trained)
        per_row, error = self.loss_and_error(layout, rows, logits)
        (slope,) = pull_back(layout.count_outputs(error))
        return jnp.sum(rows.weight * per_row), self.per_entry(layout, slope)

    def per_entry(self, layout: Layout, slope: Parameters) -> Parameters:
        """The slope of what is trained, where an entry that stands for several equal ones moves
        with the slope of one of them; a model that lumps none has nothing to do."""
        return slope

    def rate_factors(self) -> tuple[float, float]:
        """Rates of the two groups over (eta_y, eta_z)."""
        return 1.0, 1.0

    # -- how it is laid out -------------------------------------------------------------------

    def check(self, engine: Engine, init: Init) -> None:
        """Refuse an engine or a start that the model has no meaning for: unless a model says
        otherwise, logits that are given, since there may be no parameters that make them."""
        if not isinstance(init, str):
            raise InputError(
                f"init: {type(self).__name__} starts from 'zero' or 'uniform', not from given "
                "logits"
            )

    def symmetric(self, init: Init) -> bool:
        """Whether outputs that are never a target stay identical from this start, so that one
        column may stand for all of them; `per_entry` then has to know."""
        return False

    def dense(self, engine: Engine) -> bool:
        """Whether every token in play has a place of its own."""
        return True

    def lay_out(self, classes: SequenceClasses, simulation: Simulation) -> tuple[Layout, TokenMap]:
        """Which entries exist, and where."""
        return dense_layout(classes, symmetric_start=self.symmetric(simulation.init))

    @property
    def neutral_logit(self) -> float:
        """The logit at which attention leaves a token's frequency as it is: the zero start."""
        return 0.0

    @property
    def blocks(self) -> int:
        """Blocks of the decoder, each as large as Y."""
        return 1

    @property
    def distance_bias(self) -> Position | None:
        """How the distance to the query counts; None where only the counts of tokens matter."""
        return None

    def start_bias(self, distances: int) -> NDArray[np.float64]:
        """The bias by distance at the start; empty where the model does not see how many there
        are. (Programs are compiled for shapes: a length that is not seen stays out of them.)"""
        return np.zeros(0)

    # -- what is recorded with the logits, beside them ----------------------------------------

    def extras(self, layout: Layout, trained: Parameters, fixed: Any) -> dict[str, Any]:
        """More to record, by name: arrays, or a `Block` where the last dim is the token."""
        return {}

    def extra_dims(self) -> Mapping[str, tuple[str, ...]]:
        """The dims of each of the `extras`."""
        return {}

    def extra_coords(self, sizes: Mapping[str, int]) -> dict[str, NDArray[Any]]:
        """The labels along dims that are the model's own, of these sizes."""
        return {}

    def extra_numbers(self, classes: SequenceClasses) -> int:
        """How many numbers the `extras` of a record are, where they are many."""
        return 0

    # -- what a run costs, roughly ------------------------------------------------------------

    def numbers(self, sizes: Sizes) -> dict[str, int]:
        """Numbers that are trained or kept fixed, by the field that asks for them."""
        return {"model": _numbers_at_the_start(self, sizes)}

    def decoder_numbers(self, sizes: Sizes) -> int:
        """Numbers of what learns at eta_y."""
        return self.blocks * sizes.outputs * sizes.tokens

    def products(self, sizes: Sizes, rows: int) -> int:
        """Terms of the products in a gradient over so many rows."""
        return self.heads * rows * sizes.tokens * sizes.outputs


@lru_cache(maxsize=256)
def _numbers_at_the_start(model: Model, sizes: Sizes) -> int:
    """What `begin` makes, by its shapes alone."""
    M, K, Q, J, A = (
        sizes.vocab_size, sizes.classes, sizes.queries, sizes.outputs, sizes.shared
    )  # fmt: skip

    def real(*shape: int) -> Any:
        return jax.ShapeDtypeStruct(shape, np.float32)

    def whole(*shape: int) -> Any:
        return jax.ShapeDtypeStruct(shape, np.int32)

    layout = Layout(
        shared_log_prob=real(K, A), shared_multiplicity=real(A), shared_is_common=whole(A),
        shared_query=whole(A), first_exclusive=whole(K), exclusive_log_prob=real(*sizes.exclusive),
        exclusive_multiplicity=real(*sizes.exclusive), tile_class=whole(sizes.exclusive[0]),
        output_multiplicity=real(J), target=whole(K), query=whole(K), prior=real(K),
        num_queries=Q, multi_query=0, exclusive_each=0, one_tile_per_class=sizes.exclusive[0] == K,
        lumped_shared=True, lumped_exclusive=True, lumped_outputs=J < M,
    )  # fmt: skip
    heads = (model.heads,) if model.heads > 1 else ()
    start = Start(
        logits=Block(real(*heads, Q, A), real(*heads, *sizes.exclusive)),
        tokens=whole(sizes.tokens), queries=whole(Q), query_place=whole(Q), bias=real(0),
        drawn=whole(A),
    )  # fmt: skip
    key = jax.eval_shape(lambda: jax.random.key(0))
    made = jax.eval_shape(lambda *of: model.begin(of[0], of[1], False, of[2]), layout, start, key)
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(made))

"""Limit: sequences of infinite length."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import jax
import jax.numpy as jnp

from attnlab.data.alias import AliasTable
from attnlab.data.classes import SequenceClasses
from attnlab.data.sampling import class_table, draw_classes
from attnlab.dynamics.engines.base import Engine
from attnlab.dynamics.gradient import Rows, class_rows
from attnlab.dynamics.layout import Layout, Sizes, TokenMap
from attnlab.dynamics.positions import Position
from attnlab.dynamics.rows import RowSource
from attnlab.files.errors import require_whole

if TYPE_CHECKING:
    from attnlab.dynamics.models import Model


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class LimitRows(RowSource):
    """The rows of `Limit`: the classes, weighted by how often they came up."""

    prior: AliasTable
    batch_size: int | None = field(metadata={"static": True})

    def draw(self, layout: Layout, key: jax.Array, kept: Any) -> Rows:
        if self.batch_size is None:
            return class_rows(layout, layout.prior)
        drawn = draw_classes(self.prior, key, (self.batch_size,))
        hits = drawn[:, None] == jnp.arange(layout.prior.shape[0])
        return class_rows(layout, jnp.mean(hits.astype(layout.prior.dtype), axis=0))


@dataclass(frozen=True)
class Limit(Engine):
    """T to infinity (Lemma 2): a sequence is its class. Each step averages over `batch_size`
    classes drawn by their prior, or takes the expected gradient (None).

    Parameters
    ----------
    batch_size : int, optional
        Classes in a step; None takes the expected gradient.
    """

    row_kind: ClassVar[Literal["tokens", "slots", "classes"]] = "classes"

    batch_size: int | None = None

    def __post_init__(self) -> None:
        if self.batch_size is not None:
            require_whole("batch_size", self.batch_size, 1)

    def source(
        self, classes: SequenceClasses, where: TokenMap, position: Position | None
    ) -> LimitRows:
        """The classes, drawn by their prior or all of them."""
        return LimitRows(class_table(classes), self.batch_size)

    def numbers(self, sizes: Sizes, model: Model) -> dict[str, int]:
        """Numbers that the classes of a step take, while they are counted."""
        return {} if self.batch_size is None else {"batch_size": self.batch_size * sizes.classes}

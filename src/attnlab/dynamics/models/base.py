"""Model: what is trained, and which attention it makes.

Whatever a model trains is grouped in two: what learns at rate eta_y and what learns at eta_z.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import jax

from attnlab.dynamics.gradient import Block, Parameters, Rows
from attnlab.dynamics.layout import Layout
from attnlab.dynamics.start import Start
from attnlab.files.recipe import Named


class Model(Named, ABC):
    """What is trained; subclasses are frozen dataclasses, whose fields are static."""

    heads: int = 1

    def rate_factors(self) -> tuple[float, float]:
        """Rates of the two groups over (eta_y, eta_z)."""
        return 1.0, 1.0

    @abstractmethod
    def begin(
        self, layout: Layout, start: Start, random: bool, key: jax.Array
    ) -> tuple[Any, Parameters]:
        """What stays fixed, and what is trained, at the start."""

    @abstractmethod
    def loss(self, layout: Layout, rows: Rows, trained: Parameters, fixed: Any) -> jax.Array:
        """The mean cross entropy over rows."""

    @abstractmethod
    def loss_and_gradient(
        self, layout: Layout, rows: Rows, trained: Parameters, fixed: Any
    ) -> tuple[jax.Array, Parameters]:
        """The loss and its gradient for what is trained."""

    @abstractmethod
    def attention_logits(self, layout: Layout, trained: Parameters, fixed: Any) -> Block:
        """z in the layout's blocks."""

    @abstractmethod
    def attention(self, layout: Layout, trained: Parameters, fixed: Any) -> Block:
        """c_{l|m,n} of Eq. 5 for each class."""

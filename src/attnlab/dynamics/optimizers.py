"""Optimisers: one step of SGD, Adam or AdamW, of any tree of arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np

Name = Literal["sgd", "adam", "adamw"]
ADAMW_DECAY = 1e-2


class Moments(NamedTuple):
    """What Adam remembers: how many steps were taken, and means of the gradient and its square."""

    count: Any
    mean: Any
    square: Any


@dataclass(frozen=True)
class Optimizer:
    """An optimiser by name and its constants; the rates are given to `simulate`.

    SGD's momentum is the ordinary form: m <- momentum * m + gradient, parameter -= rate * m.

    Weight decay (None: 0.01 for adamw, else 0) acts on all that is trained. For sgd and adam it is
    the L2 penalty weight_decay |w|^2 / 2: the gradient has weight_decay * w added before momentum
    or Adam's moments see it. For adamw it is decoupled: w -= rate * weight_decay * w besides.
    """

    name: Name = "sgd"
    momentum: float = 0.0
    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-8
    weight_decay: float | None = None

    def __post_init__(self) -> None:
        if self.name not in get_args(Name):
            raise ValueError(f"optimizer: expected one of {get_args(Name)}, got {self.name!r}")
        for field_name in ("momentum", "beta_1", "beta_2"):
            if not 0 <= getattr(self, field_name) < 1:
                raise ValueError(
                    f"{field_name}: expected a number in [0, 1), got {getattr(self, field_name)}"
                )
        if self.weight_decay is None:
            object.__setattr__(self, "weight_decay", ADAMW_DECAY if self.name == "adamw" else 0.0)
        if not (np.isfinite(self.weight_decay) and self.weight_decay >= 0):  # type: ignore[arg-type,operator]
            raise ValueError(
                f"weight_decay: expected a number of at least 0, got {self.weight_decay}"
            )
        if self.name != "sgd" and self.momentum:
            raise ValueError("momentum: belongs to sgd; for Adam set beta_1")

    @property
    def keeps_still(self) -> bool:
        """Whether what has no gradient in a step does not move in it."""
        return self.name == "sgd" and not self.momentum and not self.weight_decay

    def remember(self, trained: Any) -> Any:
        """What is remembered before the first step."""
        zeros = jax.tree.map(jnp.zeros_like, trained)
        if self.name == "sgd":
            return zeros if self.momentum else ()
        return Moments(jnp.zeros((), jnp.int32), zeros, zeros)

    def move(
        self, rate: float | jax.Array, trained: Any, gradient: Any, memory: Any
    ) -> tuple[Any, Any]:
        """What is trained, and what is remembered, after a step at one rate (a number or a traced
        scalar)."""
        if self.weight_decay and self.name != "adamw":
            gradient = self._decayed(gradient, trained)
        descend = self._descend_sgd if self.name == "sgd" else self._descend_adam
        direction, memory = descend(gradient, memory)
        if self.weight_decay and self.name == "adamw":
            direction = self._decayed(direction, trained)
        return jax.tree.map(lambda w, d: w - rate * d, trained, direction), memory

    def _decayed(self, direction: Any, trained: Any) -> Any:
        return jax.tree.map(lambda d, w: d + self.weight_decay * w, direction, trained)

    def _descend_sgd(self, gradient: Any, memory: Any) -> tuple[Any, Any]:
        if not self.momentum:
            return gradient, memory
        memory = jax.tree.map(lambda g, m: g + self.momentum * m, gradient, memory)
        return memory, memory

    def _descend_adam(self, gradient: Any, memory: Moments) -> tuple[Any, Moments]:
        """Kingma and Ba (2015), Algorithm 1."""
        first, second, count = self.beta_1, self.beta_2, memory.count + 1
        mean = jax.tree.map(lambda g, m: (1 - first) * g + first * m, gradient, memory.mean)
        square = jax.tree.map(
            lambda g, s: (1 - second) * g**2 + second * s, gradient, memory.square
        )

        def direction(m: jax.Array, s: jax.Array) -> jax.Array:
            unbiased, spread = m / (1 - first**count), s / (1 - second**count)
            return unbiased / (jnp.sqrt(spread) + self.epsilon)

        return jax.tree.map(direction, mean, square), Moments(count, mean, square)

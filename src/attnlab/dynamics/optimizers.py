"""Optimisers, through optax, with one rate for Y and one for Z."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import jax
import optax

Name = Literal["sgd", "adam", "adamw"]


@dataclass(frozen=True)
class Optimizer:
    """An optimiser by name and its constants; the rates are given to `simulate`.

    SGD's momentum is the ordinary form: m <- momentum * m + gradient, parameter -= rate * m.
    """

    name: Name = "sgd"
    momentum: float = 0.0
    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-8
    weight_decay: float = 1e-2  # adamw only

    def __post_init__(self) -> None:
        if self.name not in get_args(Name):
            raise ValueError(f"optimizer: expected one of {get_args(Name)}, got {self.name!r}")
        for field_name in ("momentum", "beta_1", "beta_2"):
            if not 0 <= getattr(self, field_name) < 1:
                raise ValueError(
                    f"{field_name}: expected a number in [0, 1), got {getattr(self, field_name)}"
                )
        if self.name != "sgd" and self.momentum:
            raise ValueError("momentum: belongs to sgd; for Adam set beta_1")

    def transform(self, rate: float | jax.Array) -> optax.GradientTransformation:
        """The optax transformation at one rate (a number or a traced scalar)."""
        if self.name == "sgd":
            return optax.sgd(rate, momentum=self.momentum or None)
        if self.name == "adam":
            return optax.adam(rate, self.beta_1, self.beta_2, self.epsilon)
        return optax.adamw(
            rate, self.beta_1, self.beta_2, self.epsilon, weight_decay=self.weight_decay
        )

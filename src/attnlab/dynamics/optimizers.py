"""Optimisers, through optax, with one rate for Y and one for Z."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, get_args

import jax
import numpy as np
import optax

from attnlab.defaults import MOMENTUM
from attnlab.dynamics.engines import Engine, Flow
from attnlab.files.errors import InputError

Name = Literal["sgd", "adam", "adamw"]
ADAMW_DECAY = 1e-2


@dataclass(frozen=True)
class Optimizer:
    """An optimiser by name and its constants; the rates are given to `simulate`.

    SGD's momentum is the ordinary form: m <- momentum * m + gradient, parameter -= rate * m. None
    stands for what is usual: 0.9 for sgd in `simulate`, none in the flow and on text.

    Weight decay (None: 0.01 for adamw, else 0) acts on all that is trained. For sgd and adam it is
    the L2 penalty weight_decay |w|^2 / 2: the gradient has weight_decay * w added before momentum
    or Adam's moments see it. For adamw it is decoupled: w -= rate * weight_decay * w besides.
    """

    name: Name = "sgd"
    momentum: float | None = None
    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-8
    weight_decay: float | None = None

    def __post_init__(self) -> None:
        if self.name not in get_args(Name):
            raise InputError(f"optimizer: expected one of {get_args(Name)}, got {self.name!r}")
        for field_name in ("momentum", "beta_1", "beta_2"):
            if not 0 <= (getattr(self, field_name) or 0.0) < 1:
                raise InputError(
                    f"{field_name}: expected a number in [0, 1), got {getattr(self, field_name)}"
                )
        if self.weight_decay is None:
            object.__setattr__(self, "weight_decay", ADAMW_DECAY if self.name == "adamw" else 0.0)
        for field_name in ("epsilon", "weight_decay"):
            if not 0 <= getattr(self, field_name) < np.inf:
                raise InputError(
                    f"{field_name}: expected a number of at least 0, got "
                    f"{getattr(self, field_name)}"
                )
        if self.name != "sgd" and self.momentum:
            raise InputError("momentum: belongs to sgd; for Adam set beta_1")

    def within(self, engine: Engine) -> Optimizer:
        """What it is in a run with that engine."""
        if self.momentum is not None:
            return self
        steps = self.name == "sgd" and not isinstance(engine, Flow)
        return replace(self, momentum=MOMENTUM if steps else 0.0)

    @property
    def keeps_still(self) -> bool:
        """Whether what has no gradient in a step does not move in it."""
        return self.name == "sgd" and not self.momentum and not self.weight_decay

    def transform(self, rate: float | jax.Array) -> optax.GradientTransformation:
        """The optax transformation at one rate (a number or a traced scalar)."""
        if self.name == "adamw":
            return optax.adamw(
                rate, self.beta_1, self.beta_2, self.epsilon, weight_decay=self.weight_decay
            )
        if self.name == "adam":
            plain = optax.adam(rate, self.beta_1, self.beta_2, self.epsilon)
        else:
            plain = optax.sgd(rate, momentum=self.momentum or None)
        if not self.weight_decay:
            return plain
        return optax.chain(optax.add_decayed_weights(self.weight_decay), plain)


def as_optimizer(optimizer: str | Optimizer, momentum: float | None) -> Optimizer:
    """An optimiser that was given by name, perhaps with its momentum, or as such."""
    if isinstance(optimizer, str):
        return Optimizer(optimizer, momentum)  # type: ignore[arg-type]
    if momentum is not None:
        raise InputError("momentum: set it in the Optimizer that was given")
    return optimizer

"""Optimizers, through optax."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from attnlab.files.errors import InputError
from attnlab.files.recipe import own_fields, read_dataclass

if TYPE_CHECKING:
    import jax
    import optax

Name = Literal["sgd", "adam", "adamw"]
Transformation = Callable[[Any], "optax.GradientTransformation"]  # of the learning rate
ADAMW_DECAY = 1e-2


@dataclass(frozen=True)
class Optimizer:
    """An optimizer by name and its constants; a `Simulation` has the learning rates.

    SGD's momentum is the ordinary form: m <- momentum * m + gradient, parameter -= learning rate
    * m. None stands for what the task takes: 0.9 on sequence classes, 0 elsewhere.

    Weight decay (None: 0.01 for adamw, else 0) acts on all that is trained. For sgd and adam it is
    the L2 penalty weight_decay |w|^2 / 2: the gradient has weight_decay * w added before momentum
    or Adam's moments see it. For adamw it is decoupled: w -= learning rate *
    weight_decay * w besides.

    Parameters
    ----------
    name : str, optional
        "sgd", "adam" or "adamw".
    momentum : float, optional
        Momentum of sgd; by default 0.9 on sequence classes, else 0.
    beta_1 : float, optional
        Adam's decay of the mean of gradients.
    beta_2 : float, optional
        Adam's decay of the mean of squared gradients.
    epsilon : float, optional
        Adam's addition to the root of the mean square.
    weight_decay : float, optional
        Weight decay; by default 0.01 for adamw, else 0.
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
            object.__setattr__(self, "weight_decay", _usual_decay(self.name))
        for field_name in ("epsilon", "weight_decay"):
            if not 0 <= getattr(self, field_name) < np.inf:
                raise InputError(
                    f"{field_name}: expected a number of at least 0, got "
                    f"{getattr(self, field_name)}"
                )
        if self.name != "sgd" and self.momentum:
            raise InputError("momentum: belongs to sgd; for Adam set beta_1")

    def with_momentum(self, usual: float) -> Optimizer:
        """Return the same, with the usual momentum for an sgd that was given none."""
        if self.momentum is not None:
            return self
        return replace(self, momentum=usual if self.name == "sgd" else 0.0)

    def to_document(self, *, defaults: bool = False) -> dict[str, Any]:
        """The name, and what is not as it is by default; all of it with `defaults`."""
        given = own_fields(self, defaults=defaults)
        if not defaults and self.weight_decay == _usual_decay(self.name):
            del given["weight_decay"]
        return {"name": self.name, **given}

    @staticmethod
    def from_document(where: str, document: Any) -> Any:
        """Return the optimizer that a document describes, or a mapping of groups to optimizers."""
        if isinstance(document, str):
            document = {"name": document}
        if isinstance(document, dict) and "name" not in document:
            return {
                name: Optimizer.from_document(f"{where}.{name}", of)
                for name, of in document.items()
            }
        name = document.get("name") if isinstance(document, dict) else None
        if isinstance(name, str) and "." in name:
            raise InputError(
                f"{where}: {name} is a function, which a file cannot hold; give it from Python"
            )
        return read_dataclass(where, document, Optimizer)

    @property
    def keeps_still(self) -> bool:
        """True if entries without a gradient do not move."""
        return self.name == "sgd" and not self.momentum and not self.weight_decay

    def transform(self, rate: float | jax.Array) -> optax.GradientTransformation:
        """Return the optax transformation at a learning rate (a number or a traced scalar)."""
        import optax

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


@dataclass(frozen=True)
class OptaxOptimizer(Optimizer):
    """Any optax transformation, as a function of the rate; `simulate(optimizer=function)` makes it.

    It is called by the module and the name of its function, which a file can hold and not give
    back. Of the fields, none but the function is its own.
    """

    function: Transformation | None = field(
        default=None, repr=False, kw_only=True, metadata={"written": False}
    )

    def __post_init__(self) -> None:
        for item in fields(Optimizer)[1:]:
            if getattr(self, item.name) not in (item.default, 0.0):
                raise InputError(f"{item.name}: set it in the function that makes the optimizer")
        name = getattr(self.function, "__qualname__", "<none>")
        if "<" in name:  # a lambda, or a function inside another
            raise InputError(
                f"optimizer: expected a function that is defined in a module, by whose name "
                f"results can say what it was; got {self.function!r}"
            )
        name = f"{self.function.__module__}.{name}"
        for field_name, value in (("name", name), ("momentum", 0.0), ("weight_decay", 0.0)):
            object.__setattr__(self, field_name, value)

    def transform(self, rate: float | jax.Array) -> optax.GradientTransformation:
        """Return the optax transformation at a learning rate (a number or a traced scalar)."""
        assert self.function is not None
        return self.function(rate)

    def to_document(self, *, defaults: bool = False) -> dict[str, Any]:
        """The name alone."""
        return {"name": self.name}


def _usual_decay(name: str) -> float:
    return ADAMW_DECAY if name == "adamw" else 0.0


def as_optimizer(
    optimizer: str | Optimizer | Transformation, momentum: float | None = None
) -> Optimizer:
    """An optimiser that was given by name, perhaps with its momentum, as a function or as such."""
    if isinstance(optimizer, str):
        return Optimizer(optimizer, momentum)  # type: ignore[arg-type]
    if momentum is not None:
        raise InputError("momentum: set it in the optimizer that was given")
    if isinstance(optimizer, Optimizer):
        return optimizer
    if not callable(optimizer):
        raise InputError(
            f"optimizer: expected one of {get_args(Name)}, an Optimizer or a function that makes "
            f"an optax transformation from a rate, got {optimizer!r}"
        )
    return OptaxOptimizer(function=optimizer)

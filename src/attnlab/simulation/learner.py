"""Learner: what the trainer runs. Task x Model makes one; closed equations make one directly."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from attnlab.files.errors import InputError
from attnlab.measures import maps, places
from attnlab.models import Model
from attnlab.models.base import Params
from attnlab.simulation.losses import LOSSES, LossName, cross_entropy, mean_loss
from attnlab.tasks import Batch, Task

PER_HEAD = ("layer", "head")
MEASURES = ("entropy", "previous_mass", "sink_mass", "induction_mass")


class Learner(ABC):
    """A problem that the trainer runs: a frozen value with pure methods.

    A paper's closed equations implement `init` and `loss`, or `loss_and_grad` where no loss is
    known: a bare ordinary differential equation returns minus its velocity as the gradient.
    """

    @property
    def fixed(self) -> tuple[str, ...]:
        """Groups that are not trained, whatever the run says."""
        return ()

    @property
    def labels(self) -> Mapping[str, tuple[str, ...]]:
        """Dims of what is captured, and of "parameters.group" or "parameters.group.name"."""
        return {}

    def draw(self, key: jax.Array) -> Any:
        """Draw what is learned from: arrays of the same shapes for every key."""
        return ()

    @abstractmethod
    def init(self, key: jax.Array, data: Any) -> Params:
        """Return the parameters at the start, by group."""

    def batch(self, data: Any, key: jax.Array, step: jax.Array, size: int) -> Any:
        """Draw the examples of a training step."""
        raise InputError(f"gradient: {type(self).__name__} has no batches; use Population()")

    def population(self, data: Any) -> Any:
        """Return what the expected loss is computed from; nothing beside data by default."""
        return ()

    def loss(self, data: Any, params: Params, batch: Any, key: jax.Array | None) -> jax.Array:
        """Return the loss of a batch or of the population; `key` draws dropout."""
        raise NotImplementedError(f"{type(self).__name__} has neither loss nor loss_and_grad")

    def loss_and_grad(
        self, data: Any, params: Params, batch: Any, key: jax.Array | None, groups: Sequence[str]
    ) -> tuple[jax.Array, Params]:
        """Return the loss and its gradient by these groups."""

        def of(moved: Params) -> jax.Array:
            return self.loss(data, {**params, **moved}, batch, key)

        return jax.value_and_grad(of)({name: params[name] for name in groups})

    def capture(self, data: Any, params: Params, probe: Any) -> dict[str, jax.Array]:
        """Return what can be recorded of a probe, by name."""
        return {}


@dataclass(frozen=True)
class TaskLearner(Learner):
    """A model that learns a task by a loss."""

    task: Task
    model: Model
    loss_name: LossName = "cross_entropy"

    @property
    def fixed(self) -> tuple[str, ...]:
        """Those of the model."""
        return self.model.fixed

    @property
    def labels(self) -> Mapping[str, tuple[str, ...]]:
        """Dims of what the model captures, and of the measures of its attention."""
        return {**self.model.dims, **dict.fromkeys(MEASURES, PER_HEAD)}

    def draw(self, key: jax.Array) -> Any:
        """Draw an instance of the task."""
        return self.task.draw(key)

    def init(self, key: jax.Array, data: Any) -> Params:
        """Return the model's parameters at the start."""
        return self.model.init(key, self.task, data)

    def batch(self, data: Any, key: jax.Array, step: jax.Array, size: int) -> Batch:
        """Draw a batch of the task."""
        return self.task.batch(data, key, step, size)

    def population(self, data: Any) -> Batch:
        """Return the task's population, or refuse where it has none."""
        found = self.task.population(data)
        if found is None:
            raise InputError(
                f"gradient: {type(self.task).__name__} has no population; use Batches(size)"
            )
        return found

    def loss(self, data: Any, params: Params, batch: Batch, key: jax.Array | None) -> jax.Array:
        """Return the mean loss of the model's outputs."""
        outputs, _ = self.model.apply(params, batch.inputs, key=key)
        if self.loss_name == "task":
            return mean_loss(self.task.loss(data, outputs, batch), batch)
        return mean_loss(LOSSES[self.loss_name](outputs, batch.target), batch)

    def capture(self, data: Any, params: Params, probe: Batch) -> dict[str, jax.Array]:
        """Return the probe's loss, what the model captures, and measures of it.

        Of attention: entropy, attention to the previous and to the first position and, where
        inputs are tokens, induction, as means over the probe by layer and head. Of reference
        rules: their loss, and KL(rule || model).
        """
        outputs, found = self.model.apply(params, probe.inputs)
        found = {"probe_loss": self.loss(data, params, probe, None), **found}
        if self.model.dims.get("attention", ())[-2:] == ("query", "key"):
            found |= self._measures(found["attention"], probe)
        for rule, logs in self.task.references(data, probe).items():
            against = cross_entropy(outputs, jnp.exp(logs)) - cross_entropy(logs, jnp.exp(logs))
            found[f"{rule}_loss"] = mean_loss(cross_entropy(logs, probe.target), probe)
            found[f"{rule}_kl"] = mean_loss(against, probe)
        return found

    def _measures(self, attention: jax.Array, probe: Batch) -> dict[str, jax.Array]:
        dims = self.model.dims["attention"]
        rows = {
            "entropy": maps.entropy(attention),
            "previous_mass": places.previous_mass(attention),
            "sink_mass": places.sink_mass(attention, (1,))[..., 0],
        }
        tokens = probe.inputs
        if getattr(tokens, "ndim", 0) == 2 and jnp.issubdtype(tokens.dtype, jnp.integer):
            axis = dims.index("sequence")
            shape = [1] * (attention.ndim - 2) + [tokens.shape[1]]
            shape[axis] = tokens.shape[0]
            beside = jnp.broadcast_to(
                tokens.reshape(shape), (*attention.shape[:-2], tokens.shape[1])
            )
            rows["induction_mass"] = places.induction_mass(attention, beside)
        over = tuple(i for i, dim in enumerate(dims[:-1]) if dim not in PER_HEAD)
        return {name: jnp.nanmean(value, axis=over) for name, value in rows.items()}

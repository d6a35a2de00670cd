"""BackcopyLearner: a transformer on Bigram-Backcopy, with measures of sinks, drains and peaks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from attnlab.measures import positions
from attnlab.models.base import Params
from attnlab.models.losses import cross_entropy
from attnlab.simulation.learner import PER_HEAD, TaskLearner
from attnlab.tasks import Batch

from .model import BackcopyTransformer, without
from .task import Backcopy

if TYPE_CHECKING:
    from attnlab.simulation import Simulation

EARLY = 8  # queries with fewer tokens before them are left out: their attention to <s> is large
BY_HEAD = (
    "sink_at_triggers",
    "sink_at_others",
    "active_score",
    "previous_at_triggers",
    "on_triggers_at_others",
    "sink_logit",
    "sink_logit_spread",
)
BY_LAYER = ("drain", "peak", "first_value", "first_residual")
WITHOUT_FIRST = ("sink_at_others", "sink_logit", "first_value", "first_residual", "peak")


def learner_of(run: Simulation) -> BackcopyLearner:
    """Return the learner of a run on Bigram-Backcopy."""
    return BackcopyLearner(run.task, run.model, run.loss, run.precision)


@dataclass(frozen=True)
class BackcopyLearner(TaskLearner):
    """A transformer on Bigram-Backcopy; measures are means over a probe.

    copy_risk: cross entropy at triggers; bigram_kl: KL(P(v, .) || model) at ordinary queries v that
    are not triggers. Of attention, by layer and head, without the first 8 queries: mass on the
    first position at triggers and at other tokens, the difference of these (active_score), mass on
    the token before a trigger, mass that other tokens give to triggers, and the logit of the first
    position above the mean of the others (sink_logit): its mean and its standard deviation over
    query tokens that are not triggers.
    By layer: the norm of the first position's value and residual stream, and their ratios to the
    mean of the other positions (drain and peak). What ends in `_without_attention` or
    `_without_mlp` is measured without these in any layer, `_without_first` without the first of
    several layers.
    """

    task: Backcopy
    model: BackcopyTransformer

    @property
    def labels(self) -> Mapping[str, tuple[str, ...]]:
        """Dims of what is captured."""
        by_head = (*BY_HEAD, *(f"{name}_without_first" for name in WITHOUT_FIRST[:2]))
        by_layer = (*BY_LAYER, *(f"{name}_without_first" for name in WITHOUT_FIRST[2:]))
        return {
            **super().labels,
            **dict.fromkeys(by_head, PER_HEAD),
            **dict.fromkeys(by_layer, ("layer",)),
        }

    def capture(self, data: Any, params: Params, probe: Batch) -> dict[str, jax.Array]:
        """Return what any model captures, and the measures of sinks, drains and peaks."""
        found = super().capture(data, params, probe) | self._measured(data, params, probe)
        for part in ("attention", "mlp"):
            if part in params:
                outputs, _ = self.model.apply(without(params, part), probe.inputs)
                risks = self._risks(data, outputs, probe)
                found |= {f"{name}_without_{part}": of for name, of in risks.items()}
        if self.model.layers > 1 and "mlp" in params:
            later = self._measured(data, without(without(params, "attention", 0), "mlp", 0), probe)
            found |= {f"{name}_without_first": later[name] for name in WITHOUT_FIRST}
        return found

    def _measured(self, data: Any, params: Params, probe: Batch) -> dict[str, jax.Array]:
        outputs, seen = self.model.apply(params, probe.inputs)
        copies = probe.inputs < self.task.triggers
        found = self._risks(data, outputs, probe) | _of_layers(seen)
        return found | self._of_heads(probe.inputs, copies, seen)

    def _risks(self, data: Any, outputs: jax.Array, probe: Batch) -> dict[str, jax.Array]:
        copies, ordinary = probe.inputs < self.task.triggers, probe.inputs < self.task.tokens
        expected = jnp.exp(self.task.references(data, probe)["bigram"])
        lost = cross_entropy(outputs, expected) - cross_entropy(jnp.log(expected), expected)
        return {
            "copy_risk": _mean_where(cross_entropy(outputs, probe.target), copies),
            "bigram_kl": _mean_where(lost, ordinary & ~copies),
        }

    def _of_heads(
        self, x: jax.Array, copies: jax.Array, seen: Mapping[str, jax.Array]
    ) -> dict[str, jax.Array]:
        late = jnp.arange(x.shape[1]) >= EARLY
        at_triggers, at_others = copies & late, ~copies & late
        sink = seen["attention"][..., 0].swapaxes(1, 2)  # layer head sequence query
        before = positions.previous_mass(seen["attention"]).swapaxes(1, 2)
        on_triggers = positions.mass_on(seen["attention"], copies[:, None, None]).swapaxes(1, 2)
        gap = positions.sink_logit(seen["attention_logits"]).swapaxes(1, 2)
        gap = jnp.where(late, gap, 0.0)  # the first query sees no other key
        # the mean of each token first: frequent ones count no more than rare ones
        tokens = jax.nn.one_hot(x, self.task.tokens, dtype=gap.dtype) * at_others[..., None]
        counts = tokens.sum((0, 1))
        by_token = jnp.einsum("lhbt,btv->lhv", gap, tokens) / jnp.maximum(counts, 1)
        there = counts > 0
        mean = _mean_where(by_token, there)
        spread = jnp.sqrt(_mean_where((by_token - mean[..., None]) ** 2, there))
        at = {"triggers": _mean_where(sink, at_triggers), "others": _mean_where(sink, at_others)}
        return {
            "sink_at_triggers": at["triggers"],
            "sink_at_others": at["others"],
            "active_score": at["others"] - at["triggers"],
            "previous_at_triggers": _mean_where(before, at_triggers),
            "on_triggers_at_others": _mean_where(on_triggers, at_others),
            "sink_logit": mean,
            "sink_logit_spread": spread,
        }


def _of_layers(seen: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
    value, residual = seen["value_norm"], seen["residual_norm"]  # layer sequence position
    first = {name: of[..., 0].mean(-1) for name, of in (("value", value), ("residual", residual))}
    return {
        "first_value": first["value"],
        "first_residual": first["residual"],
        "drain": positions.first_ratio(value.mean(-2)),
        "peak": positions.first_ratio(residual.mean(-2)),
    }


def _mean_where(of: jax.Array, there: jax.Array) -> jax.Array:
    """Return the mean over the last axes, which are those of `there`; NaN if nothing is there."""
    axes = tuple(range(-there.ndim, 0))
    return jnp.where(there, of, 0.0).sum(axes) / there.sum()

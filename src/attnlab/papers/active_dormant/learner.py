"""What the trainer runs: Bigram-Backcopy with its measures, and the reparametrised head."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import jax
import jax.numpy as jnp

from attnlab.files.errors import require_whole
from attnlab.measures import places
from attnlab.models.base import Params
from attnlab.models.losses import cross_entropy
from attnlab.simulation import Learner
from attnlab.simulation.learner import PER_HEAD, TaskLearner
from attnlab.tasks import Batch

from .task import SQUARINGS, BigramBackcopy

if TYPE_CHECKING:
    from attnlab.simulation import Simulation

EARLY = 8  # queries with fewer tokens before them are left out: their attention to <s> is large
BY_HEAD = (
    "sink_at_triggers",
    "sink_at_others",
    "active_score",
    "previous_at_triggers",
    "sink_logit",
    "sink_logit_spread",
)
BY_LAYER = ("drain", "peak", "first_value", "first_residual")


def learner_of(run: Simulation) -> BackcopyLearner:
    """Return the learner of a run on Bigram-Backcopy."""
    return BackcopyLearner(run.task, run.model, run.loss, run.precision)  # type: ignore[arg-type]


@dataclass(frozen=True)
class BackcopyLearner(TaskLearner):
    """A transformer on Bigram-Backcopy; measures are means over a probe.

    copy_risk: cross entropy at triggers; bigram_kl: KL(P(v, .) || model) at ordinary queries v that
    are not triggers. Of attention, by layer and head, without the first 8 queries: mass on the
    first position at triggers and at other tokens, the difference of these (active_score), mass on
    the token before a trigger, and the logit of the first position above the mean of the others
    (sink_logit): its mean and its standard deviation over query tokens that are not triggers.
    By layer: the norm of the first position's value and residual stream, and their ratios to the
    mean of the other positions (drain and peak).
    """

    task: BigramBackcopy

    @property
    def labels(self) -> Mapping[str, tuple[str, ...]]:
        """Dims of what is captured."""
        return {
            **super().labels,
            **dict.fromkeys(BY_HEAD, PER_HEAD),
            **dict.fromkeys(BY_LAYER, ("layer",)),
        }

    def capture(self, data: Any, params: Params, probe: Batch) -> dict[str, jax.Array]:
        """Return what any model captures, and the measures of sinks, drains and peaks."""
        found = super().capture(data, params, probe)
        outputs, seen = self.model.apply(params, probe.inputs)
        x = probe.inputs
        copies, ordinary = x < self.task.triggers, x < self.task.tokens
        expected = jnp.exp(self.task.references(data, probe)["bigram"])
        lost = cross_entropy(outputs, expected) - cross_entropy(jnp.log(expected), expected)
        found["copy_risk"] = _mean_where(cross_entropy(outputs, probe.target), copies)
        found["bigram_kl"] = _mean_where(lost, ordinary & ~copies)
        return found | self._of_heads(x, copies, seen) | _of_layers(seen)

    def _of_heads(
        self, x: jax.Array, copies: jax.Array, seen: Mapping[str, jax.Array]
    ) -> dict[str, jax.Array]:
        late = jnp.arange(x.shape[1]) >= EARLY
        at_triggers, at_others = copies & late, ~copies & late
        sink = seen["attention"][..., 0].swapaxes(1, 2)  # layer head sequence query
        before = places.previous_mass(seen["attention"]).swapaxes(1, 2)
        logits = seen["attention_logits"].swapaxes(1, 2)  # hidden keys are at minus infinity
        keys = jnp.arange(x.shape[1])
        others = jnp.where((keys <= keys[:, None]) & (keys > 0), logits, 0.0).sum(-1)
        gap = logits[..., 0] - others / jnp.maximum(keys, 1)
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
            "sink_logit": mean,
            "sink_logit_spread": spread,
        }


def _of_layers(seen: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
    value, residual = seen["value_norm"], seen["residual_norm"]  # layer sequence position
    first = {name: of[..., 0].mean(-1) for name, of in (("value", value), ("residual", residual))}
    return {
        "first_value": first["value"],
        "first_residual": first["residual"],
        "drain": first["value"] / value[..., 1:].mean((-2, -1)),
        "peak": first["residual"] / residual[..., 1:].mean((-2, -1)),
    }


def _mean_where(of: jax.Array, there: jax.Array) -> jax.Array:
    """Return the mean over the last axes, which are those of `there`; NaN if nothing is there."""
    axes = tuple(range(-there.ndim, 0))
    return jnp.where(there, of, 0.0).sum(axes) / there.sum()


@dataclass(frozen=True)
class SinkFlow(Learner):
    """The reparametrised head at tokens that are not triggers; see `theory.sink`.

    Groups: `sink` (alpha) and `value` (beta), which start at 0. P has Dirichlet(1) rows, pi is its
    stationary distribution. Recorded are `sink_mass` and `value_size`, |beta|.

    Parameters
    ----------
    tokens : int, optional
        V.
    visible : int, optional
        N, the other tokens that a query sees; each has the value 1 at its own output.
    contexts : int, optional
        M draws of N tokens; 0 takes the single context N pi.
    """

    labels: ClassVar[Mapping[str, tuple[str, ...]]] = {"sink_mass": ("query",)}

    tokens: int = 8
    visible: int = 100
    contexts: int = 48

    def __post_init__(self) -> None:
        for name, least in (("tokens", 2), ("visible", 1), ("contexts", 0)):
            require_whole(name, getattr(self, name), least)

    def draw(self, key: jax.Array) -> dict[str, jax.Array]:
        """Draw P (V, V), pi (V,) and the sums W of visible values (M, V)."""
        V, N = self.tokens, self.visible
        of_rows, of_contexts = jax.random.split(key)
        P = jax.random.dirichlet(of_rows, jnp.ones(V), (V,))
        pi = jnp.linalg.matrix_power(P, 2**SQUARINGS)[0]
        if not self.contexts:
            return {"P": P, "pi": pi, "W": N * pi[None]}
        seen = jax.random.choice(of_contexts, V, (self.contexts, N), p=pi)
        return {"P": P, "pi": pi, "W": jax.nn.one_hot(seen, V).sum(1)}

    def init(self, key: jax.Array, data: Any) -> Params:
        """Return alpha = 0 and beta = 0."""
        return {"sink": jnp.zeros(self.tokens), "value": jnp.zeros(self.tokens)}

    def loss(self, data: Any, params: Params, batch: Any, key: jax.Array | None) -> jax.Array:
        """Return the loss above its least value.

        It falls as e^{-2 alpha}: logits are centred before they are exponentiated.
        """
        P, pi, W = data["P"], data["pi"], data["W"]
        e = jnp.exp(params["sink"])[:, None, None]
        delta = (e * params["value"] + W) / (e + self.visible)  # query context output
        delta = delta - jnp.einsum("vy,vmy->vm", P, delta)[..., None]
        excess = jnp.log1p(jnp.einsum("vy,vmy->vm", P, jnp.expm1(delta)))
        return pi @ excess.mean(-1)

    def capture(self, data: Any, params: Params, probe: Any) -> dict[str, jax.Array]:
        """Return the sink mass of each query and the norm of the value."""
        e = jnp.exp(params["sink"])
        return {"sink_mass": e / (e + self.visible), "value_size": jnp.linalg.norm(params["value"])}

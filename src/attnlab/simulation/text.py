"""TextLearner: a model that learns a text, measured on its validation part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from numpy.typing import NDArray

from attnlab.measures import maps as of_rows
from attnlab.measures.motion import map_speed, probe_entropy, snap_step
from attnlab.measures.ranks import stable_rank_there
from attnlab.models.base import Params
from attnlab.simulation.learner import (
    LOSS,
    MEAN_LOSS,
    PARAMETERS,
    PER_HEAD,
    TaskLearner,
    Uses,
    run_shapes,
)
from attnlab.simulation.simulation import Simulation
from attnlab.tasks.base import Batch
from attnlab.tasks.text.task import Text, window, window_count

TOP = (1, 5)  # the k of the top-k mass


def learner_of(run: Simulation) -> TextLearner:
    """Return the learner of a run on a text."""
    return TextLearner(run.task, run.model, run.loss, run.precision)


@dataclass(frozen=True)
class TextLearner(TaskLearner):
    """A model that learns a text.

    The statistics of a head are means over the queries of the measured windows. They are made where
    the model runs, window by window; no attention weights are kept but those of the probes.
    """

    # as version 0.1 numbered them, so that runs keep their numbers
    uses: ClassVar[Uses] = Uses(start=0, dropout=1, batch=2, data=3)
    effort: ClassVar[Literal["quick", "thorough", "library"]] = "library"

    task: Text

    @property
    def labels(self) -> Mapping[str, tuple[str, ...]]:
        """Dims of statistics by layer and head, and of the probes' attention weights."""
        return {
            "top_mass": (*PER_HEAD, "k"),
            "attention": (*PER_HEAD, "probe", "query", "key"),
            "mlp_stable_rank": ("layer",),
            **dict.fromkeys(("entropy", "relative_entropy", "effective_tokens"), PER_HEAD),
            **dict.fromkeys(("frequent_mass", "qk_stable_rank"), PER_HEAD),
        }

    def tables(self, run: Simulation) -> list[Any]:
        """Return the streams of both parts, the probes, and which words are frequent."""
        task = self.task
        return [
            {
                "train": task.streams(run.gradient.size or 1),
                "held": task.held_out()[0],
                "probes": task.probe_sequences(),
                "frequent": task.frequent_words(),
            }
        ]

    def draw_with(self, tables: Any, key: jax.Array) -> Any:
        """Draw nothing: all seeds read the same text."""
        return {}

    def probe(self, data: Any, key: jax.Array, size: int | None, probe: int) -> None:
        """Return nothing: records measure the validation part."""

    def recorded(self, run: Simulation) -> tuple[str, ...]:
        """Return the training loss since the last record, and all measures, unless asked."""
        if run.record.what is None:
            return (MEAN_LOSS, *self._measured(run))
        return super().recorded(run)

    def pass_steps(self, run: Simulation) -> int:
        """Return the steps of a pass over the text."""
        return window_count(self.task.streams(run.gradient.size or 1), self.task.length)

    def _measured(self, run: Simulation) -> tuple[str, ...]:
        own = (LOSS, MEAN_LOSS, PARAMETERS)
        return tuple(of for of in run_shapes(run).record if of.partition(".")[0] not in own)

    def capture(self, data: Any, params: Params, probe: Any) -> dict[str, jax.Array]:
        """Return loss and statistics of heads on held-out windows, ranks, and probes' attention."""
        task, model = self.task, self.model

        def one_window(index: jax.Array) -> dict[str, jax.Array]:
            batch = Batch(*window(data["held"], index, task.length))
            _, captured = model.apply(params, batch.inputs)
            maps = captured["attention"]  # layer B head query key
            frequent = data["frequent"][batch.inputs] * 1.0
            return {
                "validation_loss": self.loss(data, params, batch, None),
                **head_statistics(maps),
                "frequent_mass": jnp.einsum("lbhqk,bk->lh", maps, frequent) / batch.inputs.size,
            }

        windows = task.held_out()[1]
        found = jax.lax.map(one_window, jnp.arange(windows))
        _, captured = model.apply(params, data["probes"])
        return {
            **{name: value.mean(0) for name, value in found.items()},
            **weight_statistics(params, captured["attention"].shape[2]),
            "attention": jnp.swapaxes(captured["attention"], 1, 2),  # layer head probe query key
        }

    def dataset(
        self, run: Simulation, values: Mapping[str, NDArray[Any]], steps: NDArray[Any]
    ) -> xr.Dataset:
        """Return labelled records, the probes' words, and what follows from the records."""
        found = super().dataset(run, values, steps)
        task, tables = self.task, run.tables[0]
        probes, position = tables["probes"], np.arange(task.length)
        words = np.asarray([[task.text.vocabulary[i] for i in probe] for probe in probes])
        found = found.assign_coords(
            {dim: np.arange(found.sizes[dim]) for dim in PER_HEAD if dim in found.dims}
        )
        found = found.assign_coords(
            k=list(TOP),
            probe=np.arange(task.probes),
            query=position,
            key=position,
            probe_token=(("probe", "key"), probes),
            probe_word=(("probe", "key"), words),
        )
        found["frequent_share"] = np.float32(self._frequent_share(tables))
        if "validation_loss" in found:
            with np.errstate(over="ignore"):
                found["perplexity"] = np.exp(found["validation_loss"])
        if "attention" in found:
            found["probe_entropy"] = probe_entropy(found)
        if "attention" in found and found.sizes["step"] > 1:  # not of a run stopped at its first
            found["attention_speed"] = map_speed(found)
            found["snap_step"] = snap_step(found)
        return found

    def _frequent_share(self, tables: Mapping[str, Any]) -> float:
        """Return the attention to frequent words of queries that attend evenly."""
        T, windows = self.task.length, self.task.held_out()[1]
        measured = tables["held"][:, : windows * T].reshape(-1, T)
        seen = np.cumsum(tables["frequent"][measured], axis=1)
        return float((seen / np.arange(1, T + 1)).mean())


def head_statistics(maps: jax.Array) -> dict[str, jax.Array]:
    """Return means over sequences and queries of maps (layer, B, head, query, key), by head.

    entropy: of a query's attention, in nats. relative_entropy: divided by the logarithm of the
    number of visible tokens, of the queries that see two or more. effective_tokens: exp(entropy).
    top_mass: the attention to the k strongest tokens, for each k of TOP (last dim).
    """
    entropy = of_rows.entropy(maps)  # layer B head query
    visible = np.arange(2, maps.shape[-1] + 1)  # the first query sees one token
    over: Sequence[int] = (1, 3)  # sequences and queries
    return {
        "entropy": entropy.mean(over),
        "relative_entropy": of_rows.relative_entropy(entropy[..., 1:], visible).mean(over),
        "effective_tokens": of_rows.effective_tokens(entropy).mean(over),
        "top_mass": of_rows.top_mass(maps, TOP).mean(over),
    }


def weight_statistics(params: Params, heads: int) -> dict[str, jax.Array]:
    """Return stable ranks of a layer's matrices, where the model has them.

    Of the MLP's lower one (layer), and of each head's W_Q^T W_K (layer, head), by which queries and
    keys meet.
    """
    found = {}
    if "mlp" in params:
        found["mlp_stable_rank"] = stable_rank_there(params["mlp"]["up"])
    if "qkv" in params["attention"]:
        L, d, _ = params["attention"]["qkv"].shape
        qkv = params["attention"]["qkv"].reshape(L, d, 3, heads, -1)
        q, k = qkv[:, :, 0], qkv[:, :, 1]  # layer d head h
        met = jnp.einsum("ldhe,lfhe->lhdf", q, k, precision="highest")
        found["qk_stable_rank"] = stable_rank_there(met)
    return found

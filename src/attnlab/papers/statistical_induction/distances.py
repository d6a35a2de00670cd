"""Distances of a trained model from the true row and from the rules, at the last position."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from attnlab.measures import positions
from attnlab.simulation import Simulation
from attnlab.simulation.learner import leaves_of
from attnlab.tasks import MarkovChains

from . import theory
from .task import NGrams

SEED = 20240211  # of test chains
CHAINS = 768  # as many test chains as the released code takes
STAGES = ("uniform", "unigram", "bigram")


def chains_of(task: MarkovChains, count: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Draw transition matrices of a task's prior, by the theory's own samplers."""
    shares = {name: getattr(task, name, 0.0) for name in ("doubly", "unigram")}
    return theory.mixture(rng, count, task.vocab_size, **shares)


@dataclass(frozen=True)
class HeldOut:
    """Chains of a task that no training saw: true rows at the last position, and the rules there.

    kl: KL(true row || rule), the mean over chains, by rule. N-gram chains come without true rows.
    """

    tokens: NDArray[np.int64]
    row: NDArray[np.float64] | None
    rules: dict[str, NDArray[np.float64]]

    @classmethod
    def of(cls, task: MarkovChains | NGrams, chains: int = CHAINS) -> HeldOut:
        """Draw them, always the same."""
        if isinstance(task, NGrams):
            import jax

            batch = task.batch((), jax.random.key(SEED), jax.numpy.int32(0), chains)
            rules = {name: np.exp(of[:, -1]) for name, of in task.references((), batch).items()}
            return cls(np.asarray(batch.inputs), None, rules)
        rng = np.random.default_rng(SEED)
        P = chains_of(task, chains, rng)
        tokens = theory.sample(rng, P, task.length)
        rules = theory.last_rules(tokens, task.vocab_size)
        return cls(tokens, P[np.arange(chains), tokens[:, -1]], rules)

    @property
    def kl(self) -> dict[str, float]:
        """KL(true row || rule) by rule."""
        assert self.row is not None, "n-grams of a mixture of orders have no one true row"
        return {
            name: float(theory.divergence(self.row, np.log(rule)).mean())
            for name, rule in self.rules.items()
        }


def distances(result: xr.Dataset, chains: int = CHAINS) -> xr.Dataset:
    """Return, by seed and step, how far a recorded model is from the truth and from each rule.

    `kl` is KL(true row || model); uniform, unigram and bigram are KL(rule || model); `previous` is
    the attention of layer 1 to the position before; of a transformer `score` is the attention of
    layer 2 to what followed earlier occurrences of the symbol, over the share of such positions
    (1 is chance). All are means over test chains at the last position, `previous` of a transformer
    over all positions. `diagonal` and `off_diagonal` are means of the minimal model's W. Of n-gram
    chains only the rules are compared. The result needs "parameters".
    """
    import jax

    run = Simulation.of(result)
    start = jax.eval_shape(lambda key: run.model.init(key, run.task, {}), jax.random.key(0))
    leaves = [result[name].transpose("seed", "step", ...).values for name in leaves_of(start)]
    params = jax.tree.unflatten(jax.tree.structure(start), leaves)
    of = HeldOut.of(run.task, chains)
    measured = jax.jit(lambda params: _measure(run.model, params, of))
    shape = result.sizes["seed"], result.sizes["step"]
    found = [
        jax.device_get(measured(jax.tree.map(itemgetter(at), params))) for at in np.ndindex(shape)
    ]
    return xr.Dataset(
        {
            name: (("seed", "step"), np.reshape([float(one[name]) for one in found], shape))
            for name in found[0]
        },
        {"seed": result["seed"], "step": result["step"]},
    )


def nearest(found: xr.Dataset, stages: Sequence[str] = STAGES) -> xr.DataArray:
    """Return the stage of each record: the index in `stages` of the rule that is nearest."""
    return found[list(stages)].to_array("rule").argmin("rule")


def _measure(model: Any, params: Any, of: HeldOut) -> dict[str, Any]:
    import jax
    import jax.numpy as jnp

    outputs, captured = model.apply(params, jnp.asarray(of.tokens))
    logs = jax.nn.log_softmax(outputs[:, -1])

    def to(rule: NDArray[np.float64]) -> Any:
        return (rule * (np.log(np.maximum(rule, 1e-300)) - logs)).sum(-1).mean()

    found = {name: to(rule) for name, rule in of.rules.items()}
    if of.row is None:
        return found
    found["kl"] = to(of.row)
    if "attention" in captured:
        first, second = captured["attention"][0, :, 0], captured["attention"][1, :, 0, -1:]
        T = of.tokens.shape[1]
        where = np.full((len(of.tokens), 1), T - 1)
        target = positions.followers(of.tokens, where)
        chance = positions.chance(target, np.ones_like(target), np.float64)
        found["previous"] = jnp.nanmean(positions.previous_mass(first))
        found["score"] = jnp.nanmean(positions.mass_on(second, target) / chance)
    else:
        found["previous"] = captured["lag_mass"][1]
        found |= {name: captured[name] for name in ("diagonal", "off_diagonal")}
    return found

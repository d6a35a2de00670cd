"""Two sequence classes of one query and two outputs, with a decoder that starts at random.

Max-margin is about one linear score of each token, y_l = Y_l1 - Y_l2; with two outputs cross
entropy is its logistic loss. `Extended` is the same model on more outputs, and slower to follow
from a start that is not 0 (a test holds the two against each other).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from attnlab.models import Model
from attnlab.models.base import Params
from attnlab.tasks import Batch, Task

if TYPE_CHECKING:
    import jax


@dataclass(frozen=True)
class TwoOutputs(Task):
    """Two classes of one query, equally often, with Dirichlet(`concentration`) probabilities.

    Parameters
    ----------
    common, own : int, optional
        Tokens of both classes, and of each class alone.
    concentration : float, optional
        Of the Dirichlet distribution; large ones make tokens equally frequent.
    starts : tuple of float, optional
        Standard deviations of the scores y that a decoder starts with, a setting for each.
    """

    common: int = 3
    own: int = 3
    concentration: float = 3.0
    starts: tuple[float, ...] = (1.0,)

    @property
    def vocab_size(self) -> int:  # type: ignore[override]
        """Tokens of both classes together."""
        return self.common + 2 * self.own

    @property
    def outputs(self) -> int:
        """One number: the difference of the two outputs."""
        return 1

    @property
    def drawn(self) -> np.ndarray:
        """Mask of the tokens that each class draws, (class, token)."""
        places = np.arange(self.vocab_size) - self.common
        return np.stack([(places < 0) | (places // self.own == k) for k in (0, 1)])

    def tables(self) -> list[dict[str, Any]]:
        """Return the standard deviation of the start, of each setting."""
        return [{"start": np.array(start)} for start in self.starts]

    def draw(  # type: ignore[override]
        self, key: jax.Array, tables: Mapping[str, jax.Array]
    ) -> dict[str, jax.Array]:
        """Draw P(l|n), (class, token), and the scores y_l of the start."""
        import jax
        import jax.numpy as jnp

        of_weights, of_scores = jax.random.split(key)
        weight = jax.random.gamma(of_weights, self.concentration, self.drawn.shape) * self.drawn
        y = tables["start"] * jax.random.normal(of_scores, (self.vocab_size,))
        return {"probs": weight / jnp.sum(weight, axis=1, keepdims=True), "scores": y}

    def population(self, data: Any) -> Batch:
        """Return both classes, with their next token as a sign."""
        return Batch(data["probs"], np.array([1.0, -1.0]))


@dataclass(frozen=True)
class ScoreAttention(Model):
    """f = N(P exp z / sum) . y: scores y (the group `decoder`) and logits z (`attention`).

    y moves twice as fast as each of the two columns of Y whose difference it is.

    Parameters
    ----------
    normalization : {"none", "l2"}, optional
        N.
    """

    normalization: Literal["none", "l2"] = "none"

    @property
    def dims(self) -> Mapping[str, tuple[str, ...]]:
        """Dims of what is captured, and of the parameters."""
        own = dict.fromkeys(("parameters.decoder", "parameters.attention"), ("token",))
        return {"attention": ("sequence_class", "token"), **own}

    def init(self, key: jax.Array, task: Task, data: Any) -> Params:
        """Return the drawn scores, and z = 0."""
        import jax.numpy as jnp

        return {"decoder": data["scores"], "attention": jnp.zeros_like(data["scores"])}

    def apply(
        self, params: Params, inputs: jax.Array, *, key: jax.Array | None = None
    ) -> tuple[jax.Array, dict[str, jax.Array]]:
        """Return the difference of the outputs for each class, and attention."""
        import jax
        import jax.numpy as jnp

        # the inner choice keeps the derivative of log 0 out of what is not there
        seen = inputs > 0
        logits = jnp.where(seen, jnp.log(jnp.where(seen, inputs, 1.0)), -jnp.inf)
        attention = jax.nn.softmax(logits + params["attention"], axis=-1)
        f = attention
        if self.normalization == "l2":
            f = attention / jnp.linalg.norm(attention, axis=-1, keepdims=True)
        return f @ params["decoder"], {"attention": attention}

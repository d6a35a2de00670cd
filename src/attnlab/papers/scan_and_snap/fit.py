"""The paper's model trained on the windows of a text, as they are."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from numpy.typing import NDArray

from attnlab.files.errors import InputError
from attnlab.formulas.checks import FloatArray
from attnlab.models.base import Params
from attnlab.simulation import Batches, Diverged, Learner, Record, Simulation, Steps, simulate
from attnlab.simulation.exact.gradient import Block, Parameters, Rows, loss, loss_and_gradient
from attnlab.simulation.exact.layout import dense_layout
from attnlab.simulation.learner import Uses
from attnlab.tasks.classes import SequenceClasses
from attnlab.tasks.text.windows import Windows


@dataclass(frozen=True)
class WindowLearner(Learner):
    """Y and Z (Lemma 1) on windows of a text: a window's mass is how often each token occurs."""

    uses: ClassVar[Uses] = Uses(batch=None)

    windows: Windows = field(metadata={"write": lambda of: of.origin})
    classes: SequenceClasses = field(metadata={"write": lambda of: of.digest})

    def tables(self, run: Simulation) -> list[Any]:
        """Return the layout, token counts (N, A) and the class of each window."""
        layout, where = dense_layout(self.classes, symmetric_start=True)
        mass = np.zeros((len(self.windows), where.tokens.size), dtype=np.uint16)
        mass[:, where.position] = self.windows.counts()[:, where.tokens]
        sequence_class = self.windows.sequence_class.astype(np.int32)
        return [{"layout": layout, "mass": mass, "sequence_class": sequence_class}]

    def init(self, key: jax.Array, data: Any) -> Params:
        """Return zeros, in the blocks of the layout."""
        layout = data["layout"]
        J, A, tiles = layout.num_outputs, layout.num_shared, layout.exclusive_log_prob.shape[0]
        Y = Block(jnp.zeros((A, J)), jnp.zeros((tiles, J, 0)))
        return {
            "decoder": Y,
            "attention": Block(jnp.zeros((layout.num_queries, A)), Y.exclusive[:, 0]),
        }

    def batch(self, data: Any, key: jax.Array, step: jax.Array, size: int) -> Rows:
        """Draw windows with replacement."""
        return self._rows(data, jax.random.randint(key, (size,), 0, len(data["mass"])))

    def loss_and_grad(
        self, data: Any, params: Params, batch: Rows, key: Any, groups: Any
    ) -> tuple[jax.Array, Params]:
        """Return the loss and its gradient in closed form."""
        of_params = Parameters(params["decoder"], params["attention"])
        value, slope = loss_and_gradient(data["layout"], batch, of_params)
        return value, {"decoder": slope.Y, "attention": slope.Z}

    def capture(self, data: Any, params: Params, probe: Any) -> dict[str, jax.Array]:
        """Return z by entry of the layout, and the loss over all windows."""
        whole = self._rows(data, slice(None))
        of_params = Parameters(params["decoder"], params["attention"])
        return {
            "z": params["attention"].shared,
            "window_loss": loss(data["layout"], whole, of_params),
        }

    def _rows(self, data: Any, chosen: Any) -> Rows:
        layout, mass = data["layout"], data["mass"][chosen]
        sequence_class = data["sequence_class"][chosen]
        return Rows(
            shared_log_mass=jnp.log(mass.astype(layout.prior.dtype)),
            exclusive_log_mass=layout.exclusive_log_prob,
            query=layout.query[sequence_class],
            target=layout.target[sequence_class],
            weight=jnp.full(mass.shape[0], 1.0 / mass.shape[0]),
        )


def fit_windows(
    windows: Windows,
    classes: SequenceClasses,
    *,
    eta_y: float,
    eta_z: float,
    steps: int,
    batch_size: int = 128,
    seeds: int = 1,
) -> xr.Dataset:
    """Train Y and Z (Lemma 1, SGD from zero) on batches of real windows, drawn with replacement.

    `Sequences` draw a window's tokens one by one from P(l|m,n); here they come as they stand in the
    text, where words keep company. classes: `classes_of(windows)`.

    Returns dims (seed, sequence_class, query, token): `attention_logits` z at the end;
    `attention`, the mean over the windows of a class of what each token gets; and the `loss` over
    all windows.
    """
    run = Simulation(
        WindowLearner(windows, classes),
        motion=Steps(steps),
        gradient=Batches(batch_size),
        learning_rate={"decoder": eta_y, "attention": eta_z},
        seeds=seeds,
        record=Record(at=(steps,), what=("z", "window_loss")),
    )
    try:
        found = simulate(run, progress=False).isel(step=-1)
    except Diverged:
        raise InputError(
            f"eta_y, eta_z: at {eta_y:g} and {eta_z:g} training on the windows leaves the finite "
            "numbers; take smaller ones"
        ) from None
    _, where = dense_layout(classes, symmetric_start=True)
    exclusive = np.zeros((seeds, len(classes), 0))
    start = np.zeros((classes.queries.size, classes.vocab_size))
    logits = where.logits(found["z"].values, exclusive, start, classes.query_index)
    attention = _attention(windows, classes, logits)
    return xr.Dataset(
        {
            "attention_logits": (("seed", "query", "token"), logits),
            "attention": (("seed", "sequence_class", "token"), attention),
            "loss": ("seed", found["window_loss"].values),
        },
        {
            "seed": np.arange(seeds),
            "query": classes.queries,
            "token": np.arange(classes.vocab_size),
            "query_token": ("sequence_class", classes.query),
            "next_token": ("sequence_class", classes.next_token),
        },
    )


def _attention(windows: Windows, classes: SequenceClasses, logits: NDArray[Any]) -> FloatArray:
    """Return attention to each token, mean over the windows of each class: (seed, class, token)."""
    counts = windows.counts()
    attention = np.zeros((len(logits), len(classes), classes.vocab_size))
    for k in range(len(classes)):
        of_class = counts[windows.sequence_class == k]
        for seed, z in enumerate(logits[:, classes.query_index[k]].astype(np.float64)):
            mass = of_class * np.exp(z - z.max())
            attention[seed, k] = (mass / mass.sum(axis=1, keepdims=True)).mean(axis=0)
    return attention

"""Training runs that claims and figures share; sizes are ours unless it says otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from attnlab.simulation import Batches, Flow, Record, Simulation, Steps
from attnlab.simulation.motion import Optimizer

from .head import SinkFlow
from .model import BackcopyTransformer
from .task import Backcopy, BigramBackcopy, TextBackcopy

ADAM = Optimizer("adamw", beta_2=0.99, weight_decay=1e-4)
SGD = Optimizer("sgd", momentum=0.9)
AT = (0, 50, 100, 200, 500, 800, 1500)
LATE = (0, 100, 200, 500, 1000, 1500, 2000)
THREE = ("adam", "sgd", "relu")  # runs of three layers
TIMES = (0.0, *np.geomspace(1e2, 1e10, 17).tolist())
REST = 1e7  # one context is at rest by then; later, rounding keeps the steps of the solver small
EARLY = TIMES[:12]  # up to there
STIFF = 1e5  # the time from which on a flow with contexts that differ is
SMALL = BackcopyTransformer()
WIDE: dict[str, Any] = {  # the published width and length on a text, for an accelerator
    "task": TextBackcopy(),
    "model": BackcopyTransformer(dim=256, mlp=1024),
    "at": (0, 100, 200, 500, 1000, 2000, 4000, 10_000),
    "seeds": 4,
    "batch": 64,
}


def transformer(
    task: Backcopy | None = None,
    model: BackcopyTransformer = SMALL,
    *,
    optimizer: Optimizer = ADAM,
    rate: float = 3e-3,
    at: Sequence[int] = AT,
    seeds: int = 10,
    batch: int = 48,
    probe: int = 96,
) -> Simulation:
    """Return a run with the released code's optimizers; it ends at the last of `at`."""
    return Simulation(
        task or BigramBackcopy(),
        model,
        motion=Steps(at[-1], optimizer),
        gradient=Batches(batch),
        learning_rate=rate,
        seeds=seeds,
        record=Record(at=tuple(at), probe=probe),
    )


def three_layers(
    name: str,
    *,
    task: Backcopy | None = None,
    model: BackcopyTransformer = SMALL,
    at: Sequence[int] = LATE,
    seeds: int = 10,
    rate: float = 1e-3,
    batch: int = 32,
) -> Simulation:
    """Return a run of three layers: softmax with Adam or SGD, or ReLU attention with Adam.

    `rate` is Adam's; SGD has 0.03.
    """
    model = replace(model, layers=3, attention="relu" if name == "relu" else "softmax")
    optimizer, rate = (SGD, 0.03) if name == "sgd" else (ADAM, rate)
    task = task or BigramBackcopy(length=32)
    return transformer(task, model, optimizer=optimizer, rate=rate, at=at, seeds=seeds, batch=batch)


def flow(
    contexts: int = 48, *, alone: bool = False, seeds: int = 10, at: Sequence[float] = TIMES
) -> Simulation:
    """Return the flow of the reparametrised head; `alone`, the value of <s> stays 0.

    It is stiff where contexts differ and the sink has grown: the value follows at once.
    """
    stiff = contexts > 0 and at[-1] > STIFF
    return Simulation(
        SinkFlow(contexts=contexts),
        motion=Flow(at[-1], "implicit" if stiff else "explicit", rtol=1e-7, atol=1e-9),
        learning_rate={"sink": 1.0, "value": None if alone else 1.0},
        dtype="float64",
        seeds=seeds,
        record=Record(("sink_mass", "value_size", "parameters"), at=tuple(at)),
    )

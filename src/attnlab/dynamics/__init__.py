"""How it moves: the model in Y and Z, its gradients, engines, simulate()."""

from attnlab.dynamics.divergence import Diverged
from attnlab.dynamics.engines import Engine, Flow, Limit, Sampled
from attnlab.dynamics.models import Embedded, Model, Pairwise
from attnlab.dynamics.models.extended import Extended
from attnlab.dynamics.optimizers import Optimizer
from attnlab.dynamics.positions import (
    AlibiPosition,
    FixedPosition,
    LearnedPosition,
    Position,
    position_from,
)
from attnlab.dynamics.save import Save
from attnlab.dynamics.simulate import simulate
from attnlab.dynamics.simulation import Simulation, as_simulation
from attnlab.dynamics.stopping import Interrupted

__all__ = [
    "AlibiPosition",
    "Diverged",
    "Embedded",
    "Engine",
    "Extended",
    "FixedPosition",
    "Flow",
    "Interrupted",
    "LearnedPosition",
    "Limit",
    "Model",
    "Optimizer",
    "Pairwise",
    "Position",
    "Sampled",
    "Save",
    "Simulation",
    "as_simulation",
    "position_from",
    "simulate",
]

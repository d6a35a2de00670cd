"""How it moves: the model in Y and Z, its gradients, engines, simulate()."""

from attnlab.dynamics.divergence import Diverged
from attnlab.dynamics.engines import Engine, Flow, Limit, Sampled
from attnlab.dynamics.models import Embedded, Model, Pairwise
from attnlab.dynamics.optimizers import Optimizer
from attnlab.dynamics.save import Save
from attnlab.dynamics.simulate import simulate

__all__ = [
    "Diverged",
    "Embedded",
    "Engine",
    "Flow",
    "Limit",
    "Model",
    "Optimizer",
    "Pairwise",
    "Sampled",
    "Save",
    "simulate",
]

"""How it moves: the model in Y and Z, its gradients, engines, simulate()."""

from attnlab.dynamics.divergence import Diverged
from attnlab.dynamics.engines import Engine, Flow, Limit, Sampled
from attnlab.dynamics.gradient import (
    Block,
    Parameters,
    Rows,
    class_rows,
    decode,
    dense_block,
    dense_parameters,
)
from attnlab.dynamics.layout import Layout, TokenMap
from attnlab.dynamics.models import Embedded, Extended, Model, Pairwise
from attnlab.dynamics.optimizers import Optimizer
from attnlab.dynamics.positions import (
    AlibiPosition,
    FixedPosition,
    LearnedPosition,
    Position,
    position_from,
)
from attnlab.dynamics.rows import RowSource, sequence_rows
from attnlab.dynamics.save import Save
from attnlab.dynamics.simulate import simulate
from attnlab.dynamics.simulation import Simulation, as_simulation
from attnlab.dynamics.start import Start
from attnlab.dynamics.stopping import Interrupted

__all__ = [
    "AlibiPosition",
    "Block",
    "Diverged",
    "Embedded",
    "Engine",
    "Extended",
    "FixedPosition",
    "Flow",
    "Interrupted",
    "Layout",
    "LearnedPosition",
    "Limit",
    "Model",
    "Optimizer",
    "Pairwise",
    "Parameters",
    "Position",
    "RowSource",
    "Rows",
    "Sampled",
    "Save",
    "Simulation",
    "Start",
    "TokenMap",
    "as_simulation",
    "class_rows",
    "decode",
    "dense_block",
    "dense_parameters",
    "position_from",
    "sequence_rows",
    "simulate",
]

"""Numbers of runs with ten seeds, on file: the reduced model in about a minute of two cores, the
full model in minutes or on an accelerator.

    python -m attnlab.papers.causal_structure.evidence full

trains again and writes `evidence/full.csv`.
"""

from __future__ import annotations

import sys
from functools import partial

import xarray as xr

from attnlab.experiments import Evidence
from attnlab.simulation import Simulation

from . import runs
from .model import Reduced
from .task import Forest, Graph, TwoParents

GRAPHS: tuple[Graph, ...] = ("chain", "pairs", "random")
ALPHAS = (0.1, 0.5, 1.0)
SHARES = (0.2, 0.5)  # of the identity in the transition matrices


def measured(run: Simulation, result: xr.Dataset) -> xr.Dataset:
    """Return what is kept of a run, by seed and step, and by head and parent where it has two."""
    if isinstance(run.task, TwoParents):
        return runs.heads_on_parents(result).isel(step=[-1])
    more = runs.staying if isinstance(run.model, Reduced) else runs.blocks
    return runs.measured(result).merge(more(result))


EVIDENCE = Evidence(
    __file__,
    {
        **{name: partial(runs.stages, Forest(graph=name)) for name in GRAPHS},
        "pairs_40": partial(runs.stages, Forest(length=40, graph="pairs"), second=1),
        **{f"alpha_{a:g}": partial(runs.stage_one, Forest(concentration=a)) for a in ALPHAS},
        **{f"sticky_{r:g}": partial(runs.stage_one, Forest(stickiness=r)) for r in SHARES},
        "full": partial(runs.full, Forest()),
        "graphs": partial(  # the published size, for an accelerator
            runs.full, Forest(3, 20, 0.1, "half"), steps=2**14, seeds=20, batch=1024, constant=True
        ),
        "two_parents": partial(  # likewise
            runs.two_parents, TwoParents(), steps=2**16, batch=1024
        ),
    },
    measured,
)

if __name__ == "__main__":
    EVIDENCE.write(*sys.argv[1:])

"""Numbers of the runs that take minutes, on file.

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
from .task import Forest, TwoParents


def measured(run: Simulation, result: xr.Dataset) -> xr.Dataset:
    """Return what is kept of a run, by seed and step, and by head and parent where it has two."""
    if isinstance(run.task, TwoParents):
        return runs.heads_on_parents(result).isel(step=[-1])
    found = runs.measured(result).merge(runs.blocks(result))
    return found.assign(released_gap=result["released_loss"] - result["counts_loss"])


EVIDENCE = Evidence(
    __file__,
    {
        "full": partial(runs.full, Forest(), seeds=10),
        "graphs": partial(  # the published size, for an accelerator
            runs.full, Forest(3, 20, 0.1, "half"), steps=2**14, seeds=20, batch=1024, constant=True
        ),
        "two_parents": partial(
            runs.two_parents, TwoParents(3, 16), steps=1500, seeds=10, batch=256
        ),
    },
    measured,
)

if __name__ == "__main__":
    EVIDENCE.write(*sys.argv[1:])

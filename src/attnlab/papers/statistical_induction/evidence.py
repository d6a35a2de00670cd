"""Numbers of the transformer, ten seeds, on file: about twelve minutes of two cores.

    python -m attnlab.papers.statistical_induction.evidence

trains again. Claims that need many seeds read these tables; figures train the same runs again,
with the seeds of their recipes.
"""

from __future__ import annotations

import sys

import xarray as xr

from attnlab.experiments import Evidence
from attnlab.simulation import Simulation

from . import runs
from .distances import distances
from .task import NGrams


def measured(run: Simulation, result: xr.Dataset) -> xr.Dataset:
    """Return distances, on test chains of the prior of training."""
    return distances(result, "doubly" if getattr(run.task, "doubly", 0) else "dirichlet")


EVIDENCE = Evidence(
    __file__,
    {
        "dirichlet": lambda: runs.transformer(runs.chains(3)),
        "doubly": lambda: runs.transformer(runs.chains(3, prior="doubly")),
        "two_symbols": lambda: runs.transformer(runs.chains(2), steps=900, every=60),
        "trigrams": lambda: runs.transformer(NGrams(2, runs.T, 3), steps=4000, every=200, heads=2),
        # for an accelerator
        "eight_symbols": lambda: runs.transformer(runs.chains(8, 100), steps=6000, every=100),
    },
    measured,
)

if __name__ == "__main__":
    EVIDENCE.write(*sys.argv[1:])

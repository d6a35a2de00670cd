"""Numbers of both models, ten seeds, on file: the transformer's take twelve minutes of two cores.

    python -m attnlab.papers.statistical_induction.evidence dirichlet

trains again. Claims that need many seeds or steps read these tables; figures train the same runs
again, with the seeds of their recipes.
"""

from __future__ import annotations

import sys

from attnlab.experiments import Evidence

from . import runs
from .distances import distances
from .task import NGrams

EVIDENCE = Evidence(
    __file__,
    {
        "minimal_2": lambda: runs.minimal(2, at=runs.LATE),
        "minimal_3": lambda: runs.minimal(3, at=runs.LATE),
        "minimal_doubly": lambda: runs.minimal(3, "doubly", at=runs.LATE),
        "minimal_unigram": lambda: runs.minimal(3, "unigram", at=(0, 100, 400)),
        "slow_dirichlet": lambda: runs.published("dirichlet"),
        "slow_doubly": lambda: runs.published("doubly"),
        "dirichlet": lambda: runs.transformer(runs.chains(3)),
        "doubly": lambda: runs.transformer(runs.chains(3, prior="doubly")),
        "two_symbols": lambda: runs.transformer(runs.chains(2), steps=900, every=60),
        "trigrams": lambda: runs.transformer(NGrams(2, runs.T, 3), steps=4000, every=200, heads=2),
        # for an accelerator
        "eight_symbols": lambda: runs.transformer(runs.chains(8, 100), steps=6000, every=100),
    },
    lambda run, result: distances(result),
)

if __name__ == "__main__":
    EVIDENCE.write(*sys.argv[1:])

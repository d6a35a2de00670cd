"""Numbers of the transformer, ten seeds, on file: trained once, read by claims and figures.

    python -m attnlab.papers.active_dormant.evidence one-softmax

trains a run again and writes its file. A run of one layer takes some minutes of one core, one of
three layers about ten.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import partial

import xarray as xr

from attnlab.experiments import Evidence
from attnlab.files.progress import Progress
from attnlab.simulation import Simulation, simulate

from . import runs
from .learner import BY_HEAD, BY_LAYER
from .task import BigramBackcopy

KEPT = (*BY_HEAD, *BY_LAYER, "copy_risk", "bigram_kl")  # names begin so


def measured(run: Simulation, result: xr.Dataset) -> xr.Dataset:
    """Return the measures of a run by seed, step and layer; there is one head."""
    names = [name for name in result if str(name).startswith(KEPT)]
    return result[names].squeeze("head", drop=True).transpose("seed", "step", "layer")


EVIDENCE = Evidence(
    __file__,
    {
        "one-softmax": runs.transformer,
        "one-relu": partial(runs.transformer, model=replace(runs.SMALL, attention="relu")),
        "one-bare": partial(runs.transformer, BigramBackcopy(start_token=False)),
        **{f"three-{name}": partial(runs.three_layers, name) for name in runs.THREE},
    },
    measured,
)


def numbers(run: Simulation, progress: Progress = False) -> xr.Dataset:
    """Return the numbers of a run: from its file where it has one, else trained."""
    for name, made in EVIDENCE.runs.items():
        if made() == run:
            return EVIDENCE.read(name)
    return measured(run, simulate(run, progress=progress))


if __name__ == "__main__":
    EVIDENCE.write(*sys.argv[1:])

"""Numbers of the runs that take minutes, in `measured/`: trained once, read by claims and figures.

    python -m attnlab.papers.active_dormant.evidence one-softmax --folder out

trains a run again and writes `out/one-softmax.csv`. Runs of one layer take a minute or two of one
core; those of three layers and those of a text were made on an H200.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import xarray as xr

from attnlab.experiments.evidence import Evidence
from attnlab.simulation import Simulation

from . import runs
from .learner import BY_HEAD, BY_LAYER
from .task import BigramBackcopy

KEPT = (*BY_HEAD, *BY_LAYER, "copy_risk", "bigram_kl")
THREE = replace(runs.SMALL, layers=3)
LATE = (0, 100, 200, 500, 1000, 2000, 5000, 10_000)
_three = partial(runs.transformer, model=THREE, rate=1e-3, at=LATE, seeds=20)


def measured(run: Simulation, result: xr.Dataset) -> xr.Dataset:
    """Return the measures of a run by seed, step and layer; there is one head."""
    names = [name for name in result if str(name).startswith(KEPT)]
    return result[names].squeeze("head", drop=True).transpose("seed", "step", "layer")


EVIDENCE = Evidence(
    Path(__file__).parent / "measured",
    {
        "one-softmax": runs.transformer,
        "one-relu": partial(runs.transformer, model=replace(runs.SMALL, attention="relu")),
        "one-bare": partial(runs.transformer, BigramBackcopy(start_token=False)),
        "three-adam": _three,
        "three-sgd": partial(_three, optimizer=runs.SGD, rate=0.03),
        "three-relu": partial(_three, model=replace(THREE, attention="relu")),
        "text-one-softmax": partial(runs.text, 1),
        "text-one-relu": partial(runs.text, 1, relu=True, rate=3e-3),
        "text-three-adam": partial(runs.text, 3),
        "text-three-sgd": partial(runs.text, 3, optimizer=runs.SGD, rate=0.03),
        "text-three-relu": partial(runs.text, 3, relu=True),
    },
    measured,
    __name__ if __name__ != "__main__" else "attnlab.papers.active_dormant.evidence",
)
read = EVIDENCE.read

if __name__ == "__main__":
    EVIDENCE.command()

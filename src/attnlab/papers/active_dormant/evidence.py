"""Numbers of the runs that take minutes, on file: trained once, read by claims and figures.

    python -m attnlab.papers.active_dormant.evidence one-softmax --folder out

trains a run again and writes `out/one-softmax.csv`; without a folder, the file here. Runs of one
layer take some minutes of one core; those of three layers and those of a text are for an
accelerator.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from functools import partial
from pathlib import Path

import xarray as xr

from attnlab.experiments.evidence import Evidence
from attnlab.simulation import Simulation

from . import runs
from .learner import BY_HEAD, BY_LAYER
from .task import BigramBackcopy

KEPT = (*BY_HEAD, *BY_LAYER, "copy_risk", "bigram_kl")  # names begin so
THREE = replace(runs.SMALL, layers=3)
LATE = (0, 100, 200, 500, 1000, 2000, 5000, 10_000)
three = partial(runs.transformer, model=THREE, rate=1e-3, at=LATE, seeds=20)


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
        "three-adam": three,
        "three-sgd": partial(three, optimizer=runs.SGD, rate=0.03),
        "three-relu": partial(three, model=replace(THREE, attention="relu")),
        "text-one-softmax": partial(runs.text, 1),
        "text-one-relu": partial(runs.text, 1, relu=True, rate=3e-3),
        "text-three-adam": partial(runs.text, 3),
        "text-three-sgd": partial(runs.text, 3, optimizer=runs.SGD, rate=0.03),
        "text-three-relu": partial(runs.text, 3, relu=True),
    },
    measured,
)

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog=f"python -m {__spec__.name}")
    parser.add_argument("name", nargs="+", choices=EVIDENCE.runs)
    parser.add_argument("--folder", type=Path, default=EVIDENCE.file("one-softmax").parent)
    given = parser.parse_args()
    for name in given.name:
        given.folder.mkdir(parents=True, exist_ok=True)
        (given.folder / f"{name}.csv").write_text(EVIDENCE.text(name), encoding="utf-8")

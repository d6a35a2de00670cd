"""Numbers of the runs that take minutes, on file: trained once, read by claims and figures.

    python -m attnlab.papers.active_dormant.evidence one-softmax

trains a run again and writes its file. A run of one layer takes some minutes of one core, one of
three layers about ten; those of a text are for an accelerator and may have no file yet: what reads
them then says that we cannot tell.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial, wraps
from typing import Any

import xarray as xr

from attnlab.auditing import Claim, Measurement, claim
from attnlab.experiments import Evidence
from attnlab.files.progress import Progress
from attnlab.simulation import Simulation, simulate
from attnlab.theory.relation import Relation

from . import runs
from .learner import BY_HEAD, BY_LAYER
from .task import BigramBackcopy

Found = dict[str, xr.Dataset]
FILED = "tests/papers/active_dormant/test_evidence.py::test_a_recorded_seed_is_trained_again"
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
        "text-one-softmax": partial(runs.text, 1),
        "text-one-relu": partial(runs.text, 1, relu=True, rate=3e-3),
        "text-three-adam": partial(runs.text, 3),
    },
    measured,
)


def filed(name: str) -> xr.Dataset | None:
    """Return the numbers on file of a run; None where there is no file."""
    return EVIDENCE.read(name) if EVIDENCE.file(name).is_file() else None


def numbers(run: Simulation, progress: Progress = False) -> xr.Dataset:
    """Return the numbers of a run: those on file where they are of this run, else train it."""
    for name, made in EVIDENCE.runs.items():
        if EVIDENCE.file(name).is_file() and made() == run:
            return EVIDENCE.read(name)
    return measured(run, simulate(run, progress=progress))


def filed_claim(
    id: str, relation: Relation, *needs: str, **fields: Any
) -> Callable[[Callable[[Found], Measurement]], Claim]:
    """Make a claim of the function below, which takes the numbers on file of the runs it needs.

    Where one has no file there is nothing to check: we cannot tell. The other arguments are those
    of `claim`.
    """

    def made(measure: Callable[[Found], Measurement]) -> Claim:
        @wraps(measure)
        def on_file(_: Found) -> Measurement:
            found = {name: filed(name) for name in needs}
            lacking = ", ".join(name for name, of in found.items() if of is None)
            there = {name: of for name, of in found.items() if of is not None}
            return Measurement(note=f"not trained yet: {lacking}") if lacking else measure(there)

        return claim(id, relation, runs={}, test=FILED, **fields)(on_file)

    return made


if __name__ == "__main__":
    EVIDENCE.write(*sys.argv[1:])

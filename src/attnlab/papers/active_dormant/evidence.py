"""Numbers of the transformer, and of the flow with contexts that differ, ten seeds, on file.

    python -m attnlab.papers.active_dormant.evidence one-softmax

trains a run again and writes its file. The flow takes half a minute of one core, a transformer of
one layer some minutes, one of three layers about ten; those of the published width (`wide-...`)
are for an accelerator.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import partial

import xarray as xr

from attnlab.experiments import Evidence
from attnlab.files.progress import Progress
from attnlab.simulation import Simulation, simulate
from attnlab.theory import predict

from . import runs
from .head import SinkFlow
from .learner import BY_HEAD, BY_LAYER
from .task import BigramBackcopy

KEPT = (*BY_HEAD, *BY_LAYER, "copy_risk", "bigram_kl")  # names begin so


def measured(run: Simulation, result: xr.Dataset) -> xr.Dataset:
    """Return the measures of a run: by seed, step and layer, there is one head; or, of a flow, by
    seed and record, with means over query tokens."""
    if not isinstance(run.task, SinkFlow):
        names = [name for name in result if str(name).startswith(KEPT)]
        return result[names].squeeze("head", drop=True).transpose("seed", "step", "layer")
    alpha, token = result["parameters.sink"], "parameters.sink_0"
    late = predict(run, theory="dormant-late")["parameters.sink"]
    found = {
        "sink_logit": alpha.mean(token),
        "range": alpha.max(token) - alpha.min(token),
        "late_error": abs(late - alpha).max(token),
        "sink_mass": result["sink_mass"].mean("query"),
        "value_size": result["value_size"],
    }
    table = xr.Dataset(found).transpose("seed", "time").drop_vars("time")
    return table.rename(time="record").assign_coords(record=range(table.sizes["time"]))


RELU = replace(runs.WIDE["model"], attention="relu")
EVIDENCE = Evidence(
    __file__,
    {
        "one-softmax": runs.transformer,
        "one-relu": partial(runs.transformer, model=replace(runs.SMALL, attention="relu")),
        "one-bare": partial(runs.transformer, BigramBackcopy(start_token=False)),
        **{f"three-{name}": partial(runs.three_layers, name) for name in runs.THREE},
        "flow": runs.flow,
        "wide-softmax": partial(runs.transformer, rate=3e-4, **runs.WIDE),
        "wide-relu": partial(runs.transformer, **runs.WIDE | {"model": RELU}),
        **{
            f"wide-three-{name}": partial(runs.three_layers, name, rate=3e-4, **runs.WIDE)
            for name in runs.THREE
        },
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

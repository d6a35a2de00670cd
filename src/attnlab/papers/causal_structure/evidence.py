"""Numbers of the runs that take minutes, as files: trained once, read by claims and figures.

    python -m attnlab.papers.causal_structure.evidence full

trains again and writes `evidence/full.csv`. A file says which run it is of and has a digest of its
numbers; one that is not of the run as it stands here, or was changed by hand, is refused.
"""

from __future__ import annotations

import hashlib
import io
import json
import sys
from functools import partial
from importlib.resources import files

import pandas as pd  # type: ignore[import-untyped]
import xarray as xr

from attnlab.files.errors import InputError
from attnlab.simulation import Simulation, simulate

from . import runs
from .task import Forest, TwoParents

RUNS = {
    "full": partial(runs.full, Forest(), seeds=10),
    "graphs": partial(runs.full, Forest(3, 20, 0.1, "half"), steps=3000, seeds=10, constant=True),
    "two_parents": partial(runs.two_parents, TwoParents(3, 16), steps=1500, seeds=10, batch=256),
}


def measured(run: Simulation, result: xr.Dataset) -> xr.Dataset:
    """Return what is kept of a run, by seed and step, and by head and parent where it has two."""
    if isinstance(run.task, TwoParents):
        found = runs.heads_on_parents(run, result)
        found["counts_loss"] = result["counts_loss"]
        found["one_parent_loss"] = result["one_parent_loss"]
        return found.isel(step=[-1])
    found = runs.measured(run, result).merge(runs.blocks(run, result))
    return found.assign(released_gap=result["released_loss"] - result["counts_loss"])


def write(name: str, result: xr.Dataset | None = None) -> str:
    """Return the file of a run as text; train it unless its result is given."""
    run = RUNS[name]()
    result = simulate(run) if result is None else result
    table = measured(run, result).drop_attrs().to_dataframe().reset_index()
    body = table.to_csv(index=False, float_format="%.6g")
    return f"# run {_digest(_spec(run))} numbers {_digest(body)}\n{body}"


def read(name: str) -> xr.Dataset:
    """Return the numbers on file of a run."""
    text = files(__package__).joinpath(f"evidence/{name}.csv").read_text(encoding="utf-8")
    head, body = text.split("\n", 1)
    if head != f"# run {_digest(_spec(RUNS[name]()))} numbers {_digest(body)}":
        raise InputError(
            f"evidence/{name}.csv: not the numbers of this run; "
            f"python -m {__package__}.evidence {name} writes them again"
        )
    table = pd.read_csv(io.StringIO(body))
    keys = [key for key in ("seed", "step", "head", "parent") if key in table]
    return xr.Dataset.from_dataframe(table.set_index(keys))


def _spec(run: Simulation) -> str:
    return json.dumps(run.spec, sort_keys=True)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


if __name__ == "__main__":
    for chosen in sys.argv[1:] or RUNS:
        path = files(__package__).joinpath(f"evidence/{chosen}.csv")
        path.write_text(write(chosen), encoding="utf-8")  # type: ignore[attr-defined]

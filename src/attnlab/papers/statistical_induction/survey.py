"""The transformer with ten seeds, as a table that is computed once and shipped.

    python -m attnlab.papers.statistical_induction.survey     (about five minutes on two cores)

writes survey.csv, whose first line has the digests of the runs that it is made of. Claims that hang
on many seeds read it; figures train the same runs anew, with as many seeds as their recipes say.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import pandas as pd  # type: ignore[import-untyped]
import xarray as xr

from attnlab.auditing.runs import trained_run
from attnlab.simulation import Simulation

from . import runs
from .distances import distances

FILE = Path(__file__).with_name("survey.csv")
DIGITS = 4


def surveyed() -> dict[str, tuple[Simulation, runs.Prior]]:
    """Return the runs by name, each with the prior of its test chains."""
    return {
        "dirichlet": (runs.transformer(runs.chains(3)), "dirichlet"),
        "doubly": (runs.transformer(runs.chains(3, prior="doubly")), "doubly"),
        "two symbols": (runs.transformer(runs.chains(2), steps=900, every=60), "dirichlet"),
    }


def digests() -> str:
    """Return the digests of the surveyed runs, by name."""
    return ", ".join(f"{name} {run.digest}" for name, (run, _) in surveyed().items())


@lru_cache(maxsize=1)
def survey() -> dict[str, xr.Dataset]:
    """Return the shipped table: distances along seed and step, by run."""
    table = pd.read_csv(FILE, comment="#")
    return {
        str(name): of.drop(columns="run").set_index(["seed", "step"]).to_xarray()
        for name, of in table.groupby("run", sort=False)
    }


def write(path: Path = FILE) -> None:
    """Train all runs and write the table."""
    found = []
    for name, (run, prior) in surveyed().items():
        table = distances(trained_run(run), prior).to_dataframe().reset_index()
        found.append(table.assign(run=name))
    text = pd.concat(found).round(DIGITS).to_csv(index=False)
    path.write_text(f"# digests: {digests()}\n{text}", encoding="utf-8")


if __name__ == "__main__":
    write()

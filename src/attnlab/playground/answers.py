"""Answers: a run as a page draws it (JSON), or as a file (netCDF)."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from attnlab.dynamics import Simulation, simulate
from attnlab.files.netcdf import save
from attnlab.playground.asked import asked

DIGITS = 7
Progress = Callable[[float], None]


def drawn(document: Any, progress: Progress) -> bytes:
    """A run as the page's own simulator gives it: on the non-zeros of P, class by class.

    clock; steps; loss; heads, one at least, each with its attention and logits, record by record.
    """
    simulation = asked(document)
    result = simulate(simulation, progress=progress).isel(seed=0)
    clock = simulation.clock
    heads = (
        [result.isel(head=i) for i in range(result.sizes["head"])]
        if "head" in result.dims
        else [result]
    )
    answer = {
        "clock": clock,
        "steps": result[clock].values.tolist(),
        "loss": _plain(result["loss"].values),
        "heads": [_entries(simulation, head, clock) for head in heads],
    }
    return json.dumps(answer, separators=(",", ":")).encode()


def netcdf(document: Any, progress: Progress) -> bytes:
    """A run as the file that `attnlab.load` reads."""
    result = simulate(asked(document), progress=progress)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.nc"
        save(result, path)
        return path.read_bytes()


ANSWERS: dict[str, Callable[[Any, Progress], bytes]] = {"simulate": drawn, "netcdf": netcdf}


def _entries(simulation: Simulation, head: xr.Dataset, clock: str) -> dict[str, list[float]]:
    classes = simulation.sets[0]
    k, tokens = classes.class_of_entry, classes.tokens
    attention = head["attention"].transpose(clock, "sequence_class", "token").values
    logits = head["attention_logits"].transpose(clock, "query", "token").values
    return {
        "attention": _plain(attention[:, k, tokens]),
        "logits": _plain(logits[:, classes.query_index[k], tokens]),
    }


def _plain(values: NDArray[Any]) -> list[float]:
    """Numbers with the digits that single precision has; JSON knows no NaN."""
    return [float(f"{x:.{DIGITS}g}") if np.isfinite(x) else 0.0 for x in values.ravel().tolist()]

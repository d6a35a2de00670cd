"""Compute runs for pages, in a worker process: to draw (JSON), or as a file (netCDF)."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from attnlab.files.errors import InputError
from attnlab.files.netcdf import save
from attnlab.playground.opening import asked
from attnlab.simulation import Diverged, Simulation, simulate

DIGITS = 7
Progress = Callable[[float], None]


class Cancelled(Exception):
    """Raised where no page waits for the answer any more."""


def compute(requests: Connection) -> None:
    """Answer requests until the other side closes.

    A request is JSON, [verb, document], and its answer an HTTP status with bytes. `null` stops the
    computation between two compiled calls; a caller that cannot wait for that ends the process.
    """

    def go_on(fraction: float) -> None:
        if requests.poll():
            raise Cancelled

    while True:
        try:
            request = json.loads(requests.recv_bytes())
            if request is not None:
                verb, document = request
                requests.send(_answer(verb, document, go_on))
        except (EOFError, OSError):
            os._exit(0)  # compiled code and compilers do not stop for Python's own end


def _answer(verb: str, document: Any, progress: Progress) -> tuple[int, bytes]:
    try:
        return 200, ANSWERS[verb](document, progress)
    except Cancelled:
        return 499, b"{}"
    except (InputError, Diverged, MemoryError) as error:
        return 400, json.dumps({"error": str(error)}).encode()
    except Exception as error:
        print(f"attnlab play: {type(error).__name__}: {error}", file=sys.stderr)
        words = "attnlab failed on this; the terminal that runs it says more"
        return 500, json.dumps({"error": words}).encode()


def drawn(document: Any, progress: Progress) -> bytes:
    """Return a run as the page's own simulator gives it: on the non-zeros of P, class by class.

    clock; steps; loss; heads, one at least, each with its attention and logits, record by record.
    """
    run = asked(document)
    result = simulate(run, progress=progress).isel(seed=0)
    clock = run.clock
    several = result if "head" in result.dims else result.expand_dims("head")
    answer = {
        "clock": clock,
        "steps": result[clock].values.tolist(),
        "loss": _plain(result["loss"].values),
        "heads": [_entries(run, several.isel(head=i), clock) for i in range(several.sizes["head"])],
    }
    return json.dumps(answer, separators=(",", ":")).encode()


def netcdf(document: Any, progress: Progress) -> bytes:
    """Return a run as the file that `attnlab.load` reads."""
    result = simulate(asked(document), progress=progress)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.nc"
        save(result, path)
        return path.read_bytes()


ANSWERS: dict[str, Callable[[Any, Progress], bytes]] = {"simulate": drawn, "netcdf": netcdf}


def _entries(run: Simulation, head: xr.Dataset, clock: str) -> dict[str, list[float]]:
    classes = run.sets[0]
    k, tokens = classes.class_of_entry, classes.tokens
    attention = head["attention"].transpose(clock, "sequence_class", "token").values
    logits = head["attention_logits"].transpose(clock, "query", "token").values
    return {
        "attention": _plain(attention[:, k, tokens]),
        "logits": _plain(logits[:, classes.query_index[k], tokens]),
    }


def _plain(values: NDArray[Any]) -> list[float]:
    """Return numbers with the digits of single precision; 0 for NaN, which JSON lacks."""
    return [float(f"{x:.{DIGITS}g}") if np.isfinite(x) else 0.0 for x in values.ravel().tolist()]

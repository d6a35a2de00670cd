"""Evidence: numbers of runs that take minutes, trained once and shipped as small files."""

from __future__ import annotations

import argparse
import hashlib
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd  # type: ignore[import-untyped]
import xarray as xr

from attnlab.files.atomic import atomic_path
from attnlab.files.errors import InputError
from attnlab.simulation import Simulation, simulate

DIGITS = "%.5g"


@dataclass(frozen=True)
class Evidence:
    """Numbers of training runs, a CSV file for each.

    The first line of a file has a digest of the run's settings, one of the numbers, and the dims. A
    file that is not of the run as it stands in the code, or was changed by hand, is refused.

    Parameters
    ----------
    folder : Path
        Where the files are.
    runs : mapping
        Functions that return a `Simulation`, by the name of the file.
    measure : callable
        What is kept: a function of the run and its result that returns a dataset.
    module : str
        The module whose command trains again, ``python -m module NAME``.
    """

    folder: Path
    runs: Mapping[str, Callable[[], Simulation]]
    measure: Callable[[Simulation, xr.Dataset], xr.Dataset]
    module: str

    def read(self, name: str) -> xr.Dataset:
        """Return the numbers on file of a run, with their dims."""
        text = (self.folder / f"{name}.csv").read_text(encoding="utf-8")
        head, body = text.split("\n", 1)
        start, _, dims = head.partition(" dims ")
        if start != self._head(name, body):
            raise InputError(
                f"{name}.csv: not the numbers of this run; python -m {self.module} {name} "
                "writes them again"
            )
        return xr.Dataset.from_dataframe(pd.read_csv(io.StringIO(body)).set_index(dims.split(",")))

    def write(self, name: str, folder: Path | None = None) -> Path:
        """Train a run and write its file into `folder`, by default that of the shipped files."""
        run = self.runs[name]()
        table = self.measure(run, simulate(run, progress=False)).drop_attrs()
        dims = [str(dim) for dim in table.sizes]
        body = table.to_dataframe(dim_order=dims).reset_index().to_csv(
            index=False, float_format=DIGITS
        )
        path = (folder or self.folder) / f"{name}.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_path(path) as temporary:
            head = f"{self._head(name, body)} dims {','.join(dims)}"
            temporary.write_text(f"{head}\n{body}", encoding="utf-8")
        return path

    def command(self, arguments: Sequence[str] | None = None) -> None:
        """Train the runs that a command line names, all by default."""
        parser = argparse.ArgumentParser(prog=f"python -m {self.module}")
        parser.add_argument("name", nargs="*", help=f"among {', '.join(self.runs)}; all by default")
        parser.add_argument("--folder", type=Path, help="where the files go")
        given = parser.parse_args(arguments)
        for name in given.name or self.runs:
            if name not in self.runs:
                parser.error(f"{name}: no such run; give one of {', '.join(self.runs)}")
            print(self.write(name, given.folder), flush=True)

    def _head(self, name: str, body: str) -> str:
        settings = json.dumps(self.runs[name]().spec, sort_keys=True)
        return f"# run {_digest(settings)} numbers {_digest(body)}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]

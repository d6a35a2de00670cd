"""Evidence: numbers of runs that take minutes, as files: trained once, read by claims and figures.

EVIDENCE = Evidence(__file__, {"full": run_of_the_full_model}, measured)
EVIDENCE.read("full")  # a labelled dataset, of evidence/full.csv

if __name__ == "__main__":
    EVIDENCE.write(*sys.argv[1:])  # trains the runs named, or all, and writes their files
"""

import csv
import hashlib
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xarray as xr

from attnlab.files.atomic import write_text
from attnlab.files.errors import InputError
from attnlab.simulation import Simulation, simulate


@dataclass(frozen=True)
class Evidence:
    """Tables of numbers, a file for each run, in the folder `evidence` beside a module.

    A file says which run it is of and has a digest of its numbers; one that is not of the run as it
    stands in the code, or was changed by hand, is refused.

    Parameters
    ----------
    module : str
        `__file__` of the module.
    runs : mapping
        Functions that return the runs, by the names of their files.
    measured : callable
        What is kept of a run and its result.
    """

    module: str
    runs: Mapping[str, Callable[[], Simulation]]
    measured: Callable[[Simulation, xr.Dataset], xr.Dataset]

    def read(self, name: str) -> xr.Dataset:
        """Return the numbers on file of a run, along its seeds and the dims that were kept."""
        import pandas as pd

        head, body = self.file(name).read_text(encoding="utf-8").split("\n", 1)
        if head != self._head(name, body):
            raise InputError(
                f"{self.file(name).name}: not the numbers of this run; "
                f"python {self.module} {name} writes them again"
            )
        table = pd.read_csv(io.StringIO(body))
        whole = [key for key in table if pd.api.types.is_integer_dtype(table[key])]
        return xr.Dataset.from_dataframe(table.set_index(whole))

    def text(self, name: str, result: xr.Dataset | None = None) -> str:
        """Return the file of a run as text; train it unless its result is given."""
        run = self.runs[name]()
        table = self.measured(run, simulate(run) if result is None else result)
        frame = table.drop_attrs().to_dataframe().astype(float)
        body = frame.reset_index().to_csv(index=False, float_format="%#.6g")
        return f"{self._head(name, body)}\n{body}"

    def write(self, *names: str, keep: str | Path | None = None) -> None:
        """Train the runs of these names, or all, and write their files.

        A run that was interrupted goes on from its checkpoint in the folder `keep`, if given.
        """
        for name in names or self.runs:
            result = simulate(self.runs[name](), out=keep and Path(keep) / name)
            write_text(self.file(name), self.text(name, result))

    def file(self, name: str) -> Path:
        """Return the path of the file of a run."""
        return Path(self.module).parent / "evidence" / f"{name}.csv"

    def _head(self, name: str, body: str) -> str:
        numbers = hashlib.sha256(body.encode()).hexdigest()[:16]
        return f"# run {self.runs[name]().digest[:16]} numbers {numbers}"


# -- published values: CSV files in a paper's folder `published/` ----------------------------------


def published(module: str, name: str) -> list[dict[str, Any]]:
    """Return the rows of published/NAME.csv; entries that read as numbers are numbers.

    A file's first line says, after a #, where its values come from.

    Parameters
    ----------
    module : str
        `__file__` of a figure of the paper.
    name : str
        Of the file, without its ending.
    """
    path = Path(module).parents[1] / "published" / f"{name}.csv"
    _, *lines = path.read_text(encoding="utf-8").splitlines()
    return [{key: _number(of) for key, of in row.items()} for row in csv.DictReader(lines)]


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text

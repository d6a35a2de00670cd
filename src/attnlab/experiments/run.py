"""Running an experiment: its picture, its data, and a record of what was found, as files."""

from __future__ import annotations

import csv
import logging
import math
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import xarray as xr

from attnlab.experiments.base import Experiment, R, Table
from attnlab.experiments.estimate import on_halves
from attnlab.experiments.made import Made, file_digest, read_record, write_record
from attnlab.files.atomic import atomic_path
from attnlab.files.code import code_digest, digest_of
from attnlab.files.folders import claim, make_folder
from attnlab.files.netcdf import save
from attnlab.files.numerics import numerics
from attnlab.files.progress import Progress
from attnlab.files.provenance import provenance, versions
from attnlab.files.recipe import plain
from attnlab.plots.style import style

NUMBERS = ("data", "measures", "dynamics", "theory", "sweep", "text")
CODE = ("formulas", "theory", "auditing", "plots", "experiments", "papers")
RUNS = "runs"  # simulations, kept for the experiments that share them
PNG_DPI = 200
DRAWING = threading.Lock()  # matplotlib's settings are those of the whole process


def run(
    experiment: Experiment[R], recipe: R, *, out: Path | str = "out", progress: Progress = False
) -> Made:
    """Run an experiment by a recipe, and write what comes out into a folder in `out`.

    The folder is `out`/paper/name, or `out`/name where the experiment belongs to no paper. It gets
    the picture (PNG, PDF), the data (netCDF, CSV), `table.csv` where the experiment has a table,
    and `part.json` with the judgement. Simulations that several experiments share are kept in
    `out`/runs.

    Parameters
    ----------
    experiment : Experiment
        Of a paper, or your own.
    recipe : ExperimentRecipe
        Of its type.
    out : path or str, optional
        The folder for its folder.
    progress : callable or False, optional
        Called with the fraction done.

    Returns
    -------
    Made
        What was found, and which files there are.
    """
    out = Path(out)
    folder = out / experiment.full_name
    claim(out, (folder.relative_to(out).parts[0], RUNS))
    begun = time.perf_counter()
    data = experiment.data(recipe, progress=progress, keep=out / RUNS)
    judgement = experiment.judge(data)
    halves = on_halves(experiment.judge, data) if experiment.kind == "study" else ()
    table = experiment.table(data) if experiment.table else None
    make_folder(folder, inside=out)
    written = [*_pictures(experiment, data, folder, inside=out), folder / f"{experiment.name}.nc"]
    about = provenance({"recipe": plain(recipe, defaults=True)})
    save(data.assign_attrs(about), written[-1], inside=out)
    written += _tables(experiment.name, data, table, folder, inside=out)
    made = Made(
        name=experiment.full_name,
        key=key_of(experiment, recipe),
        title=experiment.title,
        about=recipe.about or "",
        standing=judgement.standing.value,
        outcome=experiment.in_words(judgement.standing),
        headline=judgement.headline,
        summary=judgement.summary,
        alt=judgement.alt,
        numbers={key: float(value) for key, value in judgement.numbers.items()},
        regression_bounds={k: list(bounds) for k, bounds in recipe.regression_bounds.items()},
        settings=recipe.in_words(),
        files={path.name: file_digest(path) for path in written},
        seconds=time.perf_counter() - begun,
        made_at=datetime.now(UTC).isoformat(timespec="seconds"),
        versions=versions(),
        source=experiment.source,
        caption=table.caption if table else "",
        table=table.shown() if table else (),
        halves=halves,
    )
    write_record(folder, made, inside=out)
    return made


def find(experiment: Experiment[R], recipe: R, *, out: Path) -> Made | None:
    """The experiment in `out`, if it was made by this recipe and this code."""
    return read_record(out / experiment.full_name, key_of(experiment, recipe))


def find_or_run(
    experiment: Experiment[R], recipe: R, *, out: Path, progress: Progress = False
) -> Made:
    """Run an experiment in `out`, or find it there."""
    found = find(experiment, recipe, out=out)
    return found or run(experiment, recipe, out=out, progress=progress)


def key_of(experiment: Experiment[R], recipe: R) -> str:
    """The digest of all that decides what comes out of an experiment of a paper."""
    own = () if experiment.paper is None else (str(experiment.paper.folder),)
    made_by = [numerics(*NUMBERS), code_digest(*CODE, *own)]
    return digest_of([experiment.full_name, plain(recipe, defaults=True), recipe.inputs(), made_by])


def _pictures(
    experiment: Experiment[R], data: xr.Dataset, folder: Path, *, inside: Path
) -> list[Path]:
    written = [folder / f"{experiment.name}.{ending}" for ending in ("png", "pdf")]
    with DRAWING, style(), _quiet_fonts():
        picture = experiment.draw(data)
        for path in written:
            with atomic_path(path, inside=inside) as temporary:
                # no date inside, so that the same data give the same file
                metadata = {"CreationDate": None} if path.suffix == ".pdf" else {"Software": None}
                picture.savefig(temporary, format=path.suffix[1:], dpi=PNG_DPI, metadata=metadata)
    return written


def _tables(
    name: str, data: xr.Dataset, table: Table | None, folder: Path, *, inside: Path
) -> list[Path]:
    """The data as tables, and the experiment's own table."""
    written = []
    for suffix, frame in _frames(data):
        written.append(folder / f"{name}{suffix}.csv")
        rows = frame.itertuples(index=False, name=None)
        _write_csv(written[-1], list(frame.columns), rows, inside=inside)
    if table is not None:
        written.append(folder / "table.csv")
        rows = (row.values() for row in table.rows)
        _write_csv(written[-1], list(table.rows[0]), rows, inside=inside)
    return written


def _frames(data: xr.Dataset) -> Iterator[tuple[str, Any]]:
    """Data frames: variables go together when the dims of one include the other's."""
    groups: list[tuple[set[Any], list[Any]]] = []
    for variable in sorted(data.data_vars, key=lambda v: -data[v].ndim):
        dims = set(data[variable].dims)
        for group, members in groups:
            if dims <= group:
                members.append(variable)
                break
        else:
            groups.append((dims, [variable]))
    for i, (_, members) in enumerate(groups):
        order = [v for v in data.data_vars if v in members]
        frame = data[order].to_dataframe(dim_order=list(data[members[0]].dims)).reset_index()
        suffix = "" if i == 0 else f"-{'-'.join(map(str, data[members[0]].dims))}"
        yield suffix, frame


def _write_csv(
    path: Path, columns: list[Any], rows: Iterable[Iterable[Any]], *, inside: Path
) -> None:
    def cell(value: Any) -> Any:
        if isinstance(value, float):
            return "" if math.isnan(value) else f"{value:.8g}"
        return value

    with (
        atomic_path(path, inside=inside) as temporary,
        open(temporary, "w", encoding="utf-8", newline="") as file,
    ):
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([cell(value) for value in row] for row in rows)


@contextmanager
def _quiet_fonts() -> Iterator[None]:
    """Matplotlib's fonts have no date, about which the library that embeds them complains."""
    log = logging.getLogger("fontTools")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)

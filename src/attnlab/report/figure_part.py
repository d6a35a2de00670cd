"""A figure, or a study, as a part: PNG and PDF, and its data as CSV and netCDF."""

from __future__ import annotations

import csv
import logging
import math
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, fields, is_dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from attnlab.data import classes_from
from attnlab.figures import figure
from attnlab.figures.recall import RecallRecipe
from attnlab.figures.text_runs import TextRecipe
from attnlab.files.atomic import atomic_path
from attnlab.files.code import code_digest, digest_of
from attnlab.files.netcdf import save
from attnlab.files.provenance import provenance, versions
from attnlab.files.recipe import Recipe
from attnlab.plots.style import style
from attnlab.report.part import Part, file_digest, read_record, write_record
from attnlab.studies import NAMES as STUDIES
from attnlab.studies import study
from attnlab.studies.halves import on_halves
from attnlab.sweep import Progress, SweepRecipe

CODE = ("data", "files", "measures", "dynamics", "theory", "sweep", "text", "figures", "report")
NOTE = [line.name for line in fields(Recipe)]
PNG_DPI = 200
DRAWING = threading.Lock()  # matplotlib's settings are those of the whole process


def figure_key(name: str, recipe: Any) -> str:
    """The digest of all that decides the content of a figure."""
    digests = [classes_from(text).digest for text in _class_texts(recipe)]
    if isinstance(recipe, TextRecipe):
        digests.append(recipe.text().digest)
    code = (*CODE, "audit", "studies") if name in STUDIES else CODE
    return digest_of([name, asdict(recipe), digests, code_digest(*code)])


def _class_texts(recipe: Any) -> list[str]:
    """The classes that a recipe names, which may come from files."""
    if isinstance(recipe, RecallRecipe):
        return _class_texts(recipe.runs)
    if isinstance(recipe, SweepRecipe):
        return [setting.classes for setting in recipe.settings()]
    given = getattr(recipe, "classes", ())
    if isinstance(given, str):
        return [given]
    return list(given.values() if isinstance(given, Mapping) else given)


def with_seeds(recipe: Any, seeds: int) -> Any:
    """The recipe with another number of seeds, where it has one that averages over seeds."""
    if isinstance(recipe, RecallRecipe):
        return replace(recipe, runs=replace(recipe.runs, seeds=seeds))
    if recipe.figure == "fig6":
        return replace(recipe, seeds=seeds)
    return recipe


def find_figure(name: str, recipe: Any, *, folder: Path) -> Part | None:
    """The figure in `folder`, if it was made by this recipe and this code."""
    return read_record(folder, figure_key(name, recipe))


def make_figure(
    name: str, recipe: Any, *, folder: Path, keep: Path, progress: Progress = False
) -> Part:
    """Make a figure in `folder`, or find it there. `keep`: where simulations are kept."""
    found = find_figure(name, recipe, folder=folder)
    if found is not None:
        return found
    begun = time.perf_counter()
    module = study(name) if name in STUDIES else figure(name)
    data = module.data(recipe, progress=progress, keep=keep)
    finding = module.judge(data)
    folder.mkdir(parents=True, exist_ok=True)
    written = _write(name, module, data, folder, asdict(recipe))
    part = Part(
        name=name,
        key=figure_key(name, recipe),
        title=module.TITLE,
        about=recipe.about,
        outcome=finding.outcome.value,
        headline=finding.headline,
        summary=finding.summary,
        alt=finding.alt,
        numbers={key: float(value) for key, value in finding.numbers.items()},
        regression_bounds={k: list(bounds) for k, bounds in recipe.regression_bounds.items()},
        settings=settings(recipe),
        files={path.name: file_digest(path) for path in written},
        seconds=time.perf_counter() - begun,
        made_at=datetime.now(UTC).isoformat(timespec="seconds"),
        versions=versions(),
        table=comparison(data) if name == "fig6" else (),
        halves=on_halves(module.judge, data) if name in STUDIES else (),
    )
    write_record(folder, part)
    return part


def comparison(cells: xr.Dataset) -> list[dict[str, float | None]]:
    """Fig. 6's cells beside the published ones, where there is one."""
    names = ("entropy_mean", "entropy_std", "published_mean", "published_std", "deviation")
    rows = []
    for index in np.argwhere(np.isfinite(cells["published_mean"].values)):
        cell = cells.isel(dict(zip(cells["published_mean"].dims, index, strict=True)))
        row = {axis: float(cell[axis]) for axis in ("num_last", "eta_z", "ratio")}
        values = {name: float(cell[name]) for name in names}
        rows.append({**row, **{k: v if math.isfinite(v) else None for k, v in values.items()}})
    return rows


def settings(recipe: Any) -> dict[str, str]:
    """A recipe's settings in words, by name, without what it says about itself."""
    if isinstance(recipe, RecallRecipe):
        runs = {f"runs: {key}": text for key, text in settings(recipe.runs).items()}
        return _settings_of(recipe, leave_out=[*NOTE, "runs"]) | runs
    return _settings_of(recipe, leave_out=NOTE)


def _settings_of(recipe: Any, *, leave_out: list[str]) -> dict[str, str]:
    """The fields of a recipe in words, where they say something."""
    given = {key: value for key, value in vars(recipe).items() if value is not None}
    return {key: _words(value) for key, value in given.items() if key not in leave_out}


def _words(value: Any) -> str:
    if is_dataclass(value) and not isinstance(value, type):
        given = {item.name: getattr(value, item.name) for item in fields(value)}
        value = {
            item.name: given[item.name]
            for item in fields(value)
            if item.name == "name" or given[item.name] != item.default
        }
    if isinstance(value, Mapping):
        shown = {key: item for key, item in value.items() if item is not None}
        return ", ".join(f"{key} {_words(item)}" for key, item in shown.items())
    if isinstance(value, (list, tuple)):
        texts = [_words(item) for item in value]
        return "; ".join(texts) if any("," in text for text in texts) else " ".join(texts)
    return f"{value:g}" if isinstance(value, float) else str(value)


def _write(
    name: str, module: Any, data: xr.Dataset, folder: Path, recipe: Mapping[str, Any]
) -> list[Path]:
    written = [folder / f"{name}.{ending}" for ending in ("png", "pdf", "nc")]
    with DRAWING, style(), _quiet_fonts():
        picture = module.draw(data)
        for path in written[:2]:
            with atomic_path(path) as temporary:
                # no date inside, so that the same data give the same file
                metadata = {"CreationDate": None} if path.suffix == ".pdf" else {"Software": None}
                picture.savefig(temporary, format=path.suffix[1:], dpi=PNG_DPI, metadata=metadata)
    save(data.assign_attrs(provenance({"recipe": dict(recipe)})), written[2])
    for path, columns, rows in [
        *_tables(name, data, folder),
        *_special(name, module, data, folder),
    ]:
        _write_csv(path, columns, rows)
        written.append(path)
    return written


def _tables(name: str, data: xr.Dataset, folder: Path) -> Iterator[tuple[Path, Any, Any]]:
    """The data as tables: variables go together when the dims of one include the other's."""
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
        rows = frame.itertuples(index=False, name=None)
        yield folder / f"{name}{suffix}.csv", list(frame.columns), rows


def _special(
    name: str, module: Any, data: xr.Dataset, folder: Path
) -> Iterator[tuple[Path, Any, Any]]:
    if name == "fig6":
        rows = (row.values() for row in module.table(data))
        yield folder / "table.csv", module.COLUMNS, rows


def _write_csv(path: Path, columns: Any, rows: Any) -> None:
    def cell(value: Any) -> Any:
        if isinstance(value, float):
            return "" if math.isnan(value) else f"{value:.8g}"
        return value

    with atomic_path(path) as temporary, open(temporary, "w", newline="") as file:
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

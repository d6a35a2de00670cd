"""Run an experiment: its picture, its data, and a record of what was found, as files.

What was made is a folder of files and a sealed record, `part.json`, that is written last. The
record holds a key (the digest of everything that decides the content) and the SHA-256 of each file:
what was made is reused when its key is the one asked for, and it and its files are as they were
written.
"""

import hashlib
import logging
import math
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import xarray as xr

from attnlab.experiments.base import Experiment, R, Table
from attnlab.experiments.estimate import on_halves, unsettled
from attnlab.files.atomic import atomic_path
from attnlab.files.errors import InputError
from attnlab.files.folders import claim, make_folder
from attnlab.files.netcdf import save
from attnlab.files.numerics import numerics
from attnlab.files.progress import Progress
from attnlab.files.provenance import code_digest, digest_of, provenance, versions
from attnlab.files.recipe import plain
from attnlab.files.regular import open_regular
from attnlab.files.sealed import read_sealed, write_sealed
from attnlab.plots.style import style
from attnlab.shelf import paper
from attnlab.shelf.papers import naming, recorded_number

NUMBERS = ("tasks", "models", "simulation", "measures", "theory", "sweep")
CODE = ("formulas", "theory", "auditing", "plots", "experiments", "papers")
RUNS = "runs"  # simulations, kept for the experiments that share them
PNG_DPI = 200
DRAWING = threading.Lock()  # matplotlib's settings are those of the whole process
RECORD = "part.json"


@dataclass(frozen=True)
class Part:
    """A finished experiment, or the audit.

    Parameters
    ----------
    name : str
        Of the experiment, "paper/figure" where it belongs to a paper; also its folder.
    key : str
        Of what it was made with.
    title : str
        In a few words.
    about : str
        The claim.
    outcome, headline, summary, alt, numbers, standing
        The judgement; `outcome` is `standing` in words.
    regression_bounds : mapping
        Of each number, by the recipe.
    settings : mapping
        What it was made with, to be shown.
    files : mapping
        Name to SHA-256.
    seconds : float
        How long it took when it was made.
    made_at : str
        When.
    versions : mapping
        Of the libraries.
    source : str, optional
        Whose it is.
    caption : str, optional
        What that is.
    table : sequence, optional
        The texts of a table to be shown with it, its heading first, if any.
    halves : Sequence[mapping, optional
        Of a study, the numbers on each half of its seeds.
    reused : bool, optional
        Whether it was there already.
    """

    name: str
    key: str
    title: str
    about: str
    outcome: str
    headline: str
    summary: str
    alt: str
    numbers: Mapping[str, float]
    regression_bounds: Mapping[str, Sequence[float]]
    settings: Mapping[str, str]
    files: Mapping[str, str]
    seconds: float
    made_at: str
    versions: Mapping[str, str]
    standing: str = ""
    source: str = "the paper"
    caption: str = ""
    table: Sequence[Sequence[str]] = ()
    halves: Sequence[Mapping[str, float]] = ()
    reused: bool = field(default=False, compare=False)

    def out_of_bounds(self) -> dict[str, float]:
        """The numbers that are outside their regression bounds, NaN if absent."""
        found = {name: self.numbers.get(name, float("nan")) for name in self.regression_bounds}
        return {
            name: value
            for name, value in found.items()
            if not self.regression_bounds[name][0] <= value <= self.regression_bounds[name][1]
        }

    def unsettled(self) -> dict[str, float]:
        """The numbers of a study in which the halves of its seeds do not agree, with how many
        errors they differ by."""
        return unsettled(self.halves) if self.halves else {}


def write_record(folder: Path, made: Part, *, inside: Path | None = None) -> None:
    """Declare it finished. inside: the output folder that `folder` is in."""
    seal_record(folder / RECORD, made, inside=inside or folder)


def seal_record(path: Path, made: Part, *, inside: Path) -> None:
    """Write a record as a sealed file in the output folder `inside`."""
    document = {key: value for key, value in asdict(made).items() if key != "reused"}
    write_sealed(path, document, inside=inside)


def read_record(folder: Path, key: str | None) -> Part | None:
    """Return what is in `folder`, if it is what that `key` asks for and nothing was changed.

    None asks for whatever is there.
    """
    try:
        made = unseal_record(folder / RECORD)
        intact = key in (None, made.key) and all(
            file_digest(folder / name) == sha for name, sha in made.files.items()
        )
    except (OSError, ValueError, TypeError):
        return None
    return made if intact else None


def unseal_record(path: Path) -> Part:
    """Return the record in a sealed file; ValueError if another version of attnlab wrote it."""
    document = read_sealed(path, remedy="make it again")
    if set(document) != {item.name for item in fields(Part)} - {"reused"}:
        raise ValueError(f"{path}: written by another version")
    return Part(**document, reused=True)


def the_record(folder: Path) -> Part:
    """Return the record in `folder`, whatever its key; InputError if there is none."""
    made = read_record(folder, None)
    if made is None:
        raise InputError(f"{folder}: nothing was made there, or it was changed; make it first")
    return made


def file_digest(path: Path) -> str:
    """The SHA-256 of a file."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def record(parts: Sequence[Part]) -> list[Path]:
    """Write the standing and the bounded numbers of figures into their papers' `expected.json`.

    Figures that were not made keep their entries, as claims do; entries of figures that are gone
    go.

    Parameters
    ----------
    parts : sequence of Part
        What was made by the papers' own recipes; parts that belong to no paper are left out.

    Returns
    -------
    list of Path
        The files written.
    """
    entries: dict[str, dict[str, Any]] = {}
    for made in parts:
        name, slash, short = made.name.partition("/")
        if not slash:
            continue
        of_paper = entries.setdefault(name, dict(paper(name).expected["figures"]))
        before = of_paper.get(short, {}).get("numbers", {})
        bounded = {key: made.numbers.get(key, math.nan) for key in made.regression_bounds}
        numbers = {
            key: recorded_number(value, before.get(key))
            for key, value in bounded.items()
            if math.isfinite(value)
        }
        of_paper[short] = {"standing": made.standing, "numbers": numbers}
    written = []
    for name, found in entries.items():
        kept = {short: found[short] for short in paper(name).figures if short in found}
        written.append(paper(name).record("figures", kept))
    return written


def run(
    experiment: Experiment[R], recipe: R, *, out: Path | str = "out", progress: Progress = False
) -> Part:
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
    Part
        What was found, and which files there are.
    """
    out = Path(out)
    folder = out / experiment.full_name
    claim(out, (folder.relative_to(out).parts[0], RUNS))
    begun = time.perf_counter()
    with naming(experiment.paper):
        data = experiment.data(recipe, progress=progress, keep=out / RUNS)
        judgement = experiment.judge(data)
        halves = on_halves(experiment.judge, data) if experiment.kind == "study" else ()
        table = experiment.table(data) if experiment.table else None
        make_folder(folder, inside=out)
        pictures = _pictures(experiment, data, folder, inside=out)
    written = [*pictures, folder / f"{experiment.name}.nc"]
    about = provenance({"recipe": plain(recipe, defaults=True)})
    save(data.assign_attrs(about), written[-1], inside=out)
    written += _tables(experiment.name, data, table, folder, inside=out)
    made = Part(
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


def find(experiment: Experiment[R], recipe: R, *, out: Path) -> Part | None:
    """The experiment in `out`, if it was made by this recipe and this code."""
    return read_record(out / experiment.full_name, key_of(experiment, recipe))


def find_or_run(
    experiment: Experiment[R], recipe: R, *, out: Path, progress: Progress = False
) -> Part:
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
    import pandas as pd

    frames = {folder / f"{name}{suffix}.csv": frame for suffix, frame in _frames(data)}
    if table is not None:
        frames[folder / "table.csv"] = pd.DataFrame(table.rows)
    for path, frame in frames.items():
        with atomic_path(path, inside=inside) as temporary:
            frame.to_csv(temporary, index=False, float_format="%.8g", lineterminator="\n")
    return list(frames)


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

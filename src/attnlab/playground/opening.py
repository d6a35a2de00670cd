"""The run that a page opens on, and the runs that it may ask for.

A page opens on a run, on classes, or on a file of either. It may ask for one run of a few seconds,
and for a result that a browser can hold.
"""

from __future__ import annotations

import json
import math
import os
import re
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

from attnlab.files.documents import check_keys, read_document, shown
from attnlab.files.errors import InputError
from attnlab.simulation import Record, Simulation, as_simulation
from attnlab.simulation.record import DEFAULT_RECORDS
from attnlab.simulation.settings import ADVICE, NOUN, read_given
from attnlab.simulation.simulation import FIELD_KINDS, refuse_old
from attnlab.tasks.classes import SequenceClasses
from attnlab.tasks.classes.class_files import classes_document, classes_from_document
from attnlab.tasks.classes.presets import from_preset

RECORDS = 100  # that the page draws
# Of what a page saved, the parts beside its runs, which it checks itself.
SHOWN = ("experiment", "first", "rungs", "sentence", "moment")
MOST = {
    "classes": 100,
    "vocabulary": 5000,
    "probabilities": 50_000,
    "length": 8192,
    "batch_size": 2048,
    "training_set": 20_000,
    "heads": 8,
    "hidden": 256,
    "records": 400,
    "most_steps": 100_000,
}
MOST_STEPS, MOST_TIME = 20_000, 1e9
MOST_RATE = 1e6
MOST_RECORDED = 2_000_000  # records x probabilities x heads: what is sent
MOST_WORK = 4e9  # steps x sequences x tokens x outputs
MOST_IN_PRESET = 1_000_000  # the product of the sizes in a preset's text
LONGEST_PRESET = 300
# Names that a page may ask for. Presets are those whose size is at most the product of their
# numbers: the size of a tree grows faster, and is known only once it is made.
NAMES = json.loads((resources.files("attnlab.playground") / "asked.json").read_bytes())
REMEDY = "take fewer, or use attnlab simulate"


def opening(
    given: Simulation | SequenceClasses | str | os.PathLike[str], **settings: Any
) -> dict[str, Any]:
    """Return the state of a page that opens on a run, on classes, on a preset or on a file.

    **settings: settings of the run that are changed, by their flat names.
    """
    if isinstance(given, Simulation | SequenceClasses):
        return {"a": _document(given, settings)}
    if (saved := _saved(given)) is None:
        return {"a": _document(read_given(given), settings)}
    runs = {name: saved[name] for name in ("a", "b") if saved.get(name) is not None}
    try:
        check_keys("", saved, ("a", "b", *SHOWN), ("a",))
        made = {name: Simulation.from_document(of) for name, of in runs.items()}
    except InputError as error:
        raise InputError(f"{os.fspath(given)}: {error}") from error
    return {**saved, **{name: _document(of, settings) for name, of in made.items()}}


def _saved(path: str | os.PathLike[str]) -> dict[str, Any] | None:
    """Return what a page saved because it was too long for a link; None for another file."""
    if not os.fspath(path).lower().endswith(".json"):
        return None
    document = read_document(Path(path), noun=NOUN, advice=ADVICE)
    return document if isinstance(document, dict) and "a" in document else None


def _document(given: Simulation | SequenceClasses, settings: dict[str, Any]) -> dict[str, Any]:
    """Return a single run as a document, with its classes entry by entry."""
    if isinstance(given, SequenceClasses):  # with settings that show something
        usual = {"eta_y": 2.0, "eta_z": 5.0} if "learning_rate" not in settings else {}
        steps = {} if {"motion", "time"} & settings.keys() else {"steps": 200}
        run = as_simulation(given, **{**usual, **steps, **settings})
    else:
        run = as_simulation(given, **settings)
    if isinstance(run.classes, tuple) or run.grid.runs != 1:
        raise InputError(
            "simulation: the playground shows one run; give one seed and one learning rate each"
        )
    if run.record == Record():
        run = replace(run, record=Record(geometric=RECORDS))
    document = run.to_document()
    document["task"]["classes"] = classes_document(run.sets[0])
    return document


def asked(document: Any) -> Simulation:
    """Return the simulation that a page asks for, within bounds; never read a file."""
    if not isinstance(document, dict):
        raise InputError(f"document: expected a mapping with task, got {shown(document)}")
    refuse_old(document)
    check_keys("", document, FIELD_KINDS, ("task",))
    task, record = document["task"], document.get("record")
    is_named = isinstance(task, dict) and "name" in task
    for name in ("task", "model", "motion", "gradient")[not is_named :]:
        given = document.get(name, NAMES[name][0])
        kind = given.get("name") if isinstance(given, dict) else given
        if kind not in NAMES[name]:
            known = ", ".join(NAMES[name])
            raise InputError(f"{name}: a page may ask for {known}, got {shown(kind)}")
    if isinstance(record, dict) and "evaluate" in record:  # its tasks could name files
        raise InputError("record.evaluate: a page may not ask for other tasks; use Python")
    classes = _classes(task.get("classes") if is_named else task)
    written = classes_document(classes)
    whole = {**task, "classes": written} if is_named else written
    run = Simulation.from_document({**document, "task": whole})
    _check_size(run, classes)
    return run


def _classes(given: Any) -> SequenceClasses:
    if isinstance(given, dict):
        try:
            return _bounded(classes_from_document(given))
        except InputError as error:
            raise InputError(f"classes.{error}") from error
    if not isinstance(given, str) or given.partition(":")[0] not in NAMES["presets"]:
        known = ", ".join(NAMES["presets"])
        raise InputError(f"classes: expected a mapping or one of {known}, got {shown(given)}")
    # the sizes of a preset multiply; refused before they are made
    sizes = re.findall(r"(?<!seed)=(\d+)(?![.\d])", given[:LONGEST_PRESET])
    if len(given) > LONGEST_PRESET or math.prod(int(n) or 1 for n in sizes) > MOST_IN_PRESET:
        raise InputError(f"classes: {shown(given)} is too large for a page; {REMEDY}")
    return _bounded(from_preset(given))


def _bounded(classes: SequenceClasses) -> SequenceClasses:
    sizes = (len(classes), classes.vocab_size, classes.num_nonzeros)
    for name, size in zip(("classes", "vocabulary", "probabilities"), sizes, strict=True):
        if size > MOST[name]:
            raise InputError(f"{name}: {size:,}; a page may ask for {MOST[name]:,}; {REMEDY}")
    return classes


def _check_size(run: Simulation, classes: SequenceClasses) -> None:
    """Refuse what is more than one run, or takes too long or too much memory."""
    task, size, heads, by_steps = run.task, run.gradient.size, run.model.heads, run.clock == "step"
    for name in ("eta_y", "eta_z"):
        rate = getattr(run, name)
        if not isinstance(rate, float) or rate > MOST_RATE:
            raise InputError(f"{name}: expected a number from 0 to {MOST_RATE:g}")
    if run.grid.runs != 1:
        raise InputError("seeds: a page may ask for one run")
    if not run.is_exact or getattr(run.motion, "solver", "explicit") != "explicit":
        name = "solver" if run.is_exact else "exact"
        raise InputError(f"{name}: a page may not change it; use attnlab simulate")
    most = MOST_STEPS if by_steps else MOST_TIME
    if run.last > most:
        raise InputError(f"{run.clock}s: expected at most {most:g}, got {run.last:g}")
    values = {
        "heads": heads,
        "hidden": getattr(run.model, "hidden", None) or 1,
        "batch_size": size or 1,
        "training_set": task.training_set or 1,
        "length": 1 if task.infinite else task.length,
        "most_steps": getattr(run.motion, "most_steps", 1),
        "records": _records(run),
    }
    for name, value in values.items():
        if value > MOST[name]:
            raise InputError(f"{name}: expected at most {MOST[name]:,}, got {value:,}")
    if values["records"] * classes.num_nonzeros * heads > MOST_RECORDED:
        raise InputError(f"record: the result would be too large for a page; {REMEDY}")
    if by_steps:
        rows = len(classes) if task.infinite else size or task.training_set
        outputs = classes.vocab_size if run.init == "uniform" else len(classes) + 1
        work = run.last * rows * classes.in_play.size * outputs * heads * values["hidden"]
        if work > MOST_WORK:
            raise InputError(
                f"steps: this run is {work / MOST_WORK:.1f} times what a page may ask for; take "
                "fewer steps, smaller batches or fewer words"
            )


def _records(run: Simulation) -> int:
    """Return the largest number of records, before they are listed."""
    record = run.record
    if record.at is not None:
        return len(record.at)
    if isinstance(record.every, int):
        return math.ceil(run.last / record.every) + 1
    return record.geometric or DEFAULT_RECORDS

"""Bounds on what a page may ask for: one run of a few seconds, and a result a browser can hold."""

from __future__ import annotations

import json
import math
import re
from importlib import resources
from typing import Any

from attnlab.data.class_files import classes_document, classes_from_document
from attnlab.data.classes import SequenceClasses
from attnlab.data.presets import from_preset
from attnlab.dynamics import Simulation
from attnlab.files.documents import check_keys, shown
from attnlab.files.errors import InputError

MOST = {
    "classes": 100,
    "vocabulary": 5000,
    "probabilities": 50_000,
    "length": 8192,
    "batch_size": 2048,
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


def asked(document: Any) -> Simulation:
    """Return the simulation that a page asks for, within bounds; never read a file."""
    if not isinstance(document, dict):
        raise InputError(f"document: expected a mapping with classes, got {shown(document)}")
    check_keys("", document, (*_fields(), "classes"), ("classes",))
    classes = _classes(document["classes"])
    for name in ("engine", "model"):
        known = NAMES[f"{name}s"]
        given = document.get(name, {"name": known[0]})
        kind = given.get("name") if isinstance(given, dict) else given
        if kind not in known:
            raise InputError(f"{name}: a page may ask for {', '.join(known)}, got {shown(kind)}")
    for name in ("eta_y", "eta_z"):
        rate = document.get(name, 1.0)
        number = isinstance(rate, int | float) and not isinstance(rate, bool)
        if not number or not 0 <= rate <= MOST_RATE:
            raise InputError(
                f"{name}: expected a number from 0 to {MOST_RATE:g}, got {shown(rate)}"
            )
    simulation = Simulation.from_document({**document, "classes": classes_document(classes)})
    _check_size(simulation, classes)
    return simulation


def _fields() -> tuple[str, ...]:
    from attnlab.dynamics.simulation import FIELD_KINDS

    return tuple(FIELD_KINDS)


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


def _check_size(simulation: Simulation, classes: SequenceClasses) -> None:
    engine, heads = simulation.engine, simulation.model.heads
    if simulation.grid.runs != 1:
        raise InputError("seeds, eta_y, eta_z: a page may ask for one run")
    most_steps = MOST_TIME if simulation.clock == "time" else MOST_STEPS
    if simulation.steps > most_steps:
        raise InputError(f"steps: expected at most {most_steps:g}, got {simulation.steps:g}")
    rows = engine.rows_per_step(len(classes))
    values = {
        "heads": heads,
        "hidden": getattr(simulation.model, "hidden", None) or 1,
        "batch_size": rows if simulation.clock == "step" else 1,
        "length": 0 if math.isinf(engine.length) else engine.length,
        "most_steps": getattr(engine, "most_steps", None) or 1,
        "records": _records(simulation),
    }
    for name, value in values.items():
        if value > MOST[name]:
            raise InputError(f"{name}: expected at most {MOST[name]:,}, got {value:,}")
    if values["records"] * classes.num_nonzeros * heads > MOST_RECORDED:
        raise InputError(f"save: the result would be too large for a page; {REMEDY}")
    if simulation.clock == "step":
        outputs = classes.vocab_size if simulation.init == "uniform" else len(classes) + 1
        work = simulation.steps * rows * classes.in_play.size * outputs * heads * values["hidden"]
        if work > MOST_WORK:
            raise InputError(
                f"steps: this run is {work / MOST_WORK:.1f} times what a page may ask for; take "
                "fewer steps, smaller batches or fewer words"
            )


def _records(simulation: Simulation) -> int:
    """How many at most, before they are listed."""
    save = simulation.save
    if save.at is not None:
        return len(save.at)
    if save.every is not None:
        return math.ceil(simulation.steps / save.every) + 1
    return save.geometric or 101

"""What a page opens on: a simulation, classes, or a file of either, as the page's state."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from attnlab.data import SequenceClasses
from attnlab.data.class_files import (
    CLASS_SUFFIXES,
    TABLES,
    classes_document,
    classes_from_document,
)
from attnlab.data.presets import from_preset
from attnlab.dynamics import Simulation
from attnlab.files.documents import check_keys, read_document
from attnlab.files.errors import InputError

NOUN = "sequence classes or of a simulation"
RECORDS = 100  # moments that the page draws


def opening(given: Simulation | SequenceClasses | str | os.PathLike[str]) -> dict[str, Any]:
    """The state of a page that opens on a simulation, on classes, on a preset or on a file."""
    if isinstance(given, Simulation):
        return {"a": _shown(given)}
    if isinstance(given, SequenceClasses):
        return {"a": _run(classes_document(given))}
    text = os.fspath(given)
    if not text.lower().endswith(CLASS_SUFFIXES) and os.sep not in text:
        return {"a": _run(classes_document(from_preset(text)))}
    document = read_document(Path(text), noun=NOUN, advice="use attnlab simulate", others=TABLES)
    try:
        if isinstance(document, dict) and "a" in document:
            return _state(document)
        if isinstance(document, dict) and "vocabulary" not in document:
            return {"a": _shown(Simulation.from_document(document))}
        return {"a": _run(classes_document(classes_from_document(document)))}
    except InputError as error:
        raise InputError(f"{text}: {error}") from error


def _state(document: dict[str, Any]) -> dict[str, Any]:
    """What a page saved because it was too long for a link: its runs and all else that it shows."""
    # these the page looks at itself
    others = ("experiment", "first", "rungs", "sentence", "moment")
    check_keys("", document, ("a", "b", *others), ("a",))
    runs = {name: document[name] for name in ("a", "b") if document.get(name) is not None}
    shown = {name: _shown(Simulation.from_document(of)) for name, of in runs.items()}
    return {**document, **shown}


def _run(classes: Any) -> dict[str, Any]:
    """Classes as a run at rates that show something."""
    return {
        "classes": classes, "engine": {"name": "sampled", "length": 128, "batch_size": 128},
        "optimizer": {"name": "sgd", "momentum": 0.9}, "eta_y": 2.0, "eta_z": 5.0, "steps": 200,
        "init": "zero", "seeds": [0], "save": {"geometric": RECORDS},
    }  # fmt: skip


def _shown(simulation: Simulation) -> dict[str, Any]:
    """A simulation of one run as a document that says all that the page's controls show."""
    if isinstance(simulation.classes, tuple) or simulation.grid.runs != 1:
        raise InputError(
            "simulation: the playground shows one run; give one seed and one rate each"
        )
    document = simulation.to_document()
    optimizer = simulation.moving
    document["classes"] = classes_document(simulation.sets[0])
    document["engine"] = simulation.engine.to_document(defaults=True)
    document["optimizer"] = (
        {"name": "sgd", "momentum": optimizer.momentum}
        if optimizer.name == "sgd" and not optimizer.weight_decay
        else optimizer.to_document()
    )
    document["seeds"] = list(simulation.grid.seeds.tolist())
    document["save"] = document["save"] or {"geometric": RECORDS}
    if document["model"] == {"name": "pairwise"}:
        del document["model"]
    for name in ("independent", "lump", "dtype"):
        del document[name]
    return document

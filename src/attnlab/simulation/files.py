"""Files of runs: what `attnlab simulate RUN.yaml` and the playground open."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from attnlab.files.documents import read_document
from attnlab.files.errors import InputError
from attnlab.simulation.simulation import Simulation
from attnlab.tasks.classes.class_files import CLASS_SUFFIXES, TABLES, classes_from_document
from attnlab.tasks.classes.classes import SequenceClasses
from attnlab.tasks.classes.presets import classes_from

NOUN = "sequence classes or of a run"
ADVICE = "see docs/sequence-classes.md, or make such classes in Python"


def read_given(text: str | os.PathLike[str]) -> Simulation | SequenceClasses:
    """Return the run that a file describes, or the classes of a file or a preset."""
    if not os.fspath(text).lower().endswith(CLASS_SUFFIXES):
        return classes_from(text)
    document = read_document(Path(text), noun=NOUN, advice=ADVICE, others=TABLES)
    try:
        if is_run(document):
            return Simulation.from_document(document)
        return classes_from_document(document, origin=os.fspath(text))
    except InputError as error:
        raise InputError(f"{os.fspath(text)}: {error}") from error


def is_run(document: Any) -> bool:
    """Return True for the document of a run; those of version 0.1 have an engine."""
    return isinstance(document, dict) and ("task" in document or "engine" in document)

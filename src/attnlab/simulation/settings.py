"""Simulations from what a user gives: a task with settings by their flat names, a text, a file."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path as FilePath
from pkgutil import resolve_name
from typing import Any

from attnlab.defaults import LENGTH
from attnlab.files.documents import read_document
from attnlab.files.errors import InputError
from attnlab.files.recipe import as_value
from attnlab.models.sequence import SequenceModel
from attnlab.models.transformer import text_transformer
from attnlab.simulation.fields import Path, Setting, find_setting, with_settings
from attnlab.simulation.learner import Learner
from attnlab.simulation.motion import Batches, Steps
from attnlab.simulation.record import Record
from attnlab.simulation.simulation import BASES, Simulation, refuse_old
from attnlab.tasks.base import Task
from attnlab.tasks.classes.class_files import CLASS_SUFFIXES, TABLES, classes_from_document
from attnlab.tasks.classes.classes import SequenceClasses
from attnlab.tasks.classes.presets import classes_from
from attnlab.tasks.sequences import Classes, Sequences
from attnlab.tasks.text.corpus import Corpus, Source
from attnlab.tasks.text.task import Text

PARTS = ("motion", "gradient", "record", "model")  # values inside a run, apart from its task
NOUN = "sequence classes or of a run"
ADVICE = "see docs/sequence-classes.md, or make such classes in Python"


def as_simulation(given: Simulation | Task | Learner | Classes, **settings: Any) -> Simulation:
    """Return a simulation, or what makes one: its task and any settings, by their flat names.

    With a simulation, the settings given replace its own. One of `every`, `geometric` and `at`
    replaces the others.

    Parameters
    ----------
    given : Simulation, Task, Learner, SequenceClasses, str or sequence of classes
        A simulation, or its task.
    **settings
        Fields of `Simulation`, and fields of the values inside it: length, training_set, steps,
        optimizer, momentum, time, batch_size, every, heads, ...

    Returns
    -------
    Simulation
        The value.

    Examples
    --------
    >>> from attnlab.simulation import as_simulation
    >>> as_simulation("syn-small", eta_y=2.0, length=64, steps=10).task.length
    64
    """
    own = {of.name for of in fields(Simulation)}
    direct = {name: of for name, of in settings.items() if name in own}
    for name in BASES.keys() & direct.keys() - {"task"}:
        if isinstance(direct[name], str):
            direct[name] = as_value(name, direct[name], BASES[name])
    base = given if isinstance(given, Simulation) else None
    if "task" in direct and base is None:
        raise InputError("task: given twice; it is the first argument")
    task = direct.get("task", base.task) if base else given
    of_classes = not isinstance(task, (Task, Learner))
    kind_of_task = Sequences if of_classes else type(task)
    parts = {name: getattr(base, name) for name in PARTS} if base else {}
    values = parts_of(kind_of_task, {**parts, **direct})
    inside: dict[str, dict[Path, Any]] = {}
    for name in (of for of in settings if of not in own):
        home, setting = setting_named(name, kind_of_task, values)
        kind: Any = kind_of_task if home == "task" else type(values[home])
        if setting.kind is not kind:
            if home in inside or home in direct or values[home] not in (None, kind()):
                raise InputError(
                    f"{name}: belongs to {setting.kind.__name__}, and the {home} here is "
                    f"{kind.__name__}; give the {home} itself"
                )
            values[home] = setting.kind()
        inside.setdefault(home, {})[setting.path] = settings[name]
    if "task" in inside:
        values["task"] = Sequences(task) if of_classes else task
        if of_classes and base is None:
            whole = values["motion"].needs_population or values["gradient"].size is None
            length = "inf" if whole and ("training_set",) not in inside["task"] else LENGTH
            inside["task"] = {("length",): length, **inside["task"]}
    made = {home: with_settings(values[home], of) for home, of in inside.items()}
    if base is not None:
        return replace(base, **{**direct, **made})
    settled: dict[str, Any] = {"task": given, **direct, **made}
    return Simulation(**settled)


def parts_of(task: type, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return motion, gradient, record and model of a run on a kind of task, given or default."""
    model = given.get("model")
    if model is None and (default := getattr(task, "default_model", "")):
        model = resolve_name(default)()
    return {
        "motion": given.get("motion") or Steps(),
        "gradient": given.get("gradient") or Batches(),
        "record": given.get("record") or Record(),
        "model": model,
    }


def setting_named(
    name: str, task: type, parts: Mapping[str, Any], also: Sequence[str] = ()
) -> tuple[str, Setting]:
    """Return the setting that a name or a path ("motion.time") means in a run, and its home.

    The home is the part of the run that holds the setting: "run", "task", "model", "motion",
    "gradient" or "record". parts: the run's values by home (`parts_of`). also: other names that an
    error suggests.
    """
    kinds = {home: type(of) for home, of in parts.items() if of is not None}
    # the run last, for the names that an error suggests
    kinds |= {"task": task, "run": Simulation}
    bases = {home: BASES[home] for home in ("model", "motion", "gradient")}
    if isinstance(parts["model"], SequenceModel):
        bases["model"] = SequenceModel
    try:
        return find_setting(name, kinds, bases, also)
    except InputError:
        refuse_old({name: None})
        raise


def text_run(corpus: Corpus | Source | str | Text = "builtin", **settings: Any) -> Simulation:
    """Return a run of a small transformer on a text.

    Parameters
    ----------
    corpus : Corpus, Source, str or Text, optional
        The text, or the task.
    **settings
        Settings by their flat names: layers, heads, dim, mlp, learning_rate, seeds, steps,
        optimizer, batch_size, clip, length, every, validation_tokens, probes, precision, ...

    Returns
    -------
    Simulation
        By default one layer and head of width 200, 1,500 steps of SGD at learning rate 5 on 20
        sequences of 35 tokens, gradients clipped at 0.5, recorded every 50 steps.

    Examples
    --------
    >>> from attnlab.simulation import text_run
    >>> run = text_run("builtin", layers=3, learning_rate=[1.0, 2.0], steps=100)
    >>> run.model.layers, run.motion.steps, run.task.length
    (3, 100, 35)
    """
    default = Simulation(
        corpus if isinstance(corpus, Text) else Text(corpus),
        text_transformer(),
        motion=Steps(1500, clip=0.5),
        gradient=Batches(20),
        learning_rate=5.0,
        record=Record(every=50),
        precision="highest",
    )
    return as_simulation(default, **settings)


def read_given(text: str | os.PathLike[str]) -> Simulation | SequenceClasses:
    """Return the run that a file describes, or the classes of a file or a preset."""
    if not os.fspath(text).lower().endswith(CLASS_SUFFIXES):
        return classes_from(text)
    document = read_document(FilePath(text), noun=NOUN, advice=ADVICE, others=TABLES)
    try:
        if is_run(document):
            return Simulation.from_document(document)
        return classes_from_document(document, origin=os.fspath(text))
    except InputError as error:
        raise InputError(f"{os.fspath(text)}: {error}") from error


def is_run(document: Any) -> bool:
    """Return True for the document of a run; those of version 0.1 have an engine."""
    return isinstance(document, dict) and ("task" in document or "engine" in document)

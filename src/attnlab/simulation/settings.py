"""Simulations from what a user gives: a task with settings by their flat names, a text, a file.

`Simulation` is a value of values: ``Simulation(Sequences("syn-small", length=64), motion=Steps(500,
optimizer=Optimizer("sgd", momentum=0.0)))``. Keyword arguments, command-line options and the axes
of a sweep name the same settings without their homes: length, steps, momentum; or by a path:
optimizer.momentum, model.position.slope. The names are derived from the dataclasses, so that a new
field is written once.
"""

import inspect
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache
from pathlib import Path as FilePath
from pkgutil import resolve_name
from typing import Any, get_args, get_type_hints

from attnlab.defaults import LENGTH
from attnlab.files.documents import did_you_mean, read_document, within
from attnlab.files.errors import InputError
from attnlab.files.recipe import Named, as_value, default_of
from attnlab.models.sequence import SequenceModel
from attnlab.models.transformer import text_transformer
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
Path = tuple[str, ...]  # of fields, from a value to a setting inside it


@dataclass(frozen=True)
class Setting:
    """A setting inside a value.

    name: its flat name. kind: the class of the value. path: fields from that value to the setting.
    hint: its type. default: its default, or `dataclasses.MISSING`. help: a sentence.
    """

    name: str
    kind: type
    path: Path
    hint: Any
    default: Any
    help: str


@cache
def settings_of(kind: type) -> dict[str, Setting]:
    """Return the settings of a dataclass by flat name, with those of plain dataclasses inside."""
    return {of.name: of for of in reversed(list(_settings(kind, kind, ())))}


def _settings(kind: type, owner: type, path: Path) -> Iterator[Setting]:
    hints, helps = get_type_hints(owner), parameter_help(owner)
    inside = []
    for item in (of for of in fields(owner) if of.init):
        hint = item.metadata.get("kind", hints[item.name])
        name = item.metadata.get("flat", item.name)
        here = (*path, item.name)
        yield Setting(name, kind, here, hint, default_of(item), helps.get(item.name, ""))
        if isinstance(hint, type) and is_dataclass(hint) and not issubclass(hint, Named):
            inside.append((hint, here))
    for hint, here in inside:  # last: a name means the outermost setting that has it
        yield from (of for of in _settings(kind, hint, here) if of.name != "name")


def parameter_help(owner: type) -> dict[str, str]:
    """Return the first sentence about each parameter in a numpydoc docstring."""
    section = inspect.cleandoc(owner.__doc__ or "").partition("Parameters\n----------\n")[2]
    section = re.split(r"\n\n\w+\n-+\n", section)[0]
    found = {}
    for block in re.split(r"\n(?=\S)", section):
        head, _, body = block.partition("\n")
        words = re.sub(r"\s+", " ", inspect.cleandoc(body)).replace("`", "")
        first = re.split(r"(?<=\.) (?=[A-Z])", words)[0]
        for name in head.partition(" : ")[0].split(","):
            found[name.strip()] = first
    return found


def find_setting(
    name: str, kinds: Mapping[str, type], bases: Mapping[str, type[Named]], also: Sequence[str] = ()
) -> tuple[str, Setting]:
    """Return the home of a flat name, or of a path, and its setting.

    kinds: the class of the value in each home. bases: bases of classes that may take their place;
    where no value has such a setting, it is that of another kind, if of one alone. Only kinds from
    the package of their base count, so that a paper that is loaded changes no meaning. also: other
    names that an error suggests.
    """
    first, *rest = name.split(".")
    if first in kinds and rest:  # a path from the home on
        kinds, bases = ({first: of[first]} if first in of else {} for of in (kinds, bases))
        first, *rest = rest
    known = [*also, *(key for kind in kinds.values() for key in settings_of(kind))]
    home, setting = _find_first(name, first, kinds, bases, known)
    for word in rest:
        setting = _find_inside(name, setting, word)
    return home, setting


def _find_first(
    name: str,
    word: str,
    kinds: Mapping[str, type],
    bases: Mapping[str, type[Named]],
    known: Sequence[str],
) -> tuple[str, Setting]:
    for home, kind in kinds.items():
        if found := _setting(kind, word):
            return home, found
    others = [
        (home, found)
        for home, base in bases.items()
        for kind in base.kinds().values()
        if _package(kind) == _package(base) and (found := _setting(kind, word))
    ]
    if len(others) == 1:
        return others[0]
    if others:
        named = " and ".join(sorted(of.kind.__name__ for _, of in others))
        raise InputError(f"{name}: {named} have it; give the {others[0][0]} itself")
    raise InputError(f"{within('', name)}: unknown setting; {did_you_mean(word, known)}")


def _find_inside(name: str, outer: Setting, word: str) -> Setting:
    """Return a setting of a value that is itself a setting."""
    hints = [of for of in (outer.hint, *get_args(outer.hint)) if isinstance(of, type)]
    named = [kind for of in hints if issubclass(of, Named) for kind in of.kinds().values()]
    options = [of for of in (*hints, *named) if is_dataclass(of)]
    for kind in options:
        if word != "name" and (inner := _setting(kind, word)):
            path = (*outer.path, *inner.path)
            return replace(inner, name=name, kind=outer.kind, path=path)
    known = [key for kind in options for key in settings_of(kind)]
    raise InputError(f"{within('', name)}: unknown setting; {did_you_mean(word, known)}")


def _setting(kind: type, word: str) -> Setting | None:
    """Return the setting of a dataclass with this flat name, or its field of this name."""
    of_kind = settings_of(kind)
    return of_kind.get(word) or next((of for of in of_kind.values() if of.path == (word,)), None)


def _package(kind: type) -> str:
    return kind.__module__.rpartition(".")[0]


def with_settings(value: Any, settings: Mapping[Path, Any]) -> Any:
    """Return a dataclass with some settings inside it replaced, by their paths."""
    own = {path[0]: of for path, of in settings.items() if len(path) == 1}
    known = [of.name for of in fields(value)] if is_dataclass(value) else []
    for name in own:
        if name not in known:
            raise InputError(f"{name}: {type(value).__name__} has no such setting")
    for item in (of for of in fields(value) if of.name in own and own[of.name] is not None):
        # at=(0, 5) takes the place of an every=10 that the value had
        own = dict.fromkeys(item.metadata.get("instead_of", ())) | own
    # Own settings first: in optimizer="adam", beta_1=0.5 the first makes the value of the second.
    value = replace(value, **own)
    inside: dict[str, Any] = {}
    for name in {path[0] for path in settings if len(path) > 1}:
        inner = {p[1:]: of for p, of in settings.items() if p[0] == name and len(p) > 1}
        if isinstance(getattr(value, name), Mapping):
            setting = next(iter(inner))[-1]
            raise InputError(f"{setting}: each group has its own {name}; give it in `{name}`")
        inside[name] = with_settings(getattr(value, name), inner)
    return replace(value, **inside)


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

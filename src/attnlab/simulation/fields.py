"""Flat names of all settings of a run: of the value itself and of the values inside it.

`Simulation` is a value of values: ``Simulation(Sequences("syn-small", length=64), motion=Steps(500,
optimizer=Optimizer("sgd", momentum=0.0)))``. Keyword arguments, command-line options and the axes
of a sweep name the same settings without their homes: length, steps, momentum; or by a path:
optimizer.momentum, model.position.slope. This module derives the names from the dataclasses, so
that a new field is written once.
"""

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache
from typing import Any, get_args, get_type_hints

from attnlab.files.documents import did_you_mean, within
from attnlab.files.errors import InputError
from attnlab.files.recipe import Named, default_of

Path = tuple[str, ...]


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

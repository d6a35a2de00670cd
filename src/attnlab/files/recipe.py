"""Recipes: YAML files that become frozen dataclasses, strictly.

A recipe's shape is a dataclass, and its types are the whole schema: whole and other numbers, text,
true and false, `Literal` words, lists (`Sequence[X]`, `tuple[X, ...]`, or a fixed `tuple[X, Y]`,
all of which become tuples), mappings (`dict[str, X]`), what may be absent (`X | None`) and other
dataclasses. A dataclass may have a file of its own, whose name is given instead, relative to
the file that names it. The keys of an `inline` field are among those of its dataclass. The
metadata of a field may have a `kind` in place of its type, or functions that `read` and `write` it.

An unknown key is refused with the nearest known one, and whatever is wrong is named by its path:
`mine.yaml: task.lenght: unknown key; did you mean 'length'?`
"""

from __future__ import annotations

import math
import os
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, Self, TypeVar, Union, get_args, get_origin

from attnlab.files.documents import SUFFIXES, check_keys, did_you_mean, read_document, shown, within
from attnlab.files.errors import InputError, check_name

Kind = TypeVar("Kind")

NOUN, ADVICE = "recipes", "see the examples under recipes/"
SCALARS = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
NOUNS = {**SCALARS, list: "a list", dict: "a mapping"}
MOST_NESTED = 8  # lists in lists of numbers


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Lab note of a recipe: what it makes, what it should show, and what it costs.

    figure: the name of the figure that the recipe makes. about: the claim, in one sentence.
    hardware, minutes: what it was timed on, and its time there from a cold start.
    regression_bounds: for each number that comes out, the lowest and the highest value, set around
    what a first run found; a number outside means that something is different here.
    """

    figure: str | None = None
    about: str | None = None
    hardware: str | None = None
    minutes: float | None = None
    regression_bounds: dict[str, tuple[float, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.minutes is not None and self.minutes <= 0:
            raise InputError(f"minutes: expected a positive number, got {self.minutes}")
        for name, (low, high) in self.regression_bounds.items():
            if low > high:
                where = within("regression_bounds", name)
                raise InputError(f"{where}: expected [lowest, highest], got [{low}, {high}]")


def inline(kinds: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> dict[str, Any]:
    """Metadata of a field that is a dict of several keys of the file, each with its own kind.

    kinds: those keys with their kinds, given what stands in the file.
    """
    return {"inline": kinds}


class Numbers:
    """The kind of an array: nested lists of numbers."""


class Named:
    """A base class whose subclasses, all dataclasses, are written by name in documents.

    `Steps(steps=64)`, a `Motion`, is written ``{name: steps, steps: 64}``. A subclass needs
    no registration: to be defined is enough, and it is known by its class's name without the
    base's (an `AlibiPosition` is the `Position` called alibi).
    """

    @classmethod
    def kinds(cls, wanted: str = "") -> dict[str, type[Self]]:
        """Return the subclasses of this base by name.

        wanted: import no more than it takes to know this one, and refuse it where two modules have
        a class of this name: which of them is meant must not depend on what is imported.
        """
        found: dict[str, type[Self]] = {cls.called(): cls} if is_dataclass(cls) else {}
        for kind in cls.__subclasses__():
            for name, of in kind.kinds(wanted).items():
                other = found.get(name, of)
                if name == wanted and other.__module__ != of.__module__:
                    raise InputError(
                        f"name: {wanted!r} is both {other.__module__}.{other.__qualname__} and "
                        f"{of.__module__}.{of.__qualname__}; rename the class that is yours"
                    )
                found[name] = of
        return found

    @classmethod
    def called(cls) -> str:
        """Return the name in documents."""
        base = next(kind for kind in reversed(cls.__mro__) if Named in kind.__bases__)
        return cls.__name__.removesuffix(base.__name__).lower()

    def to_document(self, *, defaults: bool = False) -> dict[str, Any]:
        """Return the name and the fields that differ from their defaults, or all fields."""
        return {"name": self.called(), **own_fields(self, defaults=defaults)}


def plain(value: Any, *, defaults: bool = False) -> Any:
    """Return a value as a file has it; of a dataclass, fields that differ from defaults, or all."""
    if isinstance(value, Named) or hasattr(type(value), "from_document"):
        return value.to_document(defaults=defaults)
    if isinstance(value, tuple | list):
        return [plain(item, defaults=defaults) for item in value]
    if isinstance(value, dict):
        return {key: plain(item, defaults=defaults) for key, item in value.items()}
    return own_fields(value, defaults=defaults) if is_dataclass(value) else value


def own_fields(value: Any, *, defaults: bool) -> dict[str, Any]:
    """Return the fields of a dataclass that differ from their defaults, or all, as plain values."""
    written = [of for of in fields(value) if of.init and of.metadata.get("written", True)]
    given = {of.name: _as_annotated(of, getattr(value, of.name)) for of in written}
    if not defaults:
        usual = {of.name: default_of(of) for of in written}
        given = {name: of for name, of in given.items() if of != usual[name]}
    writers = {of.name: of.metadata["write"] for of in written if "write" in of.metadata}
    return {
        name: writers[name](of) if name in writers else plain(of, defaults=defaults)
        for name, of in given.items()
    }


def default_of(item: Field[Any]) -> Any:
    """Return the default of a field of a dataclass; `MISSING` where it has none."""
    return item.default if item.default_factory is MISSING else item.default_factory()


def _as_annotated(of: Field[Any], value: Any) -> Any:
    """Return 1 as 1.0 where the field is a float, so that equal values have one digest."""
    return float(value) if type(value) is int and "float" in str(of.type) else value


def read_recipe(path: str | os.PathLike[str], kind: type[Kind]) -> Kind:
    """Read the dataclass `kind` from a .yaml, .yml or .json file."""
    return _read(Path(path), kind, inside=())


def as_value(where: str, value: Any, kind: Any) -> Any:
    """Return a single value as a recipe has it; `where` is its name in error messages."""
    return _Reader(Path(), ()).value(where, value, kind)


def read_dataclass(where: str, value: Any, kind: type[Kind]) -> Kind:
    """Return the dataclass `kind` with the fields that a document gives."""
    made: Kind = _Reader(Path(), ()).dataclass(where, value, kind)
    return made


def _read(path: Path, kind: type[Kind], inside: tuple[Path, ...]) -> Kind:
    document = read_document(path, noun=NOUN, advice=ADVICE)
    real = path.resolve()
    if real in inside:
        raise InputError(f"{path}: a recipe cannot be part of itself")
    try:
        reader = _Reader(path.parent, (*inside, real))
        made: Kind = reader.dataclass("", document, kind)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    return made


class _Reader:
    """Converts values to their annotated types; `inside` are the files being read."""

    def __init__(self, folder: Path, inside: tuple[Path, ...]) -> None:
        self.folder, self.inside = folder, inside

    def dataclass(self, where: str, value: Any, kind: Any) -> Any:
        if isinstance(value, str) and value.lower().endswith(SUFFIXES):
            return _read(self.folder / value, kind, self.inside)
        inlined = next((field for field in fields(kind) if "inline" in field.metadata), None)
        known = {f.name: f for f in fields(kind) if f.init and f is not inlined}
        hints = {name: _hints(kind)[name] for name in known}
        if inlined is not None and isinstance(value, dict):
            hints = {**inlined.metadata["inline"](value), **hints}
        check_keys(where, value, hints, _needed(kind))
        hints |= {name: f.metadata["kind"] for name, f in known.items() if "kind" in f.metadata}
        readers = {name: f.metadata["read"] for name, f in known.items() if "read" in f.metadata}
        given = {
            key: readers[key](within(where, key), item)
            if key in readers
            else self.value(within(where, key), item, hints[key])
            for key, item in value.items()
        }
        if inlined is not None:
            inlined_keys = {key: given.pop(key) for key in list(given) if key not in known}
            given[inlined.name] = inlined_keys
        try:
            return kind(**given)
        except ValueError as error:  # what the dataclass itself checks, by the name of its field
            raise InputError(f"{where}.{error}" if where else str(error)) from error

    def named(self, where: str, value: Any, base: type[Named]) -> Any:
        """Return one of the base's kinds, from `{name: ..., its fields}` or the name alone."""
        item = {"name": value} if isinstance(value, str) else value
        if not isinstance(item, dict) or "name" not in item:
            noun = base.__name__.lower()
            raise InputError(
                f"{where}: expected the name of a {noun}, or a mapping with name and its fields, "
                f"got {shown(value)}"
            )
        kinds = base.kinds(str(item["name"]))
        name = self.value(within(where, "name"), item["name"], Literal[*kinds])
        given = {key: of for key, of in item.items() if key != "name"}
        if given.keys() - {field.name for field in fields(kinds[name])}:  # type: ignore[arg-type]
            kinds = base.kinds()  # for the error: whose field is it?
        homes = {kind: [field.name for field in fields(kinds[kind])] for kind in kinds}  # type: ignore[arg-type]
        for key in given:
            right = [repr(kind) for kind, known in homes.items() if key in known]
            if right and key not in homes[name]:
                raise InputError(
                    f"{within(where, key)}: belongs to the {base.__name__.lower()} "
                    f"{' or '.join(right)}, not to {name!r}"
                )
        missing = [key for key in _needed(kinds[name]) if key not in given]
        if missing and set(given) <= set(homes[name]):
            raise InputError(
                f"{within(where, missing[0])}: missing; the {base.__name__.lower()} {name!r} needs "
                "it"
            )
        return self.dataclass(where, given, kinds[name])

    def value(self, where: str, value: Any, kind: Any) -> Any:
        origin, arguments = get_origin(kind), get_args(kind)
        if origin in (Union, types.UnionType):
            return self.one_of(where, value, arguments)
        if origin is Literal:
            if value not in arguments:
                hint = did_you_mean(value, map(str, arguments))
                raise InputError(f"{where}: {shown(value)} is not among the choices; {hint}")
            return value
        if origin is tuple:
            return self.sequence(where, value, arguments)
        if origin is Sequence:
            return self.sequence(where, value, (*arguments, ...))
        if origin is dict:
            if not isinstance(value, dict):
                raise InputError(f"{where}: expected a mapping, got {shown(value)}")
            return {
                self.value(place, key, arguments[0]): self.value(place, item, arguments[1])
                for key, item in value.items()
                for place in [within(where, key)]
            }
        if kind is Any:
            return value
        if kind is Numbers:
            return self.numbers(where, value)
        if hasattr(kind, "from_document"):
            return kind.from_document(where, value)
        if isinstance(kind, type) and issubclass(kind, Named):
            return self.named(where, value, kind)
        if is_dataclass(kind):
            return self.dataclass(where, value, kind)
        return _scalar(where, value, kind)

    def sequence(self, where: str, value: Any, kinds: tuple[Any, ...]) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise InputError(f"{where}: expected a list, got {shown(value)}")
        if kinds[-1] is Ellipsis:
            kinds = (kinds[0],) * len(value)
        elif len(value) != len(kinds):
            raise InputError(f"{where}: expected {len(kinds)} values, got {len(value)}")
        pairs = zip(value, kinds, strict=True)
        return tuple(
            self.value(f"{where}[{i}]", item, kind) for i, (item, kind) in enumerate(pairs)
        )

    def numbers(self, where: str, value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise InputError(f"{where}: expected lists of numbers, got {shown(value)}")
        if where.count("[") > MOST_NESTED:
            raise InputError(f"{where}: nested too deeply; expected lists of numbers")
        read = [
            self.numbers(f"{where}[{i}]", item)
            if isinstance(item, list)
            else _scalar(f"{where}[{i}]", item, float)
            for i, item in enumerate(value)
        ]
        if len({len(item) if isinstance(item, tuple) else -1 for item in read}) > 1:
            raise InputError(f"{where}: expected lists of one length")
        return tuple(read)

    def one_of(self, where: str, value: Any, kinds: tuple[Any, ...]) -> Any:
        if value is None and types.NoneType in kinds:
            return None
        kinds = tuple(kind for kind in kinds if kind is not types.NoneType)
        # the error for a number is about numbers, and does not ask for text
        alike = [kind for kind in kinds if _origin(kind) is type(value)]
        problems = []
        for kind in alike or kinds:
            try:
                return self.value(where, value, kind)
            except InputError as error:
                problems.append(error)
        nouns = [NOUNS.get(_origin(k)) for k in kinds if k is not int or float not in kinds]
        if len(problems) == 1 or None in nouns:
            raise problems[-1]
        raise InputError(f"{where}: expected {' or '.join(nouns)}, got {shown(value)}")  # type: ignore[arg-type]


def _needed(kind: Any) -> list[str]:
    """Return the fields of a dataclass that have no default."""
    of_init = (item for item in fields(kind) if item.init)
    return [
        item.name for item in of_init if item.default is MISSING and item.default_factory is MISSING
    ]


@cache  # a sweep makes the same dataclasses many times
def _hints(kind: Any) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _origin(kind: Any) -> Any:
    """Return the type that a value of this kind has in a document: a list for a tuple."""
    origin = get_origin(kind) or kind
    if origin is Literal:
        return type(get_args(kind)[0])
    return list if origin in (tuple, Sequence, Numbers) else origin


def _scalar(where: str, value: Any, kind: Any) -> Any:
    wrong = InputError(f"{where}: expected {SCALARS[kind]}, got {shown(value)}")
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        try:
            value = float(value)
        except OverflowError:
            raise wrong from None
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise wrong
    if kind is float and not math.isfinite(value):
        raise InputError(f"{where}: expected a finite number, got {value}")
    if kind is int and not -(2**63) <= value < 2**63:
        raise InputError(f"{where}: expected a whole number of 64 bits, got {shown(value)}")
    if kind is str:
        check_name(where, value)
    return value

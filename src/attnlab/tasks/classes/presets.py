"""Sequence classes by name: ``syn-medium:num_last=3``, or the path of a file."""

import inspect
import os
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, get_args, get_type_hints

from attnlab.files.documents import did_you_mean, shown
from attnlab.files.errors import InputError, refuse_if
from attnlab.shelf import offered
from attnlab.tasks.classes import constructions
from attnlab.tasks.classes.class_files import CLASS_SUFFIXES, read_classes
from attnlab.tasks.classes.classes import SequenceClasses

# Constructions that no paper brings; papers offer their own.
CONSTRUCTIONS: Mapping[str, Callable[..., SequenceClasses]] = {
    "family": constructions.family,
    "single-common": constructions.single_common,
    "symmetric": constructions.symmetric,
    "local-common": constructions.local_common,
    "zipf": constructions.zipf,
    "random": constructions.random,
}


def presets() -> tuple[str, ...]:
    """Return the names of all presets: those of the papers on the shelf, then attnlab's own."""
    return (*offered("presets"), *CONSTRUCTIONS)


def _construction(name: str) -> Callable[..., SequenceClasses] | None:
    """Return the function that makes a preset; None where there is none of that name."""
    if name in CONSTRUCTIONS:
        return CONSTRUCTIONS[name]
    reference = offered("presets").get(name)
    return None if reference is None else reference.load()


def from_preset(text: str) -> SequenceClasses:
    """Make the classes that ``name`` or ``name:key=value,key=value`` stands for.

    The keys are the parameters of the construction of that name, with hyphens for underscores in
    the name. The `origin` of classes made by a construction is such a text.

    Parameters
    ----------
    text : str
        A preset's name, perhaps with parameters.

    Returns
    -------
    SequenceClasses
        The classes.

    Examples
    --------
    >>> from attnlab.tasks.classes import from_preset
    >>> len(from_preset("syn-medium:num_last=5"))
    10
    """
    name, colon, rest = text.partition(":")
    name = name.strip()
    construction = _construction(name)
    if construction is None:
        raise InputError(f"classes: {name!r} is not a preset; {did_you_mean(name, presets())}")
    given = _parse(name, rest, construction) if colon else {}
    missing = [
        key
        for key, parameter in _parameters(construction).items()
        if parameter.default is parameter.empty and key not in given
    ]
    if missing:
        example = ",".join(f"{key}=..." for key in missing)
        raise InputError(f"{name}: {' and '.join(missing)} must be given, as {name}:{example}")
    try:
        return construction(**given)
    except InputError as error:
        raise InputError(f"{name}: {error}") from error


def is_preset(text: str) -> bool:
    """Return True for the name of a preset, perhaps with parameters."""
    return text.partition(":")[0].strip() in presets()


def parameters_of(text: str) -> list[str]:
    """Return the parameters of the preset that a text names; none where it names another thing."""
    construction = _construction(text.partition(":")[0].strip())
    return [] if construction is None else list(_parameters(construction))


def classes_from(text: str | os.PathLike[str]) -> SequenceClasses:
    """Make classes from a preset, or read them from a .yaml, .yml or .json file.

    Parameters
    ----------
    text : str or path
        A preset's name, perhaps with parameters, or the path of a file.

    Returns
    -------
    SequenceClasses
        The classes.

    Examples
    --------
    >>> import attnlab
    >>> attnlab.classes_from("recipes/classes-two-words.yaml").names[:3]
    ('the', 'in', 'of')
    """
    text = os.fspath(text)
    if text.lower().endswith(CLASS_SUFFIXES) or os.sep in text or os.path.exists(text):
        return read_classes(text)
    try:
        return from_preset(text)
    except InputError as error:
        if text.partition(":")[0].strip() in presets():
            raise
        raise InputError(f"{error}; a file must end in {', '.join(CLASS_SUFFIXES)}") from None


@cache  # a sweep makes classes by the thousand
def _parameters(construction: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(construction).parameters


@cache
def _types(construction: Callable[..., Any]) -> dict[str, Any]:
    return get_type_hints(construction)


def _parse(
    name: str, text: str, construction: Callable[..., SequenceClasses]
) -> dict[str, int | float]:
    types = _types(construction)
    known = list(_parameters(construction))
    given: dict[str, int | float] = {}
    for part in text.split(","):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        refuse_if(not equals, name, "key=value", part.strip())
        if not known:
            raise InputError(f"{name}: takes no parameters, got {key!r}")
        if key not in known:
            raise InputError(f"{name}: {key!r} is not a parameter; {did_you_mean(key, known)}")
        if key in given:
            raise InputError(f"{name}: {key} is given twice")
        given[key] = _number(f"{name}: {key}", value, types[key])
    return given


def _number(where: str, text: str, annotation: Any) -> int | float:
    """Read a number of the annotated type: int, float, or one of them or None."""
    kind = next((kind for kind in get_args(annotation) if kind is not type(None)), annotation)
    try:
        return int(text) if kind is int else float(text)
    except ValueError:
        noun = "a whole number" if kind is int else "a number"
        raise InputError(f"{where}: expected {noun}, got {shown(text)}") from None

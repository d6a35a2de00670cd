"""Options that several verbs take: what a simulation is, as typer asks for it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attnlab import defaults
from attnlab.cli.arguments import MODELS, PRESETS, completing, numbers
from attnlab.files.errors import InputError

if TYPE_CHECKING:
    from attnlab.data import SequenceClasses
    from attnlab.dynamics import Engine, Model

ClassesName = Annotated[
    str,
    typer.Argument(
        help="A preset or a file of sequence classes.", autocompletion=completing(*PRESETS)
    ),
]
EngineName = Annotated[
    str,
    typer.Option(
        help="sampled, limit (T to infinity) or flow.",
        autocompletion=completing("sampled", "limit", "flow"),
    ),
]
EtaY = Annotated[str, typer.Option(help="Rate of the decoder Y, or several: 1,10.")]
EtaZ = Annotated[str, typer.Option(help="Rate of the attention Z, or several.")]
Steps = Annotated[str, typer.Option(help="Optimiser steps; flow time for the flow.")]
Length = Annotated[int, typer.Option(help="T, query included (sampled).")]
BatchSize = Annotated[
    int | None,
    typer.Option(help=f"Default {defaults.BATCH_SIZE} if sampled; the expected gradient if limit."),
]
ModelName = Annotated[
    str | None,
    typer.Option(
        "--model",
        help=f"What is trained, with its fields: extended:heads=4 ({', '.join(MODELS)}).",
        autocompletion=completing(*MODELS),
    ),
]
Prior = Annotated[str | None, typer.Option(help="Probability of each class: 0.7,0.3.")]
Momentum = Annotated[
    float | None,
    typer.Option(help=f"Of sgd; {defaults.MOMENTUM:g} unless the engine is the flow."),
]
Init = Annotated[str, typer.Option(help="zero, or uniform in +-1/sqrt(M).")]
At = Annotated[str | None, typer.Option(help="Record at these steps: 0,2,4,100.")]
Out = Annotated[Path | None, typer.Option(help="Write the result (netCDF).")]
ShowClasses = Annotated[
    str | None, typer.Option(help="Draw these classes, by number or next word: 0,won.")
]
ShowTokens = Annotated[
    str | None, typer.Option(help="Draw these tokens, by number or name: 3,goal.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


def drawn(
    show_classes: str | None, show_tokens: str | None, *pictures: Path | None
) -> dict[str, list[int | str]]:
    """Which classes and tokens a drawing is asked to show, as `attnlab.plots` takes them."""
    given = {"classes": show_classes, "tokens": show_tokens}
    asked = {name: text for name, text in given.items() if text is not None}
    if asked and not any(pictures):
        raise InputError(f"show-{next(iter(asked))}: of a drawing; give --plot with it")
    return {
        name: [int(word) if word.isdecimal() else word for word in map(str.strip, text.split(","))]
        for name, text in asked.items()
    }


def classes_of(name: str, prior: str | None) -> SequenceClasses:
    """The classes of a preset or a file, with another prior where one is given."""
    from attnlab.data import classes_from

    known = classes_from(name)
    return known if prior is None else known.with_prior(numbers("prior", prior))


def engine_of(
    name: str, length: int, batch_size: int | None, sequences: int | None = None
) -> Engine:
    """An engine by its name."""
    from attnlab.dynamics import Flow, Limit, Sampled

    if name == "sampled":
        return Sampled(length, defaults.BATCH_SIZE if batch_size is None else batch_size, sequences)
    if sequences is not None:
        raise InputError("sequences: a training set of sequences needs the engine sampled")
    if name == "limit":
        return Limit(batch_size)
    if name == "flow":
        return Flow()
    raise InputError(f"engine: expected sampled, limit or flow, got {name!r}")


def model_of(text: str | None) -> Model | None:
    """Return a model by its name and fields, as in ``extended:heads=4,residual=true``."""
    if text is None:
        return None
    from attnlab.dynamics import Model
    from attnlab.files.documents import parse_document
    from attnlab.files.recipe import as_value

    name, colon, rest = text.partition(":")
    given: dict[str, object] = {"name": name.strip()}
    for part in rest.split(",") if colon else ():
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals:
            raise InputError(f"model: expected field=value, got {part.strip()!r}")
        if key in given:
            raise InputError(f"model.{key}: given twice")
        given[key] = parse_document(value, suffix=".yaml", advice="give a number or a word")
    found: Model = as_value("model", given, Model)
    return found


def rate_of(name: str, text: str) -> float | list[float]:
    """A rate, or several with commas between them."""
    values = numbers(name, text)
    return values if len(values) > 1 else values[0]

"""Figures of "Scan and Snap": each has its data, what they say about the claim, and a picture.

The sentences of all judgements stand in `words.yaml`; the modules compute what is filled in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlab.files.documents import read_document

if TYPE_CHECKING:
    from attnlab.experiments import Experiment, Judgement, Standing

WORDS = Path(__file__).with_name("words.yaml")


def figure(
    name: str,
    title: str,
    recipe: type[Any],
    data: Callable[..., Any],
    judge: Callable[..., Any],
    draw: Callable[..., Any],
    **more: Any,
) -> Experiment[Any]:
    """Make a figure of its parts; `more` are further fields of `Experiment`."""
    from attnlab.experiments import Experiment  # imports matplotlib, which `published` does without

    parts: dict[str, Any] = {"recipe": recipe, "data": data, "judge": judge, "draw": draw}
    return Experiment(name=name, title=title, kind="figure", **parts, **more)


@cache
def _words() -> dict[str, dict[str, str]]:
    return dict(read_document(WORDS, noun="sentences", advice="it comes with attnlab"))


def sentence(name: str, part: str, values: Mapping[str, Any]) -> str:
    """Return a sentence of a figure with its values filled in."""
    return _words()[name][part].format_map(values)


def judgement(
    name: str, standing: Standing, numbers: Mapping[str, float], **values: Any
) -> Judgement:
    """Make a judgement in the words of a figure, which take its numbers and other values.

    A sentence may have those before it as a field; one that is among the values is kept as it is.
    """
    from attnlab.experiments import Judgement

    fields: dict[str, Any] = {**numbers, **values}
    for part in ("headline", "summary", "alt"):
        if part not in fields:
            fields[part] = sentence(name, part, fields)
    return Judgement(standing, fields["headline"], fields["summary"], fields["alt"], numbers)

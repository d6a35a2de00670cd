"""Figures of "Scan and Snap": each has its data, what they say about the claim, and a picture."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attnlab.experiments import Experiment


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

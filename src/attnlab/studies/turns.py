"""Turns: pieces of a study that are run one after the other, each with its share of progress."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from attnlab.sweep import Progress

Item = TypeVar("Item")


def in_turn(
    items: Sequence[Item], progress: Progress
) -> Iterator[tuple[Item, Callable[[float], None]]]:
    """Each item, with a function to tell how much of it is done; items count alike."""
    for i, item in enumerate(items):

        def report(fraction: float, i: int = i) -> None:
            if progress:
                progress((i + fraction) / len(items))

        yield item, report
        report(1.0)

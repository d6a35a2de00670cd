"""The deterministic hierarchy: every child of an active latent is on.

The generator with which JoMA looks for latents in hidden units, as far as we know it: labels, two
layers of latents, then tokens. The numbers of latents, (N_0, N_1), are (10, 20) or (20, 30): N_0
counts the lowest, whose children are the tokens. Each node has 2 to 3 children; how they are drawn
is our reading, and so are the numbers of labels and tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from attnlab.data.classes import SequenceClasses
from attnlab.data.constructions.arguments import (
    how_many,
    origin_text,
    require_entries,
    whole_number,
)
from attnlab.files.errors import InputError

if TYPE_CHECKING:
    from jaxtyping import Bool


@dataclass(frozen=True)
class LatentLayers:
    """Layers of nodes, from labels down to tokens, each node with the same number of children.

    Parameters
    ----------
    widths : tuple
        Nodes of each layer, labels first and tokens last.
    children : int
        Of each node that is not a token, drawn without repetition from the layer below, with
        `seed`. Nodes may share children.
    seed : int, optional
        Of the draw.
    """

    widths: tuple[int, ...]
    children: int
    seed: int = 0

    def __post_init__(self) -> None:
        if len(self.widths) < 2:
            raise InputError("widths: expected labels and tokens at least")
        whole_number("children", self.children, 1)
        whole_number("seed", self.seed, 0)
        for width in self.widths[1:]:
            if self.children > whole_number("widths", width, 1):
                raise InputError(
                    f"children: {self.children} children in a layer of {width}; take at most "
                    f"{min(self.widths[1:])}"
                )

    def links(self) -> tuple[Bool[Any, "parents children"], ...]:
        """Which node is whose child, layer by layer."""
        rng = np.random.default_rng(self.seed)
        found = []
        for above, below in pairwise(self.widths):
            link = np.zeros((above, below), dtype=bool)
            for parent in link:
                parent[rng.choice(below, self.children, replace=False)] = True
            found.append(link)
        return tuple(found)

    def active(self) -> tuple[Bool[Any, "labels nodes"], ...]:
        """Which nodes are on under each label: latents layer by layer, then tokens."""
        on = np.eye(self.widths[0], dtype=bool)
        found = []
        for link in self.links():
            on = (on.astype(np.int64) @ link.astype(np.int64)) > 0
            found.append(on)
        return tuple(found)


def hierarchy(
    classes: int = 20,
    upper: int = 20,
    lower: int = 10,
    tokens: int = 100,
    children: int = 2,
    seed: int = 0,
) -> SequenceClasses:
    """Return the deterministic hierarchy of JoMA, as we know it: one class for each label.

    A label turns on `children` upper latents, each of these `children` lower ones, and each of
    those `children` tokens, which are all equally frequent. One query for all classes. What is on
    under each label: ``LatentLayers((classes, upper, lower, tokens), children, seed).active()``.

    Tokens: contextual (those that no label turns on are never drawn); the query; the next tokens.

    Parameters
    ----------
    classes : int, optional
        Labels.
    upper : int, optional
        Upper latents.
    lower : int, optional
        Lower latents.
    tokens : int, optional
        Contextual tokens.
    children : int, optional
        Of each node.
    seed : int, optional
        Of the draw.

    Returns
    -------
    SequenceClasses
        The classes.

    Examples
    --------
    >>> from attnlab.papers.joma.classes import hierarchy
    >>> len(hierarchy(classes=5))
    5
    """
    classes = how_many("classes", classes, 2)
    widths = (
        classes, how_many("upper", upper, 1), how_many("lower", lower, 1),
        how_many("tokens", tokens, 1),
    )  # fmt: skip
    for above, below in pairwise(widths):
        require_entries("classes, upper, lower, tokens", above * below)
    on = LatentLayers(widths, children, seed).active()[-1]
    probs = np.zeros((classes, tokens + 1 + classes))
    probs[:, :tokens] = on / on.sum(axis=1, keepdims=True)
    return SequenceClasses(
        probs,
        query=np.full(classes, tokens),
        next_token=tokens + 1 + np.arange(classes),
        origin=origin_text(
            "hierarchy", classes=classes, upper=upper, lower=lower, tokens=tokens,
            children=children, seed=seed,
        ),
    )  # fmt: skip

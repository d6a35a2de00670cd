"""Sequence classes of JoMA: a toy, latent trees and layers of latents.

In the deterministic hierarchy every child of an active latent is on. It is the generator with which
JoMA searches hidden units for latents, as far as we know it: labels, two layers of latents, then
tokens. The numbers of latents, (N_0, N_1), are (10, 20) or (20, 30): N_0 counts the lowest, whose
children are the tokens. Each node has 2 to 3 children; how they are drawn is our reading, and so
are the numbers of labels and tokens.

HBLT(rho) has hidden binary latents on a tree, whose leaves are the tokens of a sequence (JoMA,
claim 5, as we know it). The root has one of D labels. Below it every node is on or off: a child of
the root is on with a probability that depends on the label, and any other node has its parent's
value with probability (1 + rho)/2. Leaf l is on when token l appears.

With spins s = 1 - 2 y (an edge multiplies the mean spin by rho), given the label n,

    E[s_l] = rho^(L-1) mu_n,c       and       E[s_l s_m] = rho^(2H)

for leaves of depth L under the root's child c, whose mean spin is mu_n,c, if their lowest common
ancestor is H levels up and not the root; under different children they are independent. What
LatentTree computes follows from P(y_l = y_m = 1) = (1 - E[s_l] - E[s_m] + E[s_l s_m])/4.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attnlab.files.errors import InputError, refuse_if
from attnlab.tasks.classes.classes import SequenceClasses
from attnlab.tasks.classes.constructions import (
    how_many,
    number_of_queries,
    preset,
    require_entries,
    whole_number,
)

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int


# 10 tokens whose frequency has a bump that wanders with the class, and 10 without an order.
BUMPED, UNORDERED = 10, 10
WIDTH, MOST = 30.0, 0.5


@preset(classes=2)
def joma_toy(classes: int = 20, queries: int = 1, seed: int = 0) -> SequenceClasses:
    """The toy of JoMA: 20 tokens that all classes draw, each with its own frequencies.

    Unnormalised, token l < 10 of class k weighs exp(-(l - 10 k/K)^2/30), so that neighbouring
    classes are alike; tokens 10 to 19 weigh U(0, 0.5), drawn with `seed`. No token is distinct:
    classes differ in how often tokens occur. Class k has query k * queries // classes
    (the toy has one query; more are ours).

    Tokens: 20 contextual ones; the queries; the next tokens.

    Parameters
    ----------
    classes : int, optional
        How many.
    queries : int, optional
        How many.
    seed : int, optional
        Of the draw.

    Returns
    -------
    SequenceClasses
        The classes.

    Examples
    --------
    >>> from attnlab.papers.joma.classes import joma_toy
    >>> joma_toy().in_play.size
    20
    """
    tokens = BUMPED + UNORDERED
    require_entries("classes", classes * tokens)
    k, l = np.arange(classes)[:, None], np.arange(BUMPED)  # noqa: E741 - the letter of the papers
    bumps = np.exp(-((l - BUMPED * k / classes) ** 2) / WIDTH)
    rest = np.random.default_rng(seed).uniform(0.0, MOST, (classes, UNORDERED))
    rows = np.concatenate([bumps, rest], axis=1)
    probs = np.zeros((classes, tokens + queries + classes))
    probs[:, :tokens] = rows / rows.sum(axis=1, keepdims=True)
    return SequenceClasses(
        probs,
        query=tokens + np.arange(classes) * queries // classes,
        next_token=tokens + queries + np.arange(classes),
    )


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
        """Return who is whose child, layer by layer."""
        rng = np.random.default_rng(self.seed)
        found = []
        for above, below in pairwise(self.widths):
            link = np.zeros((above, below), dtype=bool)
            for parent in link:
                parent[rng.choice(below, self.children, replace=False)] = True
            found.append(link)
        return tuple(found)

    def active(self) -> tuple[Bool[Any, "labels nodes"], ...]:
        """Return the nodes that are on under each label: latents layer by layer, then tokens."""
        on = np.eye(self.widths[0], dtype=bool)
        found = []
        for link in self.links():
            on = (on.astype(np.int64) @ link.astype(np.int64)) > 0
            found.append(on)
        return tuple(found)


@preset(classes=2, upper=1, lower=1, tokens=1)
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
    widths = (classes, upper, lower, tokens)
    for above, below in pairwise(widths):
        require_entries("classes, upper, lower, tokens", above * below)
    on = LatentLayers(widths, children, seed).active()[-1]
    probs = np.zeros((classes, tokens + 1 + classes))
    probs[:, :tokens] = on / on.sum(axis=1, keepdims=True)
    return SequenceClasses(
        probs, query=np.full(classes, tokens), next_token=tokens + 1 + np.arange(classes)
    )


MOST_NODES = 20  # below the root, of a tree that is enumerated: a million settings of them


class Drawn(NamedTuple):
    """Sequences drawn from a tree: the label of each, and its nodes, level by level.

    levels: from the root's children to the leaves, each (sequence, node of that level).
    """

    labels: Int[Any, " sequences"]
    levels: tuple[Bool[Any, "sequences nodes"], ...]

    @property
    def leaves(self) -> Bool[Any, "sequences leaves"]:
        """The tokens that appear."""
        return self.levels[-1]


@dataclass(frozen=True)
class LatentTree:
    """A tree HBLT(rho), of any depth and branching; all labels are equally frequent.

    Parameters
    ----------
    branching : tuple
        How many children a node has, level by level, the root's first.
    rho : float
        The correlation along an edge.
    on : tuple
        P(root's child is on | label), a row for each label.
    """

    branching: tuple[int, ...]
    rho: float
    on: tuple[tuple[float, ...], ...]

    def __post_init__(self) -> None:
        for level, count in enumerate(self.branching):
            whole_number(f"branching[{level}]", count, 1)
        if not self.branching:
            raise InputError("branching: expected a number of children for at least one level")
        refuse_if(not -1 <= self.rho <= 1, "rho", "a number from -1 to 1", self.rho)
        chances = np.asarray(self.on, dtype=np.float64)
        if chances.ndim != 2 or chances.shape[1] != self.branching[0]:
            raise InputError(
                f"on: expected a row of {self.branching[0]} probabilities for each label, got "
                f"shape {chances.shape}"
            )
        if not np.all((chances >= 0) & (chances <= 1)):
            raise InputError("on: expected probabilities from 0 to 1")

    @property
    def depth(self) -> int:
        """L, the number of edges from the root to a leaf."""
        return len(self.branching)

    @property
    def labels(self) -> int:
        """D, the number of values of the root."""
        return len(self.on)

    @property
    def widths(self) -> tuple[int, ...]:
        """The number of nodes of each level, the root's children first."""
        return tuple(accumulate(self.branching, int.__mul__))

    @property
    def leaves(self) -> int:
        """The number of leaves, which are the tokens."""
        return self.widths[-1]

    def heights(self) -> Int[Any, "leaves leaves"]:
        """H: how many levels up the lowest common ancestor of two leaves is; L is the root."""
        leaf = np.arange(self.leaves)
        found = np.zeros((self.leaves, self.leaves), dtype=np.int64)
        for width in self.widths:
            ancestor = leaf // (self.leaves // width)
            found += ancestor[:, None] != ancestor
        return found

    def mean_spins(self) -> Float[Any, "labels leaves"]:
        """E[s_l | label], from +1 (never on) to -1 (always on)."""
        of_children = 1.0 - 2.0 * np.asarray(self.on)
        below = self.leaves // self.branching[0]
        return self.rho ** (self.depth - 1) * np.repeat(of_children, below, axis=1)

    def co_occurrence(self) -> Float[Any, "labels leaves leaves"]:
        """P(y_l = y_m = 1 | label) by the formula; P(y_l = 1 | label) on the diagonal."""
        mean, H = self.mean_spins(), self.heights()
        both = mean[:, :, None] * mean[:, None, :]
        both = np.where(self.depth > H, self.rho ** (2.0 * H), both)
        return np.asarray((1.0 - mean[:, :, None] - mean[:, None, :] + both) / 4.0)

    def enumerate(self) -> Float[Any, "labels leaves leaves"]:
        """The same by adding up all settings of all nodes, for trees of at most 20 nodes."""
        nodes = sum(self.widths)
        if nodes > MOST_NODES:
            raise InputError(
                f"branching: a tree of {nodes} nodes has 2^{nodes} settings; enumerate at most "
                f"{MOST_NODES} nodes"
            )
        settings = np.arange(2**nodes)[:, None] >> np.arange(nodes) & 1 == 1
        levels = np.split(settings, np.cumsum(self.widths)[:-1], axis=1)
        inside = np.ones(len(settings))
        for count, above, below in zip(self.branching[1:], levels, levels[1:], strict=False):
            kept = np.repeat(above, count, axis=1) == below
            inside *= np.where(kept, (1 + self.rho) / 2, (1 - self.rho) / 2).prod(1)
        leaf = levels[-1].astype(np.float64)
        found = np.empty((self.labels, self.leaves, self.leaves))
        for label, on in enumerate(np.asarray(self.on)):
            weight = inside * np.where(levels[0], on, 1 - on).prod(1)
            found[label] = (leaf * weight[:, None]).T @ leaf
        return found

    def sample(self, sequences: int, seed: int = 0) -> Drawn:
        """Draw labels and nodes of `sequences` sequences; the same seed gives the same ones."""
        rng = np.random.default_rng(whole_number("seed", seed, 0))
        count = how_many("sequences", sequences, 1)
        labels = rng.integers(self.labels, size=count)
        level = rng.random((count, self.branching[0])) < np.asarray(self.on)[labels]
        levels = [level]
        for children in self.branching[1:]:
            parents = np.repeat(level, children, axis=1)
            level = parents ^ (rng.random(parents.shape) >= (1 + self.rho) / 2)
            levels.append(level)
        return Drawn(labels, tuple(levels))


def own_children(labels: int, branching: int, strength: float) -> NDArray[np.float64]:
    """P(root's child c is on | label n), which is likelier where c mod D is n: (label, child)."""
    own = np.arange(branching) % labels == np.arange(labels)[:, None]
    return np.where(own, (1 + strength) / 2, (1 - strength) / 2)


@preset(labels=2, depth=1, branching=2, rho=(0, 1), strength=(0, 1), queries=1)
def hblt(
    labels: int = 2,
    depth: int = 3,
    branching: int = 2,
    rho: float = 0.8,
    strength: float = 0.8,
    queries: int = 2,
) -> SequenceClasses:
    """HBLT(rho) as sequence classes (JoMA, claim 5): tokens are leaves, next tokens root labels.

    Query q stands for leaf q being on. Its class for label n draws leaf l, another than q, in
    proportion to P(y_l = 1 | y_q = 1, n), so that siblings of q are the most frequent; its prior is
    in proportion to P(y_q = 1 | n). All labels and queries are equally frequent otherwise. Child c
    of the root belongs to label c mod D: it is on with probability (1 + strength)/2 under that
    label, and (1 - strength)/2 under the others.

    Tokens: the leaves, from left to right (with one query, leaf 0 is never drawn); the queries; the
    labels. Several queries share a next token, so that m is no function of n. See `LatentTree` for
    other trees, for co-occurrence and for sequences with their latents.

    Parameters
    ----------
    labels : int, optional
        D, values of the root.
    depth : int, optional
        Levels below the root.
    branching : int, optional
        Children of each node.
    rho : float, optional
        Correlation along an edge.
    strength : float, optional
        How much a label says about its children of the root.
    queries : int, optional
        How many leaves are queries.

    Returns
    -------
    SequenceClasses
        The classes.

    Examples
    --------
    >>> from attnlab.papers.joma.classes import hblt
    >>> hblt(depth=3).in_play.size  # leaves
    8
    """
    if labels > branching:
        raise InputError(
            f"labels: {labels} labels for {branching} children of the root; take at most "
            f"{branching}, so that each has one of its own"
        )
    require_entries("depth, branching", branching ** min(depth, 64) * labels)
    leaves = branching**depth
    number_of_queries(queries, leaves, "leaves")
    require_entries("queries", queries * labels * leaves)
    on = own_children(labels, branching, strength)
    tree = LatentTree((branching,) * depth, rho, tuple(map(tuple, on.tolist())))
    both = tree.co_occurrence()[:, :queries]  # (label, query, leaf)
    once = both[:, np.arange(queries), np.arange(queries)]
    both[:, np.arange(queries), np.arange(queries)] = 0.0  # the query's own leaf is no context
    rows = both.transpose(1, 0, 2).reshape(queries * labels, leaves)
    probs = np.zeros((queries * labels, leaves + queries + labels))
    probs[:, :leaves] = rows / rows.sum(axis=1, keepdims=True)
    return SequenceClasses(
        probs,
        query=leaves + np.repeat(np.arange(queries), labels),
        next_token=leaves + queries + np.tile(np.arange(labels), queries),
        prior=once.T.ravel() / once.sum(),
    )

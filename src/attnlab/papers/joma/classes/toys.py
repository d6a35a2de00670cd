"""The toy classes of JoMA, on which its invariants are looked at."""

from __future__ import annotations

import numpy as np

from attnlab.data.classes import SequenceClasses
from attnlab.data.constructions.arguments import (
    how_many,
    number_of_queries,
    origin_text,
    require_entries,
    whole_number,
)

# 10 tokens whose frequency has a bump that wanders with the class, and 10 without an order.
BUMPED, UNORDERED = 10, 10
WIDTH, MOST = 30.0, 0.5


def joma_toy(classes: int = 20, queries: int = 1, seed: int = 0) -> SequenceClasses:
    """The toy of JoMA: 20 tokens that all classes draw, each with its own frequencies.

    Unnormalised, token l < 10 of class k weighs exp(-(l - 10 k/K)^2/30), so that neighbouring
    classes are alike; tokens 10 to 19 weigh U(0, 0.5), drawn with `seed`. No token is distinct:
    what tells classes apart is how often tokens occur. Class k has query k * queries // classes
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
    classes = how_many("classes", classes, 2)
    queries = number_of_queries(queries, classes)
    seed = whole_number("seed", seed, 0)
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
        origin=origin_text("joma-toy", classes=classes, queries=queries, seed=seed),
    )

"""Bigram-Backcopy: a Markov chain in which some tokens, the triggers, copy the token before them.

    x_{t+1} = x_{t-1} if x_t is a trigger, else x_{t+1} ~ P(x_t, .)

Between two ordinary draws nothing is random, so that the tokens from which something is drawn are
a Markov chain of their own: from a, a token that is not a trigger, it goes to c with probability
P(a, c), and a trigger leads back to a. No two triggers are ever adjacent, unless the first token is
one. The formula is ours.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from attnlab.files.errors import InputError
from attnlab.formulas.chains import stationary
from attnlab.formulas.checks import FloatArray, IntArray

ROUNDING = 1e-6  # the most by which the sum of a row may differ from 1


def token_frequencies(P: ArrayLike, triggers: Sequence[int] | IntArray) -> FloatArray:
    """Return the frequency of each token in long sequences of Bigram-Backcopy, (V,); ours.

    With nu the stationary distribution of the tokens from which something is drawn, and tau_a the
    probability that a trigger is drawn from a, each draw fills 1 + tau_a positions: token c that is
    not a trigger has the frequency nu_c / Z, trigger u has sum_a nu_a P(a, u) / Z, and
    Z = 1 + sum_a nu_a tau_a.

    Parameters
    ----------
    P : array
        Transition probabilities, (V, V).
    triggers : sequence of int
        The tokens that copy.

    Examples
    --------
    >>> token_frequencies([[0.0, 1.0], [0.5, 0.5]], triggers=[1])
    array([0.5, 0.5])
    """
    P = checked_rows(P)
    others = np.setdiff1d(np.arange(len(P)), triggers)
    if not len(others):
        raise InputError("triggers: every token is one; leave at least one that is not")
    Q = P[np.ix_(others, others)]
    nu = stationary(Q + np.diag(1 - Q.sum(-1)))  # a trigger leads back
    found = nu @ P[others]  # where a draw leads to
    found[others] = nu
    return np.asarray(found / found.sum())


def checked_rows(P: ArrayLike) -> FloatArray:
    """Return P as an array, refused where its rows are not probabilities."""
    P = np.asarray(P, dtype=np.float64)
    square = P.ndim == 2 and P.shape[0] == P.shape[1]
    if not square or not (P >= 0).all() or not np.allclose(P.sum(-1), 1, rtol=0, atol=ROUNDING):
        raise InputError(f"P: expected a square matrix with rows of probabilities, got {P.shape}")
    return P

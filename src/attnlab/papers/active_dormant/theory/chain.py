"""Bigram-Backcopy: a Markov chain in which some tokens, the triggers, copy the token before them.

    x_{t+1} = x_{t-1} if x_t is a trigger, else x_{t+1} ~ P(x_t, .)

Between two ordinary draws nothing is random, so that the tokens from which something is drawn are
a Markov chain of their own: from a, a token that is not a trigger, it goes to c with probability
P(a, c), and a trigger leads back to a. No two triggers are ever adjacent, unless the first token is
one. The formulas are ours.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy
from numpy.typing import ArrayLike

from attnlab.files.errors import InputError
from attnlab.formulas.checks import FloatArray, IntArray

ROUNDING = 1e-6  # the most by which the sum of a row may differ from 1


def stationary_distribution(P: ArrayLike) -> FloatArray:
    """Return the stationary distribution of a chain that has only one, (V,).

    Examples
    --------
    >>> stationary_distribution([[0.5, 0.5], [0.25, 0.75]]).round(4)
    array([0.3333, 0.6667])
    """
    P = checked_rows(P)
    V = len(P)
    system = np.vstack([P.T - np.eye(V), np.ones(V)])
    found, _, rank, _ = np.linalg.lstsq(system, np.append(np.zeros(V), 1.0))
    if rank < V:
        raise InputError("P: the chain has several stationary distributions; connect its tokens")
    return np.asarray(found.clip(0))


def most_frequent(P: ArrayLike, count: int) -> IntArray:
    """Return the `count` most frequent tokens of the chain P, the triggers as we know it."""
    return np.asarray(np.argsort(-stationary_distribution(P), kind="stable")[:count])


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
    P, others, nu = _draws(P, triggers)
    found = nu @ P[others]  # where a draw leads to
    found[others] = nu  # and a trigger back
    return np.asarray(found / found.sum())


def trigger_share(P: ArrayLike, triggers: Sequence[int] | IntArray) -> float:
    """Return the share of positions that hold a trigger; below 1/2, or 1/2 at most; ours."""
    return float(token_frequencies(P, triggers)[np.asarray(triggers, int)].sum())


def bigram_risk(P: ArrayLike, triggers: Sequence[int] | IntArray) -> float:
    """Return the mean entropy of P(v, .) at positions without a trigger, in nats; ours.

    It is the least cross entropy there. At triggers it is 0.
    """
    P, others, nu = _draws(P, triggers)
    return float(nu @ scipy.special.entr(P[others]).sum(-1))


def checked_rows(P: ArrayLike) -> FloatArray:
    """Return P as an array, refused where its rows are not probabilities."""
    P = np.asarray(P, dtype=np.float64)
    square = P.ndim == 2 and P.shape[0] == P.shape[1]
    if not square or not (P >= 0).all() or not np.allclose(P.sum(-1), 1, rtol=0, atol=ROUNDING):
        raise InputError(f"P: expected a square matrix with rows of probabilities, got {P.shape}")
    return P


def _draws(
    P: ArrayLike, triggers: Sequence[int] | IntArray
) -> tuple[FloatArray, IntArray, FloatArray]:
    """Return P, the tokens from which something is drawn, and their stationary distribution."""
    P = checked_rows(P)
    others = np.setdiff1d(np.arange(len(P)), triggers)
    if not len(others):
        raise InputError("triggers: every token is one; leave at least one that is not")
    Q = P[np.ix_(others, others)]
    Q = Q + np.diag(1 - Q.sum(-1))  # a trigger leads back
    return P, others, stationary_distribution(Q)

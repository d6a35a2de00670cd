"""Priors of Markov chains, sequences, and the rules that predict from counts: numpy alone."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import digamma

from attnlab.formulas.chains import stationary

Floats = NDArray[np.float64]
Prior = Callable[[np.random.Generator, int, int], Floats]


def dirichlet(rng: np.random.Generator, chains: int, k: int) -> Floats:
    """Draw transition matrices (chains, k, k) with independent uniform rows.

    Examples
    --------
    >>> P = dirichlet(np.random.default_rng(0), 5, 3)
    >>> bool(np.allclose(P.sum(-1), 1))
    True
    """
    return rng.dirichlet(np.ones(k), (chains, k))


def doubly(rng: np.random.Generator, chains: int, k: int) -> Floats:
    """Draw uniform doubly stochastic matrices: fill a block, complete it, keep what is positive.

    Examples
    --------
    >>> P = doubly(np.random.default_rng(0), 5, 3)
    >>> bool(np.allclose(P.sum(1), 1)), bool(P.min() > 0)
    (True, True)
    """
    found = np.empty((0, k, k))
    while len(found) < chains:
        P = np.zeros((16 * chains, k, k))
        P[:, :-1, :-1] = rng.random((len(P), k - 1, k - 1))
        P[:, :-1, -1] = 1.0 - P[:, :-1, :-1].sum(-1)
        P[:, -1] = 1.0 - P[:, :-1].sum(1)
        found = np.concatenate([found, P[(P > 0).all((1, 2))]])
    return found[:chains]


def unigram(rng: np.random.Generator, chains: int, k: int) -> Floats:
    """Draw transition matrices whose rows are equal.

    Examples
    --------
    >>> P = unigram(np.random.default_rng(0), 5, 3)
    >>> bool((P[:, 0] == P[:, 2]).all())
    True
    """
    return np.broadcast_to(rng.dirichlet(np.ones(k), (chains, 1)), (chains, k, k))


PRIORS: dict[str, Prior] = {"dirichlet": dirichlet, "doubly": doubly, "unigram": unigram}


def mixture(
    rng: np.random.Generator, chains: int, k: int, *, doubly: float = 0.0, unigram: float = 0.0
) -> Floats:
    """Draw transition matrices of which shares are doubly stochastic and without memory.

    Examples
    --------
    >>> P = mixture(np.random.default_rng(0), 4, 2, doubly=0.5)
    >>> np.allclose(P[:2].sum(1), 1), np.allclose(P[2:].sum(1), 1)
    (True, False)
    """
    shares = {"doubly": round(chains * doubly), "unigram": round(chains * unigram)}
    shares["dirichlet"] = chains - sum(shares.values())
    return np.concatenate([PRIORS[name](rng, n, k) for name, n in shares.items() if n])


def sample(rng: np.random.Generator, P: Floats, T: int) -> NDArray[np.int64]:
    """Draw one sequence of T symbols of each chain (chains, k, k), from its stationary law.

    Examples
    --------
    >>> sample(np.random.default_rng(0), np.eye(2)[None, ::-1], 4)[0, 1:3].sum()
    np.int64(1)
    """
    each = np.arange(len(P))
    bounds, first = np.cumsum(P, -1)[..., :-1], np.cumsum(stationary(P), -1)[:, :-1]
    x = np.empty((len(P), T), np.int64)
    x[:, 0] = (rng.random((len(P), 1)) > first).sum(-1)
    for t in range(1, T):
        x[:, t] = (rng.random((len(P), 1)) > bounds[each, x[:, t - 1]]).sum(-1)
    return x


def rules(x: NDArray[np.int64], k: int) -> dict[str, Floats]:
    """Return the add-one rules at every position, (chains, T, k): uniform, unigram, bigram.

    Unigram (n_b + 1) / (t + k), with n_b the count of b among the t symbols; bigram
    (n_ab + 1) / (n_a + k), with n_ab the count of ab, a the last symbol and n_a the sum over b.

    Examples
    --------
    >>> found = rules(np.array([[0, 1, 0]]), 2)
    >>> found["unigram"][0, -1].tolist(), found["bigram"][0, -1].round(3).tolist()
    ([0.6, 0.4], [0.333, 0.667])
    """
    e = np.eye(k)[x]
    pairs = np.zeros((*x.shape, k, k))
    pairs[:, 1:] = np.cumsum(e[:, :-1, :, None] * e[:, 1:, None], axis=1)
    bigram = np.take_along_axis(pairs, x[..., None, None], 2)[..., 0, :]
    counts = {"uniform": np.zeros_like(e), "unigram": np.cumsum(e, 1), "bigram": bigram}
    return {name: (n + 1.0) / (n.sum(-1, keepdims=True) + k) for name, n in counts.items()}


def last_rules(x: NDArray[np.int64], k: int) -> dict[str, Floats]:
    """Return the add-one rules at the last position, (chains, k).

    Examples
    --------
    >>> last_rules(np.array([[0, 1, 0]]), 2)["unigram"].tolist()
    [[0.6, 0.4]]
    """
    return {name: of[:, -1] for name, of in rules(x, k).items()}


def divergence(p: ArrayLike, log_q: ArrayLike) -> Floats:
    """Return KL(p || q) along the last axis, from the logarithm of q; 0 ln 0 is 0.

    Examples
    --------
    >>> divergence([0.5, 0.5], np.log([0.5, 0.5])).item()
    0.0
    """
    p = np.asarray(p, dtype=np.float64)
    return np.asarray((p * (np.log(np.where(p > 0, p, 1.0)) - log_q)).sum(-1))


def uniform_divergence(k: int) -> float:
    """Return the mean of KL(row || uniform) for a uniform row: ln k - psi(k + 1) + psi(2).

    Examples
    --------
    >>> round(uniform_divergence(2), 4), round(np.log(2) - 0.5, 4)
    (0.1931, np.float64(0.1931))
    """
    return float(np.log(k) - digamma(k + 1) + digamma(2))

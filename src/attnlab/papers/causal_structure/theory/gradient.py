"""The reduced model on given sequences: its first layer's exact gradient, and what it ends at.

z_i = sum_{j<=i} softmax(A1_i)_j e_{s_j}; f = sum_i softmax_i(beta e_{s_T}^T z_i) e_{s_i}; the
loss is -E sum_b pi(b|s_T) ln(f_b + eps).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax

from attnlab.formulas.chains import stationary

from .kernel import ROOT, Floats, sample_chains, softmax_rows, through_softmax

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Sample:
    """Sequences of one graph: tokens (count, T), the last one the test token, and pi(.|s_T)."""

    tokens: Ints
    target: Floats

    @property
    def alike(self) -> Floats:
        """1{s_j = s_T}, (count, T)."""
        return (self.tokens == self.tokens[:, -1:]).astype(np.float64)


def sample_sequences(
    parents: ArrayLike,
    symbols: int,
    alpha: float,
    count: int,
    *,
    stickiness: float = 0.0,
    seed: int = 0,
) -> Sample:
    """Return `count` sequences along a graph, each of a chain of its own."""
    chains = sample_chains(symbols, alpha, count, stickiness=stickiness, seed=seed)
    rng = np.random.default_rng((seed, 1))
    mu, every = stationary(chains), np.arange(count)
    tokens = np.zeros((count, len(np.asarray(parents)) + 1), dtype=np.int64)
    for i, parent in enumerate(np.asarray(parents)):
        law = mu if parent == ROOT else chains[every, tokens[:, parent]]
        tokens[:, i] = (rng.random((count, 1)) > law.cumsum(-1)[:, :-1]).sum(-1)
    tokens[:, -1] = rng.integers(0, symbols, count)
    return Sample(tokens, chains[every, tokens[:, -1]])


def second_weights(of: Sample, weights: ArrayLike, beta0: float) -> Floats:
    """Return a, the second layer's attention at the last position, (count, T)."""
    return np.asarray(softmax(beta0 * of.alike @ np.asarray(weights).T, axis=-1))


def outputs(of: Sample, a: ArrayLike) -> Floats:
    """Return f = sum_i a_i e_{s_i}, (count, S)."""
    one_hot = np.eye(of.target.shape[1])[of.tokens]
    return np.einsum("ni,nis->ns", np.asarray(a), one_hot)


def softmax_gradient(
    of: Sample, weights: ArrayLike, *, beta0: float = 1.0, eps: float = 0.0
) -> Floats:
    """Return x = -dL/dS at the weights S of layer 1.

    x_ij = beta0 E[a_i (u_i - sum_k a_k u_k) 1{s_j = s_T}], u_i = pi(s_i|s_T) / (f_{s_i} + eps).
    Exact at any S, for the mean over the sequences given.
    """
    a = second_weights(of, weights, beta0)
    f = outputs(of, a) + eps
    ratio = np.divide(of.target, f, out=np.zeros_like(f), where=f > 0)  # s_i is in the context
    u = np.take_along_axis(ratio, of.tokens, -1)
    pull = a * (u - (a * u).sum(-1, keepdims=True))
    return beta0 / len(a) * np.tril(pull.T @ of.alike)


def first_gradient(of: Sample, A1: ArrayLike, *, beta0: float = 1.0, eps: float = 0.0) -> Floats:
    """Return -dL/dA1 at any A1, with A2 = beta0 I."""
    weights = softmax_rows(A1)
    return through_softmax(softmax_gradient(of, weights, beta0=beta0, eps=eps), weights)


def descend(
    of: Sample,
    A1: ArrayLike,
    steps: Sequence[int],
    *,
    rate: float,
    beta0: float = 1.0,
    eps: float = 0.05,
) -> Floats:
    """Return A1 after each number of steps of gradient descent, (steps, T, T)."""
    path = [np.array(A1, dtype=np.float64)]
    for _ in range(max(steps)):
        path.append(path[-1] + rate * first_gradient(of, path[-1], beta0=beta0, eps=eps))
    return np.stack(path)[list(steps)]


def ideal_outputs(of: Sample, parents: ArrayLike) -> Floats:
    """Return f at the ideal end: A1 one-hot at parents and even at roots, A2 = beta I, beta -> inf.

    The empirical law of the children of s_T's symbol; position 0, which can read only itself,
    counts as its own child, and so does the test token where nothing else matches better.
    """
    above = np.append(np.asarray(parents), ROOT)
    rows = softmax_rows(np.zeros((above.size, above.size)))
    children = np.flatnonzero(above != ROOT)
    rows[children] = np.eye(above.size)[above[children]]
    scores = of.alike @ rows.T
    best = scores >= scores.max(-1, keepdims=True) - 1e-12
    return outputs(of, best / best.sum(-1, keepdims=True))


def count_predictor(
    of: Sample, parents: ArrayLike, alpha: float, *, released: bool = False
) -> Floats:
    """Return (n_b + alpha) / (n + S alpha), n_b = #{i not a root: s_p(i) = s_T, s_i = b}.

    It is called Bayes, and is not quite: roots and stationarity say a little about pi, too.
    `released` counts as the released code does, with roots as children of the last context token.
    """
    above = np.asarray(parents)
    counted = np.ones(above.shape) if released else (above != ROOT).astype(np.float64)
    reads = np.where(above == ROOT, above.size - 1, above)
    chosen = of.alike[:, reads] * counted
    S = of.target.shape[1]
    n = np.einsum("ni,nis->ns", chosen, np.eye(S)[of.tokens[:, :-1]])
    return (n + alpha) / (n.sum(-1, keepdims=True) + S * alpha)

"""The minimal model in numpy: its logits, gradient, mean descent, and the end of its training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax

from .chains import Floats

Symbols = NDArray[np.int64]


class Gradient(NamedTuple):
    """Loss of a batch and its gradient by W and v."""

    loss: float
    second: Floats
    first: Floats


def lag_weights(v: Floats) -> Floats:
    """Return the weights of layer 1, (position, position): softmax(v_{s-r}) over r <= s.

    Examples
    --------
    >>> lag_weights(np.zeros(2)).tolist()
    [[1.0, 0.0], [0.5, 0.5]]
    """
    lag = np.arange(len(v))[:, None] - np.arange(len(v))
    return np.asarray(softmax(np.where(lag >= 0, v[np.maximum(lag, 0)], -np.inf), axis=1))


def logits(x: Symbols, W: Floats, v: Floats) -> Floats:
    """Return the logits (chains, T, k) of sequences x (chains, T).

    Examples
    --------
    >>> logits(np.array([[0, 1]]), np.ones((2, 2)), np.zeros(2)).tolist()  # c times counts
    [[[1.0, 0.0], [1.0, 1.0]]]
    """
    return _forward(x, W, lag_weights(v))[2]


def gradient(x: Symbols, y: Symbols, W: Floats, v: Floats, *, linear: bool = False) -> Gradient:
    """Return the mean cross entropy over all positions and its gradient, without autodiff.

    linear: layer 1 without softmax, z_s = sum_r v_{s-r} x_r.

    Examples
    --------
    >>> x = np.array([[0, 1, 1]])
    >>> gradient(x[:, :-1], x[:, 1:], np.full((2, 2), 0.3), np.zeros(2)).first.tolist()
    [0.0, 0.0]
    """
    k, T = len(W), len(v)
    weights = np.tril(v[np.abs(np.arange(T)[:, None] - np.arange(T))]) if linear else lag_weights(v)
    e, seen, outputs = _forward(x, W, weights)
    logs = log_softmax(outputs, axis=-1)
    target = np.eye(k)[y]
    error = (np.exp(logs) - target) / x.size
    d_second = np.einsum("nta,ntb->ab", e, np.einsum("ntby,nty->ntb", seen, error))
    pull = W[x][..., :, None] * error[..., None, :]  # n t b y
    later = np.cumsum(pull[:, ::-1], axis=1)[:, ::-1]
    d_z = np.take_along_axis(later, x[..., None, None], -1)[..., 0]  # n s b
    d_weights = np.tensordot(d_z, e, axes=([0, 2], [0, 2]))  # s r
    if not linear:
        d_weights = weights * (d_weights - (weights * d_weights).sum(1, keepdims=True))
    d_first = np.array([np.trace(d_weights, -d) for d in range(T)])
    return Gradient(float(-(logs * target).sum(-1).mean()), d_second, d_first)


def descend(
    x: Symbols, y: Symbols, W: Floats, v: Floats, steps: Sequence[int], rates: tuple[float, float]
) -> tuple[Floats, Floats]:
    """Return W (steps, k, k) and v (steps, T) by gradient descent on the mean over these chains.

    Priors do not tell symbols apart, so the mean over all chains leaves W with two numbers, its
    diagonal and the rest; the gradient over these chains is averaged to that. rates: of W and v.

    Examples
    --------
    >>> x = np.array([[0, 1, 1]])
    >>> W, v = descend(x[:, 1:], x[:, :-1], np.zeros((2, 2)), np.zeros(2), [0, 1], (0.1, 1.0))
    >>> bool(W[1, 0, 0] == W[1, 1, 1]), v[1].tolist()
    (True, [0.0, 0.0])
    """
    k, kept = len(W), {}
    for step in range(int(max(steps)) + 1):
        if step in steps:
            kept[step] = W, v
        if step < max(steps):
            found = gradient(x, y, W, v)
            diagonal = np.trace(found.second) / k
            off = (found.second.sum() / k - diagonal) / (k - 1)
            W = W - rates[0] * (off + (diagonal - off) * np.eye(k))
            v = v - rates[1] * found.first
    return tuple(np.array(of) for of in zip(*(kept[int(t)] for t in steps), strict=True))  # type: ignore[return-value]


def end_weight(x: Symbols, y: Symbols, k: int) -> float:
    """Return the w with the least loss at W = w I and lag 1 alone: logits are w times counts.

    Examples
    --------
    >>> x = np.tile([0, 1], (1, 8))
    >>> end_weight(x[:, :-1], x[:, 1:], 2) > 1  # certain: the more the better
    True
    """
    counts = logits(x, np.eye(k), lag_one(x.shape[1]))
    target = np.eye(k)[y]
    found = minimize_scalar(
        lambda w: -(log_softmax(w * counts, axis=-1) * target).sum(-1).mean(), bounds=(0.0, 50.0)
    )
    return float(found.x)


def lag_one(T: int, strength: float = 500.0) -> Floats:
    """Return a v whose softmax has all of its weight on lag 1; position 1 sees itself alone.

    Examples
    --------
    >>> lag_weights(lag_one(3)).tolist()
    [[1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    """
    return strength * (np.arange(T) == 1)


def _forward(x: Symbols, W: Floats, weights: Floats) -> tuple[Floats, Floats, Floats]:
    e = np.eye(len(W))[x]
    z = weights @ e
    seen = np.cumsum(z[..., :, None] * e[..., None, :], axis=1)  # n t b y
    return e, seen, np.einsum("ntb,ntby->nty", W[x], seen)

"""Focus and dilution: attention, embedding and decoder trained together on a sticky Markov chain.

Tokens follow P = lambda I + (1 - lambda) 1 pi^T; the next token is predicted from the last one, the
query q, over an infinite sequence whose tokens have frequencies pi. With the embedding W0 (d x m),
W_Q, W_K (m x m) and the decoder W1 (m x d),

    Phi = W0 W_Q W_K^T W0^T,     b_qk ~ pi_k exp(Phi_qk),     logits of q: b_q^T W0 W1,

and the loss is cross entropy, -sum_q pi_q sum_y P_qy log softmax(b_q^T W0 W1)_y. All weights start
small. The chain and the order of the stages (I condensation, II focus on the frequent token, III
dilution, IV again) are as we know them; every formula here is derived here ("ours").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import ArrayLike

from attnlab.files.errors import InputError, require_whole
from attnlab.formulas import solve
from attnlab.formulas.checks import FloatArray, at_least, between


def transition_matrix(pi: ArrayLike, stickiness: float) -> FloatArray:
    r"""Return :math:`P=\lambda I+(1-\lambda)\mathbf 1\pi^\top`, which keeps the frequencies pi.

    >>> transition_matrix([0.75, 0.25], 0.5)
    array([[0.875, 0.125],
           [0.375, 0.625]])
    """
    pi = _frequencies(pi)
    lam = float(between("stickiness", stickiness, 0.0, 1.0))
    return lam * np.eye(pi.size) + (1.0 - lam) * pi


def group_loss(pi: ArrayLike, stickiness: float, groups: Sequence[int]) -> float:
    r"""Return the least loss of a model that cannot tell tokens of one group apart as queries.

    :math:`-\sum_q\pi_q\sum_yP_{qy}\ln\bar P_{qy}`, with :math:`\bar P_q` the mean of the group's
    rows by :math:`\pi`. One group for all gives :math:`H(\pi)`, at which stage I ends; a group for
    each gives the Bayes loss. Equal rare tokens stay in one group: training gets stuck there. Ours.

    Parameters
    ----------
    groups : sequence of int
        A label for each token.

    Examples
    --------
    >>> round(group_loss([0.7, 0.1, 0.1, 0.1], 0.5, [0, 1, 1, 1]), 4)
    0.8197
    """
    pi, P = _frequencies(pi), transition_matrix(pi, stickiness)
    labels = np.asarray(groups)
    if labels.shape != pi.shape:
        raise InputError(f"groups: expected a label for each of {pi.size} tokens, got {groups!r}")
    joint = (labels[:, None] == labels) * pi
    mean = joint @ P / joint.sum(1, keepdims=True)
    return float(-(pi[:, None] * P * np.log(mean)).sum())


def rank_loss(pi: ArrayLike, stickiness: float, rank: int) -> float:
    r"""Return the least loss of logits :math:`\sum_{i\le r}c_{qi}h_i^\top` of rank r. Ours.

    While :math:`W_0W_1` has rank one, queries differ only by the factor :math:`c_q` that their
    attention gives; focus (stage II) ends near ``rank_loss(..., 1)``, and dilution has to open
    another direction. Found by BFGS from the best approximation of :math:`\ln P` by rank r.

    >>> round(rank_loss([0.75, 0.19, 0.05, 0.01], 0.5, 1), 4)
    0.6334
    """
    pi, P = _frequencies(pi), transition_matrix(pi, stickiness)
    d = pi.size
    require_whole("rank", rank, 1)
    shape = (2, d, min(rank, d))

    def loss(x: FloatArray) -> tuple[float, FloatArray]:
        c, h = x.reshape(shape)
        logs = scipy.special.log_softmax(c @ h.T, axis=1)
        error = pi[:, None] * (np.exp(logs) - P)
        return -(pi[:, None] * P * logs).sum(), np.stack([error @ h, error.T @ c]).ravel()

    logs = np.log(P) - np.log(P).mean(1, keepdims=True)
    left, size, right = np.linalg.svd(np.sqrt(pi)[:, None] * logs)
    root = np.sqrt(size[: shape[2]])
    c, h = left[:, : shape[2]] * root / np.sqrt(pi)[:, None], right[: shape[2]].T * root
    found = scipy.optimize.minimize(loss, np.stack([c, h]).ravel(), jac=True, method="BFGS")
    return float(found.fun)


def start_gradient(pi: ArrayLike) -> FloatArray:
    r"""Return :math:`-\partial L/\partial(W_0W_1)=\pi(\pi-\frac1d\mathbf 1)^\top` at the origin.

    There :math:`\partial L/\partial\Phi=0`: attention waits. Ours.
    """
    pi = _frequencies(pi)
    return np.outer(pi, pi - 1.0 / pi.size)


def condensation_rate(pi: ArrayLike) -> float:
    r"""Return :math:`|\pi||\pi-\frac1d\mathbf 1|`, at which the weights leave the origin. Ours.

    :math:`W_0\to\pi\alpha^\top` and :math:`W_1\to\alpha(\pi-\frac1d)^\top` grow at this rate, so a
    start that is smaller by a factor c takes :math:`\ln c` over the rate longer.

    >>> round(condensation_rate([0.75, 0.19, 0.05, 0.01]), 3)
    0.46
    """
    pi = _frequencies(pi)
    return float(np.linalg.norm(pi) * np.linalg.norm(pi - 1.0 / pi.size))


@dataclass(frozen=True)
class StageOne:
    """Stage I at the times asked for, whose shape leads.

    embedding: W0, (..., d, m).
    decoder: W1, (..., m, d).
    loss: (...).
    """

    embedding: FloatArray
    decoder: FloatArray
    loss: FloatArray


def stage_one(pi: ArrayLike, W0: ArrayLike, W1: ArrayLike, t: ArrayLike) -> StageOne:
    r"""Solve stage I, with attention held at :math:`b_q=\pi`, at flow times t. Ours.

    All queries share the logits :math:`W_1^\top w`, :math:`w=W_0^\top\pi`; with
    :math:`g=\pi-\mathrm{softmax}(W_1^\top w)`, :math:`\dot W_0=\pi(W_1g)^\top` and
    :math:`\dot W_1=wg^\top`. The loss falls to :math:`H(\pi)`. What is left out is that attention
    moves.

    Parameters
    ----------
    W0, W1 : array_like
        Embedding (d, m) and decoder (m, d) at the start.
    """
    pi = _frequencies(pi)
    W0, W1 = np.asarray(W0, dtype=np.float64), np.asarray(W1, dtype=np.float64)
    d, m = pi.size, W0.shape[-1]
    if W0.shape != (d, m) or W1.shape != (m, d):
        raise InputError(
            f"W0: expected shapes ({d}, m) and (m, {d}) for {d} tokens, got {W0.shape}, {W1.shape}"
        )

    def unpack(state: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        embedding = W0 + pi[:, None] * state[..., None, :m]
        decoder = state[..., m:].reshape(*state.shape[:-1], m, d)
        return embedding, decoder, np.einsum("...dm,d,...my->...y", embedding, pi, decoder)

    def velocity(_: float, state: FloatArray) -> FloatArray:
        embedding, decoder, logits = unpack(state)
        g = pi - scipy.special.softmax(logits)
        return np.concatenate([decoder @ g, np.outer(embedding.T @ pi, g).ravel()])

    start = np.concatenate([np.zeros(m), W1.ravel()])
    path = solve(velocity, start, at_least("t", t, 0.0), rtol=1e-9, atol=1e-14)
    embedding, decoder, logits = unpack(path)
    loss = -(scipy.special.log_softmax(logits, axis=-1) @ pi)
    return StageOne(embedding, decoder, np.asarray(loss))


def stage_one_end(pi: ArrayLike, direction: ArrayLike) -> tuple[FloatArray, FloatArray]:
    r"""Return W0 and W1 at the end of stage I, where :math:`W_0W_1=\pi f^\top/|\pi|^2`. Ours.

    With :math:`f=\ln\pi` less its mean and a balanced start, :math:`|W_0|=|W_1|`:
    :math:`W_0=x\,\pi\alpha^\top`, :math:`W_1=\alpha f^\top/(|\pi|^2x)`, :math:`x^2=|f|/|\pi|^3`.

    Parameters
    ----------
    direction : array_like
        alpha, (m,), made a unit vector.
    """
    pi = _frequencies(pi)
    alpha = np.asarray(direction, dtype=np.float64) / np.linalg.norm(direction)
    f, size = np.log(pi) - np.log(pi).mean(), np.linalg.norm(pi)
    x = np.sqrt(np.linalg.norm(f) / size**3)
    return x * np.outer(pi, alpha), np.outer(alpha, f) / (size**2 * x)


def focus_rate(pi: ArrayLike, stickiness: float) -> float:
    r"""Return the rate at which :math:`W_Q` and :math:`W_K` grow after stage I (stage II). Ours.

    At `stage_one_end`, :math:`-\partial L/\partial\Phi_{qk}=\lambda\pi_q(f_q-\pi\cdot f)\,
    \pi_k(\pi_k-|\pi|^2)/|\pi|^2`, so along :math:`\alpha` both grow at the rate

    .. math::

        \frac{\lambda|f|}{|\pi|^5}\Bigl(\sum_q\pi_q^2(f_q-\pi\cdot f)\Bigr)
        \Bigl(\sum_k\pi_k^3-|\pi|^4\Bigr),

    and :math:`\Phi\propto\pi\pi^\top` at twice that.

    >>> round(focus_rate([0.75, 0.19, 0.05, 0.01], 0.5), 4)
    0.0798
    """
    pi = _frequencies(pi)
    lam = float(between("stickiness", stickiness, 0.0, 1.0))
    f, squares = np.log(pi) - np.log(pi).mean(), float(pi @ pi)
    queries = (pi**2 * (f - pi @ f)).sum()
    keys = (pi**3).sum() - squares**2
    return float(lam * np.linalg.norm(f) / squares**2.5 * queries * keys)


def focused_attention(pi: ArrayLike, strength: float) -> FloatArray:
    r"""Return :math:`b_{qk}\propto\pi_k\exp(s\,\pi_q\pi_k)`: attention in stage II, (query, key).

    The frequent query focuses on the frequent token, and rare queries hardly do. Ours.

    >>> focused_attention([0.75, 0.19, 0.05, 0.01], 1.0)[:, 0].round(3)
    array([0.824, 0.771, 0.756, 0.751])
    """
    pi = _frequencies(pi)
    return np.asarray(scipy.special.softmax(np.log(pi) + strength * np.outer(pi, pi), axis=1))


def _frequencies(pi: ArrayLike) -> FloatArray:
    found = np.asarray(pi, dtype=np.float64)
    if found.ndim != 1 or found.size < 2 or np.any(found <= 0) or abs(found.sum() - 1) > 1e-9:
        raise InputError(f"pi: expected two or more frequencies above 0 with sum 1, got {pi!r}")
    return found

"""Attention under the decoder that SGD trains (ours): one assumption less than Theorem 1.

Theorem 1 is about a modified update (Eq. 26). Here the decoder follows SGD itself (Eq. 7), with
attention held at its start, which is what eta_Y >> eta_Z asks for; then z follows Lemma 1 with that
decoder and its own, moving f. From Y(0) = 0 the columns of Y stay in the span of the f_n(0):
Y(t) = F(0) A(t), so that the decoder is K numbers for each output,

    dA_n/dt = eta_Y P(n) (e_n - softmax(A^T F(0)^T f_n(0))),

and outputs that no class predicts are one column, M - K times. With c_kn = A_n . (e_k - alpha_k),
alpha_k the outputs at the current f_k,

    dz_m/dt = eta_Z sum over classes k of m of P(k) diag(f_k) (I - f_k f_k^T) sum_n c_kn f_n(0).

The first equation knows nothing of the second: it is a prediction, not training. What it leaves out
is that the decoder notices that attention has moved: an error of order eta_Z/eta_Y.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from attnlab.theory._check import (
    Classes,
    Contexts,
    FloatArray,
    at_least,
    between,
    contexts,
    shares,
    start_logits,
    vocabulary,
)
from attnlab.theory.scan_and_snap.attention import by_query, class_weights
from attnlab.theory.scan_and_snap.backprop import logit_gradient
from attnlab.theory.scan_and_snap.solving import solve
from attnlab.theory.scan_and_snap.tokens import unit_attention


@dataclass(frozen=True)
class SgdFlow:
    """Attention under SGD's decoder at the times asked for, whose shape leads every array.

    Attributes
    ----------
    logits
        z, (..., Q, L).
    outputs
        The output logits of each class at its next token, at those of the other targets and at any
        other token, (..., K, targets + 1), with the attention of the start.
    error
        |x_{T+1} - alpha_n|_2 of each class there, (..., K).
    """

    logits: FloatArray
    outputs: FloatArray
    error: FloatArray


def sgd_flow(
    P: Contexts,
    t: ArrayLike,
    *,
    psi: ArrayLike | None = None,
    M: float | None = None,
    eta_y: float,
    eta_z: float,
    z0: ArrayLike | None = None,
    weight: ArrayLike | None = None,
    target: ArrayLike | None = None,
    momentum: float = 0.0,
    rtol: float = 1e-9,
    atol: float = 1e-12,
) -> SgdFlow:
    """Attention under the decoder that SGD trains, from Y(0) = 0: both equations solved at times t.

    The decoder follows SGD with attention held at its start, and attention follows Lemma 1 with
    that decoder (docs/theory-sgd.md).

    Parameters
    ----------
    P : array_like or SequenceClasses
        P(l|n): a row for each class, a column for each contextual token, (K, L). `SequenceClasses`
        bring psi, M and the shares of the classes with them.
    t : array_like
        Times, one expected-gradient step per unit: a number or an array in any order. With momentum
        they count its steps.
    psi : array_like, optional
        The row of z of each class, 0 to Q - 1, as `classes.query_index` has it. By default one
        query for all.
    M : float, optional
        Size of the vocabulary; `SequenceClasses` know it.
    eta_y : float
        Rate of the decoder.
    eta_z : float
        Rate of attention.
    z0 : array_like, optional
        Logits at the start, (Q, L). By default zero.
    weight : array_like, optional
        How often each class is drawn, P(n); 1/K by default.
    target : array_like, optional
        The next token of each class, numbered from 0 without gaps. By default each class has its
        own.
    momentum : float, optional
        mu of heavy-ball steps, m <- mu m + gradient, whose memory decoder and attention each have:
        in continuous time m' = -ln(mu) (gradient/(1 - mu) - m), which forgets as fast and adds up
        to the same.
    rtol, atol : float, optional
        Tolerances of the solver.

    Returns
    -------
    SgdFlow
        z, outputs and errors at each t.

    Examples
    --------
    >>> from attnlab.data import syn_small
    >>> from attnlab.theory import sgd_flow
    >>> flow = sgd_flow(syn_small(), [10.0, 1000.0], eta_y=1.0, eta_z=0.1)
    >>> flow.error.round(2)
    array([[0.54, 0.54],
           [0.01, 0.01]])
    """
    M, weight = vocabulary(P, M), shares(P, weight)
    if target is None and isinstance(P, Classes):
        target = np.unique(P.next_token, return_inverse=True)[1]
    P, rows = contexts(P, psi)
    K, L = P.shape
    goal = np.arange(K) if target is None else np.asarray(target)
    outputs = int(goal.max()) + 1
    outside = at_least("M", M, float(outputs)) - outputs  # how many outputs the last column is
    wanted = np.eye(outputs + 1)[goal]
    count = np.append(np.ones(outputs), outside)
    start = start_logits(z0, rows, L)
    share = class_weights(weight, K)
    f0 = unit_attention(P, start, psi=rows)
    E0 = f0 @ f0.T
    times = at_least("t", t, 0.0)

    def errors(W: FloatArray) -> FloatArray:
        """e_n - alpha_n for output logits (K, targets + 1); the last is that of a single output."""
        odds = np.exp(W - W.max(-1, keepdims=True))
        return np.asarray(wanted - odds / (odds @ count)[..., None])

    def push(state: FloatArray) -> FloatArray:
        """What plain steps would move A and z by, per unit of time."""
        A, z = state[: wanted.size].reshape(wanted.shape), state[wanted.size :].reshape(start.shape)
        Adot = eta_y * share[:, None] * errors(E0 @ A)
        f = unit_attention(P, z, psi=rows)
        sent_back = (errors(f @ f0.T @ A) * count) @ A.T @ f0
        zdot = eta_z * by_query(share[:, None] * logit_gradient(f, sent_back), rows, len(start))
        return np.concatenate([Adot.ravel(), zdot.ravel()])

    initial = np.concatenate([np.zeros(wanted.size), start.ravel()])
    mu = between("momentum", momentum, -1e-300, 1.0)[()]
    if mu > 0.0:
        kappa, half = -np.log(mu), initial.size

        def velocity(_: float, state: FloatArray) -> FloatArray:
            m = state[half:]
            return np.concatenate([m, kappa * (push(state[:half]) / (1.0 - mu) - m)])

        # as far behind in the end as heavy-ball steps are, whose first has its whole gradient
        begun = 1.0 / (1.0 - mu) - kappa * mu / (1.0 - mu) ** 2
        moving = np.concatenate([initial, begun * push(initial)])
        ordered = solve(velocity, moving, times, rtol=rtol, atol=atol)[..., :half]
    else:
        ordered = solve(lambda _, state: push(state), initial, times, rtol=rtol, atol=atol)
    A = ordered[..., : wanted.size].reshape(*times.shape, *wanted.shape)
    logits = ordered[..., wanted.size :].reshape(*times.shape, *start.shape)
    w = np.asarray(E0 @ A)
    return SgdFlow(logits, w, np.sqrt(errors(w) ** 2 @ count))

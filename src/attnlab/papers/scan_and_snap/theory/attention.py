"""The dynamics of the attention logits Z: Eq. 10 (Lemma 4) and its solution.

Two clocks appear. t counts batch-1 optimiser steps, of which each class gets 1/K. tau is the
reduced time Gamma(t) = eta_Z * integral of gamma (`reduced_time`, Eq. 128, closed form): in tau,
Eq. 10 is autonomous, since E and beta depend on z alone when theta = sigma = 0. So the path of
attention does not depend on the learning rates; they only set how fast it is travelled.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from attnlab.files.errors import InputError
from attnlab.formulas.checks import (
    Contexts,
    FloatArray,
    IntArray,
    at_least,
    class_weights,
    contexts,
    shares,
    start_logits,
    unwrap,
    vocabulary,
)
from attnlab.formulas.solving import solve
from attnlab.formulas.tokens import by_query, log_scores, unit_attention, unit_rows
from attnlab.papers.scan_and_snap.theory.coefficients import beta
from attnlab.papers.scan_and_snap.theory.correlations import gram
from attnlab.papers.scan_and_snap.theory.speed import gamma, reduced_time


@dataclass(frozen=True)
class AttentionFlow:
    """A solution of Eq. 10 at the times asked for, whose shape leads every array.

    Attributes
    ----------
    reduced_time
        tau.
    logits
        z, (..., Q, L).
    growth_bound
        B_n = eta_Z * integral of the class weight times xi_n (Theorem 3), (..., K).
    """

    reduced_time: FloatArray
    logits: FloatArray
    growth_bound: FloatArray


def class_velocity(f: FloatArray, b: FloatArray) -> FloatArray:
    """Class n's term of Eq. 97 over eta_Z gamma, for given beta: (..., K, L)."""
    xi = (b * gram(f)).sum(-1)
    return np.asarray(f * (xi[..., None] * f - b @ f))


def attention_velocity(
    P: Contexts,
    z: ArrayLike,
    *,
    psi: ArrayLike | None = None,
    M: float | None = None,
    weight: ArrayLike | None = None,
    form: str = "corrected",
) -> FloatArray:
    """dz/dtau of Eq. 10, that is dz/dt over eta_Z gamma(t).

    Parameters
    ----------
    P : array_like or SequenceClasses
        P(l|n): a row for each class, a column for each contextual token, (K, L). `SequenceClasses`
        bring psi, M and the shares of the classes with them.
    z : array_like
        Attention logits, a row for each query, (..., Q, L). By default zero.
    psi : array_like, optional
        The row of z of each class, 0 to Q - 1, as `classes.query_index` has it. By default one
        query for all.
    M : float, optional
        Size of the vocabulary; `SequenceClasses` know it.
    weight : array_like, optional
        The class weight. As printed it is 1; but of t batch-1 steps class n gets only the share
        P(n), so that Eq. 10 needs the factor P(n) = 1/K when t counts steps, and that is the
        default.
    form : {"corrected", "printed"}
        Our correction of Eq. 88 (`beta`), or as printed.

    Returns
    -------
    ndarray
        The velocity, in the shape of z.

    Examples
    --------
    >>> from attnlab.papers.scan_and_snap.theory import attention_velocity
    >>> attention_velocity([[0.5, 0.5, 0], [0.5, 0, 0.5]], [0, 0, 0], M=100).round(4)
    array([[-0.1718,  0.0859,  0.0859]])
    """
    M, weight = vocabulary(P, M), shares(P, weight)
    P, rows = contexts(P, psi)
    z = np.atleast_2d(np.asarray(z, dtype=np.float64))
    f = unit_attention(P, z, psi=rows)
    terms = class_velocity(f, beta(gram(f), M=M, form=form))
    return by_query(class_weights(weight, len(P))[:, None] * terms, rows, z.shape[-2])


def attention_path(
    P: Contexts,
    tau: ArrayLike,
    *,
    psi: ArrayLike | None = None,
    M: float | None = None,
    z0: ArrayLike | None = None,
    weight: ArrayLike | None = None,
    form: str = "corrected",
    rtol: float = 1e-10,
    atol: float = 1e-12,
) -> AttentionFlow:
    """Solve Eq. 10 in the reduced time tau from z(0) = z0.

    E and beta are recomputed from f(z) at each evaluation, and B_n is integrated along. Only logits
    that some class of the query can see are integrated; the others keep z0.

    Parameters
    ----------
    P : array_like or SequenceClasses
        P(l|n): a row for each class, a column for each contextual token, (K, L). `SequenceClasses`
        bring psi, M and the shares of the classes with them.
    tau : array_like
        A number or an array in any order, finite and >= 0.
    psi : array_like, optional
        The row of z of each class, 0 to Q - 1, as `classes.query_index` has it. By default one
        query for all.
    M : float, optional
        Size of the vocabulary; `SequenceClasses` know it.
    z0 : array_like, optional
        Logits at the start, (Q, L). By default zero.
    weight : array_like, optional
        The class weight. As printed it is 1; but of t batch-1 steps class n gets only the share
        P(n), so that Eq. 10 needs the factor P(n) = 1/K when t counts steps, and that is the
        default.
    form : {"corrected", "printed"}
        Our correction of Eq. 88 (`beta`), or as printed.
    rtol, atol : float, optional
        Tolerances of the solver.

    Returns
    -------
    AttentionFlow
        z and B_n at each tau.

    Examples
    --------
    >>> from attnlab.papers.scan_and_snap.theory import attention_path
    >>> path = attention_path([[0.5, 0.5, 0], [0.5, 0, 0.5]], [0.0, 1.0, 10.0], M=100)
    >>> path.logits[:, 0].round(3)
    array([[ 0.   ,  0.   ,  0.   ],
           [-0.141,  0.071,  0.071],
           [-0.569,  0.285,  0.285]])
    """
    tau = at_least("tau", tau, 0.0)
    if not np.all(np.isfinite(tau)):
        raise InputError("tau must be finite: attention keeps moving for ever, ever more slowly")
    M, weight = vocabulary(P, M), shares(P, weight)
    P, rows = contexts(P, psi)
    share = class_weights(weight, len(P))
    logits, growth_bound = _follow(
        P, tau, lambda _: share, rows=rows, M=M, z0=z0, form=form, rtol=rtol, atol=atol
    )
    return AttentionFlow(unwrap(tau), logits, growth_bound)


def _follow(
    P: FloatArray,
    times: FloatArray,
    share: Callable[[float], FloatArray],
    *,
    rows: IntArray,
    M: float,
    z0: ArrayLike | None,
    form: str,
    rtol: float,
    atol: float,
) -> tuple[FloatArray, FloatArray]:
    """z and B_n along Eq. 10 with class weights `share` of the time, at each of the times."""
    K, L = P.shape
    start = start_logits(z0, rows, L)
    Q = len(start)
    seen = by_query((P > 0).astype(np.float64), rows, Q) > 0
    log_p = log_scores(P, psi=rows)

    def velocity(time: float, state: FloatArray) -> FloatArray:
        z = start.copy()
        z[seen] = state[:-K]
        f = unit_rows(log_p + z[rows])
        E = gram(f)
        b, weight = beta(E, M=M, form=form), share(time)
        zdot = by_query(weight[:, None] * class_velocity(f, b), rows, Q)
        return np.concatenate([zdot[seen], weight * (b * E).sum(-1)])

    initial = np.concatenate([start[seen], np.zeros(K)])
    states = solve(velocity, initial, times, rtol=rtol, atol=atol)
    logits = np.broadcast_to(start, (*times.shape, Q, L)).copy()
    logits[..., seen] = states[..., :-K]
    return logits, states[..., -K:]


def attention_flow(
    P: Contexts,
    t: ArrayLike,
    *,
    psi: ArrayLike | None = None,
    M: float | None = None,
    eta_y: float,
    eta_z: float,
    z0: ArrayLike | None = None,
    weight: ArrayLike | None = None,
    prior: ArrayLike | None = None,
    form: str = "corrected",
    rtol: float = 1e-10,
    atol: float = 1e-12,
) -> AttentionFlow:
    """Solve Eq. 10, dz/dt = eta_Z gamma(t) * attention_velocity(z), at steps t.

    K, the number of rows of P, sets gamma(t) with the classes drawn uniformly. It is
    `attention_path` at tau = `reduced_time`(t). The decoder is the one of Theorem 1 at every t; SGD
    trains another one (`plain_coefficients`), which moves attention less far.

    Parameters
    ----------
    P : array_like or SequenceClasses
        P(l|n): a row for each class, a column for each contextual token, (K, L). `SequenceClasses`
        bring psi, M and the shares of the classes with them.
    t : array_like
        Batch-1 optimiser steps.
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
        The class weight. As printed it is 1; but of t batch-1 steps class n gets only the share
        P(n), so that Eq. 10 needs the factor P(n) = 1/K when t counts steps, and that is the
        default.
    prior : array_like, optional
        P(n) of classes that are not drawn alike (ours; the paper has them uniform). Class n then
        has its own clock, gamma with K = 1/P(n), and its weight P(n); there is no common tau, and
        `reduced_time` is that of uniform classes.
    form : {"corrected", "printed"}
        Our correction of Eq. 88 (`beta`), or as printed.
    rtol, atol : float, optional
        Tolerances of the solver.

    Returns
    -------
    AttentionFlow
        z and B_n at each t.

    Examples
    --------
    >>> from attnlab.papers.scan_and_snap.classes import syn_small
    >>> from attnlab.papers.scan_and_snap.theory import attention_flow
    >>> flow = attention_flow(syn_small(), [10.0, 1000.0], eta_y=1.0, eta_z=1.0)
    >>> flow.logits.shape
    (2, 2, 30)
    """
    chance = shares(P, prior) if weight is None else prior
    M = vocabulary(P, M)
    P, rows = contexts(P, psi)
    tau = reduced_time(t, K=len(P), M=M, eta_y=eta_y, eta_z=eta_z)
    given: Any = {"M": M, "z0": z0, "form": form, "rtol": rtol, "atol": atol}
    if chance is None or np.allclose(chance, 1.0 / len(P), rtol=1e-9, atol=0.0):
        return attention_path(P, tau, psi=rows, weight=weight, **given)
    if weight is not None:
        raise InputError("weight: give it or a prior, which sets the weights")
    p = at_least("prior", chance, 0.0, strict=True)

    def share(time: float) -> FloatArray:
        return np.asarray(eta_z * p * gamma(time, K=1.0 / p, M=M, eta_y=eta_y))

    times = at_least("t", t, 0.0)
    return AttentionFlow(tau, *_follow(P, times, share, rows=rows, **given))

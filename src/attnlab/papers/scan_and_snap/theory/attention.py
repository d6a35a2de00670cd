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
from attnlab.formulas import Setting, solve
from attnlab.formulas.checks import FloatArray, at_least, unwrap
from attnlab.formulas.setting import SettingLike
from attnlab.formulas.tokens import by_query, unit_attention, unit_rows

from .correlations import beta, gram
from .growth import gamma, reduced_time


@dataclass(frozen=True)
class AttentionFlow:
    """A solution of Eq. 10 at the times asked for, whose shape leads every array.

    reduced_time: tau.
    logits: z, (..., Q, L).
    growth_bound: B_n = eta_Z * integral of the class weight times xi_n (Theorem 3), (..., K).
    """

    reduced_time: FloatArray
    logits: FloatArray
    growth_bound: FloatArray


def class_velocity(f: FloatArray, b: FloatArray) -> FloatArray:
    """Class n's term of Eq. 97 over eta_Z gamma, for given beta: (..., K, L)."""
    xi = (b * gram(f)).sum(-1)
    return np.asarray(f * (xi[..., None] * f - b @ f))


def attention_velocity(
    setting: SettingLike, z: ArrayLike, *, weight: ArrayLike | None = None, form: str = "corrected"
) -> FloatArray:
    """dz/dtau of Eq. 10, that is dz/dt over eta_Z gamma(t), in the shape of z.

    >>> attention_velocity(Setting([[0.5, 0.5, 0], [0.5, 0, 0.5]], M=100), [0, 0, 0]).round(4)
    array([[-0.1718,  0.0859,  0.0859]])
    """
    s = Setting.of(setting)
    z = np.atleast_2d(np.asarray(z, dtype=np.float64))
    f = unit_attention(s, z)
    terms = class_velocity(f, beta(gram(f), M=s.vocab_size, form=form))
    return by_query(s.weights(weight)[:, None] * terms, s.rows, z.shape[-2])


def attention_path(
    setting: SettingLike,
    tau: ArrayLike,
    *,
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
    tau : array_like
        A number or an array in any order, finite and >= 0.

    Examples
    --------
    >>> path = attention_path(Setting([[0.5, 0.5, 0], [0.5, 0, 0.5]], M=100), [0.0, 1.0, 10.0])
    >>> path.logits[:, 0].round(3)
    array([[ 0.   ,  0.   ,  0.   ],
           [-0.141,  0.071,  0.071],
           [-0.569,  0.285,  0.285]])
    """
    tau = at_least("tau", tau, 0.0)
    if not np.all(np.isfinite(tau)):
        raise InputError("tau must be finite: attention keeps moving for ever, ever more slowly")
    s = Setting.of(setting)
    share = s.weights(weight)
    path = _follow(s, tau, lambda _: share, z0=z0, form=form, rtol=rtol, atol=atol)
    return AttentionFlow(unwrap(tau), *path)


def _follow(
    s: Setting,
    times: FloatArray,
    share: Callable[[float], FloatArray],
    *,
    z0: ArrayLike | None,
    form: str,
    rtol: float,
    atol: float,
) -> tuple[FloatArray, FloatArray]:
    """z and B_n along Eq. 10 with class weights `share` of the time, at each of the times."""
    K, M, rows, start = s.K, s.vocab_size, s.rows, s.start(z0)
    Q = len(start)
    seen = by_query((s.P > 0).astype(np.float64), rows, Q) > 0

    def velocity(time: float, state: FloatArray) -> FloatArray:
        z = start.copy()
        z[seen] = state[:-K]
        f = unit_rows(s.log_p + z[rows])
        E = gram(f)
        b, weight = beta(E, M=M, form=form), share(time)
        zdot = by_query(weight[:, None] * class_velocity(f, b), rows, Q)
        return np.concatenate([zdot[seen], weight * (b * E).sum(-1)])

    initial = np.concatenate([start[seen], np.zeros(K)])
    states = solve(velocity, initial, times, rtol=rtol, atol=atol)
    logits = np.broadcast_to(start, (*times.shape, *start.shape)).copy()
    logits[..., seen] = states[..., :-K]
    return logits, states[..., -K:]


def attention_flow(
    setting: SettingLike,
    t: ArrayLike,
    *,
    z0: ArrayLike | None = None,
    weight: ArrayLike | None = None,
    form: str = "corrected",
    rtol: float = 1e-10,
    atol: float = 1e-12,
) -> AttentionFlow:
    """Solve Eq. 10, dz/dt = eta_Z gamma(t) * attention_velocity(z), at steps t.

    It is `attention_path` at tau = `reduced_time`(t). The decoder is the one of Theorem 1 at every
    t; SGD trains another one (`plain_coefficients`), which moves attention less far.

    Classes that are not drawn alike (ours; the paper has them uniform) have a clock each, gamma
    with K = 1/P(n), and their weight P(n); there is no common tau, and `reduced_time` is that of
    uniform classes. With a `weight` they share the clock of uniform classes.

    >>> from attnlab.papers.scan_and_snap.classes import syn_small
    >>> flow = attention_flow(Setting(syn_small(), eta_y=1.0, eta_z=1.0), [10.0, 1000.0])
    >>> flow.logits.shape
    (2, 2, 30)
    """
    s = Setting.of(setting)
    K, M, (eta_y, eta_z) = s.K, s.vocab_size, s.rates
    tau = reduced_time(t, K=K, M=M, eta_y=eta_y, eta_z=eta_z)
    how: Any = {"z0": z0, "form": form, "rtol": rtol, "atol": atol}
    if weight is not None or np.allclose(s.share, 1.0 / K, rtol=1e-9, atol=0.0):
        return attention_path(s, tau, weight=1.0 / K if weight is None else weight, **how)
    p = at_least("prior", s.share, 0.0, strict=True)

    def share(time: float) -> FloatArray:
        return np.asarray(eta_z * p * gamma(time, K=1.0 / p, M=M, eta_y=eta_y))

    return AttentionFlow(tau, *_follow(s, at_least("t", t, 0.0), share, **how))

"""A reparametrised head at tokens that are not triggers: attention sink and value drain.

Query token v has the attention logit alpha_v on <s> and 0 on the N other visible tokens. <s> has
the value beta and the others have values that sum to W. The MLP has learned log p_v, so that the
output logits are

    log p_v + delta_v,    delta_v = (e^{alpha_v} beta + W) / (e^{alpha_v} + N),

and the loss, averaged over contexts W where there are several, exceeds its least value by

    L = sum_v pi_v (log E_{p_v} e^{delta_v} - E_{p_v} delta_v).

The head is not needed here: L = 0 where delta_v is constant on the support of p_v. The flow is
d alpha / dt = -eta_alpha dL / d alpha, and likewise for beta.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import ArrayLike

from attnlab.files.errors import InputError
from attnlab.formulas.checks import FloatArray, at_least, unwrap
from attnlab.formulas.solving import solve

from .chain import checked_rows

BISECTIONS = 64  # halve an interval until rounding


class EndPoint(NamedTuple):
    """End of the joint flow with one context: alpha, equal for all queries, and beta (V,)."""

    sink_logit: float
    value: FloatArray


class JointFlow(NamedTuple):
    """Sink logits (time, V) and values of <s> (time, V) along the flow."""

    sink_logits: FloatArray
    values: FloatArray


def sink_mass(alpha: ArrayLike, visible: float) -> FloatArray:
    """Return s = e^alpha / (e^alpha + N), the attention weight on <s>.

    Examples
    --------
    >>> sink_mass([0.0, np.log(100)], visible=100).round(4)
    array([0.0099, 0.5   ])
    """
    return unwrap(scipy.special.expit(np.asarray(alpha, dtype=np.float64) - np.log(visible)))


def excess_loss(
    P: ArrayLike, pi: ArrayLike, W: ArrayLike, *, alpha: ArrayLike, beta: ArrayLike, visible: float
) -> float:
    """Return L, the loss above its least value (item 1); as we know it.

    L falls as e^{-2 alpha}: delta_v is centred before it is exponentiated, so that nothing cancels.
    """
    problem = _Problem(P, pi, W, visible)
    _, centred = problem.logits(np.asarray(alpha, float), np.asarray(beta, float))
    excess = np.log1p((problem.P[:, None] * np.expm1(centred)).sum(-1))  # query context
    return float(problem.pi @ excess.mean(-1))


def gradient(
    P: ArrayLike, pi: ArrayLike, W: ArrayLike, *, alpha: ArrayLike, beta: ArrayLike, visible: float
) -> tuple[FloatArray, FloatArray]:
    """Return dL / d alpha and dL / d beta, (V,) each (item 1); ours.

    With q_v = p_v e^{delta_v} normalised, dL/dalpha_v = pi_v s_v (q_v - p_v).(beta - delta_v) and
    dL/dbeta = sum_v pi_v s_v (q_v - p_v), both averaged over contexts. The sum of beta is
    conserved.
    """
    problem = _Problem(P, pi, W, visible)
    return problem.gradient(np.asarray(alpha, float), np.asarray(beta, float))


def context_variance(P: ArrayLike, W: ArrayLike, *, balanced: bool = False) -> FloatArray:
    """Return the variance of W under each p_v, averaged over contexts, (V,).

    Parameters
    ----------
    P : array
        Transition probabilities, (V, V).
    W : array
        Contexts, (V,) or (M, V).
    balanced : bool, optional
        Take the mean over contexts from W first: what is left where beta has cancelled it (item 6).
    """
    P, W = checked_rows(P), np.atleast_2d(np.asarray(W, dtype=np.float64))
    W = W - W.mean(axis=0) if balanced else W
    centred = W - (P @ W.T)[..., None]  # query context output
    return np.asarray((P[:, None] * centred**2).sum(-1).mean(-1))


def sink_logit(t: ArrayLike, *, start: ArrayLike, drive: ArrayLike, visible: float) -> FloatArray:
    """Return alpha_v(t) of the sink alone, beta = 0 (item 2); ours, exact where delta is small.

    F(alpha(t)) - F(alpha(0)) = drive t with F(a) = e^{2a}/2 + 3N e^a + 3N^2 a - N^3 e^{-a}. It is
    solved for the gain alpha(t) - alpha(0), in which no term cancels another.

    Parameters
    ----------
    t : array
        Flow time.
    start : array
        alpha_v(0).
    drive : array
        pi_v Var_{p_v}(W), times the learning rate; see `context_variance`.
    visible : float
        N.

    Examples
    --------
    >>> sink_logit([0.0, 1e8], start=0.0, drive=1.0, visible=100).round(3)
    array([0.   , 9.529])
    """
    t, start, drive = np.broadcast_arrays(
        at_least("t", t, 0), np.asarray(start, float), at_least("drive", drive, 0)
    )
    N, e = float(at_least("visible", visible, 0, strict=True)), np.exp(start)

    def gained(gain: FloatArray) -> FloatArray:
        terms = e**2 * np.expm1(2 * gain) / 2 + 3 * N * e * np.expm1(gain) + 3 * N**2 * gain
        return np.asarray(terms - N**3 / e * np.expm1(-gain))

    # every term of F grows, so the first alone bounds the gain
    low, high = np.zeros(t.shape), 0.5 * np.log1p(2 * drive * t / e**2)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        short = gained(middle) < drive * t
        low, high = np.where(short, middle, low), np.where(short, high, middle)
    return unwrap(start + high)


def late_sink_logit(t: ArrayLike, drive: ArrayLike) -> FloatArray:
    """Return 1/2 log t + 1/2 log(2 drive), to which alpha_v(t) tends (item 2).

    The growth 1/2 log t is the paper's as we know it, the constant is ours. With contexts that
    differ, `drive` has the balanced variance (item 6; measured, to within about 0.1).
    """
    return unwrap(0.5 * np.log(2 * np.asarray(drive, float) * np.asarray(t, float)))


def take_off(start: ArrayLike, *, drive: ArrayLike, visible: float) -> FloatArray:
    """Return N^3 e^{-alpha(0)} / drive, the time before which alpha hardly moves (item 2); ours."""
    return unwrap(visible**3 * np.exp(-np.asarray(start, float)) / np.asarray(drive, float))


def concentrated_value(alpha: ArrayLike, W: ArrayLike, *, mean: float = 0.0) -> FloatArray:
    """Return beta = mean + e^{-alpha} (mean of W - W), (..., V) for alpha (...) (items 3 and 4).

    With equal sink logits alpha the loss is then 0, and alpha is free: a line of stationary points.
    It is also where the drain with fixed alpha ends, since the mean of beta is conserved. As we
    know it; the mean is ours.
    """
    W = np.asarray(W, dtype=np.float64)
    return np.asarray(mean + np.exp(-np.asarray(alpha, float))[..., None] * (W.mean() - W))


def drain_rate(P: ArrayLike, pi: ArrayLike, *, alpha: float, visible: float) -> float:
    """Return the rate of the drain with equal, fixed alpha close to its end (item 3); ours.

    It is the second smallest eigenvalue of s^2 sum_v pi_v (diag p_v - p_v p_v^T); the smallest is 0
    and belongs to the mean of beta.
    """
    P, pi = checked_rows(P), at_least("pi", pi, 0)
    covariances = np.diag(pi @ P) - np.einsum("v,vy,vz->yz", pi, P, P)
    return float(np.linalg.eigvalsh(sink_mass(alpha, visible) ** 2 * covariances)[1])


def conserved(
    alpha: ArrayLike,
    beta: ArrayLike,
    W: ArrayLike,
    *,
    visible: float,
    rates: tuple[float, float] = (1.0, 1.0),
) -> FloatArray:
    """Return what the joint flow with one context conserves, (...) for (..., V); ours (item 5).

    It is sum_v (alpha_v + e^{alpha_v}/N) / eta_alpha - (|beta|^2/2 - beta.W/N) / eta_beta, for
    any P and pi, since beta - delta_v = (1 - s_v)(beta - W/N).

    Parameters
    ----------
    rates : pair of float, optional
        eta_alpha and eta_beta.
    """
    alpha, beta, W = (np.asarray(of, dtype=np.float64) for of in (alpha, beta, W))
    sinks = (alpha + np.exp(alpha) / visible).sum(-1)
    return unwrap(sinks / rates[0] - ((beta**2).sum(-1) / 2 - beta @ W / visible) / rates[1])


def joint_end(
    W: ArrayLike,
    *,
    alpha: ArrayLike,
    beta: ArrayLike,
    visible: float,
    rates: tuple[float, float] = (1.0, 1.0),
) -> EndPoint:
    """Return where the joint flow with one context ends, from any start (item 5); ours.

    Of the stationary points (item 4), one has the conserved quantity and the mean of the start. It
    does not depend on P and pi, as long as every p_v has full support.

    Parameters
    ----------
    alpha, beta : array
        The start, (V,) each.
    rates : pair of float, optional
        eta_alpha and eta_beta.
    """
    alpha, beta, W = (np.asarray(of, dtype=np.float64) for of in (alpha, beta, W))
    if W.ndim != 1 or not np.ptp(W) > 0:
        raise InputError(
            "W: expected one context (V,) that is not constant; the end point of several contexts, "
            "or of a constant one, is not known"
        )
    kept = conserved(alpha, beta, W, visible=visible, rates=rates)

    def excess(a: float) -> float:
        value = concentrated_value(a, W, mean=float(beta.mean()))
        point = conserved(np.full(len(W), a), value, W, visible=visible, rates=rates)
        return float(point - kept)

    low, high = alpha.min() - 1.0, alpha.max() + 1.0
    while excess(low) > 0:  # it grows with alpha, without bounds
        low -= 1.0
    while excess(high) < 0:
        high += 1.0
    found = float(scipy.optimize.brentq(excess, low, high, xtol=1e-13))
    return EndPoint(found, concentrated_value(found, W, mean=float(beta.mean())))


def joint_flow(
    t: ArrayLike,
    P: ArrayLike,
    pi: ArrayLike,
    W: ArrayLike,
    *,
    alpha: ArrayLike,
    beta: ArrayLike,
    visible: float,
    rates: tuple[float, float] = (1.0, 1.0),
    rtol: float = 1e-8,
    atol: float = 1e-10,
) -> JointFlow:
    """Solve the flow of alpha and beta for one or several contexts (items 2 to 6).

    Parameters
    ----------
    t : array
        Flow times, (time,).
    alpha, beta : array
        The start, (V,) each.
    rates : pair of float, optional
        eta_alpha and eta_beta; 0 keeps alpha or beta as it starts.
    """
    problem = _Problem(P, pi, W, visible)
    V = len(problem.pi)
    scale = -np.repeat(np.asarray(rates, dtype=np.float64), V)

    def velocity(_: float, state: FloatArray) -> FloatArray:
        return scale * np.concatenate(problem.gradient(state[:V], state[V:]))

    start = np.concatenate([np.asarray(alpha, float), np.asarray(beta, float)])
    found = solve(velocity, start, np.asarray(t, dtype=np.float64), rtol=rtol, atol=atol)
    return JointFlow(found[:, :V], found[:, V:])


class _Problem:
    """Checked P, pi and contexts (M, V), and the gradient of the loss."""

    def __init__(self, P: ArrayLike, pi: ArrayLike, W: ArrayLike, visible: float) -> None:
        self.P, self.pi = checked_rows(P), at_least("pi", pi, 0)
        self.W = np.atleast_2d(np.asarray(W, dtype=np.float64))
        self.visible = float(at_least("visible", visible, 0, strict=True))
        V = len(self.P)
        if self.pi.shape != (V,) or self.W.shape[1:] != (V,):
            raise InputError(
                f"W: expected pi (V,) and W (V,) or (M, V) for V = {V} tokens of P, got "
                f"{self.pi.shape} and {self.W.shape}"
            )

    def logits(self, alpha: FloatArray, beta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return s (V,) and delta_v less its mean under p_v, (query, context, output)."""
        s = sink_mass(alpha, self.visible)
        moved = s[:, None, None] * beta + (1 - s)[:, None, None] * self.W / self.visible
        return s, np.asarray(moved - np.einsum("vy,vmy->vm", self.P, moved)[..., None])

    def gradient(self, alpha: FloatArray, beta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return dL / d alpha and dL / d beta; q - p is made of small terms, not a difference."""
        s, centred = self.logits(alpha, beta)
        grown = self.P[:, None] * np.expm1(centred)
        total = grown.sum(-1, keepdims=True)
        gap = (grown - self.P[:, None] * total) / (1 + total)  # q - p
        # beta - delta = (1 - s)(beta - W/N)
        pull = np.einsum("vmy,my->v", gap, beta - self.W / self.visible) / len(self.W)
        pull = pull * scipy.special.expit(np.log(self.visible) - alpha)
        weight = self.pi * s
        return weight * pull, weight @ gap.mean(1)

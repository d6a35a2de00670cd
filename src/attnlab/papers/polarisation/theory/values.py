"""Attention weights times a trained value matrix: f = V alpha(a), one sequence of n tokens.

With g the gradient of the loss at f, weights alpha with Jacobian J, v-bar = V alpha, gradient flow
at the learning rates 1 (values) and rho (attention logits) is

    v_i' = -alpha_i g,        a' = -rho J^T V^T g,

and for softmax weights sigma, J = C = diag(sigma) - sigma sigma^T, so that
a_i' = -rho sigma_i (v_i - v-bar) . g. If g keeps its direction, g = -gamma beta with |beta| = 1,
then u_i = beta . v_i follows, in the time tau with d tau = gamma dt,

    u' = alpha,        a' = rho J^T u        (softmax: rho sigma_i (u_i - u-bar)),

whatever the loss: the loss is only the clock dt/d tau (`one_direction`).

Numbers in brackets number the predictions: [1] the kernel of the output, [2] logits from values,
[3] one direction, [4] order and winner, [5] gaps, [6] two tokens, [7] the tail, [8] losses that
stop, [9] the l2 norm, [10] other maps. The paper's own proofs were not at hand: all but [4] is
derived here ("ours"), and [4] is "as we know it".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import scipy
from numpy.typing import ArrayLike

from attnlab.files.errors import InputError
from attnlab.formulas import solve
from attnlab.formulas.checks import FloatArray, at_least, between, is_printed, unwrap

Weighting = Literal["softmax", "l2", "sum", "l1", "relu", "square", "sigmoid"]
Along = Literal["tau", "time", "output"]
Clock = Callable[[FloatArray], FloatArray]  # dt/d tau by the output u-bar

# The weights h(a) / sum h(a): h and its slope.
SHARES: dict[str, tuple[Callable[..., FloatArray], Callable[..., FloatArray]]] = {
    "sum": (lambda a: a, np.ones_like),
    "l1": (np.abs, np.sign),
    "relu": (lambda a: np.maximum(a, 0.0), lambda a: np.asarray(a > 0, dtype=np.float64)),
    "square": (np.square, lambda a: 2.0 * a),
}


def attend(a: ArrayLike, *, weighting: Weighting = "softmax") -> FloatArray:
    r"""Return the weights alpha of logits a.

    "softmax"; "l2", softmax over its Euclidean norm (Scan and Snap's); "sum", "l1", "relu" and
    "square", :math:`h(a)/\sum h(a)` with h the identity, absolute value, ReLU and square;
    "sigmoid", which is not normalised.

    Parameters
    ----------
    a : array_like
        Logits, (..., n).

    Examples
    --------
    >>> attend([1.0, 3.0], weighting="square")
    array([0.1, 0.9])
    """
    logits = np.asarray(a, dtype=np.float64)
    _require_weighting(weighting)
    if weighting == "sigmoid":
        return np.asarray(scipy.special.expit(logits))
    if weighting in SHARES:
        h = SHARES[weighting][0](logits)
        return np.asarray(h / h.sum(-1, keepdims=True))
    sigma = scipy.special.softmax(logits, axis=-1)
    if weighting == "l2":
        sigma = sigma / np.linalg.norm(sigma, axis=-1, keepdims=True)
    return np.asarray(sigma)


def pull_back(a: ArrayLike, x: ArrayLike, *, weighting: Weighting = "softmax") -> FloatArray:
    r"""Return :math:`J^\top x`: the gradient of :math:`\alpha(a)\cdot x` in the logits a.

    For softmax it is :math:`\sigma_i\sum_j\sigma_j(x_i-x_j)`. The shorter form
    :math:`\sigma_i(x_i-\bar x)` loses the winner's digits once :math:`1-\max\sigma` is small.

    Parameters
    ----------
    a : array_like
        Logits, (n,) or (..., n).
    x : array_like
        What the weights multiply, (..., n).

    Examples
    --------
    >>> pull_back([0.0, 0.0], [1.0, 3.0])
    array([-0.5,  0.5])
    """
    alpha = attend(a, weighting=weighting)
    x = np.asarray(x, dtype=np.float64)
    if weighting == "softmax":
        gaps = x[..., :, None] - x[..., None, :]
        return np.asarray(alpha * (gaps @ alpha[..., None])[..., 0])
    mean = (x * alpha).sum(-1, keepdims=True)
    if weighting == "l2":
        return np.asarray(alpha * (x - alpha * mean))
    if weighting == "sigmoid":
        return np.asarray(alpha * (1.0 - alpha) * x)
    h, slope = SHARES[weighting]
    logits = np.asarray(a, dtype=np.float64)
    return np.asarray(slope(logits) / h(logits).sum(-1, keepdims=True) * (x - mean))


def remainder(a: ArrayLike) -> FloatArray:
    r"""Return :math:`1-\max\sigma(a)` as a sum over the other tokens, to full relative precision.

    >>> float(remainder([100.0, 0.0]))  # 1 - max(softmax) would be 0
    3.720075976020836e-44
    """
    logits = np.sort(np.asarray(a, dtype=np.float64), axis=-1)
    others = np.exp(logits[..., :-1] - logits[..., -1:]).sum(-1)
    return unwrap(others / (1.0 + others))


def velocity(
    V: ArrayLike, a: ArrayLike, g: ArrayLike, *, rho: float = 1.0, weighting: Weighting = "softmax"
) -> tuple[FloatArray, FloatArray]:
    r"""Return :math:`\dot V=-g\alpha^\top` and :math:`\dot a=-\rho J^\top V^\top g` of the flow.

    Parameters
    ----------
    V : array_like
        Values, (d, n).
    a : array_like
        Logits, (n,).
    g : array_like
        Gradient of the loss at f, (d,).
    """
    V, g = np.asarray(V, dtype=np.float64), np.asarray(g, dtype=np.float64)
    pulled = pull_back(a, g @ V, weighting=weighting)
    return -np.outer(g, attend(a, weighting=weighting)), -rho * pulled


def output_kernel(
    V: ArrayLike,
    a: ArrayLike,
    *,
    rho: float = 1.0,
    weighting: Weighting = "softmax",
    form: str = "corrected",
) -> FloatArray:
    r"""Return M of :math:`\dot f=-Mg`, the kernel that moves the output [1].

    :math:`M=|\alpha|^2I+\rho VJJ^\top V^\top`, where :math:`JJ^\top=C^2` for softmax. Ours. A line
    of the paper is said to have C in place of its square (as we know it): ``form="printed"``, for
    softmax alone.

    Examples
    --------
    >>> output_kernel([[1.0, -1.0]], [0.0, 0.0])
    array([[1.]])
    >>> output_kernel([[1.0, -1.0]], [0.0, 0.0], form="printed")
    array([[1.5]])
    """
    V = np.asarray(V, dtype=np.float64)
    VJ = pull_back(a, V, weighting=weighting)
    alpha = attend(a, weighting=weighting)
    if is_printed(form) and weighting != "softmax":
        raise InputError(f"form: only softmax has a printed form; got weighting={weighting!r}")
    return np.eye(len(V)) * (alpha @ alpha) + rho * VJ @ (V if is_printed(form) else VJ).T


def logits_from_values(
    t: ArrayLike, V: ArrayLike, sigma: ArrayLike, g: ArrayLike, *, a0: ArrayLike, rho: float = 1.0
) -> FloatArray:
    r"""Return softmax logits along a path from the norms of the values [2].

    .. math::

        a_i(t)=a_i(0)+\rho\left(\frac{|v_i(t)|^2-|v_i(0)|^2}2
               +\int_0^t\sigma_i\,\bar v\cdot g\,ds\right)

    JoMA's identity of logits and squared weights, here without an assumption. Ours. The integral is
    Simpson's rule over the records.

    Parameters
    ----------
    t : array_like
        Times of the records, (time,).
    V, sigma, g : array_like
        Records of values (time, d, n), weights (time, n) and gradients (time, d).
    """
    V, sigma, g = (np.asarray(x, dtype=np.float64) for x in (V, sigma, g))
    work = np.einsum("tdn,tn,td->t", V, sigma, g)
    lost = scipy.integrate.cumulative_simpson(
        sigma * work[:, None], x=np.asarray(t, dtype=np.float64), axis=0, initial=0.0
    )
    norms = (V**2).sum(1) / 2.0
    return np.asarray(np.asarray(a0, dtype=np.float64) + rho * (norms - norms[0] + lost))


@dataclass(frozen=True)
class Path:
    """States of the flow in one direction; the shape of what was asked for leads every array.

    scores: u, (..., n).
    logits: a, (..., n).
    weights: alpha, (..., n).
    tau, time: both times; `time` is nan without a clock.
    """

    scores: FloatArray
    logits: FloatArray
    weights: FloatArray
    tau: FloatArray
    time: FloatArray

    @property
    def output(self) -> FloatArray:
        """u-bar = alpha . u, which never falls."""
        return unwrap((self.weights * self.scores).sum(-1))


def one_direction(
    u0: ArrayLike,
    a0: ArrayLike,
    at: ArrayLike,
    *,
    along: Along = "tau",
    rho: float = 1.0,
    clock: Clock | None = None,
    weighting: Weighting = "softmax",
    rtol: float = 1e-10,
    atol: float = 1e-12,
) -> Path:
    r"""Solve the flow in one direction [3]: :math:`u'=\alpha,\ a'=\rho J^\top u`.

    Ours; exact for the logistic loss, for the square loss from :math:`V_0=0`, and for cross entropy
    whose other outputs are symmetric. :math:`\bar u'=|\alpha|^2+|a'|^2/\rho>0`, so the
    output can stand for time: a loss that stops at :math:`\bar u=b` stops on the same path [8].
    The solver works in :math:`\ln(1+\tau)`, :math:`\ln(1+t)` or :math:`\bar u`, in which softmax is
    not stiff. Weights "l1" and "relu" have a kink: their path ends where a logit reaches 0.

    Parameters
    ----------
    u0, a0 : array_like
        Scores and logits at the start, (n,), or (..., n) for several starts, which are solved as
        one equation.
    at : array_like
        Where the path is asked for: values of tau, of the flow time at the learning rate 1 of the
        values, or of the output u-bar, the last of at least the output at the start.
    rho : float, optional
        Learning rate of the logits over that of the values, divided by :math:`|\beta|^2`.
    clock : callable, optional
        dt/d tau of u-bar, such as `logistic_clock`.

    Examples
    --------
    >>> path = one_direction([0.1, 0.0], [0.0, 0.0], [1e3, 1e6])
    >>> (path.tau**2 * remainder(path.logits)).round(3)  # `tail` says 1
    array([1.014, 1.   ])
    """
    u, a = (np.asarray(x, dtype=np.float64) for x in (u0, a0))
    if u.ndim == 0 or u.shape != a.shape:
        raise InputError(f"u0: expected as many scores as logits a0, got {u.shape} and {a.shape}")
    if along not in get_args(Along):
        raise InputError(f"along: expected one of {get_args(Along)}, got {along!r}")
    if along == "time" and clock is None:
        raise InputError("clock: flow time needs one; give clock=logistic_clock, for instance")
    at_least("rho", rho, 0.0, strict=True)
    n, outputs = u.shape[-1], (attend(a, weighting=weighting) * u).sum(-1)
    if along == "output" and np.ptp(outputs) > 0:
        raise InputError("along: starts whose outputs differ share no output; take 'tau'")
    asked = at_least("at", at, outputs.max() if along == "output" else 0.0)
    variable = asked - outputs.max() if along == "output" else np.log1p(asked)

    def moved(_: float, flat: FloatArray) -> FloatArray:
        state = flat.reshape(*outputs.shape, -1)
        u, a, tau, log_time = np.split(state, [n, 2 * n, 2 * n + 1], axis=-1)
        alpha, pulled = attend(a, weighting=weighting), pull_back(a, u, weighting=weighting)
        output = (alpha * u).sum(-1, keepdims=True)
        slow = 0.0 * output if clock is None else clock(output) * np.exp(-log_time)
        per_tau = np.concatenate([alpha, rho * pulled, np.ones_like(output), slow], axis=-1)
        if along == "tau":
            return np.ravel(per_tau * (1.0 + tau))
        if along == "time":
            return np.ravel(per_tau / slow)
        return np.ravel(per_tau / (alpha**2 + rho * pulled**2).sum(-1, keepdims=True))

    start = np.concatenate([u, a, np.zeros((*outputs.shape, 2))], axis=-1)
    found = solve(moved, start.ravel(), variable, rtol=rtol, atol=atol)
    found = found.reshape(*asked.shape, *start.shape)
    time = np.expm1(found[..., -1]) if clock else np.full(found.shape[:-1], np.nan)
    logits = found[..., n : 2 * n]
    weights = attend(logits, weighting=weighting)
    return Path(found[..., :n], logits, weights, unwrap(found[..., 2 * n]), unwrap(time))


def logistic_clock(output: ArrayLike) -> FloatArray:
    r"""Return :math:`dt/d\tau=1+e^{\bar u}` of the logistic loss: late, tau is ln t [3]. Ours."""
    return unwrap(1.0 + np.exp(output))


def square_clock(target: float) -> Clock:
    r"""Return :math:`dt/d\tau=1/(b-\bar u)` of the square loss :math:`\frac12|f-\beta|^2`.

    :math:`b=|\beta|` and u is along :math:`\beta/b`; the path stops at :math:`\bar u=b` [8]. Ours.
    """

    def clock(output: FloatArray) -> FloatArray:
        with np.errstate(divide="ignore"):  # where it has stopped, to rounding
            return np.asarray(1.0 / (target - output))

    return clock


def cross_entropy_clock(outputs: int) -> Clock:
    r"""Return the clock of cross entropy with M outputs and a one-hot target, from :math:`V_0=0`.

    With u the values of the target's output, :math:`dt/d\tau=1/(1-\text{softmax}(f)_{target})
    =1+\exp(\frac M{M-1}\bar u)/(M-1)`; rho is `cross_entropy_ratio`. Ours.
    """
    M = float(at_least("outputs", outputs, 2))
    return lambda output: 1.0 + np.exp(M / (M - 1.0) * output) / (M - 1.0)


def cross_entropy_ratio(outputs: int, ratio: float = 1.0) -> float:
    r"""Return rho of cross entropy with M outputs: :math:`\frac{\eta_Z}{\eta_Y}\frac M{M-1}`.

    It makes Scan and Snap's decoder Y and logits z, with one class, one query and no l2 norm, a
    case of `one_direction` with :math:`a=z+\ln P`. Ours.

    >>> cross_entropy_ratio(6, ratio=0.1).__round__(3)
    0.12
    """
    M = float(at_least("outputs", outputs, 2))
    return float(at_least("ratio", ratio, 0.0, strict=True)) * M / (M - 1.0)


def predicted_winner(u0: ArrayLike, a0: ArrayLike) -> int | None:
    """Return the token that wins, if one leads in both scores and logits; None where none does [4].

    As we know it: from even logits and ordered scores u_1 > u_2 > ... both orders are kept and
    sigma tends to e_1. Ours: what leads in u and in a stays ahead in both.

    >>> predicted_winner([0.1, 0.3, 0.2], [0.0, 0.0, 0.0])
    1
    """
    u, a = (np.asarray(x, dtype=np.float64) for x in (u0, a0))
    leads = (u >= u.max()) & (a >= a.max())
    return int(np.argmax(leads)) if leads.sum() == 1 else None


def linear_winner(u0: ArrayLike, a0: ArrayLike, *, rho: float = 1.0) -> int:
    r"""Return the argmax of :math:`a_0+\sqrt\rho\,u_0`, the growing mode of `linear_stage`. Ours.

    The token that wins from a small random start, in nearly all starts; for two tokens the exact
    rule is the sign of :math:`2\sinh\frac\delta2+\sqrt\rho D` (the separatrix of [6]).

    >>> linear_winner([0.1, 0.0], [0.0, 0.2]), linear_winner([0.1, 0.0], [0.0, 0.2], rho=9.0)
    (1, 0)
    """
    return int(np.argmax(np.asarray(a0) + np.sqrt(rho) * np.asarray(u0)))


def gap_velocities(
    u: ArrayLike, a: ArrayLike, *, rho: float = 1.0
) -> tuple[FloatArray, FloatArray]:
    r"""Return the velocities of :math:`u_i-u_j` and :math:`a_i-a_j` in tau, (n, n) each [4, 5].

    Where :math:`a_i=a_j` the second is :math:`\rho\sigma_i(u_i-u_j)`, so logits in the order of u
    never cross. In that order no gap of u shrinks, the winner's gaps of a grow, and those between
    losers may shrink. Ours.

    >>> gap_velocities([2.0, 1.0], [0.0, 0.0])[1]
    array([[ 0. ,  0.5],
           [-0.5,  0. ]])
    """
    sigma, pulled = attend(a), rho * pull_back(a, u)
    return sigma[:, None] - sigma, pulled[:, None] - pulled


def drawdown(x: ArrayLike) -> FloatArray:
    """Return how far each series falls below its earlier maximum, at most, along the first axis.

    >>> float(drawdown([1.0, 3.0, 2.5, 4.0]))
    0.5
    """
    series = np.asarray(x, dtype=np.float64)
    return unwrap((np.maximum.accumulate(series, axis=0) - series).max(0))


def two_token_invariant(D: ArrayLike, delta: ArrayLike, *, rho: float = 1.0) -> FloatArray:
    r"""Return :math:`\frac{D^2}2-\frac{\cosh\delta}\rho`, conserved for two tokens [6]. Ours.

    :math:`D=u_1-u_2` and :math:`\delta=a_1-a_2`.
    """
    return unwrap(np.square(D) / 2.0 - np.cosh(delta) / rho)


def two_token_tau(
    delta: float, *, D0: float, delta0: float = 0.0, rho: float = 1.0
) -> tuple[float, float]:
    r"""Return tau and D when the logits of two tokens are delta apart [6], by quadrature. Ours.

    .. math::

        \tau=\int_{\delta_0}^\delta\frac{1+\cosh x}{\rho D(x)}dx,\qquad
        D(x)^2=D_0^2+\frac2\rho(\cosh x-\cosh\delta_0)

    The output there is :math:`\bar u=\frac12(u_1(0)+u_2(0)+\tau+D\tanh\frac\delta2)`.

    Parameters
    ----------
    D0, delta0 : float
        At the start, of at least 0 and not both 0: equal tokens stay equal.

    Examples
    --------
    >>> tau, D = two_token_tau(np.log(9.0), D0=0.1, rho=0.1)  # max sigma 0.9
    >>> round((tau + D * 0.8) / 2, 1)  # u-bar, from u = +-0.05
    20.8
    """
    at_least("D0", D0, 0.0)
    at_least("delta0", delta0, 0.0, strict=D0 == 0.0)
    at_least("delta", delta, delta0)

    def gap(s: float) -> float:
        """D at x = delta0 + s^2; the difference of the cosh as a product, which keeps digits."""
        grown = 2.0 * np.sinh(delta0 + s * s / 2.0) * np.sinh(s * s / 2.0)
        return float(np.sqrt(D0**2 + 2.0 / rho * grown))

    def slowness(s: float) -> float:
        # 2 s ds = dx removes the root singularity at D0 = 0
        return float(2.0 * s * (1.0 + np.cosh(delta0 + s * s)) / (rho * gap(s)))

    end = float(np.sqrt(delta - delta0))
    scale = (rho * D0**2 / 2.0) ** 0.25  # where D leaves D0, if delta0 is small
    breaks = [scale] if 0.0 < scale < end else None
    tau, _ = scipy.integrate.quad(slowness, 0.0, end, points=breaks, epsabs=0.0, epsrel=1e-11)
    return float(tau), gap(end)


def tail(tau: ArrayLike, tokens: int, *, rho: float = 1.0) -> FloatArray:
    r"""Return the law :math:`1-\max\sigma\to\frac{2(n-1)}{n\rho\tau^2}` [7]. Ours.

    For the logistic loss :math:`\tau\approx\ln t`. Losers become equal: their ratio minus 1 falls
    like :math:`\tau^{-2/n}`.

    >>> float(tail(10.0, 2))
    0.01
    """
    n = at_least("tokens", tokens, 2)
    return unwrap(2.0 * (n - 1.0) / (n * rho * np.square(at_least("tau", tau, 0.0, strict=True))))


def linear_stage(
    u0: ArrayLike, a0: ArrayLike, output: ArrayLike, *, rho: float = 1.0
) -> tuple[FloatArray, FloatArray]:
    r"""Return u and a, each less its mean, while the weights are nearly even [8]. Ours.

    With s the growth of the output, :math:`r=\sqrt\rho`, and deviations from the mean,
    :math:`\Delta a=\Delta a_0\cosh rs+r\Delta u_0\sinh rs` and
    :math:`\Delta u=\Delta u_0\cosh rs+\Delta a_0\sinh(rs)/r`. From :math:`V_0=0` the square loss
    therefore multiplies the spread of logits by :math:`\cosh(b\sqrt\rho)` and stops. The shape of
    the output leads.

    >>> linear_stage([0.0, 0.0], [0.01, -0.01], 3.0)[1].round(4)
    array([ 0.1007, -0.1007])
    """
    u, a = (np.asarray(x, dtype=np.float64) for x in (u0, a0))
    u, a, r = u - u.mean(), a - a.mean(), np.sqrt(rho)
    begin = float(attend(np.asarray(a0)) @ np.asarray(u0))
    x = r * (np.asarray(output, dtype=np.float64)[..., None] - begin)
    return u * np.cosh(x) + a * np.sinh(x) / r, a * np.cosh(x) + r * u * np.sinh(x)


def even_stage(
    u0: ArrayLike, a0: ArrayLike, t: ArrayLike, *, clock: Clock, rho: float = 1.0
) -> Path:
    r"""Return `linear_stage` in flow time t: the output grows as :math:`\bar u'=1/n` in tau. Ours.

    >>> even_stage([0.0, 0.0], [0.01, -0.01], [1e2], clock=logistic_clock).weights.round(2)
    array([[0.62, 0.38]])
    """
    u, a = (np.asarray(x, dtype=np.float64) for x in (u0, a0))
    n, begin = u.size, float(attend(a) @ u)
    time = at_least("t", t, 0.0)

    def moved(log_time: float, output: FloatArray) -> FloatArray:
        return np.asarray(np.exp(log_time) / (n * clock(output)))

    output = solve(moved, np.array([begin]), np.log1p(time), rtol=1e-10, atol=1e-12)[..., 0]
    scores, logits = linear_stage(u, a, output, rho=rho)
    scores, logits = scores + u.mean() + (output - begin)[..., None], logits + a.mean()
    return Path(scores, logits, attend(logits), unwrap(n * (output - begin)), time)


def cross_entropy_norm(target: ArrayLike) -> float:
    r"""Return b of cross entropy with interior probabilities p: the norm of the solution [8].

    From :math:`V_0=0` outputs sum to 0 and stop at :math:`\ln p` less its mean, as the square loss
    does at :math:`\beta`. Ours.

    >>> round(cross_entropy_norm([0.5, 0.25, 0.25]), 3)
    0.566
    """
    logs = np.log(between("target", target, 0.0, 1.0))
    return float(np.linalg.norm(logs - logs.mean()))


def frozen_logits(u0: ArrayLike, s: ArrayLike = np.inf, *, rho: float = 1.0) -> FloatArray:
    r"""Return logits under l2-normalised softmax, from even tokens and small scores [9]. Ours.

    With :math:`s=\tau/\sqrt n`, :math:`a''=-\rho s\,a'`, so
    :math:`a=\sqrt{\pi\rho/2}\,(u_0-\text{mean }u_0)\,\mathrm{erf}(s\sqrt{\rho/2})`: they
    freeze. From :math:`V_0=0` they never move.

    Parameters
    ----------
    s : array_like, optional
        Its shape leads the result; infinite by default.

    Examples
    --------
    >>> frozen_logits([0.001, -0.001]).round(6)
    array([ 0.001253, -0.001253])
    """
    u = np.asarray(u0, dtype=np.float64)
    grown = scipy.special.erf(at_least("s", s, 0.0) * np.sqrt(rho / 2.0))
    return np.asarray(np.sqrt(np.pi * rho / 2.0) * grown[..., None] * (u - u.mean()))


def conserved(a: ArrayLike, *, weighting: Weighting = "softmax") -> FloatArray:
    r"""Return what the flow of the logits conserves [1, 10]. Ours.

    :math:`\sum_ia_i` where a shift of the logits changes nothing (softmax, l2); :math:`|a|^2` where
    a factor changes nothing (sum, l1, relu, square). A sigmoid conserves neither.

    >>> float(conserved([1.0, 2.0], weighting="square"))
    5.0
    """
    logits = np.asarray(a, dtype=np.float64)
    _require_weighting(weighting)
    if weighting == "sigmoid":
        raise InputError("weighting: a sigmoid conserves nothing of its logits; take another")
    return unwrap((logits**2 if weighting in SHARES else logits).sum(-1))


def _require_weighting(weighting: str) -> None:
    if weighting not in get_args(Weighting):
        raise InputError(f"weighting: expected one of {get_args(Weighting)}, got {weighting!r}")

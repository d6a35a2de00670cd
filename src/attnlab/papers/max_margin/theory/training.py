"""How the weights get there: gradient, regularisation path, and what holds late in training.

The loss is L = (1/n) sum_i l(m_i) with l(m) = ln(1 + e^-m) and m_i = sum_t s_it gamma_it, so that
of values and labels only the scores gamma matter. Its gradient is

    dL/dW = (1/n) sum_i l'(m_i) sum_t s_it (gamma_it - m_i) x_it z_i^T.

Late in training gamma_it - m_i cancels at the selected token, and a normalised step amplifies what
rounding leaves. So everything here is computed from logs of s, as
s_t (gamma_t - m) = sum_tau s_t s_tau (gamma_t - gamma_tau), and scaled by the largest weight of a
token that is not selected.

Late in training (ours). Let w_mm = sum_s u_s c_s over the support vectors s, N = |w_mm|, and
a_s = |l'(gamma_alpha)| (gamma_alpha - gamma_t) / n. Near saturation (item 2)

    -dL/dw = sum_s a_s e^{-c_s . w} c_s,

which points along w_mm if and only if a_s e^{-c_s . w} is proportional to u_s. So
w = R w_mm / N + offset with, in the span of the support vectors,

    c_s . offset = ln(a_s / u_s) - k,     offset perpendicular to w_mm,

and -dL/dw = e^{k - R/N} w_mm. Normalised descent has R = eta t, so that the direction's error is
|offset| / (eta t); the flow of plain descent has dR/dt = eta N e^{k - R/N}, so that from R = 0 on
R = N ln(1 + e^k eta t). What the start and the first steps leave outside that span stays as it is,
and adds to the offset. The regularisation path has the same offset, and nothing outside the span.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import scipy
from numpy.typing import ArrayLike

from attnlab.files.errors import InputError, require_choice
from attnlab.formulas.checks import FloatArray, at_least

from .margin import locally_optimal, margin_rows, max_margin, not_selected, support

Norm = Literal["frobenius", "nuclear"]
BOUND = -0.75  # exponent of the direction's error under normalised descent: V24, as we know it


@dataclass(frozen=True)
class ScaledGradient:
    """A gradient that may be smaller than any float: e^log_scale times `value`.

    value: (..., d, k), of the order of 1.
    log_scale: log of the largest attention weight of a token that is not selected, (...).
    """

    value: FloatArray
    log_scale: FloatArray

    @property
    def gradient(self) -> FloatArray:
        """dL/dW itself, which underflows to 0 where log_scale is below -745."""
        return self.value * np.exp(self.log_scale)[..., None, None]


@dataclass(frozen=True)
class Late:
    """Late training towards a locally optimal selection (ours; see the module).

    direction: w_mm / N, (d, k).
    norm: N.
    offset: what is added to R times the direction, in the span of the support vectors, (d, k).
    constant: k.
    rows: c_s of the support vectors, (s, d k).
    """

    direction: FloatArray
    norm: float
    offset: FloatArray
    constant: float
    rows: FloatArray

    def size(self, t: ArrayLike, *, eta: float, normalised: bool) -> FloatArray:
        """Return R: eta t for normalised descent, else N ln(1 + e^k eta t)."""
        t = at_least("t", t, 0.0)
        if normalised:
            return np.asarray(eta * t)
        return np.asarray(self.norm * np.log1p(np.exp(self.constant) * eta * t))

    def weights(self, R: ArrayLike) -> FloatArray:
        """Return W = R direction + offset, (..., d, k)."""
        return np.asarray(R)[..., None, None] * self.direction + self.offset


def log_attention(x: ArrayLike, z: ArrayLike, W: ArrayLike) -> FloatArray:
    """Return ln s = ln softmax(X W z), (..., n, T).

    Examples
    --------
    >>> np.exp(log_attention([[[1.0], [0.0]]], z=[[1.0]], W=[[np.log(3.0)]]))
    array([[0.75, 0.25]])
    """
    x, z, W = (np.asarray(of, dtype=np.float64) for of in (x, z, W))
    logits = np.einsum("...ntd,...nd->...nt", x, z @ W.swapaxes(-1, -2))
    return np.asarray(scipy.special.log_softmax(logits, axis=-1))


def loss_gradient(x: ArrayLike, z: ArrayLike, scores: ArrayLike, W: ArrayLike) -> ScaledGradient:
    """Return dL/dW in arithmetic that keeps its direction however small it is.

    The formula of the module; ours, by differentiation. Leading axes are instances or times.

    Examples
    --------
    >>> found = loss_gradient([[[1.0], [0.0]]], [[1.0]], [[0.5, 0.1]], W=[[5000.0]])
    >>> float(found.log_scale), found.value.round(4), found.gradient
    (-5000.0, array([[-0.151]]), array([[-0.]]))
    """
    x, z, scores = (np.asarray(of, dtype=np.float64) for of in (x, z, scores))
    logs = log_attention(x, z, W)
    n, T = logs.shape[-2:]
    selected = np.arange(T) == logs.argmax(axis=-1)[..., None]
    log_scale = np.where(selected, -np.inf, logs).max(axis=(-2, -1))
    pairs = logs[..., :, None] + logs[..., None, :] - log_scale[..., None, None, None]
    pairs = np.where(np.eye(T, dtype=bool), -np.inf, pairs)  # e^-log_scale would overflow there
    differences = scores[..., :, None] - scores[..., None, :]
    pull = (np.exp(pairs) * differences).sum(axis=-1)
    slope = -scipy.special.expit(-(np.exp(logs) * scores).sum(axis=-1))
    by_sequence = np.einsum("...nt,...ntd->...nd", slope[..., None] / n * pull, x)
    value = by_sequence.swapaxes(-1, -2) @ z
    return ScaledGradient(value, log_scale)


def factor_gradients(
    gradient: ArrayLike, K: ArrayLike, Q: ArrayLike
) -> tuple[FloatArray, FloatArray]:
    """Return (g Q, g^T K), the gradients by the factors of W = K Q^T; released code.

    Parameters
    ----------
    gradient : array
        g = dL/dW, (d, k).
    K, Q : array
        (d, m) and (k, m).

    Examples
    --------
    >>> factor_gradients([[1.0, 2.0]], K=[[3.0]], Q=[[1.0], [0.0]])
    (array([[1.]]), array([[3.],
           [6.]]))
    """
    g, K, Q = (np.asarray(of, dtype=np.float64) for of in (gradient, K, Q))
    return g @ Q, g.swapaxes(-1, -2) @ K


def saturated_gradient(
    x: ArrayLike, z: ArrayLike, scores: ArrayLike, selected: ArrayLike, W: ArrayLike
) -> FloatArray:
    """Return dL/dW to first order in the weights of tokens that are not selected (item 2).

    -g = (1/n) sum_i |l'(gamma_alpha)| sum_t s_it (gamma_alpha - gamma_t)(x_alpha - x_t) z_i^T: an
    SVM's dual weights, positive where the selected token's score is the higher one. Ours.

    Parameters
    ----------
    W : array
        (d, k).

    Examples
    --------
    >>> x, z, scores = [[[1.0], [0.0]]], [[1.0]], [[0.5, 0.1]]
    >>> exact = loss_gradient(x, z, scores, [[9.0]]).gradient
    >>> (saturated_gradient(x, z, scores, [0], [[9.0]]) / exact).round(3)
    array([[1.]])
    """
    x, z, scores, W = (np.asarray(of, dtype=np.float64) for of in (x, z, scores, W))
    rows = margin_rows(x, z, selected)
    s = np.exp(log_attention(x, z, W))[not_selected(selected, scores.shape[-1])]
    return -((_pulls(scores, selected) * s) @ rows).reshape(W.shape)


def log_excess(x: ArrayLike, z: ArrayLike, scores: ArrayLike, W: ArrayLike) -> FloatArray:
    """Return ln(L - L*), L* = (1/n) sum_i l(max_t gamma_it), without cancellation.

    With delta_i = sum_t s_it (max gamma - gamma_it), the excess of a sequence is
    ln(1 + expit(-max gamma) (e^delta_i - 1)). Ours.

    Examples
    --------
    >>> float(log_excess([[[1.0], [0.0]]], [[1.0]], [[0.5, 0.1]], W=[[5000.0]]).round(3))
    -5001.89
    """
    scores = np.asarray(scores, dtype=np.float64)
    best = scores.max(axis=-1, keepdims=True)
    logs = log_attention(x, z, W)
    log_delta = scipy.special.logsumexp(logs, b=best - scores, axis=-1)
    delta = np.exp(log_delta)
    # expm1(delta) / delta and log1p(y) / y are 1 to first order, where delta may underflow
    small = delta < 1e-8
    grown = scipy.special.expit(-best[..., 0]) * np.expm1(np.where(small, 1.0, delta))
    each = np.where(
        small, np.log(scipy.special.expit(-best[..., 0])) + log_delta, np.log(np.log1p(grown))
    )
    return np.asarray(scipy.special.logsumexp(each, axis=-1) - np.log(each.shape[-1]))


def regularisation_path(
    x: ArrayLike,
    z: ArrayLike,
    scores: ArrayLike,
    radii: Sequence[float],
    *,
    norm: Norm = "frobenius",
) -> FloatArray:
    """Return argmin of L over |W| = R for each R, (radii, d, k); W / R goes to W_mm (item 3).

    As we know it: the limit is `max_margin` of the tokens of highest score, or `nuclear_margin`
    for the nuclear norm, which is that of K, Q with a ridge since |W|_* = min (|K|^2 + |Q|^2)/2.
    L-BFGS minimises ln(L - L*) from the programme's solution, and from the first gradient or the
    solution of the radius before; the best end is kept. From R = 1e4 on it is flat enough for the
    solver to leave a few percent of the direction's error.

    Parameters
    ----------
    radii : sequence of float
        R, in increasing order.
    norm : {"frobenius", "nuclear"}, optional
        Of the ball. With "nuclear", |K|^2 + |Q|^2 = 2 R.

    Examples
    --------
    >>> x, z, scores = [[[1.0, 0.0], [0.0, 1.0]]], [[1.0]], [[0.5, 0.1]]
    >>> regularisation_path(x, z, scores, [2.0])[0].round(4)
    array([[ 1.4142],
           [-1.4142]])
    """
    x, z, scores = (np.asarray(of, dtype=np.float64) for of in (x, z, scores))
    require_choice("norm", norm, get_args(Norm))
    shape = (x.shape[-1], z.shape[-1])
    margin = max_margin(x, z, scores.argmax(axis=-1))
    known = [margin.weights] if margin.feasible else []
    found = [-loss_gradient(x, z, scores, np.zeros(shape)).value]
    for R in at_least("radii", radii, 0.0, strict=True):
        ends = [_least_on_sphere(x, z, scores, R, start, norm) for start in [found[-1], *known]]
        found.append(min(ends, key=lambda W: float(log_excess(x, z, scores, W))))
    return np.stack(found[1:])


def late_training(x: ArrayLike, z: ArrayLike, scores: ArrayLike, selected: ArrayLike) -> Late:
    """Return the direction and offset of late training that selects these tokens (items 4, 8).

    Ours; the direction is as we know it. The selection must be locally optimal, and the support
    vectors independent, as they are for almost all data, but not for one-hot tokens that sequences
    share.

    Examples
    --------
    >>> x, z = [[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [-1.0, 0.0]]], [[1.0, 0.0], [0.0, 1.0]]
    >>> late = late_training(x, z, scores=[[0.5, 0.1], [0.5, 0.3]], selected=[0, 0])
    >>> float(late.size(1000, eta=0.1, normalised=True)), round(late.norm, 6)
    (100.0, 1.0)
    >>> late.offset.round(3)
    array([[ 0.173, -0.173],
           [-0.173, -0.173]])
    """
    scores, selected = np.asarray(scores, dtype=np.float64), np.asarray(selected)
    margin = max_margin(x, z, selected)
    if not margin.feasible:
        raise InputError("selected: no W separates these tokens; select others")
    if not locally_optimal(scores, selected, margin):
        raise InputError("selected: not locally optimal, so training leaves it; select others")
    others = not_selected(selected, scores.shape[-1])
    u = margin.dual[others]
    tight = support(margin)[others] & (u > 0)
    rows = margin_rows(x, z, selected)[tight]
    if np.linalg.matrix_rank(rows) < len(rows):
        raise InputError(
            "x: the support vectors are dependent, so that no offset has these ratios; give tokens "
            "in general position"
        )
    ratios = np.log(_pulls(scores, selected)[tight] / u[tight])
    w = margin.weights.ravel()
    offset = np.linalg.lstsq(rows, ratios, rcond=None)[0]
    constant = offset @ w / margin.norm**2
    offset = (offset - constant * w).reshape(margin.weights.shape)
    return Late(margin.weights / margin.norm, margin.norm, offset, float(constant), rows)


def direction_error(W: ArrayLike, direction: ArrayLike) -> FloatArray:
    """Return |W/|W| - D/|D|| in the Frobenius norm, (...).

    Parameters
    ----------
    W, direction : array
        (..., d, k).

    Examples
    --------
    >>> float(direction_error([[3.0, 4.0]], [[1.0, 0.0]]).round(4))
    0.8944
    """
    W, D = (np.asarray(of, dtype=np.float64) for of in (W, direction))
    unit = [of / np.linalg.norm(of, axis=(-2, -1), keepdims=True) for of in (W, D)]
    return np.asarray(np.linalg.norm(unit[0] - unit[1], axis=(-2, -1)))


def correlation(W: ArrayLike, direction: ArrayLike) -> FloatArray:
    """Return <W, D> / (|W| |D|), (...), the papers' measure of agreement.

    Parameters
    ----------
    W, direction : array
        (..., d, k).

    Examples
    --------
    >>> float(correlation([[3.0, 4.0]], [[1.0, 0.0]]).round(6))
    0.6
    """
    return np.asarray(1.0 - direction_error(W, direction) ** 2 / 2)


def _pulls(scores: FloatArray, selected: ArrayLike) -> FloatArray:
    """Return a = |l'(gamma_alpha)| (gamma_alpha - gamma_t) / n, in the order of `margin_rows`."""
    own = np.take_along_axis(scores, np.asarray(selected)[:, None], axis=1)
    pulls = scipy.special.expit(-own) * (own - scores) / len(scores)
    return np.asarray(pulls[not_selected(selected, scores.shape[-1])])


def _least_on_sphere(
    x: FloatArray, z: FloatArray, scores: FloatArray, R: float, start: FloatArray, norm: Norm
) -> FloatArray:
    """Return the W of norm R that minimises ln(L - L*) locally, by L-BFGS from `start`."""
    d, k = start.shape
    if norm == "nuclear":
        radius = np.sqrt(2 * R)  # |K|^2 + |Q|^2 = 2 R
        left, values, right = np.linalg.svd(start / np.linalg.norm(start), full_matrices=False)
        # no singular value at 0, from which the factors would not move
        root = np.sqrt(values + 0.01 * values[0])
        theta = np.concatenate([left * root, right.T * root]).ravel()
    else:
        radius, theta = R, start.ravel()

    def factors(point: FloatArray) -> list[FloatArray]:
        return np.split(point.reshape(d + k, -1), [d])

    def weights(point: FloatArray) -> FloatArray:
        if norm == "frobenius":
            return point.reshape(d, k)
        K, Q = factors(point)
        return np.asarray(K @ Q.T)

    def loss_and_slope(theta: FloatArray) -> tuple[float, FloatArray]:
        point = radius * theta / np.linalg.norm(theta)
        W = weights(point)
        loss, slope = log_excess(x, z, scores, W), loss_gradient(x, z, scores, W)
        g = slope.value * np.exp(slope.log_scale - loss)  # of ln(L - L*)
        parts = [g] if norm == "frobenius" else factor_gradients(g, *factors(point))
        along = np.concatenate(parts).ravel()
        along -= point * (point @ along) / radius**2  # what stays on the sphere
        return float(loss), radius / np.linalg.norm(theta) * along

    options = {"maxiter": 5000, "maxfun": 20_000, "ftol": 1e-15, "gtol": 1e-9}
    found = scipy.optimize.minimize(
        loss_and_slope, theta / np.linalg.norm(theta), jac=True, method="L-BFGS-B", options=options
    )
    return weights(radius * found.x / np.linalg.norm(found.x))

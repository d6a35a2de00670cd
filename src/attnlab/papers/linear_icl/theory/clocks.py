"""When attention learns: escape from zero, the drop of merged attention, the staircase of separate
attention.

Times are flow times. Late-time quantities are computed without differences of nearly equal numbers:
what is left to learn decays exponentially and stays accurate down to the smallest float64.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import ArrayLike

from attnlab.files.errors import InputError
from attnlab.formulas import solve
from attnlab.formulas.checks import FloatArray, at_least, between, unwrap

from .population import Merged, Regression, Separate, plateau_losses, population_loss

LINEAR = 1e-3  # of the final weights: below, growth is linear to LINEAR^2
ROUNDING = 1e-12  # of the loss: what is left below is noise
LONG, ESCAPED = 40.0, 1e3  # the end of a head's own clock; v there, over its start, if it escapes


class FirstGradient(NamedTuple):
    """Fastest growing direction at zero weights.

    rate: its growth rate. value: last row of W^V, (D + 1,). key_query: W^KQ, (D + 1, D). The last
    entry and the last row belong to the labels in the context.
    """

    rate: float
    value: FloatArray
    key_query: FloatArray


class Head(NamedTuple):
    """A head that learns one eigenvector: v, and what is left to learn, 1 - gamma v^3."""

    v: FloatArray
    remaining: FloatArray


def escape_rate(regression: Regression) -> float:
    """Return |Lambda^2|_F, the growth rate of merged attention at zero, along U ~ Lambda^2.

    Printed text.

    >>> round(escape_rate(Regression([0.4, 0.3, 0.2, 0.1], examples=31)), 4)
    0.1881
    """
    return float(np.linalg.norm(regression.eigenvalues**2))


def escape_time(regression: Regression, norm: ArrayLike) -> FloatArray:
    """Return ln(1/w)/|Lambda^2|_F, the paper's time of the drop for a layer of norm w at the start.

    Printed text. The paper leaves open which of the two layers w belongs to;
    `growing_start` and `drop_times` do not need to know.

    >>> float(escape_time(Regression([0.4, 0.3, 0.2, 0.1], examples=31), 1.6e-5).round(2))
    58.69
    """
    return unwrap(-np.log(at_least("norm", norm, 0.0, strict=True)) / escape_rate(regression))


def growing_start(regression: Regression, start: Merged) -> FloatArray:
    """Return c, the size of the growing part of a small start of merged attention, (...).

    Near zero v_i + <U_i, Lambda^2>/|Lambda^2| grows as exp(|Lambda^2| t), and all else stays small.
    So A follows one head with v = |U| = c, U along Lambda^2, where
    c^2 = sum_i (v_i + <U_i, Lambda^2>/|Lambda^2|)^2/4. Ours.

    >>> start = Merged(np.array([3.0]), np.array([[[1.0]]]))
    >>> float(growing_start(Regression([1.0], examples=1), start))
    2.0
    """
    along = np.einsum("...dd,d->...", start.U, regression.eigenvalues**2) / escape_rate(regression)
    return unwrap(np.linalg.norm(start.v + along, axis=-1) / 2)


def drop_times(
    regression: Regression, norm: ArrayLike, shares: ArrayLike = (0.5, 0.9, 0.99)
) -> FloatArray:
    """Return the times at which these shares of the loss that can be lost are gone, (..., shares).

    Merged attention from one head with v = |U| = `norm` along Lambda^2 (`growing_start`). Up to
    1e-3 of the final weights growth is exponential, so that starts differ by a shift in time; from
    there the flow is integrated. Ours.

    Parameters
    ----------
    norm : array_like
        c, at most 1e-3 of the final size of v, (...).
    shares : array_like
        Shares of L(0) - L(A*), increasing.

    Examples
    --------
    >>> drop_times(Regression([1.0] * 4, examples=31), 1e-6).round(2)
    array([6.82, 7.24, 7.59])
    """
    rate, starts = escape_rate(regression), at_least("norm", norm, 0.0, strict=True)
    shares = np.atleast_1d(between("shares", shares, 0.0, 1.0))
    small = LINEAR * np.sqrt(np.linalg.norm(1 / regression.gamma))
    if np.any(starts > small):
        raise InputError(
            f"norm: expected a small start, at most {small:.3g}, got {starts.max():.3g}; "
            "integrate population_flow instead"
        )
    end = -2 * (np.log(LINEAR) / rate + np.log1p(-shares[-1]) / tail_rate(regression))
    t = np.geomspace(end * 1e-5, end, 4000)
    A = one_head_curve(regression, t, norm=small)[..., None] * np.eye(regression.gamma.size)
    first, *_, last = plateau_losses(regression)
    left = np.log(np.maximum((population_loss(regression, A) - last) / (first - last), ROUNDING))
    times = np.interp(-np.log1p(-shares), -left, t)
    return np.asarray(times + np.log(small / starts)[..., None] / rate)


def one_head_curve(regression: Regression, t: ArrayLike, *, norm: float) -> FloatArray:
    """Return the diagonal of A, (..., D), of one head with v = |U| = `norm` along Lambda^2.

    The flow keeps U diagonal: v' = sum_d u_d G_d, u_d' = v G_d, G_d = lambda_d^2 (1 - gamma_d v
    u_d). Random small starts of merged attention follow it from `growing_start` on. Ours.

    >>> one_head_curve(Regression([1.0, 1.0], examples=4), [0.0, 100.0], norm=0.1).round(6)
    array([[0.007071, 0.007071],
           [0.571429, 0.571429]])
    """
    size = float(at_least("norm", norm, 0.0, strict=True))
    lam, gamma = regression.eigenvalues, regression.gamma

    def velocity(_: float, state: FloatArray) -> FloatArray:
        v, u = state[0], state[1:]
        G = lam**2 * (1 - gamma * v * u)
        return np.append(u @ G, v * G)

    start = size * np.append(1.0, lam**2 / escape_rate(regression))
    path = solve(velocity, start, at_least("t", t, 0.0), rtol=1e-9, atol=1e-9 * size)
    return np.asarray(path[..., :1] * path[..., 1:])


def tail_rate(regression: Regression) -> float:
    """Return the slowest decay rate of A - A* in merged attention after the drop.

    There v^2 = |Gamma^-1|_F and u = 1/(gamma v): the smallest eigenvalue of
    (v^2 I + u u^T) diag(lambda^2 gamma). The loss decays twice as fast. Ours.

    >>> round(tail_rate(Regression([1.0] * 4, examples=5)), 6)  # white: sqrt(D) lambda^2
    2.0
    """
    lam, gamma = regression.eigenvalues, regression.gamma
    v = np.sqrt(np.linalg.norm(1 / gamma))
    u = 1 / (gamma * v)
    root = np.sqrt(lam**2 * gamma)  # a similar symmetric matrix has the same eigenvalues
    symmetric = root[:, None] * (v**2 * np.eye(lam.size) + np.outer(u, u)) * root
    return float(np.linalg.eigvalsh(symmetric)[0])


def white_curve(
    t: ArrayLike, *, dimensions: int, examples: int, variance: float = 1.0, norm: ArrayLike
) -> FloatArray:
    """Return a(t) of A = a I for white inputs, Lambda = variance * I: a logistic curve.

    a = e^s/(gamma (e^s - 1) + sqrt(D)/m_0), s = 2 sqrt(D) lambda^2 t, m_0 = norm^2, for merged
    attention that starts balanced and along I (Eq. 10 at lambda = 1; printed text). Divided
    by e^s, so that late times do not overflow.

    Parameters
    ----------
    dimensions, examples : int
        D and N.
    variance : float, optional
        lambda of every input coordinate.

    Examples
    --------
    >>> white_curve([0.0, 1e4], dimensions=4, examples=5, norm=0.1).round(4)
    array([0.005, 0.5  ])
    """
    gamma = Regression([variance] * dimensions, examples).gamma[0]
    m = at_least("norm", norm, 0.0, strict=True) ** 2
    s = 2 * np.sqrt(dimensions) * variance**2 * at_least("t", t, 0.0)
    return unwrap(1 / (-gamma * np.expm1(-s) + np.sqrt(dimensions) / m * np.exp(-s)))


def head_time(
    regression: Regression, component: int, v0: ArrayLike, share: float = 0.5
) -> FloatArray:
    """Return when an aligned and balanced head has learned a share gamma v^3 of its component.

    The integral of the equation of `head_curve`: t = [F(v_0) - F(v)]/lambda^2 with
    F(v) = 2F1(1, -1/3; 2/3; gamma v^3)/v. For small starts it is 1/(lambda^2 v_0), the paper's time
    (printed text). The hypergeometric form is ours.

    Parameters
    ----------
    share : float, optional
        gamma v^3, between 0 and 1.

    Examples
    --------
    >>> one = Regression([1.0, 0.5], examples=31)
    >>> (head_time(one, [0, 1], 1e-4) * 1e-4).round(2)
    array([1., 4.])
    """
    lam, gamma = regression.eigenvalues[component], regression.gamma[component]
    start = between("v0", v0, 0.0, np.min(gamma ** (-1 / 3)))
    end = np.cbrt(between("share", share, 0.0, 1.0) / gamma)

    def F(v: FloatArray) -> FloatArray:
        return np.asarray(scipy.special.hyp2f1(1.0, -1 / 3, 2 / 3, gamma * v**3) / v)

    return unwrap((F(start) - F(end)) / lam**2)


def head_curve(regression: Regression, component: int, t: ArrayLike, *, v0: float) -> Head:
    """Return the head that learns eigenvector `component`, aligned and balanced (v = |k| = |q|).

    v' = lambda^2 v^2 - lambda^2 gamma v^5 (Eq. 21; printed text). It is solved as
    w' = 3 lambda^2 v with w = logit(gamma v^3), so that 1 - gamma v^3 = 1/(1 + e^w) keeps its
    relative accuracy at late times (ours).

    >>> head_curve(Regression([1.0], examples=1), 0, 1e3, v0=0.1).v.round(4)
    np.float64(0.6934)
    """
    lam, gamma = regression.eigenvalues[component], regression.gamma[component]
    start = between("v0", v0, 0.0, gamma ** (-1 / 3))

    def v_of(w: FloatArray) -> FloatArray:
        return np.cbrt(scipy.special.expit(w) / gamma)

    begin = np.array([scipy.special.logit(gamma * start**3)])
    path = solve(
        lambda _, w: 3 * lam**2 * v_of(w), begin, at_least("t", t, 0.0), rtol=1e-11, atol=1e-11
    )[..., 0]
    return Head(unwrap(v_of(path)), unwrap(scipy.special.expit(-path)))


def blow_up_times(regression: Regression, start: Separate) -> FloatArray:
    """Return when each head of separate attention would escape from A = 0 by itself, (..., H).

    While A is near zero heads do not feel each other. With p = k + q, m = k - q, V = integral of v:
    p_d = p_d(0) exp(lambda_d^2 V), m_d = m_d(0) exp(-lambda_d^2 V) and

        v' = 1/4 sum_d lambda_d^2 [p_d(0)^2 exp(2 lambda_d^2 V) - m_d(0)^2 exp(-2 lambda_d^2 V)],

    summed over ranks too; v is infinite at the time t*. The smallest t* predicts the first drop
    with no fit. Ours. Where v crosses zero first, V turns round.

    >>> one = Separate(np.array([0.1]), np.array([[[0.1]]]), np.array([[[0.1]]]))
    >>> blow_up_times(Regression([0.5], examples=1), one).round(6)  # balanced: 1/(lambda^2 v_0)
    array([40.])
    """
    p, m = ((of**2).sum(-2) for of in (start.k + start.q, start.k - start.q))
    return _blow_up(start.v, p, m, regression.eigenvalues**2)


def staircase_times(regression: Regression, start: Separate) -> FloatArray:
    """Return when separate attention with R = 1 learns half of each component, (D,), with no fit.

    On plateau m the drive is zero along the learned eigenvectors and Lambda^2 along the others, so
    that the heads that have not escaped go on as in `blow_up_times` with the spectrum that is left.
    The head that escapes next learns component m + 1. Half of it is learned a little before t*,
    since `head_time` = 1/(lambda^2 v_0) - F(v_half)/lambda^2. Infinite where no head is left. Ours;
    drops are taken as instantaneous, so that it is asymptotic in the start.

    >>> k = 0.001 * np.eye(2)[:, None]
    >>> pair = Separate(np.array([0.001, 0.001]), k, k)
    >>> staircase_times(Regression([1.0, 0.5], examples=31), pair).round(0)
    array([ 999., 3997.])
    """
    v, k, q = (np.asarray(of, dtype=np.float64) for of in start)
    if k.shape[-2] != 1:
        raise InputError(f"start: a staircase needs rank 1, got {k.shape[-2]}; see plateau_losses")
    lam, gamma = regression.eigenvalues, regression.gamma
    p, m = (k + q)[..., 0, :], (k - q)[..., 0, :]
    before = np.cbrt(2 * gamma) * scipy.special.hyp2f1(1.0, -1 / 3, 2 / 3, 0.5) / lam**2
    found, now = np.full((*v.shape[:-1], lam.size), np.inf), np.zeros(v.shape[:-1])
    for d in range(min(lam.size, v.shape[-1])):
        c = lam[d:] ** 2
        times = _blow_up(v, p**2, m**2, c)
        now = now + times.min(-1)
        found[..., d] = now - before[d]
        others = np.arange(v.shape[-1]) != times.argmin(-1)[..., None]
        v, p, m = (
            of[others].reshape(*others.shape[:-1], -1, *of.shape[others.ndim :]) for of in (v, p, m)
        )
        if v.size:
            v, p, m = _advanced(v, p, m, c, times.min(-1))
        p, m = p[..., 1:], m[..., 1:]
    return found


def staircase_curve(regression: Regression, start: Separate, t: ArrayLike) -> FloatArray:
    """Return how far each component is learned, gamma_d A_dd, (..., D), with no fit.

    Each component rises as the equation of `head_curve` has it, half at its time in
    `staircase_times`: where growth is small beside w' = 3 lambda^2 v. Ours.

    >>> k = 0.001 * np.eye(2)[:, None]
    >>> pair = Separate(np.array([0.001, 0.001]), k, k)
    >>> staircase_curve(Regression([1.0, 0.5], 31), pair, [0.0, 2000.0]).round(3)
    array([[0., 0.],
           [1., 0.]])
    """
    times, t = staircase_times(regression, start), at_least("t", t, 0.0)
    learned = np.zeros((*t.shape, times.size))
    w = np.linspace(-40.0, 20.0, 1201)  # logit(gamma v^3)
    for d, half in enumerate(times):
        if np.isfinite(half):
            v = np.cbrt(scipy.special.expit(w) / regression.gamma[d])
            at = half - head_time(regression, d, v)
            learned[..., d] = scipy.special.expit(np.interp(t, at, w))
    return learned


def first_gradient(
    regression: Regression, fresh: float = 1.0, shared: ArrayLike = 1.0
) -> FirstGradient:
    """Return what a mixture of in-context and in-weight sequences teaches first.

    A share `fresh` of the sequences has a task of its own, the others have the task `shared` (by
    default all ones, of norm sqrt(D)). With all blocks of W^V and W^KQ free, weights near zero grow
    along the top singular pair of E[(X X^T/N)_ab x_qc y_q], as a matrix a x (b c); its singular
    value is the growth rate. For fresh = 1 that is `escape_rate`. Ours.

    Parameters
    ----------
    fresh : float, optional
        Share of sequences with a task of their own.
    shared : array_like, optional
        Task of the others, (D,).

    Examples
    --------
    >>> one = first_gradient(Regression([0.25] * 4, examples=31), fresh=0.4)
    >>> round(float((one.key_query[-1] ** 2).sum()), 2)
    0.76
    """
    lam, N = regression.eigenvalues, regression.examples
    if not 0 <= fresh <= 1:
        raise InputError(f"fresh: expected a share from 0 to 1, got {fresh}")
    D, old = lam.size, 1 - fresh
    w = np.broadcast_to(np.asarray(shared, dtype=np.float64), D)
    g, Lambda = lam * w, np.diag(lam)
    correlation = fresh * Lambda**2 + old * np.outer(g, g)
    B = np.zeros((D + 1, D + 1, D))
    B[D, :D] = B[:D, D] = correlation
    B[D, D] = old * (w @ g) * g
    own = np.einsum("ab,c->abc", Lambda, g)  # and what x_q adds to X X^T, by Isserlis
    mixed = own + np.einsum("ac,b->abc", Lambda, g) + np.einsum("bc,a->abc", Lambda, g)
    B[:D, :D] = old * (own + mixed / N)
    left, sizes, right = np.linalg.svd(B.reshape(D + 1, -1), full_matrices=False)
    return FirstGradient(float(sizes[0]), left[:, 0], right[0].reshape(D + 1, D))


def _force(V: FloatArray, p: FloatArray, m: FloatArray, c: FloatArray) -> FloatArray:
    """Return v' of heads by themselves, (..., H); p and m are squares."""
    grown = np.exp(2 * c * V[..., None])
    return np.asarray((c * (p * grown - m / grown)).sum(-1) / 4)


def _blow_up(v: FloatArray, p: FloatArray, m: FloatArray, c: FloatArray) -> FloatArray:
    """Return t* of heads by themselves, (..., H); p and m are squares, c = lambda^2.

    With v in units of the start's size and t in those of the fastest growth, and by a clock of its
    own for each head, ds = sqrt(1 + v^2) dt, v grows as e^s at most; what is left of t is e^-s.
    """
    fastest = np.where((p > 0) | (m > 0), c, 0.0).max(-1)
    size = np.sqrt(v**2 + (p + m).sum(-1))

    def velocity(_: float, state: FloatArray) -> FloatArray:
        _, V, v = state.reshape(3, *size.shape)
        pull = _force(V / fastest, p, m, c) / (fastest * size**2)
        return np.ravel(np.stack([np.ones_like(v), v, pull]) / np.hypot(1.0, v))

    start = np.stack([0 * v, 0 * v, v / size]).ravel()
    t, _, end = solve(velocity, start, np.asarray(LONG), rtol=1e-10, atol=1e-13).reshape(
        3, *v.shape
    )
    return np.asarray(np.where(abs(end) > ESCAPED, t / (fastest * size), np.inf))


def _advanced(
    v: FloatArray, p: FloatArray, m: FloatArray, c: FloatArray, time: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return heads by themselves after `time`, (...)."""

    def velocity(_: float, state: FloatArray) -> FloatArray:
        V, v = state.reshape(2, *p.shape[:-1])
        return np.ravel(np.stack([v, _force(V, p**2, m**2, c)]) * time[..., None])

    start = np.stack([0 * v, v]).ravel()
    V, v = solve(velocity, start, np.asarray(1.0), rtol=1e-10, atol=1e-14).reshape(2, *v.shape)
    grown = np.exp(c * V[..., None])
    return v, p * grown, m / grown

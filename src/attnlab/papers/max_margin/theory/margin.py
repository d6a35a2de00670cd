"""Which direction the weights take: the shortest matrix that separates the selected tokens.

Attention selects one token alpha_i of each sequence once its weights are large. The papers' answer
to the direction in which they grow is a hard-margin support vector machine,

    W_mm = argmin |W|   such that   (x_{i,alpha_i} - x_{it})^T W z_i >= 1   for all i, t != alpha_i,

with the Frobenius norm where W is trained and the nuclear norm where its factors K, Q are. Written
with the rows c = vec((x_{i,alpha_i} - x_{it}) z_i^T) it is a least-distance problem in w = vec(W),
which nonnegative least squares solves (Lawson and Hanson, Solving Least Squares Problems, ch. 23).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from attnlab.files.errors import InputError
from attnlab.formulas import Unsolved
from attnlab.formulas.checks import FloatArray, IntArray, at_least

LONGEST = 1e6  # a solution of this length would have a margin of 1e-6: rounding, so infeasible
FULFILLED = 1e-6  # the most by which a constraint may be missed
RELAXATION = 1.6  # of the alternating direction method; 1.5 to 1.8 is usual
SETTLED = 1e-9  # it ends once its two copies of W agree and move by less, relative to W
MOST_STEPS = 20_000
TIGHT = 1e-6  # the most by which a support vector's margin differs from 1


@dataclass(frozen=True)
class Margin:
    """The solution of a programme over W; numbers are NaN where no W fulfils it.

    weights: W, (d, k).
    dual: multipliers of the constraints (n, T), 0 at the selected tokens; W_mm = sum of u c for the
        Frobenius norm, and the sum of u is the squared length; for the nuclear norm it is |W|_*.
    margins: (x_selected - x_t)^T W z, (n, T), 0 at the selected tokens.
    gap: the relative gap between |W| and the dual bound, which certifies the solution.
    """

    weights: FloatArray
    dual: FloatArray
    margins: FloatArray
    gap: float

    @property
    def feasible(self) -> bool:
        """True if a W that separates the selected tokens exists."""
        return bool(np.isfinite(self.gap))

    @property
    def norm(self) -> float:
        """Frobenius norm of W; its inverse is the margin of the direction."""
        return float(np.linalg.norm(self.weights))


@dataclass(frozen=True)
class SeveralTokens:
    """The parts of weights under which several tokens of a sequence keep attention.

    finite: W_fin, (d, k), which holds the ratios of the kept weights.
    margin: W_mm, (d, k), along which the weights grow; NaN where none exists.
    size: R, from a least-squares fit to the trained W.
    """

    finite: FloatArray
    margin: FloatArray
    size: float

    @property
    def weights(self) -> FloatArray:
        """W_fin + R W_mm."""
        return self.finite + self.size * self.margin


def max_margin(x: ArrayLike, z: ArrayLike, selected: ArrayLike) -> Margin:
    """Return the shortest W, in the Frobenius norm, that separates the selected tokens (item 1).

    Released code; here by nonnegative least squares. T23's model, with one trained vector p in
    place of W z_i, is the case z_i = 1, (n, 1).

    Examples
    --------
    >>> max_margin([[[1.0, 0.0], [0.0, 1.0]]], z=[[1.0, 0.0]], selected=[0]).weights
    array([[ 0.5,  0. ],
           [-0.5,  0. ]])
    """
    x, z, selected = _checked(x, z, selected)
    return _shortest(x, z, selected, not_selected(selected, x.shape[1]))


def nuclear_margin(x: ArrayLike, z: ArrayLike, selected: ArrayLike) -> Margin:
    """Return the W of least nuclear norm that separates the selected tokens (item 1).

    Released code, there with a general solver; here by the alternating direction method: project
    on the constraints (a least-distance problem), lower the singular values. The multipliers
    make a dual bound, max sum u such that the largest singular value of sum u c is 1.

    Examples
    --------
    >>> found = nuclear_margin([[[1.0, 0.0], [0.0, 1.0]]], z=[[1.0, 0.0]], selected=[0])
    >>> found.weights.round(6) + 0.0
    array([[ 0.5,  0. ],
           [-0.5,  0. ]])
    """
    x, z, selected = _checked(x, z, selected)
    rows = margin_rows(x, z, selected)
    w, u = least_distance(rows)
    if np.isnan(u).any():
        return _margin(x, z, selected, w, u, np.nan)
    shape = (x.shape[-1], z.shape[-1])
    size = float(np.linalg.norm(w))
    w = w / size  # margins of 1/size make W, and the first threshold, of the order of 1
    low, shift, threshold = w, np.zeros_like(w), 1.0
    for number in range(MOST_STEPS):
        start = low - shift
        step, u = least_distance(rows, 1.0 / size - rows @ start)
        w = start + step
        mixed = RELAXATION * w + (1 - RELAXATION) * low
        before, low = low, _lower(mixed + shift, shape, threshold)
        shift = shift + mixed - low
        apart, moved = np.linalg.norm(w - low), np.linalg.norm(low - before)
        if max(apart, moved) < SETTLED:
            break
        # a nearly singular solution needs a threshold that is smaller by orders of magnitude
        if number % 10 == 9 and max(apart, moved) > 5 * min(apart, moved):
            factor = 0.5 if apart > moved else 2.0
            threshold, shift = factor * threshold, factor * shift
    else:
        raise Unsolved(f"the nuclear programme is not solved after {MOST_STEPS:,} steps")
    low = low * size
    # w satisfies the constraints exactly, low has the exact rank: they agree to the tolerance
    u = u / np.linalg.norm((u @ rows).reshape(shape), 2)
    nuclear = float(np.linalg.norm(low.reshape(shape), "nuc"))
    return _margin(x, z, selected, low, u, abs(nuclear - u.sum()) / nuclear)


def margin_rows(x: ArrayLike, z: ArrayLike, selected: ArrayLike) -> FloatArray:
    """Return the constraints' rows c = vec((x_selected - x_t) z^T), (n (T - 1), d k).

    Sequences come first, then tokens in order without the selected one.

    Examples
    --------
    >>> margin_rows([[[1.0, 0.0], [0.0, 1.0]]], z=[[1.0, 2.0]], selected=[1])
    array([[-1., -2.,  1.,  2.]])
    """
    x, z, selected = _checked(x, z, selected)
    n, T, _ = x.shape
    differences = x[np.arange(n), selected][:, None] - x
    rows = np.einsum("ntd,nk->ntdk", differences, z).reshape(n, T, -1)
    return np.asarray(rows[not_selected(selected, T)])


def least_distance(
    rows: ArrayLike, bounds: ArrayLike | None = None, equal: ArrayLike | None = None
) -> tuple[FloatArray, FloatArray]:
    """Return the shortest w with rows w >= bounds and equal w = 0, and the multipliers u >= 0.

    Without `equal`, w = rows^T u. With E = (rows^T; bounds^T) and f = (0, ..., 0, 1), the residual
    r = E u - f of nonnegative least squares gives w = -r / r_last; r = 0 means infeasible.

    Parameters
    ----------
    rows : array
        (constraints, dimensions).
    bounds : array, optional
        1 by default.
    equal : array, optional
        Rows whose products with w are to vanish.

    Returns
    -------
    w : array
        NaN where nothing fulfils the constraints.
    u : array
        NaN there too.

    Examples
    --------
    >>> w, u = least_distance([[1.0, 0.0], [1.0, 1.0]])
    >>> w, u
    (array([1., 0.]), array([1., 0.]))
    >>> least_distance([[1.0], [-1.0]])[0]
    array([nan])
    """
    rows = np.asarray(rows, dtype=np.float64)
    h = np.ones(len(rows)) if bounds is None else np.asarray(bounds, dtype=np.float64)
    if equal is not None and len(np.asarray(equal)):
        basis = scipy.linalg.null_space(np.asarray(equal, dtype=np.float64))
        inner, u = least_distance(rows @ basis, h)
        return basis @ inner, u
    E = np.vstack([rows.T, h])
    f = np.append(np.zeros(rows.shape[1]), 1.0)
    u, _ = scipy.optimize.nnls(E, f)
    r = E @ u - f
    # -r_last = 1 / (1 + |w|^2); what is left of it by rounding does not fulfil the constraints
    if -r[-1] * LONGEST**2 > 1:
        w, u = -r[:-1] / r[-1], -u / r[-1]
        if np.all(rows @ w >= h - FULFILLED * (1 + np.abs(h))):
            return w, u
    return np.full(rows.shape[1], np.nan), np.full(len(rows), np.nan)


def support(margin: Margin) -> NDArray[np.bool_]:
    """Return which tokens are support vectors, whose constraint is tight, (n, T) (item 2).

    As we know it.

    Examples
    --------
    >>> support(max_margin([[[0.0], [1.0], [3.0]]], z=[[1.0]], selected=[2]))
    array([[False,  True, False]])
    """
    return np.asarray((margin.margins != 0) & (margin.margins < 1 + TIGHT))


def locally_optimal(scores: ArrayLike, selected: ArrayLike, margin: Margin) -> bool:
    """Return True if every selected token has a higher score than its support vectors (item 2).

    As we know it. Only then are the weights of an SVM's dual, which the gradient near saturation
    has (`saturated_gradient`), positive.

    Parameters
    ----------
    margin : Margin
        The solution for these selected tokens.

    Examples
    --------
    >>> margin = max_margin([[[0.0], [1.0], [3.0]]], z=[[1.0]], selected=[2])
    >>> locally_optimal([[0.9, 0.1, 0.5]], [2], margin)
    True
    """
    scores, selected = np.asarray(scores, dtype=np.float64), np.asarray(selected)
    own = np.take_along_axis(scores, selected[:, None], axis=1)
    return margin.feasible and bool(np.all((own > scores) | ~support(margin)))


def pulled_margin(x: ArrayLike, z: ArrayLike, scores: ArrayLike, selected: ArrayLike) -> Margin:
    """Return the shortest W that separates the selected tokens from those of lower score (ours).

    Only these pull on W near saturation. For a locally optimal selection without equal scores it is
    `max_margin`. A sequence that selects a token of its lowest score constrains nothing, and W goes
    to the solution of the other sequences; see `stays_selected`.

    Examples
    --------
    >>> x, scores = [[[1.0, 0.0], [0.0, 0.0]], [[2.0, 0.0], [0.0, 1.0]]], [[0.6, 0.1], [0.1, 0.6]]
    >>> pulled_margin(x, [[1.0], [1.0]], scores, selected=[0, 0]).weights.ravel()
    array([1., 0.])
    """
    x, z, selected = _checked(x, z, selected)
    scores = np.asarray(scores, dtype=np.float64)
    lower = scores < np.take_along_axis(scores, selected[:, None], axis=1)
    if not lower.any():
        raise InputError("selected: no sequence has a token of lower score; select others")
    return _shortest(x, z, selected, lower)


def stays_selected(scores: ArrayLike, selected: ArrayLike, margin: Margin) -> bool:
    """Return True if training along `pulled_margin` keeps the selected tokens (ours).

    Tokens of higher score must be behind by more than 1, so that their pull, e^{-R margin / N},
    vanishes against that of the support vectors; tokens of equal score by more than 0. So not
    every start leads to the tokens of highest score, even where all others have equal scores.

    Parameters
    ----------
    margin : Margin
        `pulled_margin` of these tokens.

    Examples
    --------
    >>> x, scores = [[[1.0, 0.0], [0.0, 0.0]], [[2.0, 0.0], [0.0, 1.0]]], [[0.6, 0.1], [0.1, 0.6]]
    >>> stays_selected(scores, [0, 0], pulled_margin(x, [[1.0], [1.0]], scores, [0, 0]))
    True
    """
    scores, selected = np.asarray(scores, dtype=np.float64), np.asarray(selected)
    own = np.take_along_axis(scores, selected[:, None], axis=1)
    needed = np.where(scores > own, 1.0, 0.0)
    behind = (margin.margins > needed) | ~not_selected(selected, scores.shape[1])
    return margin.feasible and bool(behind.all())


def sufficient_dimension(n: int, T: int) -> int:
    """Return max(T - 1, n): from this d on almost all data are separable (item 5).

    As we know it. The bound is sufficient and far from necessary.

    Parameters
    ----------
    n, T : int
        Numbers of sequences and of tokens in each.

    Examples
    --------
    >>> sufficient_dimension(6, 8)
    7
    """
    return max(T - 1, n)


def rank(weights: ArrayLike, *, tolerance: float = 1e-6) -> int:
    """Return the number of singular values above `tolerance` times the largest.

    The Frobenius solution has at most min(n, d), its row space being in the span of the z_i
    (item 6; ours). NaN is refused: an infeasible programme has no rank, whereas numpy gives 1 for
    None, and the released code printed that.

    Parameters
    ----------
    weights : array
        (d, k).
    tolerance : float, optional
        Relative to the largest singular value.

    Examples
    --------
    >>> rank([[1.0, 0.0], [0.0, 1e-9]])
    1
    """
    weights = np.asarray(weights, dtype=np.float64)
    if not np.isfinite(weights).all():
        raise InputError("weights: an infeasible programme has no rank; count feasible ones only")
    values = np.linalg.svd(weights, compute_uv=False)
    return int(np.sum(values > tolerance * values[0])) if values[0] else 0


def several_tokens(
    x: ArrayLike, z: ArrayLike, attention: ArrayLike, W: ArrayLike, *, least: float = 1e-3
) -> SeveralTokens:
    """Return W_fin and W_mm of weights that keep several tokens of a sequence, and R (item 7).

    Released code. With O_i the tokens that keep weight: W_fin is the shortest with
    (x_t - x_tau)^T W z_i = ln(s_t / s_tau) on O_i; W_mm the shortest with these differences 0 on
    O_i and >= 1 from O_i to the other tokens; W = W_fin + R W_mm, R by least squares. The two parts
    are orthogonal.

    Parameters
    ----------
    attention : array
        Attention weights s of the trained model, (n, T).
    W : array
        The trained weights, (d, k).
    least : float, optional
        Tokens of at least this weight are kept.

    Examples
    --------
    >>> x, z = [[[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]], [[1.0]]
    >>> found = several_tokens(x, z, [[0.8, 0.2, 0.0]], W=[[5.0], [4.0]])
    >>> found.margin.ravel(), round(found.size, 6)
    (array([1., 1.]), 4.5)
    """
    x, z, first = _checked(x, z, np.argmax(attention, axis=-1))
    s, W = np.asarray(attention, dtype=np.float64), np.asarray(W, dtype=np.float64)
    rows = margin_rows(x, z, first)
    others = not_selected(first, x.shape[1])
    kept = (s >= least)[others]
    if kept.all():
        raise InputError("attention: every token keeps weight; raise `least`, or train for longer")
    ratios = np.log(s.max(axis=-1, keepdims=True) / np.where(s >= least, s, 1.0))[others]
    finite = np.linalg.lstsq(rows[kept], ratios[kept], rcond=None)[0] if kept.any() else 0.0
    w, _ = least_distance(rows[~kept], equal=rows[kept])
    size = float(W.ravel() @ w / (w @ w))
    return SeveralTokens(
        np.broadcast_to(finite, w.shape).reshape(W.shape), w.reshape(W.shape), size
    )


def one_hot_margin(sequences: Sequence[Sequence[int]], selected: ArrayLike, L: int) -> FloatArray:
    """Return the row of logits of one query to which one-hot tokens go in direction, (L,) (item 9).

    Ours. Repeats of a token only shift its logit by ln(count), so distinct tokens count once. The
    row of a lone sequence of T' distinct tokens is (T' - 1)/T' at the winner, -1/T' at the others.

    Parameters
    ----------
    sequences : sequence of sequences
        The tokens in each sequence class of the query.
    selected : array
        The token that each class selects, by its number among the L.
    L : int
        Tokens of the vocabulary.

    Examples
    --------
    >>> one_hot_margin([[0, 1, 2, 2]], [1], L=4).round(3)
    array([-0.333,  0.667, -0.333,  0.   ])
    """
    one_hot, rows = np.eye(L), []
    for tokens, winner in zip(sequences, np.asarray(selected).tolist(), strict=True):
        if winner not in tokens:
            raise InputError(f"selected: {winner} is not one of the tokens {list(tokens)}")
        rows += [one_hot[winner] - one_hot[token] for token in sorted(set(tokens) - {winner})]
    return least_distance(rows)[0]


def not_selected(selected: ArrayLike, T: int) -> NDArray[np.bool_]:
    """Return a mask of the tokens that are not selected, (n, T), in the order of `margin_rows`."""
    return np.asarray(np.arange(T) != np.asarray(selected)[:, None])


def _checked(
    x: ArrayLike, z: ArrayLike, selected: ArrayLike
) -> tuple[FloatArray, FloatArray, IntArray]:
    x, z = np.asarray(x, dtype=np.float64), np.asarray(z, dtype=np.float64)
    chosen = at_least("selected", selected, 0).astype(np.int64)
    if x.ndim != 3 or z.ndim != 2 or chosen.shape != z.shape[:1] or x.shape[:1] != z.shape[:1]:
        raise InputError(
            "x: expected x (n, T, d), z (n, k) and selected (n,), got shapes "
            f"{x.shape}, {z.shape} and {chosen.shape}"
        )
    if x.shape[1] < 2 or np.any(chosen >= x.shape[1]):
        raise InputError(f"selected: expected two tokens or more, and numbers below {x.shape[1]}")
    return x, z, chosen


def _shortest(
    x: FloatArray, z: FloatArray, selected: IntArray, behind: NDArray[np.bool_]
) -> Margin:
    """Return the shortest W that separates the selected tokens from those in `behind`, (n, T)."""
    rows, kept = margin_rows(x, z, selected), behind[not_selected(selected, x.shape[1])]
    u = np.zeros(len(rows))
    w, u[kept] = least_distance(rows[kept])
    return _margin(x, z, selected, w, u, abs(w @ w - u.sum()) / max(w @ w, 1.0))


def _margin(
    x: FloatArray, z: FloatArray, selected: IntArray, w: FloatArray, u: FloatArray, gap: float
) -> Margin:
    W = w.reshape(x.shape[-1], z.shape[-1])
    logits = np.einsum("ntd,dk,nk->nt", x, W, z)
    dual = np.zeros(logits.shape)
    dual[not_selected(selected, x.shape[1])] = u
    margins = np.take_along_axis(logits, selected[:, None], axis=1) - logits
    return Margin(W, dual, margins, float(gap))


def _lower(w: FloatArray, shape: tuple[int, int], threshold: float) -> FloatArray:
    """Lower all singular values by `threshold`, to 0 at least."""
    left, values, right = np.linalg.svd(w.reshape(shape), full_matrices=False)
    return np.asarray((left * np.maximum(values - threshold, 0.0)) @ right).ravel()

"""Population loss, its gradient flow, its fixed points and its plateaus.

A sequence has a task w ~ N(0, I), inputs x_1..x_N and x_q ~ N(0, Lambda), and labels y = w . x.
With beta = (1/N) sum_n y_n x_n, linear attention whose remaining blocks are zero predicts

    y_hat = beta^T A x_q,    A = sum_i v_i U_i (merged) or sum_i v_i sum_r k_ir q_ir^T (separate).

All matrices are in the eigenbasis of Lambda = diag(lambda). A rotation of the inputs rotates A and
nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from attnlab.files.errors import InputError, require_whole
from attnlab.formulas import solve
from attnlab.formulas.checks import FloatArray, at_least, unwrap


@dataclass(frozen=True)
class Regression:
    """In-context linear regression on Gaussian inputs.

    Parameters
    ----------
    spectrum : sequence of float
        lambda, the eigenvalues of the input covariance, largest first.
    examples : int
        N, labelled examples in a context; the query is not counted.

    Examples
    --------
    >>> Regression([0.5, 0.25], examples=4).gamma
    array([0.8125, 0.5   ])
    """

    spectrum: Sequence[float]
    examples: int

    def __post_init__(self) -> None:
        eigenvalues = np.atleast_1d(at_least("spectrum", self.spectrum, 0.0, strict=True))
        if eigenvalues.ndim != 1 or np.any(np.diff(eigenvalues) > 0):
            raise InputError(
                f"spectrum: expected eigenvalues, largest first, got {self.spectrum}; sort them"
            )
        require_whole("examples", self.examples, 1)
        object.__setattr__(self, "spectrum", tuple(eigenvalues.tolist()))

    @property
    def eigenvalues(self) -> FloatArray:
        """lambda as an array, (D,)."""
        return np.asarray(self.spectrum)

    @property
    def gamma(self) -> FloatArray:
        """gamma_d = (1 + 1/N) lambda_d + tr(Lambda)/N, (D,): E[S^2] = Lambda Gamma.

        S = (1/N) sum_n x_n x_n^T. Ours (derived).
        """
        lam, N = self.eigenvalues, self.examples
        return np.asarray((1 + 1 / N) * lam + lam.sum() / N)


class Merged(NamedTuple):
    """Weights, or a path, of merged attention: v, (..., H); U, (..., H, D, D)."""

    v: FloatArray
    U: FloatArray

    @property
    def matrix(self) -> FloatArray:
        """A = sum_i v_i U_i, (..., D, D)."""
        return np.einsum("...h,...hde->...de", self.v, self.U)

    def moved_by(self, G: FloatArray) -> Merged:
        """Return v_i' = <U_i, G> and U_i' = v_i G, at one time."""
        return Merged(np.einsum("hde,de->h", self.U, G), self.v[:, None, None] * G)


class Separate(NamedTuple):
    """The same of attention with separate key and query: v, (..., H); k and q, (..., H, R, D)."""

    v: FloatArray
    k: FloatArray
    q: FloatArray

    @property
    def matrix(self) -> FloatArray:
        """A = sum_i v_i sum_r k_ir q_ir^T, (..., D, D)."""
        return np.einsum("...h,...hrd,...hre->...de", self.v, self.k, self.q)

    def moved_by(self, G: FloatArray) -> Separate:
        """Return v_i' = sum_r k_ir^T G q_ir, k_ir' = v_i G q_ir and q_ir' = v_i G^T k_ir."""
        Gq, v = self.q @ G.T, self.v[:, None, None]
        return Separate((self.k * Gq).sum((-1, -2)), v * Gq, v * (self.k @ G))


Weights = TypeVar("Weights", Merged, Separate)


def population_loss(regression: Regression, A: ArrayLike) -> FloatArray:
    """Return the expected loss L(A) = E (y_q - y_hat)^2, (...).

    L(A) = tr Lambda - 2 tr(Lambda^2 A) + tr(Lambda A^T Lambda Gamma A). Ours (derived).

    >>> float(population_loss(Regression([1.0], examples=1), [[0.0]]))
    1.0
    """
    lam, gamma, A = regression.eigenvalues, regression.gamma, np.asarray(A, dtype=np.float64)
    linear = np.einsum("d,...dd->...", lam**2, A)
    square = np.einsum("d,...de,e->...", lam * gamma, A**2, lam)
    return unwrap(lam.sum() - 2 * linear + square)


def drive(regression: Regression, A: ArrayLike) -> FloatArray:
    """Return G(A) = -1/2 dL/dA = Lambda^2 - Lambda Gamma A Lambda, (..., D, D).

    Ours (derived).

    >>> drive(Regression([1.0], examples=1), [[0.25]])
    array([[0.25]])
    """
    lam, gamma = regression.eigenvalues, regression.gamma
    return np.asarray(np.diag(lam**2) - (lam * gamma)[:, None] * np.asarray(A) * lam)


def velocity(regression: Regression, at: Weights) -> Weights:
    """Return the velocity of the flow dW/dt = -1/2 dL/dW, by the drive (ours).

    >>> velocity(Regression([1.0], 1), Merged(np.zeros(1), np.full((1, 1, 1), 2.0))).v
    array([2.])
    """
    return at.moved_by(drive(regression, at.matrix))


def population_flow(
    regression: Regression, start: Weights, t: ArrayLike, *, rtol: float = 1e-9, atol: float = 1e-12
) -> Weights:
    """Return the weights at the flow times t.

    >>> k = 0.1 * np.eye(2)[:, None]
    >>> pair = Separate(np.array([0.1, 0.1]), k, k)
    >>> population_flow(Regression([1.0, 0.5], 4), pair, [0.0, 1000.0]).matrix[1].round(4)
    array([[0.6154, 0.    ],
           [0.    , 1.    ]])
    """
    kind, like = type(start), [np.asarray(of, dtype=np.float64) for of in start]
    _require_shapes(regression, *like)

    def moved(_: float, flat: FloatArray) -> FloatArray:
        return _packed(velocity(regression, kind(*_unpacked(flat, *like))))

    path = solve(moved, _packed(like), at_least("t", t, 0.0), rtol=rtol, atol=atol)
    return kind(*_unpacked(path, *like))


def invariants(at: Merged | Separate) -> FloatArray:
    """Return what the flow conserves of each head, v_i^2 less the squares of a factor (ours).

    v_i^2 - |U_i|^2, (..., 1, H); or v_i^2 - sum_r |k_ir|^2 and the same of q, (..., 2, H).

    >>> k = np.ones((1, 1, 2))
    >>> invariants(Separate(np.array([3.0]), k, 2 * k))
    array([[7.],
           [1.]])
    """
    v, *factors = at
    return np.stack([v**2 - (of**2).sum((-1, -2)) for of in factors], axis=-2)


def optimum(regression: Regression) -> FloatArray:
    """Return A* = Gamma^-1, (D, D), the only fixed point of merged attention besides A = 0.

    Eq. 11; printed text: A* = (Lambda + (Lambda + tr(Lambda) I)/N)^-1.

    >>> optimum(Regression([1.0], examples=1))
    array([[0.33333333]])
    """
    return np.diag(1 / regression.gamma)


def fixed_points(regression: Regression) -> FloatArray:
    """Return the 2^D fixed points of separate attention with R = 1, (2^D, D, D).

    Each fits a subset S of eigenvectors: A = sum over d in S of e_d e_d^T / gamma_d. They are
    counted as functions; in weight space each is a manifold. Printed text.

    >>> fixed_points(Regression([0.4, 0.3, 0.2, 0.1], examples=31)).shape
    (16, 4, 4)
    """
    D = len(regression.spectrum)
    learned = np.indices((2,) * D).reshape(D, -1).T.astype(np.float64)
    return np.asarray(learned[:, :, None] * optimum(regression))


def plateau_matrix(regression: Regression, components: int) -> FloatArray:
    """Return the fixed point that fits the first `components` eigenvectors, (D, D).

    Printed text.

    >>> plateau_matrix(Regression([1.0, 0.5], examples=4), 1).round(4)
    array([[0.6154, 0.    ],
           [0.    , 0.    ]])
    """
    if not 0 <= components <= len(regression.spectrum):
        raise InputError(f"components: expected 0 to {len(regression.spectrum)}, got {components}")
    return np.asarray(optimum(regression) * (np.arange(len(regression.spectrum)) < components))


def plateau_losses(regression: Regression, rank: int = 1) -> FloatArray:
    """Return the losses of the conspicuous plateaus, from no component to all.

    L(M_m) = tr Lambda - sum_{d <= m} lambda_d (1 + (1 + tr Lambda/lambda_d)/N)^-1, Eq. 19 (printed
    text), at the m that `rank` divides, and at D. The paper prints "m divides R"; it is R
    that divides m.

    Parameters
    ----------
    rank : int, optional
        R of every head.

    Examples
    --------
    >>> plateau_losses(Regression([0.4, 0.3, 0.2, 0.1], examples=31)).round(8)
    array([1.        , 0.64057971, 0.37737216, 0.2098046 , 0.13599507])
    """
    lam, N = regression.eigenvalues, regression.examples
    require_whole("rank", rank, 1)
    gains = lam / (1 + (1 + lam.sum() / lam) / N)
    levels = lam.sum() - np.concatenate([[0.0], np.cumsum(gains)])
    return np.asarray(levels[sorted({*range(0, lam.size, rank), lam.size})])


def principal_regression(
    x: ArrayLike, y: ArrayLike, query: ArrayLike, components: int
) -> FloatArray:
    """Return the prediction of principal component regression from the context.

    Least squares on the first `components` coordinates of the inputs. Printed text:
    attention on plateau m tends to it as N grows.

    Parameters
    ----------
    x, y, query : array_like
        Inputs (..., N, D), labels (..., N) and query input (..., D), in the eigenbasis.

    Examples
    --------
    >>> float(principal_regression([[1.0, 0.0], [2.0, 0.0]], [3.0, 6.0], [1.0, 5.0], 1).round(6))
    3.0
    """
    m = components
    x, query = (np.asarray(of, dtype=np.float64)[..., :m] for of in (x, query))
    weights = np.linalg.pinv(x) @ np.asarray(y, dtype=np.float64)[..., None]
    return unwrap((weights[..., 0] * query).sum(-1))


def released_clock(
    steps: ArrayLike, *, learning_rate: float, examples: int, factors: int
) -> tuple[FloatArray, float]:
    """Return the flow time of steps of the released code, and the factor of its weights.

    That code leaves out 1/N of attention and 1/2 of the flow. With f factors in a product of
    weights (2 merged, 3 separate), flow time is 2 eta N^(2/f) steps and weights are N^(1/f) times
    the code's. Ours (derived).

    Parameters
    ----------
    steps : array_like
        Steps of gradient descent.
    learning_rate : float
        eta of the released code.
    examples : int
        N.
    factors : int
        f.

    Examples
    --------
    >>> time, weight = released_clock(6001, learning_rate=0.001, examples=31, factors=2)
    >>> float(time.round(3)), round(weight, 4)
    (372.062, 5.5678)
    """
    scale = examples ** (1 / factors)
    return unwrap(2 * learning_rate * scale**2 * np.asarray(steps, dtype=np.float64)), scale


def _require_shapes(regression: Regression, v: FloatArray, *others: FloatArray) -> None:
    D = len(regression.spectrum)
    for of in others:
        if v.ndim != 1 or of.ndim != 3 or of.shape[0] != v.size or of.shape[-1] != D:
            raise InputError(
                f"start: expected (heads,) and (heads, ..., {D}), got {v.shape} and {of.shape}"
            )


def _packed(arrays: Sequence[FloatArray]) -> FloatArray:
    return np.concatenate([of.ravel() for of in arrays])


def _unpacked(flat: FloatArray, *like: FloatArray) -> list[FloatArray]:
    """Split the last axis of `flat` into arrays of the shapes of `like`."""
    parts = np.split(flat, np.cumsum([of.size for of in like])[:-1], axis=-1)
    return [part.reshape(*flat.shape[:-1], *of.shape) for part, of in zip(parts, like, strict=True)]

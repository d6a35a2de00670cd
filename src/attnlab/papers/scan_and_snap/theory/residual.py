"""Section 7: a residual connection, and the roles of tokens within each query."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnlab.formulas.checks import (
    Contexts,
    FloatArray,
    class_weights,
    contexts,
    count_queries,
    is_printed,
    query_rows,
    shares,
    vocabulary,
)
from attnlab.formulas.tokens import by_query, unit_attention
from attnlab.papers.scan_and_snap.theory.attention import class_velocity
from attnlab.papers.scan_and_snap.theory.coefficients import beta
from attnlab.papers.scan_and_snap.theory.correlations import gram


class LocalRoles(NamedTuple):
    """Roles within each query, as in Section 7.

    Attributes
    ----------
    common
        For each query m and token l, (Q, L).
    distinct
        For each class n and token l, (K, L).
    """

    common: NDArray[np.bool_]
    distinct: NDArray[np.bool_]


def local_roles(P: Contexts, *, psi: ArrayLike | None = None) -> LocalRoles:
    """Distinct and common tokens within psi^-1(m), the classes that share query m (Section 7).

    Parameters
    ----------
    P : array_like or SequenceClasses
        P(l|n): a row for each class, a column for each contextual token, (K, L). `SequenceClasses`
        bring psi, M and the shares of the classes with them.
    psi : array_like, optional
        The row of z of each class, 0 to Q - 1, as `classes.query_index` has it. By default one
        query for all.

    Returns
    -------
    LocalRoles
        The roles.

    Examples
    --------
    >>> from attnlab.papers.scan_and_snap.theory import local_roles
    >>> local_roles([[0.5, 0.5, 0], [0.5, 0, 0.5]], psi=[0, 1]).common  # two queries
    array([[False, False, False],
           [False, False, False]])
    """
    P, rows = contexts(P, psi)
    present = P > 0
    count = by_query(present.astype(np.float64), rows, count_queries(rows))
    return LocalRoles(count > 1, present & (count[rows] == 1))


def residual_correlation(E: ArrayLike, *, psi: ArrayLike | None = None) -> FloatArray:
    """E of the decoder's input when the query is added: f-bar_n = (f_n + e_psi(n)) / sqrt 2.

    Off the diagonal it is (E_nn' + 1[psi(n) = psi(n')]) / 2, for query tokens that do not occur as
    context. Classes of one query are thus at least 1/2 correlated: Assumption 2 fails as soon as
    two classes share a query.

    Parameters
    ----------
    E : array_like
        Correlations between the classes, (..., K, K), with 0 on the diagonal (`correlation`).
    psi : array_like, optional
        The row of z of each class, 0 to Q - 1, as `classes.query_index` has it. By default one
        query for all.

    Returns
    -------
    ndarray
        E-bar, (..., K, K).

    Examples
    --------
    >>> from attnlab.papers.scan_and_snap.theory import residual_correlation
    >>> residual_correlation([[0.0, 0.1], [0.1, 0.0]])
    array([[0.  , 0.55],
           [0.55, 0.  ]])
    """
    E = np.asarray(E, dtype=np.float64)
    rows = query_rows(psi, E.shape[-1])
    shared = (rows[:, None] == rows).astype(np.float64)
    np.fill_diagonal(shared, 0.0)
    return np.asarray((E + shared) / 2.0)


def residual_beta(
    E: ArrayLike, *, psi: ArrayLike | None = None, M: float, form: str = "corrected"
) -> FloatArray:
    """The beta_nn' that takes Eq. 10's place when there is a residual connection (Section 7).

    Printed: f_n.f_n' + 1 for classes of one query and 0 otherwise (the "much larger" terms kept,
    the others dropped, as in Section 7's g). Corrected: half of Eq. 88 at `residual_correlation`.
    The half comes from the two normalisations, and Eq. 10 holds with this beta exactly under the
    modified update of the decoder. Across queries it is neither 0 nor always positive, because
    E-bar is not small; so roles within a query do not decide a token's fate by themselves.

    Parameters
    ----------
    E : array_like
        Correlations between the classes, (..., K, K), with 0 on the diagonal (`correlation`).
    psi : array_like, optional
        The row of z of each class, 0 to Q - 1, as `classes.query_index` has it. By default one
        query for all.
    M : float
        Size of the vocabulary.
    form : {"corrected", "printed"}
        Our correction, or the paper as printed.

    Returns
    -------
    ndarray
        beta in units of gamma, (..., K, K).

    Examples
    --------
    >>> from attnlab.papers.scan_and_snap.theory import residual_beta
    >>> residual_beta([[0.0, 0.1], [0.1, 0.0]], M=1000).round(3)
    array([[0.   , 0.395],
           [0.395, 0.   ]])
    """
    E = np.asarray(E, dtype=np.float64)
    if not is_printed(form):
        return np.asarray(beta(residual_correlation(E, psi=psi), M=M) / 2.0)
    rows = query_rows(psi, E.shape[-1])
    shared = (rows[:, None] == rows).astype(np.float64)
    np.fill_diagonal(shared, 0.0)
    return np.asarray(shared * (E + 1.0))


def residual_velocity(
    P: Contexts,
    z: ArrayLike,
    *,
    psi: ArrayLike | None = None,
    M: float | None = None,
    weight: ArrayLike | None = None,
    form: str = "corrected",
) -> FloatArray:
    """dz/dtau with a residual connection: `attention_velocity` with `residual_beta`.

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
        Our correction, or the paper as printed.

    Returns
    -------
    ndarray
        The velocity, in the shape of z.

    Examples
    --------
    >>> from attnlab.papers.scan_and_snap.theory import residual_velocity
    >>> residual_velocity([[0.5, 0.5, 0], [0.5, 0, 0.5]], [0, 0, 0], M=100).round(3)
    array([[-0.219,  0.11 ,  0.11 ]])
    """
    M, weight = vocabulary(P, M), shares(P, weight)
    P, rows = contexts(P, psi)
    z = np.atleast_2d(np.asarray(z, dtype=np.float64))
    f = unit_attention(P, z, psi=rows)
    terms = class_velocity(f, residual_beta(gram(f), psi=rows, M=M, form=form))
    return by_query(class_weights(weight, len(P))[:, None] * terms, rows, z.shape[-2])

"""Delta: how discriminative and how frequent a token is (JoMA, claim 2, as we know it).

At the start the outputs are equal, and the gradient that arrives at hidden unit j, which is the
logit of label j, is g_j = 1[j is the label] - 1/J. What first moves v_jl is

    Delta_jl = E[g_j x_l] = P(l) E[g_j | l] = P(l) (P(j|l) - 1/J),

frequency times discriminancy. Scan and Snap's two kinds of tokens are the two ends of the second
factor: it vanishes where a token says nothing about the label (a common token, equally frequent
under all labels), and is largest where one label alone has the token (a distinct token).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from attnlab.formulas.checks import Contexts, FloatArray
from attnlab.papers.joma.theory.gradient import Mixture, mixture


def start_gradient(s: Mixture) -> FloatArray:
    """g at equal outputs: 1[j is the label of class n] - 1/J.

    Parameters
    ----------
    s : Mixture
        Labelled classes (`mixture`).

    Returns
    -------
    ndarray
        g, (K, J).

    Examples
    --------
    >>> from attnlab.papers.joma.theory import mixture, start_gradient
    >>> start_gradient(mixture([[0.5, 0.5, 0], [0.5, 0, 0.5]]))
    array([[ 0.5, -0.5],
           [-0.5,  0.5]])
    """
    return np.asarray(s.wanted - 1.0 / s.wanted.shape[1])


def delta(
    P: Contexts | Mixture,
    *,
    psi: ArrayLike | None = None,
    weight: ArrayLike | None = None,
    target: ArrayLike | None = None,
) -> FloatArray:
    """Delta of each query, label and token, at equal outputs: frequency times discriminancy.

    The share P(m) of a query is part of it, since it is part of what moves v: the sum over queries
    is the whole.

    Parameters
    ----------
    P : array_like, SequenceClasses or Mixture
        P(l|n): a row for each class, a column for each contextual token, (K, L). `SequenceClasses`
        and a `Mixture` bring the following three with them.
    psi : array_like, optional
        The row of z of each class, 0 to Q - 1, as `classes.query_index` has it. By default one
        query for all.
    weight : array_like, optional
        How often each class is drawn, P(n); 1/K by default.
    target : array_like, optional
        The label of each class, numbered from 0 without gaps. By default each class has its own, or
        what `SequenceClasses` have as next tokens.

    Returns
    -------
    ndarray
        Delta, (Q, J, L).

    Examples
    --------
    >>> from attnlab.papers.joma.theory import delta
    >>> delta([[0.5, 0.5, 0], [0.5, 0, 0.5]])[0]  # what both classes have says nothing
    array([[ 0.   ,  0.125, -0.125],
           [ 0.   , -0.125,  0.125]])
    """
    s = mixture(P, psi=psi, weight=weight, target=target)
    return np.einsum("kq,kj,kl->qjl", s.owner, start_gradient(s), s.P)


def discriminancy(
    P: Contexts | Mixture,
    *,
    psi: ArrayLike | None = None,
    weight: ArrayLike | None = None,
    target: ArrayLike | None = None,
) -> FloatArray:
    """How much a token tells of the label under each query, from 0 to 1.

    The norm over labels of E[g_j | l, m] = P(j|l,m) - 1/J, over its largest value sqrt(1 - 1/J): 0
    if all labels are equally likely given the token, 1 if one is certain.

    Parameters
    ----------
    P : array_like, SequenceClasses or Mixture
        P(l|n): a row for each class, a column for each contextual token, (K, L). `SequenceClasses`
        and a `Mixture` bring the following three with them.
    psi : array_like, optional
        The row of z of each class, 0 to Q - 1, as `classes.query_index` has it. By default one
        query for all.
    weight : array_like, optional
        How often each class is drawn, P(n); 1/K by default.
    target : array_like, optional
        The label of each class, numbered from 0 without gaps. By default each class has its own, or
        what `SequenceClasses` have as next tokens.

    Returns
    -------
    ndarray
        (Q, L); nan where the query never sees the token.

    Examples
    --------
    >>> from attnlab.papers.joma.theory import discriminancy
    >>> discriminancy([[0.5, 0.5, 0], [0.5, 0, 0.5]]).round(9)
    array([[0., 1., 1.]])
    """
    s = mixture(P, psi=psi, weight=weight, target=target)
    with np.errstate(invalid="ignore", divide="ignore"):
        expected = delta(s) / s.by_query(s.P)[:, None, :]
    J = s.wanted.shape[1]
    return np.asarray(np.linalg.norm(expected, axis=1) / np.sqrt(1.0 - 1.0 / J))

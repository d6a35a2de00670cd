"""Delta: how discriminative and how frequent a token is (JoMA, claim 2 as we have it from memory).

At the start the outputs are equal, and the gradient that arrives at hidden unit j, which is the
logit of label j, is g_j = 1[j is the label] - 1/J. What first moves v_jl is

    Delta_jl = E[g_j x_l] = P(l) E[g_j | l] = P(l) (P(j|l) - 1/J),

frequency times discriminancy. Scan and Snap's two kinds of tokens are the two ends of the second
factor: it vanishes where a token says nothing about the label (a common token, equally frequent
under all labels), and is largest where one label alone has the token (a distinct token).
"""

import numpy as np
from numpy.typing import ArrayLike

from attnlab.theory._check import Contexts, FloatArray
from attnlab.theory.joma.gradient import Mixture, mixture


def start_gradient(s: Mixture) -> FloatArray:
    """g (K, J) at equal outputs: 1[j is the label of class n] - 1/J."""
    return np.asarray(s.wanted - 1.0 / s.wanted.shape[1])


def delta(
    P: Contexts | Mixture,
    *,
    psi: ArrayLike | None = None,
    weight: ArrayLike | None = None,
    target: ArrayLike | None = None,
) -> FloatArray:
    """Delta of each query, label and token, (Q, J, L), at equal outputs.

    P, psi, weight, target: as in `joint_gradient`. The share P(m) of a query is part of it, since
    it is part of what moves v: the sum over queries is the whole.
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
    """How much a token tells of the label under each query, from 0 to 1, (Q, L).

    The norm over labels of E[g_j | l, m] = P(j|l,m) - 1/J, over its largest value sqrt(1 - 1/J):
    0 if all labels are equally likely given the token, 1 if one is certain; nan where the query
    never sees it.
    """
    s = mixture(P, psi=psi, weight=weight, target=target)
    with np.errstate(invalid="ignore", divide="ignore"):
        expected = delta(s) / s.by_query(s.P)[:, None, :]
    J = s.wanted.shape[1]
    return np.asarray(np.linalg.norm(expected, axis=1) / np.sqrt(1.0 - 1.0 / J))

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

from attnlab.formulas.checks import FloatArray
from attnlab.formulas.setting import Setting, SettingLike
from attnlab.papers.joma.theory.gradient import by_query


def start_gradient(setting: SettingLike) -> FloatArray:
    """g at equal outputs: 1[j is the label of class n] - 1/J, (K, J).

    >>> start_gradient([[0.5, 0.5, 0], [0.5, 0, 0.5]])
    array([[ 0.5, -0.5],
           [-0.5,  0.5]])
    """
    wanted = Setting.of(setting).wanted
    return np.asarray(wanted - 1.0 / wanted.shape[1])


def delta(setting: SettingLike) -> FloatArray:
    """Delta of each query, label and token, at equal outputs: frequency times discriminancy.

    The share P(m) of a query is part of it, since it is part of what moves v: the sum over queries
    is the whole. Returns Delta, (Q, J, L).

    >>> delta([[0.5, 0.5, 0], [0.5, 0, 0.5]])[0]  # what both classes have says nothing
    array([[ 0.   ,  0.125, -0.125],
           [ 0.   , -0.125,  0.125]])
    """
    s = Setting.of(setting)
    return np.einsum("kq,kj,kl->qjl", s.owner, start_gradient(s), s.P)


def discriminancy(setting: SettingLike) -> FloatArray:
    """How much a token tells of the label under each query, from 0 to 1.

    The norm over labels of E[g_j | l, m] = P(j|l,m) - 1/J, over its largest value sqrt(1 - 1/J): 0
    if all labels are equally likely given the token, 1 if one is certain. Returns (Q, L); nan where
    the query never sees the token.

    >>> discriminancy([[0.5, 0.5, 0], [0.5, 0, 0.5]]).round(9)
    array([[0., 1., 1.]])
    """
    s = Setting.of(setting)
    with np.errstate(invalid="ignore", divide="ignore"):
        expected = delta(s) / by_query(s, s.P)[:, None, :]
    J = s.wanted.shape[1]
    return np.asarray(np.linalg.norm(expected, axis=1) / np.sqrt(1.0 - 1.0 / J))

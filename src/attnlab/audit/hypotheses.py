"""Hypotheses as checks on classes and rates: each says its value, its bound and its margin.

A hypothesis holds when its margin is positive. Where the paper asks for "much larger", the margin
says only by how much it is larger; a reader can judge whether that is much.
"""

from __future__ import annotations

import numpy as np

from attnlab import theory
from attnlab.audit.settings import Setting
from attnlab.theory import Part

# What counts as equal among given probabilities.
EQUAL = 1e-9


def _above(name: str, value: float, bound: float) -> Part:
    return Part(name, float(value), float(bound), float(value - bound))


def _below(name: str, value: float, bound: float) -> Part:
    return Part(name, float(value), float(bound), float(bound - value))


def query_from_next(setting: Setting) -> tuple[Part, ...]:
    """m = psi(n): each next token belongs to one class (Section 3.2)."""
    shared = int(np.unique(setting.classes.next_token, return_counts=True)[1].max())
    return (_below("classes of one next token", shared, 2),)


def uniform_classes(setting: Setting) -> tuple[Part, ...]:
    """Each class appears uniformly (Theorem 1)."""
    spread = float(np.abs(setting.classes.prior * setting.K - 1.0).max())
    return (_below("K max |P(n) - 1/K|", spread, EQUAL),)


def fast_decoder(setting: Setting) -> tuple[Part, ...]:
    """eta_Y >> eta_Z (Assumption 1c)."""
    ratio = setting.eta_y / setting.eta_z if setting.eta_z > 0 else np.inf
    return (_above("eta_Y / eta_Z", ratio, 1.0),)


def weak_correlations(setting: Setting) -> tuple[Part, ...]:
    """Assumption 2, part by part."""
    return tuple(theory.assumption_2(setting.E, M=setting.M))


def large_vocabulary(setting: Setting) -> tuple[Part, ...]:
    """M >> 100 (Theorem 1)."""
    return (_above("M, for M >> 100", setting.M, 100),)


def rate_window(setting: Setting) -> tuple[Part, ...]:
    """M^-0.99 << eta_Y < 1 (Theorem 1); we let eta_Y = 1 in, as nothing changes there."""
    return (
        _above("eta_Y, above M^-0.99", setting.eta_y, setting.M**-0.99),
        _below("eta_Y, at most 1", setting.eta_y, 1.0 + EQUAL),
    )


def many_steps(setting: Setting) -> tuple[Part, ...]:
    """t >> K^2 (Theorem 1)."""
    return (_above("steps / K^2", setting.steps / setting.K**2, 1.0),)


def single_common_token(setting: Setting) -> tuple[Part, ...]:
    """|G_CT| = 1 (Theorem 2b, Section 6)."""
    count = int(theory.token_roles(setting.P).common.sum())
    return (Part("common tokens, exactly 1", count, 1.0, 1.0 if count == 1 else -abs(count - 1.0)),)


def single_query(setting: Setting) -> tuple[Part, ...]:
    """All classes share the query (Section 6, Corollary 2)."""
    return (_below("queries", setting.classes.queries.size, 2),)


def equal_norms(setting: Setting) -> tuple[Part, ...]:
    """The normalisation of f_n is the same for every class (Section 6)."""
    norms = np.linalg.norm(setting.P, axis=1)
    return (_below("spread of |P_n|", float(norms.max() / norms.min() - 1.0), EQUAL),)


def symmetric_classes(setting: Setting) -> tuple[Part, ...]:
    """Hypotheses 2 and 3 of Corollary 2: matching distinct tokens, shared common probabilities."""
    common, distinct = theory.token_roles(setting.P)
    profiles = np.sort(np.where(distinct, setting.P, 0.0), axis=1)
    shared = setting.P[:, common]
    return (
        _below("mismatch of distinct tokens", float(np.ptp(profiles, axis=0).max()), EQUAL),
        _below("mismatch of common tokens", float(np.ptp(shared, axis=0).max(initial=0.0)), EQUAL),
    )


def distinct_tokens(setting: Setting) -> tuple[Part, ...]:
    """Some class of every query has a distinct token (Theorem 2b)."""
    owners = np.asarray(theory.token_roles(setting.P).distinct.any(axis=1))
    queries = np.unique(setting.psi)
    least = min(int(owners[setting.psi == query].sum()) for query in queries)
    return (_above("classes of a query that own a distinct token", least, 0.0),)


# What `attnlab audit CLASSES` reports, with the statement that asks for it.
ASKED = (
    ("Section 3.2", query_from_next),
    ("Assumption 1c", fast_decoder),
    ("Assumption 2", weak_correlations),
    ("Theorem 1", uniform_classes),
    ("Theorem 1", large_vocabulary),
    ("Theorem 1", rate_window),
    ("Theorem 1", many_steps),
    ("Theorem 2b, 4", single_common_token),
    ("Theorem 2b", distinct_tokens),
    ("Corollary 2, Theorem 4", single_query),
    ("Corollary 2", symmetric_classes),
    ("Theorem 4", equal_norms),
)

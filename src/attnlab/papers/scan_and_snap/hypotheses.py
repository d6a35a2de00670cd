"""Hypotheses on classes and rates, each with its value, its bound and how it is read.

Where the paper asks for "much larger" we say how much we take that to be: `MUCH` times, and
`FAST` times for the rate of the decoder, whose neglected terms go as eta_Z/eta_Y.
"""

import numpy as np

from attnlab import formulas
from attnlab.theory import Case, Hypothesis
from attnlab.theory.relation import ABOVE, AT_LEAST, AT_MOST, BELOW, EQUAL, much_greater

from . import theory

MUCH = 10.0
FAST = 30.0
# What counts as equal among given probabilities.
EQUALS = 1e-9


def query_from_next(case: Case) -> tuple[Hypothesis, ...]:
    """m = psi(n): each next token belongs to one class."""
    shared = int(np.unique(case.classes.next_token, return_counts=True)[1].max())
    return (Hypothesis("Section 3.2", "m = psi(n): classes of one next token", shared, AT_MOST, 1),)


def long_sequences(case: Case) -> tuple[Hypothesis, ...]:
    """No positions and T to infinity. The audit's model has no positions."""
    return (
        Hypothesis("Assumption 1(a)", "no positional encoding: biases in the model", 0, AT_MOST, 0),
        Hypothesis("Assumption 1(b)", "T -> infinity: 1/T", 1.0 / case.length, AT_MOST, 0),
    )


def zero_decoder(case: Case) -> tuple[Hypothesis, ...]:
    """Y(0) = 0, from where the decoder's solution starts."""
    return (Hypothesis("Theorem 1", "Y(0) = 0: its entries", case.decoder_start, AT_MOST, 0),)


def fast_decoder(case: Case) -> tuple[Hypothesis, ...]:
    """eta_Y >> eta_Z."""
    ratio = case.eta_y / case.eta_z if case.eta_z > 0 else np.inf
    ratio = float(f"{ratio:.12g}")  # of rates in decimals, it may miss the bound in the last bit
    says = "eta_Y >> eta_Z: their ratio"
    return (Hypothesis("Assumption 1(c)", says, ratio, much_greater(FAST), 1),)


def weak_correlations(case: Case) -> tuple[Hypothesis, ...]:
    """Assumption 2, part by part (at the start: overlaps shrink in training)."""
    vocabulary, largest, smallest, _ = theory.assumption_2(theory.correlation(case), M=case.M)
    source, floor = "Assumption 2", "all |lambda_i(E)| >= 6/sqrt(M)"
    return (
        Hypothesis(source, "M >> K^2: M/K^2", vocabulary.value, much_greater(MUCH), 1),
        Hypothesis(source, "|lambda_1(E)| < 1/K", largest.value, BELOW, largest.bound),
        Hypothesis(source, floor, smallest.value, AT_LEAST, smallest.bound),
    )


def weak_correlations_with_residual(case: Case) -> tuple[Hypothesis, ...]:
    """|lambda_1| < 1/K for what the decoder sees with a residual connection, LN(f_n + x_T).

    Two classes of one query are at least 1/2 correlated then, so that no classes that share a query
    are inside.
    """
    radius = np.abs(np.linalg.eigvalsh(theory.residual_correlation(case))).max()
    says = "|lambda_1| < 1/K for the overlaps with the residual"
    return (Hypothesis("Assumption 2", says, float(radius), BELOW, 1.0 / case.K),)


def uniform_classes(case: Case) -> tuple[Hypothesis, ...]:
    """Each class appears uniformly."""
    spread = float(np.abs(case.classes.prior * case.K - 1.0).max())
    says = "each class appears uniformly: K max |P(n) - 1/K|"
    return (Hypothesis("Theorem 1", says, spread, AT_MOST, EQUALS),)


def large_vocabulary(case: Case) -> tuple[Hypothesis, ...]:
    """M >> 100."""
    return (Hypothesis("Theorem 1", "M >> 100: M", case.M, much_greater(MUCH), 100),)


def rate_window(case: Case) -> tuple[Hypothesis, ...]:
    """M^-0.99 << eta_Y < 1."""
    floor, says = case.M**-0.99, "eta_Y >> M^-0.99: eta_Y"
    return (
        Hypothesis("Theorem 1", says, case.eta_y, much_greater(MUCH), floor),
        Hypothesis("Theorem 1", "eta_Y < 1", case.eta_y, BELOW, 1),
    )


def many_steps(case: Case) -> tuple[Hypothesis, ...]:
    """t >> K^2."""
    ratio = case.steps / case.K**2
    return (Hypothesis("Theorem 1", "t >> K^2: t/K^2", ratio, much_greater(MUCH), 1),)


def single_common_token(case: Case) -> tuple[Hypothesis, ...]:
    """|G_CT| = 1."""
    count = int(formulas.token_roles(case).common.sum())
    return (Hypothesis("Theorem 2(b), Section 6", "|G_CT| = 1: common tokens", count, EQUAL, 1),)


def single_query(case: Case) -> tuple[Hypothesis, ...]:
    """All classes share the query."""
    count = int(case.classes.queries.size)
    return (Hypothesis("Corollary 2, Section 6", "one query for all classes", count, EQUAL, 1),)


def equal_norms(case: Case) -> tuple[Hypothesis, ...]:
    """The normalisation of f_n is the same for every class."""
    norms = np.linalg.norm(case.P, axis=1)
    spread = float(norms.max() / norms.min() - 1.0)
    return (Hypothesis("Section 6", "one rho_0: spread of |P_n|", spread, AT_MOST, EQUALS),)


def symmetric_classes(case: Case) -> tuple[Hypothesis, ...]:
    """Hypotheses 2 and 3 of Corollary 2: matching distinct tokens, shared common probabilities."""
    found, source = theory.corollary_2(case), "Corollary 2"
    symmetry = "symmetry: mismatch of distinct tokens"
    shared = "P(l|n) = rho_l: mismatch of common tokens"
    return (
        Hypothesis(source, symmetry, found.asymmetry, AT_MOST, EQUALS),
        Hypothesis(source, shared, found.spread, AT_MOST, EQUALS),
    )


def distinct_tokens(case: Case) -> tuple[Hypothesis, ...]:
    """Some class of every query has a distinct token."""
    owners = np.asarray(formulas.token_roles(case).distinct.any(axis=1))
    queries = np.unique(case.psi)
    least = min(int(owners[case.psi == query].sum()) for query in queries)
    says = "classes of a query that own a distinct token"
    return (Hypothesis("Theorem 2(b)", says, least, ABOVE, 0),)


# What the decoder's solution asks for; what Eq. 10 stands on, what training adds to it, all that
# Theorem 1 asks for, and what other statements do.
DECODER = (weak_correlations, uniform_classes)
EQ_10 = (query_from_next, uniform_classes, weak_correlations)
ASSUMPTION_1 = (long_sequences, fast_decoder)
ALONG_EQ_10 = (*ASSUMPTION_1, *EQ_10)
ONE_COMMON = (*ALONG_EQ_10, single_common_token)
WEAKLY_CORRELATED = (*ASSUMPTION_1, weak_correlations)
LEARNING = (large_vocabulary, rate_window)
THEOREM_1 = (*ALONG_EQ_10, *LEARNING, many_steps)
COROLLARY_2 = (*EQ_10, single_query, symmetric_classes)
RATES_CHANGED = (*ASSUMPTION_1, rate_window, weak_correlations)
WITH_RESIDUAL = (*ALONG_EQ_10, weak_correlations_with_residual)
SECTION_6 = (single_query, single_common_token, equal_norms)
SNAPPING = (rate_window, *SECTION_6)

# What `attnlab audit CLASSES` reports.
ASKED = (
    *THEOREM_1,
    single_common_token,
    distinct_tokens,
    single_query,
    symmetric_classes,
    equal_norms,
)

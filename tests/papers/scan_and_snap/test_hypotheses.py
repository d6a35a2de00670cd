"""Hypotheses say their value, their bound and how they are read, and can be met and missed."""

from dataclasses import replace

import numpy as np
import pytest

from attnlab.papers.scan_and_snap import cases
from attnlab.papers.scan_and_snap import hypotheses as h
from attnlab.papers.scan_and_snap.claims.extension import TWO_QUERIES
from attnlab.papers.scan_and_snap.classes import syn_medium
from attnlab.tasks.classes import SequenceClasses, local_common, random
from attnlab.theory.facts import Case


def holds(check, case):
    return all(hypothesis.holds for hypothesis in check(case))


def test_with_a_residual_classes_that_share_a_query_are_outside_assumption_2():
    for seed, K in ((0, 2), (1, 2), (2, 3), (3, 6)):
        classes = random(40, K, concentration=5.0, overlap=0.2, seed=seed)
        (part,) = h.weak_correlations_with_residual(Case(classes, 0.9, 0.03, 1e3))
        assert part.value >= 0.5 >= part.bound
        assert not part.holds


@pytest.mark.parametrize(
    "case", [cases.WEAK, cases.UNEVEN, cases.LATE, cases.TURNING, cases.SYMMETRIC, TWO_QUERIES]
)
def test_built_in_examples_are_within_all_assumptions(case):
    for assumption in h.THEOREM_1:
        for hypothesis in assumption(case):
            assert hypothesis.holds, str(hypothesis)


def test_much_is_said():
    (ratio,) = h.fast_decoder(cases.WEAK)
    assert (ratio.value, ratio.needed) == (30.0, 30.0)
    assert not holds(h.fast_decoder, cases.WEAK.at(eta_z=cases.WEAK.eta_y / 29.0))
    (size,) = h.large_vocabulary(cases.WEAK)
    assert (size.value, size.needed) == (1000.0, 1000.0)
    assert not holds(h.rate_window, cases.WEAK.at(eta_y=1.0, eta_z=0.01))


def test_each_hypothesis_on_classes_that_meet_it_and_on_others():
    shared_next = SequenceClasses(
        [{0: 0.5, 1: 0.5}, {0: 0.5, 2: 0.5}], [3, 4], [5, 5], vocab_size=9
    )
    skewed = SequenceClasses(
        [{0: 0.5, 1: 0.5}, {0: 0.5, 2: 0.5}], [3, 3], [4, 5], prior=[0.9, 0.1], vocab_size=9
    )
    other = Case(shared_next, 2.0, 4.0, 1.0)
    uneven_prior = Case(skewed, 0.001, 1.0, 1.0)
    queries = Case(local_common(), 1.0, 1.0, 10.0)
    for check, good, bad in (
        (h.query_from_next, cases.WEAK, other),
        (h.uniform_classes, cases.WEAK, uneven_prior),
        (h.fast_decoder, cases.WEAK, other),
        (h.long_sequences, cases.WEAK, replace(cases.WEAK, length=128.0)),
        (h.weak_correlations, cases.WEAK, cases.FIG3),
        (h.large_vocabulary, cases.WEAK, cases.SYN_SMALL),
        (h.rate_window, cases.WEAK, other),
        (h.rate_window, cases.WEAK, uneven_prior),
        (h.many_steps, cases.WEAK, other),
        (h.single_common_token, cases.WEAK, cases.SYN_SMALL),
        (h.single_common_token, cases.FIG3, cases.TURNING),
        (h.single_query, cases.WEAK, queries),
        (h.equal_norms, cases.WEAK, cases.UNEVEN),
        (h.symmetric_classes, cases.SYMMETRIC, cases.TURNING),
    ):
        assert holds(check, good), check.__name__
        assert not holds(check, bad), check.__name__


def test_a_query_without_distinct_tokens_is_noticed():
    classes = SequenceClasses([{0: 1.0}, {0: 0.2, 1: 0.8}], [2, 3], [4, 5], vocab_size=9)
    assert not holds(h.distinct_tokens, Case(classes, 1.0, 0.1, 1.0))
    assert holds(h.distinct_tokens, Case(syn_medium(), 1.0, 0.1, 1.0))


def test_values_are_numbers_in_words():
    for assumption in h.ASKED:
        for hypothesis in assumption(cases.SYN_SMALL):
            assert np.isfinite([hypothesis.value, hypothesis.needed]).all()
            assert hypothesis.says in str(hypothesis)
            assert hypothesis.source in str(hypothesis)

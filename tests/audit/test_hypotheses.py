"""Hypotheses say their value, bound and margin, and hold exactly when the margin is positive."""

import numpy as np
import pytest

from attnlab.audit import hypotheses as h
from attnlab.audit.settings import FIG3, LOPSIDED, SYMMETRIC, SYN_SMALL, UNEVEN, WEAK, Setting
from attnlab.data import SequenceClasses, local_common, syn_medium


def holds(check, setting):
    return all(part.holds for part in check(setting))


@pytest.mark.parametrize("setting", [WEAK, UNEVEN, LOPSIDED, SYMMETRIC])
def test_built_in_counterexamples_are_within_assumption_2(setting):
    parts = h.weak_correlations(setting)
    assert [part.name for part in parts] == [
        "M / K^2", "max |eigenvalue of E|", "min |eigenvalue of E|", "M",
    ]  # fmt: skip
    assert all(part.margin > 0 for part in parts)


def test_each_hypothesis_on_classes_that_meet_it_and_on_others():
    shared_next = SequenceClasses(
        [{0: 0.5, 1: 0.5}, {0: 0.5, 2: 0.5}], [3, 4], [5, 5], vocab_size=9
    )
    skewed = SequenceClasses(
        [{0: 0.5, 1: 0.5}, {0: 0.5, 2: 0.5}], [3, 3], [4, 5], prior=[0.9, 0.1], vocab_size=9
    )
    other = Setting(shared_next, 2.0, 4.0, 1.0)
    uneven_prior = Setting(skewed, 0.001, 1.0, 1.0)
    queries = Setting(local_common(), 1.0, 1.0, 10.0)
    for check, good, bad in (
        (h.query_from_next, WEAK, other),
        (h.uniform_classes, WEAK, uneven_prior),
        (h.fast_decoder, WEAK, other),
        (h.weak_correlations, WEAK, FIG3),
        (h.large_vocabulary, WEAK, SYN_SMALL),
        (h.rate_window, WEAK, other),
        (h.rate_window, WEAK, uneven_prior),
        (h.many_steps, WEAK, other),
        (h.single_common_token, WEAK, SYN_SMALL),
        (h.single_common_token, FIG3, LOPSIDED),
        (h.single_query, WEAK, queries),
        (h.equal_norms, WEAK, UNEVEN),
        (h.symmetric_classes, SYMMETRIC, LOPSIDED),
    ):
        assert holds(check, good), check.__name__
        assert not holds(check, bad), check.__name__


def test_a_query_without_distinct_tokens_is_noticed():
    classes = SequenceClasses([{0: 1.0}, {0: 0.2, 1: 0.8}], [2, 3], [4, 5], vocab_size=9)
    assert not holds(h.distinct_tokens, Setting(classes, 1.0, 0.1, 1.0))
    assert holds(h.distinct_tokens, Setting(syn_medium(), 1.0, 0.1, 1.0))


def test_margins_are_numbers():
    for _, check in h.ASKED:
        for part in check(SYN_SMALL):
            assert np.isfinite([part.value, part.bound, part.margin]).all()
            assert part.holds == (part.margin > 0)

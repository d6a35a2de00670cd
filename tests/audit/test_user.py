"""The audit of one's own classes: prediction beside simulation (files: tests/cli/test_audit.py)."""

import json

import numpy as np
import pytest

from attnlab.audit import audit_classes, case_of
from attnlab.data import SequenceClasses, single_common, syn_small
from attnlab.files.errors import InputError


@pytest.fixture(scope="module")
def small():
    return audit_classes(case_of(syn_small(), eta_y=10.0, eta_z=1.0))


def test_syn_small(small):
    missed = {assumption.source for assumption in small.assumptions if not assumption.holds}
    assert missed >= {"Assumption 1(c)", "Assumption 2"}
    fates = small.fates
    assert fates["predicted"].dims == fates["simulated"].dims == ("query", "token")
    distinct = fates["role"].values == 1
    assert np.all(fates["claimed"].values[distinct] == 1)
    assert np.all(fates["simulated"].values[distinct] > 0)
    # Ten common tokens: Theorem 2 is silent, Eq. 10 and training agree that they lose.
    common = fates["role"].values == 2
    assert np.all(fates["claimed"].values[common] == 0)
    assert np.all(fates["predicted"].values[common] < 0)
    assert np.all(fates["simulated"].values[common] < 0)
    assert small.t0_prime < small.t0 < small.case.steps
    assert np.all(small.snap["simulated"] > small.t0)


def test_rows_name_tokens_and_lead_with_the_largest(small):
    rows = small.rows()
    assert len(rows) == 40  # each query sees 10 common and 10 distinct tokens
    moved = [abs(row["simulated"]) for row in rows]
    assert moved == sorted(moved, reverse=True)
    assert {row["as_claimed"] for row in rows if row["role"] == "distinct"} == {True}
    json.dumps(small.document(), allow_nan=False)


def test_corollary_2_speaks_where_theorem_2_is_silent():
    from attnlab.audit.cases import LOPSIDED, SYMMETRIC
    from attnlab.audit.user import claimed_fates, seen_roles

    for case, fate in ((SYMMETRIC, -1), (LOPSIDED, 0)):
        assert np.all(claimed_fates(case)[seen_roles(case) == 2] == fate)


def test_training_is_shown_even_where_eq_10_cannot_be_solved(monkeypatch):
    def refuse(*args):
        raise InputError("E must leave I + E invertible")

    monkeypatch.setattr("attnlab.audit.user.reduced", refuse)
    own = audit_classes(case_of(syn_small(), eta_y=10.0, eta_z=1.0))
    assert own.note == "Eq. 10 has no solution here: E must leave I + E invertible"
    assert np.isnan(own.fates["predicted"]).all()
    assert np.isfinite(own.fates["simulated"]).all()
    json.dumps(own.document(), allow_nan=False)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"eta_y": 0.0}, "eta-y: expected a finite number above 0"),
        ({"eta_z": np.nan}, "eta-z: expected a finite number above 0"),
        ({"steps": -1.0}, "steps: expected a finite time"),
    ],
)
def test_bad_rates_are_named(changes, message):
    with pytest.raises(ValueError, match=message):
        case_of(syn_small(), **{"eta_y": 1.0, "eta_z": 1.0, **changes})


def test_what_is_too_large_or_too_small_is_refused():
    with pytest.raises(ValueError, match="use attnlab simulate"):
        case_of(single_common(num_classes=2, vocab_size=10**6), eta_y=1.0, eta_z=1.0)
    alone = SequenceClasses([{0: 1.0}], [1], [2], vocab_size=9)
    with pytest.raises(ValueError, match="at least 2"):
        case_of(alone, eta_y=1.0, eta_z=1.0)

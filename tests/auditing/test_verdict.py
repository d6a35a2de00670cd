"""Each verdict can be reached, and a claim says so when its prediction is wrong."""

from dataclasses import replace

import pytest

from attnlab.auditing import Measurement, Verdict, all_claims, judge, select
from attnlab.theory.relation import AT_LEAST, AT_MOST, EQUAL, LEADING, Check, Hypothesis, up_to

RIGHT = Check("equal", 1.0, 1.0, tolerance=1e-12)
ROUGH = replace(RIGHT, tolerance=0.1)
WRONG = replace(RIGHT, measured=2.0)
MET, MISSED = (Hypothesis("here", "so", value, AT_LEAST, 1.0) for value in (2.0, 0.0))
PREMISE = replace(RIGHT, form="premise")


@pytest.mark.parametrize(
    ("checks", "hypotheses", "verdict"),
    [
        ([RIGHT], [MET], Verdict.EXACT),
        ([RIGHT, ROUGH], [], Verdict.HOLDS),
        ([replace(RIGHT, relation=AT_MOST)], [], Verdict.HOLDS),
        ([replace(RIGHT, relation=LEADING)], [], Verdict.HOLDS),
        ([replace(WRONG, relation=up_to(2.0))], [], Verdict.HOLDS),
        ([WRONG, replace(RIGHT, form="corrected")], [], Verdict.CORRECTED),
        ([WRONG, replace(WRONG, form="corrected")], [], Verdict.FAILS),
        ([WRONG], [], Verdict.FAILS),
        ([RIGHT, WRONG], [], Verdict.FAILS),
        ([RIGHT], [MET, MISSED], Verdict.OUTSIDE),
        ([WRONG], [MISSED], Verdict.OUTSIDE),
        # A premise that fails explains a failure, and does not spoil what holds all the same.
        ([WRONG, replace(WRONG, form="premise")], [], Verdict.PREMISE),
        ([WRONG, PREMISE], [], Verdict.FAILS),
        ([RIGHT, replace(WRONG, form="premise")], [], Verdict.EXACT),
        (
            [WRONG, replace(RIGHT, form="corrected"), replace(WRONG, form="premise")],
            [],
            Verdict.CORRECTED,
        ),
        ([], [MET], Verdict.UNDECIDED),
    ],
)
def test_each_verdict(checks, hypotheses, verdict):
    assert judge(checks, hypotheses) is verdict


def test_a_verdict_needs_something_printed():
    with pytest.raises(ValueError, match="printed"):
        judge([replace(RIGHT, form="corrected")])


def test_the_catalogue_has_every_verdict():
    verdicts = {claim.recorded.verdict for claim in all_claims()}
    training = {claim.recorded.training for claim in all_claims()}
    assert verdicts == {None, *Verdict} - {Verdict.PREMISE}  # premises are held against training
    assert training == {None, *Verdict} - {Verdict.UNDECIDED}  # None where training is not checked


def test_a_change_of_either_verdict_is_noticed():
    claim = select(["eq-128"])[0]
    in_training = replace(WRONG, training=True)
    same = replace(claim, measure=lambda case: Measurement(RIGHT))
    assert same.examine().as_recorded
    worse = replace(claim, measure=lambda case: Measurement(WRONG))
    assert worse.examine().verdict is Verdict.FAILS
    assert worse.examine().number == "error 1.0e+00"
    assert same.examine().number == "error below 1e-10"
    assert not worse.examine().as_recorded
    more = replace(claim, measure=lambda case: Measurement(RIGHT, in_training))
    assert more.examine().training is Verdict.FAILS
    assert not more.examine().as_recorded


def test_a_check_gets_tolerance_and_relation_of_the_claim_unless_it_has_its_own():
    claim = replace(
        select(["eq-128"])[0],
        relation=up_to(2.0),
        measure=lambda case: Measurement(
            replace(RIGHT, tolerance=None), replace(ROUGH, relation=EQUAL)
        ),
    )
    checks = claim.examine().measurement.checks
    assert [check.tolerance for check in checks] == [claim.tolerance, 0.1]
    assert [check.relation for check in checks] == [up_to(2.0), EQUAL]


def test_a_claim_about_training_alone_has_no_verdict_on_paper():
    claim = replace(
        select(["eq-128"])[0], measure=lambda case: Measurement(replace(RIGHT, training=True))
    )
    found = claim.examine()
    assert (found.verdict, found.training) == (None, Verdict.EXACT)

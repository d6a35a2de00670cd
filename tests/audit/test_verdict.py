"""Each verdict can be reached, and a claim says so when its prediction is wrong."""

from dataclasses import replace

import pytest

from attnlab.audit import CLAIMS, Check, Verdict, judge, labelled, select
from attnlab.audit.claim import Outcome
from attnlab.theory import Part

RIGHT = Check("equal", labelled(1.0), labelled(1.0), tolerance=1e-12)
ROUGH = replace(RIGHT, tolerance=0.1)
WRONG = replace(RIGHT, measured=labelled(2.0))
MET, MISSED = Part("met", 2.0, 1.0, 1.0), Part("missed", 0.0, 1.0, -1.0)


@pytest.mark.parametrize(
    ("checks", "hypotheses", "verdict"),
    [
        ([RIGHT], [MET], Verdict.EXACT),
        ([RIGHT, ROUGH], [], Verdict.HOLDS),
        ([replace(RIGHT, relation="<=")], [], Verdict.HOLDS),
        ([WRONG, replace(RIGHT, form="corrected")], [], Verdict.CORRECTED),
        ([WRONG, replace(WRONG, form="corrected")], [], Verdict.FAILS),
        ([WRONG], [], Verdict.FAILS),
        ([RIGHT, WRONG], [], Verdict.FAILS),
        ([RIGHT], [MET, MISSED], Verdict.OUTSIDE),
    ],
)
def test_each_verdict(checks, hypotheses, verdict):
    assert judge(checks, hypotheses) is verdict


def test_a_verdict_needs_something_printed():
    with pytest.raises(ValueError, match="printed"):
        judge([replace(RIGHT, form="corrected")])


def test_the_catalogue_has_every_verdict():
    assert {claim.recorded.verdict for claim in CLAIMS} == set(Verdict)
    training = {claim.recorded.training for claim in CLAIMS}
    assert training >= {None, Verdict.EXACT, Verdict.HOLDS, Verdict.CORRECTED, Verdict.FAILS}


def test_a_change_of_either_verdict_is_noticed():
    claim = select(["eq-128"])[0]
    in_training = replace(WRONG, training=True)
    same = replace(claim, measure=lambda setting: Outcome((RIGHT,)))
    assert same.examine().as_recorded
    worse = replace(claim, measure=lambda setting: Outcome((WRONG,)))
    assert worse.examine().verdict is Verdict.FAILS
    assert worse.examine().number == "error 1.0e+00"
    assert same.examine().number == "error below 1e-10"
    assert not worse.examine().as_recorded
    more = replace(claim, measure=lambda setting: Outcome((RIGHT, in_training)))
    assert more.examine().training is Verdict.FAILS
    assert not more.examine().as_recorded


def test_a_check_without_tolerance_gets_the_claims():
    claim = replace(
        select(["eq-128"])[0],
        measure=lambda setting: Outcome((replace(RIGHT, tolerance=None), ROUGH)),
    )
    tolerances = [check.tolerance for check in claim.examine().outcome.checks]
    assert tolerances == [claim.tolerance, 0.1]

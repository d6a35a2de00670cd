"""The audit itself: every verdict and every number is the recorded one.

One test per section, so that workers share the work; within a section, claims share training runs.
"""

import pytest

from attnlab.auditing import SECTIONS, changed, examine_all

# Numbers are quoted to three digits; rounding and solvers move them by far less.
CLOSE = 5e-3


@pytest.mark.parametrize("section", SECTIONS)
def test_verdicts_and_numbers_are_as_recorded(section):
    findings = examine_all(SECTIONS[section])
    assert {f.claim.id: (f.verdict, f.training) for f in changed(findings)} == {}
    for finding in findings:
        recorded, measurement = finding.claim.recorded, finding.measurement
        for measured, kept in (
            (measurement.number, recorded.number),
            (measurement.training_number, recorded.training_number),
        ):
            assert measured == (
                None if kept is None else pytest.approx(kept, rel=CLOSE, abs=1e-12)
            ), finding.claim.id
        if "fails" in (finding.verdict, finding.training):
            assert measurement.note, f"{finding.claim.id} fails without a counterexample"

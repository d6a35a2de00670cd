"""The audit itself: every verdict and every number is the recorded one.

One test per section, so that workers share the work; within a section, claims share training runs.
"""

import json
from dataclasses import replace

import pytest

from attnlab.auditing import OnRecord, Verdict, claims_of, examine_all, record, select
from attnlab.auditing.catalogue import audited_papers, expected_entries
from attnlab.auditing.claims import Measurement
from attnlab.files.errors import InputError
from attnlab.shelf import paper
from attnlab.shelf.papers import CLOSE
from attnlab.theory.relation import Check

pytestmark = pytest.mark.slow

SECTIONS = [(of.name, part.section) for of in audited_papers() for part in of.claims]


@pytest.mark.parametrize(("name", "section"), SECTIONS)
def test_verdicts_and_numbers_are_as_recorded(name, section):
    findings = examine_all([claim for claim in claims_of(name) if claim.section == section])
    assert findings
    assert {f.claim.id: (f.verdict, f.training) for f in findings if not f.as_recorded} == {}
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


def test_a_record_is_updated_where_it_has_changed_and_kept_elsewhere():
    recorded = paper("joma").expected["claims"]
    assert expected_entries("joma", []) == recorded
    (claim,) = select(["joma-tree"])
    (found,) = examine_all([claim])
    assert expected_entries("joma", [found]) == recorded
    entries = expected_entries("joma", [changed_by(claim, 2.0, 0.123456)])
    assert entries.pop("joma-tree") == {"verdict": "fails", "number": 0.1235}
    assert entries.items() <= recorded.items()
    near = changed_by(claim, 1.0, claim.recorded.number * (1 + CLOSE / 2))
    assert expected_entries("joma", [near])["joma-tree"]["number"] == claim.recorded.number


def changed_by(claim, measured, number):
    checks = (Check("one", 1.0, measured),)
    return replace(claim, measure=lambda case: Measurement(*checks, number=number)).examine()


def test_expected_json_is_as_the_command_writes_it():
    for of in audited_papers():
        text = (of.folder / "expected.json").read_text(encoding="utf-8")
        assert text == json.dumps(json.loads(text), indent=2) + "\n"


def test_only_claims_of_papers_in_a_checkout_are_recorded():
    (found,) = examine_all(select(["joma-tree"]))
    with pytest.raises(InputError, match="a claim of no paper"):
        record([replace(found, claim=replace(found.claim, paper="", recorded=OnRecord()))])
    installed = replace(paper("joma"), folder=paper("joma").folder / "site-packages" / "joma")
    with pytest.raises(InputError, match="record in a source checkout"):
        installed.record("claims", {})
    assert found.verdict is Verdict.EXACT


def test_a_claim_of_a_paper_without_a_record_is_not_as_recorded():
    (found,) = examine_all(select(["joma-tree"]))
    new = replace(found, claim=replace(found.claim, recorded=OnRecord()))
    assert found.as_recorded and not new.as_recorded
    assert replace(new, claim=replace(new.claim, paper="")).as_recorded  # of nobody's record

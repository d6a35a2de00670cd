"""Prediction against measurement: claims, verdicts, the theorem map.

from attnlab.audit import CLAIMS

finding = CLAIMS[0].examine()
finding.verdict, finding.number
"""

from attnlab.audit.catalogue import CLAIMS, NUMBERED, SECTIONS, select
from attnlab.audit.claim import Claim, Finding, Outcome, Recorded
from attnlab.audit.run import changed, examine_all, whole_audit
from attnlab.audit.user import OwnAudit, audit_classes, case_of
from attnlab.audit.verdict import Verdict, judge
from attnlab.prediction.case import Case
from attnlab.prediction.comparison import Check, labelled, shortfall
from attnlab.prediction.hypothesis import Hypothesis
from attnlab.prediction.relation import Reading, Relation

__all__ = [
    "CLAIMS",
    "NUMBERED",
    "SECTIONS",
    "Case",
    "Check",
    "Claim",
    "Finding",
    "Hypothesis",
    "Outcome",
    "OwnAudit",
    "Reading",
    "Recorded",
    "Relation",
    "Verdict",
    "audit_classes",
    "case_of",
    "changed",
    "examine_all",
    "judge",
    "labelled",
    "select",
    "shortfall",
    "whole_audit",
]

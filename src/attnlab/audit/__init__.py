"""Prediction against measurement: claims, verdicts, the theorem map.

from attnlab.audit import CLAIMS

finding = CLAIMS[0].examine()
finding.verdict, finding.number
"""

from attnlab.audit.catalogue import CLAIMS, NUMBERED, SECTIONS, select
from attnlab.audit.claim import Claim, Finding, Outcome, Recorded
from attnlab.audit.comparison import Check, labelled, shortfall
from attnlab.audit.hypothesis import Hypothesis
from attnlab.audit.relation import Reading, Relation
from attnlab.audit.run import changed, examine_all, whole_audit
from attnlab.audit.settings import Setting
from attnlab.audit.user import OwnAudit, audit_classes, own_setting
from attnlab.audit.verdict import Verdict, judge

__all__ = [
    "CLAIMS",
    "NUMBERED",
    "SECTIONS",
    "Check",
    "Claim",
    "Finding",
    "Hypothesis",
    "Outcome",
    "OwnAudit",
    "Reading",
    "Recorded",
    "Relation",
    "Setting",
    "Verdict",
    "audit_classes",
    "changed",
    "examine_all",
    "judge",
    "labelled",
    "own_setting",
    "select",
    "shortfall",
    "whole_audit",
]

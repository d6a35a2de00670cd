"""Prediction against measurement: claims, verdicts, and the audit of a run.

    import attnlab

    attnlab.audit("syn-small", eta_y=10.0, eta_z=1.0).ladder

The claims of papers are found through the shelf, and each can be examined on its own:
`attnlab.auditing.select(["theorem-2"])[0].examine().verdict`.
"""

from attnlab.auditing.audit import Audit, audit
from attnlab.auditing.built_in import changed, examine_all, whole_audit
from attnlab.auditing.catalogue import all_claims, claims_of, select
from attnlab.auditing.claim import Claim, Finding, Measurement, OnRecord, claim
from attnlab.auditing.commentary import Commentary
from attnlab.auditing.recording import record
from attnlab.auditing.trial import Trial
from attnlab.auditing.verdict import Verdict, judge

__all__ = [
    "Audit", "Claim", "Commentary", "Finding", "Measurement", "OnRecord", "Trial", "Verdict",
    "all_claims", "audit", "changed", "claim", "claims_of", "examine_all", "judge", "record",
    "select", "whole_audit",
]  # fmt: skip

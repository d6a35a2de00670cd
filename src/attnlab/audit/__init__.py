"""Prediction against measurement: claims, verdicts, the theorem map.

    import attnlab

    attnlab.audit("syn-small", eta_y=10.0, eta_z=1.0).ladder

`attnlab.audit` is this folder and, called, the function `audit` of it; `CLAIMS` are those of the
papers, each of which can be examined on its own: `CLAIMS[0].examine().verdict`.
"""

import sys
from types import ModuleType
from typing import Any

from attnlab.audit.audit import Audit, audit
from attnlab.audit.built_in import changed, examine_all, whole_audit
from attnlab.audit.catalogue import CLAIMS, NUMBERED, SECTIONS, SOURCES, claims_of, select
from attnlab.audit.claim import Claim, Finding, Measurement, OnRecord
from attnlab.audit.conclusion import Conclusion
from attnlab.audit.trial import Trial
from attnlab.audit.verdict import Verdict, judge
from attnlab.prediction.case import Case
from attnlab.prediction.comparison import Check, shortfall
from attnlab.prediction.hypothesis import Hypothesis
from attnlab.prediction.relation import Reading, Relation

__all__ = [
    "CLAIMS",
    "NUMBERED",
    "SECTIONS",
    "SOURCES",
    "Audit",
    "Case",
    "Check",
    "Claim",
    "Conclusion",
    "Finding",
    "Hypothesis",
    "Measurement",
    "OnRecord",
    "Reading",
    "Relation",
    "Trial",
    "Verdict",
    "audit",
    "changed",
    "claims_of",
    "examine_all",
    "judge",
    "select",
    "shortfall",
    "whole_audit",
]


class _Callable(ModuleType):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return audit(*args, **kwargs)


sys.modules[__name__].__class__ = _Callable

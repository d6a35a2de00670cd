"""Verdicts: what a comparison says about a claim."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from attnlab.audit.comparison import Check
from attnlab.theory import Part

# An equality that holds to this relative error holds to rounding or to the tolerance of an ODE
# solver: nothing else is left in it.
ROUNDING = 1e-8


class Verdict(StrEnum):
    """The five things that an audit can say."""

    EXACT = "exact"
    HOLDS = "holds"
    CORRECTED = "corrected"
    FAILS = "fails"
    OUTSIDE = "outside assumptions"


def judge(checks: Sequence[Check], hypotheses: Sequence[Part] = ()) -> Verdict:
    """The verdict of checks that were made where `hypotheses` are asked for.

    `outside assumptions` when a hypothesis fails. Else, if everything printed holds, `exact` when
    all of it are equalities to rounding and `holds` otherwise. Else `corrected` when there is a
    corrected form and all of it holds, and `fails` when not.
    """
    if not all(part.holds for part in hypotheses):
        return Verdict.OUTSIDE
    printed = [check for check in checks if check.form == "printed"]
    if not printed:
        raise ValueError("checks: a verdict is about what is printed; give at least one such check")
    if all(check.holds for check in printed):
        return Verdict.EXACT if all(_to_rounding(check) for check in printed) else Verdict.HOLDS
    corrected = [check for check in checks if check.form == "corrected"]
    if corrected and all(check.holds for check in corrected):
        return Verdict.CORRECTED
    return Verdict.FAILS


def _to_rounding(check: Check) -> bool:
    return check.relation == "==" and (check.tolerance or 0.0) <= ROUNDING

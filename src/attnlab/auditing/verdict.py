"""Verdicts: what a comparison says about a claim."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from attnlab.files.errors import InputError
from attnlab.theory.comparison import Check
from attnlab.theory.hypothesis import Hypothesis
from attnlab.theory.relation import Reading

# An equality that holds to this relative error holds to rounding or to the tolerance of an ODE
# solver: nothing else is left in it.
ROUNDING = 1e-8


class Verdict(StrEnum):
    """The things that an audit can say."""

    EXACT = "exact"
    HOLDS = "holds"
    CORRECTED = "corrected"
    FAILS = "fails"
    PREMISE = "premise fails in training"
    OUTSIDE = "outside assumptions"
    UNDECIDED = "we cannot tell"


def judge(checks: Sequence[Check], hypotheses: Sequence[Hypothesis] = ()) -> Verdict:
    """The verdict of checks that were made where `hypotheses` are asked for.

    `outside assumptions` when a hypothesis fails, `we cannot tell` when nothing was checked. Else,
    if everything printed holds, `exact` when all of it are equalities to rounding and `holds`
    otherwise. Else `corrected` when there is a corrected form and all of it holds; `premise fails
    in training` when a premise of the statement does not hold there, so that nothing was said about
    it; and `fails` when not.

    Parameters
    ----------
    checks : sequence of Check
        What was measured.
    hypotheses : sequence of Hypothesis, optional
        What is asked for there.

    Returns
    -------
    Verdict
        The verdict.

    Examples
    --------
    >>> from attnlab.auditing import judge
    >>> print(judge([]))
    we cannot tell
    """
    if not all(hypothesis.holds for hypothesis in hypotheses):
        return Verdict.OUTSIDE
    if not checks:
        return Verdict.UNDECIDED
    printed = [check for check in checks if check.form == "printed"]
    if not printed:
        raise InputError("checks: a verdict is about what is printed; give at least one such check")
    if all(check.holds for check in printed):
        return Verdict.EXACT if all(_to_rounding(check) for check in printed) else Verdict.HOLDS
    corrected = [check for check in checks if check.form == "corrected"]
    if corrected and all(check.holds for check in corrected):
        return Verdict.CORRECTED
    if not all(check.holds for check in checks if check.form == "premise"):
        return Verdict.PREMISE
    return Verdict.FAILS


def _to_rounding(check: Check) -> bool:
    equal = check.relation is None or check.relation.reading is Reading.EQUALITY
    return equal and (check.tolerance or 0.0) <= ROUNDING

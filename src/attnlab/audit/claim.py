"""Claims: what is said, where, under which hypotheses, and what the audit makes of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from attnlab.audit.verdict import Verdict, judge
from attnlab.prediction.case import Case
from attnlab.prediction.comparison import Check
from attnlab.prediction.hypothesis import Hypothesis
from attnlab.prediction.relation import Relation

Assumption = Callable[[Case], tuple[Hypothesis, ...]]


@dataclass(frozen=True)
class Outcome:
    """What a measurement brought: its checks, the numbers worth quoting, the counterexample.

    `number` goes with the algebra and the reduced dynamics, `training_number` with training;
    `holds_from` is the ratio eta_Y/eta_Z from which on the claim holds in training.
    """

    checks: tuple[Check, ...]
    number: float | None = None
    training_number: float | None = None
    note: str = ""
    holds_from: float | None = None


@dataclass(frozen=True)
class Recorded:
    """Verdicts and numbers as they were when the claim was last looked at by a person.

    No `verdict`: the claim is about training alone; no `training`: it is not about training.
    """

    verdict: Verdict | None
    number: float | None = None
    training: Verdict | None = None
    training_number: float | None = None


@dataclass(frozen=True)
class Claim:
    """One statement and how it is put to the test.

    id, statement, source: what is said and where. relation: how its sign is read. case: the
    classes and rates of the built-in test, on which `hypotheses` are checked. predicts, measures:
    what is compared with what. tolerance, because: how close they must be, and why. code: names in
    attnlab.theory. test: the test that covers that code. figure: the figure it serves. number,
    training_number: the sentence around the number quoted, with a format field. general: whether
    the measurement makes sense for any classes, so that a user's own can be audited with it. ours:
    whether it is a question of ours, which the source does not answer.
    """

    id: str
    statement: str
    source: str
    relation: Relation
    case: Case
    predicts: str
    measures: str
    tolerance: float
    because: str
    code: tuple[str, ...]
    test: str
    recorded: Recorded
    measure: Callable[[Case], Outcome] = field(repr=False)
    hypotheses: tuple[Assumption, ...] = ()
    figure: str | None = None
    number: str = ""
    training_number: str = ""
    general: bool = False
    ours: bool = False

    def assume(self, case: Case) -> tuple[Hypothesis, ...]:
        """The hypotheses on this case, each with its value."""
        return tuple(part for assumption in self.hypotheses for part in assumption(case))

    def examine(self, case: Case | None = None) -> Finding:
        """Predict, measure and judge, on the built-in case or on another."""
        case = self.case if case is None else case
        hypotheses = self.assume(case)
        outcome = self.measure(case)
        checks = tuple(
            replace(
                check,
                relation=self.relation if check.relation is None else check.relation,
                tolerance=self.tolerance if check.tolerance is None else check.tolerance,
            )
            for check in outcome.checks
        )
        on_paper = [check for check in checks if not check.training]
        in_training = [check for check in checks if check.training]
        return Finding(
            claim=self,
            case=case,
            verdict=judge(on_paper, hypotheses) if on_paper or not in_training else None,
            training=judge(in_training, hypotheses) if in_training else None,
            hypotheses=hypotheses,
            outcome=replace(outcome, checks=checks),
        )

    def quote(self, number: float | None, *, training: bool = False) -> str:
        """`number` in its sentence; an exact claim without one quotes its tolerance."""
        sentence = self.training_number if training else self.number
        if number is not None:
            return sentence.format(number)
        if sentence:
            return sentence
        if not training and self.recorded.verdict is Verdict.EXACT:
            return f"error below {self.tolerance:.0e}"
        return ""


@dataclass(frozen=True)
class Finding:
    """What the audit found about a claim; a verdict is None where there was nothing of its kind."""

    claim: Claim
    case: Case
    verdict: Verdict | None
    training: Verdict | None
    hypotheses: tuple[Hypothesis, ...]
    outcome: Outcome = field(repr=False)

    @property
    def as_recorded(self) -> bool:
        """Whether both verdicts are the recorded ones."""
        recorded = self.claim.recorded
        return self.verdict == recorded.verdict and self.training == recorded.training

    @property
    def number(self) -> str:
        """The number in its sentence; without one, the error where it is too large."""
        if self.outcome.number is None:
            printed = [c for c in self.outcome.checks if c.form == "printed" and not c.training]
            if not all(check.holds for check in printed):
                return f"error {max(check.error for check in printed):.1e}"
        return self.claim.quote(self.outcome.number)

    @property
    def training_number(self) -> str:
        """The number of the joint dynamics in its sentence."""
        return self.claim.quote(self.outcome.training_number, training=True)

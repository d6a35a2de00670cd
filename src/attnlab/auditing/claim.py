"""Claims: what is said, where, under which hypotheses, and what the audit makes of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from attnlab.auditing.verdict import Verdict, judge
from attnlab.files.errors import InputError
from attnlab.theory.case import Case
from attnlab.theory.comparison import Check
from attnlab.theory.hypothesis import Hypothesis
from attnlab.theory.relation import Relation

Assumption = Callable[[Case], tuple[Hypothesis, ...]]


@dataclass(frozen=True)
class Measurement:
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
class OnRecord:
    """Verdicts and numbers as they were when the claim was last looked at by a person.

    No `verdict`: the claim is about training alone; no `training`: it is not about training.
    """

    verdict: Verdict | None = None
    number: float | None = None
    training: Verdict | None = None
    training_number: float | None = None


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One statement and how it is put to the test.

    id, statement, source: what is said and where. latex: the statement as it is typeset, with its
    formulas between dollars; empty where it has none. relation: how its sign is read. tolerance,
    because: how close measurement and prediction must be, and why; 0 for a sign or an order.
    measure: what makes the checks. It is given the case to be examined, which in
    `attnlab.audit(simulation)` is a `Trial`: with the run and with what theories say of it.
    hypotheses: what is asked for, checked on that case. predicts, measures: in words, what
    is compared with what. number, training_number: the sentence around the number quoted, with a
    format field.

    Claims of the catalogue have more. case: the classes and rates that they are tested on. general:
    whether they can be measured on others, too. code: names in attnlab.theory. test: the test that
    covers that code. figure: the figure it serves. recorded: what was found last. ours: whether it
    is a question of ours, which the source does not answer.
    """

    id: str
    statement: str
    latex: str = ""
    relation: Relation
    measure: Callable[[Any], Measurement] = field(repr=False)
    hypotheses: tuple[Assumption, ...] = ()
    tolerance: float = 0.0
    source: str = ""
    predicts: str = ""
    measures: str = ""
    because: str = ""
    number: str = ""
    training_number: str = ""
    case: Case | None = None
    general: bool = False
    code: tuple[str, ...] = ()
    test: str = ""
    figure: str | None = None
    recorded: OnRecord = OnRecord()
    ours: bool = False

    @property
    def as_read(self) -> bool:
        """Tell whether the claim is stated as we read it: its printed text is not known to us, so
        that its verdict is on our reading, and is not counted with the others."""
        return "as we read it" in self.source

    def assume(self, case: Case) -> tuple[Hypothesis, ...]:
        """The hypotheses on this case, each with its value."""
        return tuple(part for assumption in self.hypotheses for part in assumption(case))

    def examine(self, case: Case | None = None) -> Finding:
        """Predict, measure and judge, on the built-in case or on another."""
        case = self.case if case is None else case
        if case is None:
            raise InputError(
                f"claim: {self.id} has no classes of its own; give it to attnlab.audit with yours"
            )
        hypotheses = self.assume(case)
        measurement = self.measure(case)
        checks = tuple(
            replace(
                check,
                relation=self.relation if check.relation is None else check.relation,
                tolerance=self.tolerance if check.tolerance is None else check.tolerance,
            )
            for check in measurement.checks
        )
        on_paper = [check for check in checks if not check.training]
        in_training = [check for check in checks if check.training]
        return Finding(
            claim=self,
            case=case,
            verdict=judge(on_paper, hypotheses) if on_paper or not in_training else None,
            training=judge(in_training, hypotheses) if in_training else None,
            hypotheses=hypotheses,
            measurement=replace(measurement, checks=checks),
        )

    def quote(self, number: float | None, *, training: bool = False) -> str:
        """`number` in its sentence; an exact claim without one quotes its tolerance."""
        sentence = self.training_number if training else self.number
        if number is not None:
            return (sentence or "{:.4g}").format(number)
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
    measurement: Measurement = field(repr=False)

    @property
    def as_recorded(self) -> bool:
        """Whether both verdicts are the recorded ones, where there are any."""
        recorded = self.claim.recorded
        return recorded == OnRecord() or (
            self.verdict == recorded.verdict and self.training == recorded.training
        )

    @property
    def number(self) -> str:
        """The number in its sentence; without one, the error where it is too large."""
        if self.measurement.number is None:
            printed = [c for c in self.measurement.checks if c.form == "printed" and not c.training]
            if not all(check.holds for check in printed):
                return f"error {max(check.error for check in printed):.1e}"
        return self.claim.quote(self.measurement.number)

    @property
    def training_number(self) -> str:
        """The number of the joint dynamics in its sentence."""
        return self.claim.quote(self.measurement.training_number, training=True)

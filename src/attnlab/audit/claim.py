"""Claims: what is said, where, under which hypotheses, and what the audit makes of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from attnlab.audit.comparison import Check
from attnlab.audit.settings import Setting
from attnlab.audit.verdict import Verdict, judge
from attnlab.theory import Part

Hypothesis = Callable[[Setting], tuple[Part, ...]]


@dataclass(frozen=True)
class Outcome:
    """What a measurement brought: its checks, the numbers worth quoting, the counterexample.

    `number` goes with the algebra and the reduced dynamics, `training_number` with training.
    """

    checks: tuple[Check, ...]
    number: float | None = None
    training_number: float | None = None
    note: str = ""


@dataclass(frozen=True)
class Recorded:
    """Verdicts and numbers as they were when the claim was last looked at by a person."""

    verdict: Verdict
    number: float | None = None
    training: Verdict | None = None
    training_number: float | None = None


@dataclass(frozen=True)
class Claim:
    """One statement and how it is put to the test.

    id, statement, source: what is said and where. setting: the classes and rates of the built-in
    test, on which `hypotheses` are checked. predicts, measures: what is compared with what.
    tolerance, because: how close they must be, and why. code: names in attnlab.theory. test: the
    test that covers that code. figure: the figure it serves. number, training_number: the
    sentence around the number quoted, with a format field. general: whether the measurement makes
    sense for any classes, so that a user's own can be audited with it.
    """

    id: str
    statement: str
    source: str
    setting: Setting
    predicts: str
    measures: str
    tolerance: float
    because: str
    code: tuple[str, ...]
    test: str
    recorded: Recorded
    measure: Callable[[Setting], Outcome] = field(repr=False)
    hypotheses: tuple[Hypothesis, ...] = ()
    figure: str | None = None
    number: str = ""
    training_number: str = ""
    general: bool = False

    def assume(self, setting: Setting) -> tuple[Part, ...]:
        """The hypotheses on this setting, each with its margin."""
        return tuple(part for hypothesis in self.hypotheses for part in hypothesis(setting))

    def examine(self, setting: Setting | None = None) -> Finding:
        """Predict, measure and judge, on the built-in setting or on another."""
        setting = self.setting if setting is None else setting
        hypotheses = self.assume(setting)
        outcome = self.measure(setting)
        checks = tuple(
            replace(check, tolerance=self.tolerance) if check.tolerance is None else check
            for check in outcome.checks
        )
        in_training = [check for check in checks if check.training]
        return Finding(
            claim=self,
            setting=setting,
            verdict=judge([check for check in checks if not check.training], hypotheses),
            training=judge(in_training, hypotheses) if in_training else None,
            hypotheses=hypotheses,
            outcome=replace(outcome, checks=checks),
        )

    def quote(self, number: float | None, *, training: bool = False) -> str:
        """`number` in its sentence; an exact claim without one quotes its tolerance."""
        sentence = self.training_number if training else self.number
        if number is not None:
            return sentence.format(number)
        if not training and self.recorded.verdict is Verdict.EXACT:
            return f"error below {self.tolerance:.0e}"
        return ""


@dataclass(frozen=True)
class Finding:
    """What the audit found about a claim."""

    claim: Claim
    setting: Setting
    verdict: Verdict
    training: Verdict | None
    hypotheses: tuple[Part, ...]
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

"""Claims: what is said, where, under which hypotheses, and what the audit makes of it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any, Literal

from attnlab.auditing.verdict import Verdict, judge
from attnlab.files.errors import InputError
from attnlab.files.plain import plain
from attnlab.theory.case import Case
from attnlab.theory.comparison import Check
from attnlab.theory.hypothesis import Hypothesis
from attnlab.theory.relation import Relation

Assumption = Callable[[Case], tuple[Hypothesis, ...]]
# How we know a statement; "ours" is what we say ourselves.
Reading = Literal["printed text", "as we know it", "ours"]


@dataclass(frozen=True, init=False)
class Measurement:
    """Result of a measurement: its checks, the numbers worth quoting, the counterexample.

    Checks are given one after another: `Measurement(check, another, number=0.5)`. `number` goes
    with the algebra and the reduced dynamics, `training_number` with training; `holds_from` is the
    ratio eta_Y/eta_Z from which on the claim holds in training.
    """

    checks: tuple[Check, ...]
    number: float | None
    training_number: float | None
    note: str
    holds_from: float | None

    def __init__(
        self, *checks: Check, number: float | None = None, training_number: float | None = None,
        note: str = "", holds_from: float | None = None,
    ) -> None:  # fmt: skip
        vars(self).update(  # a frozen value is set once, here
            checks=checks, number=number, training_number=training_number, note=note,
            holds_from=holds_from,
        )  # fmt: skip


@dataclass(frozen=True)
class OnRecord:
    """Verdicts and numbers of a claim in its paper's `expected.json`.

    No `verdict`: the claim is about training alone; no `training`: it is not about training.
    """

    verdict: Verdict | None = None
    number: float | None = None
    training: Verdict | None = None
    training_number: float | None = None

    @classmethod
    def read(cls, entry: Mapping[str, Any]) -> OnRecord:
        """Return the value of an entry of `expected.json`; what it leaves out is None."""
        verdicts = {name: Verdict(entry[name]) for name in ("verdict", "training") if name in entry}
        return cls(**{**entry, **verdicts})

    def entry(self) -> dict[str, Any]:
        """Return the entry in `expected.json`: plain data, without what is None."""
        plain_data = {
            "verdict": self.verdict and self.verdict.value,
            "number": self.number,
            "training": self.training and self.training.value,
            "training_number": self.training_number,
        }
        return {name: value for name, value in plain_data.items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One statement and how it is put to the test; `claim` makes one from a function.

    id, statement, source: what is said, with its formulas between dollars, and where, each source
    apart. relation: how its sign is read. tolerance: how close measurement and prediction must be;
    0 for a sign or an order. measure: the function that makes the checks; its docstring says how.
    It is given the case to be examined, which in `attnlab.audit(simulation)` is a `Trial`: with the
    run and with what theories say of it. hypotheses: what is asked for, checked on that case.
    number, training_number: the sentence around the number quoted, with a format field.

    Claims of a paper have more. case: the classes and rates that they are tested on. general:
    whether they can be measured on others, too. code: names of theory functions that predict. test:
    the test that covers that code. figure: the figure it serves. ours: whether it is a question of
    ours, which the source does not answer. reading: how we know the statement, where that is not
    as the paper says of itself.

    The catalogue adds whose it is. paper, section: the paper's name, and where among its claims.
    origin: whose statement it is. recorded: what was found last.
    """

    id: str
    statement: str
    relation: Relation
    measure: Callable[[Any], Measurement] = field(repr=False)
    source: tuple[str, ...] = ()
    hypotheses: tuple[Assumption, ...] = ()
    tolerance: float = 0.0
    number: str = ""
    training_number: str = ""
    case: Case | None = None
    general: bool = False
    code: tuple[str, ...] = ()
    test: str = ""
    figure: str | None = None
    ours: bool = False
    reading: Reading | None = None
    paper: str = ""
    section: str = ""
    origin: str = "yours"
    recorded: OnRecord = OnRecord()

    @property
    def plain(self) -> str:
        """The statement in plain text, for a terminal."""
        return plain(self.statement)

    @property
    def how(self) -> str:
        """Description of the test: the docstring of `measure`, in one paragraph."""
        return " ".join((inspect.getdoc(self.measure) or "").split())

    @property
    def test_file(self) -> str:
        """The test with its path from the root of the repository."""
        inside = not self.paper or self.test.startswith("tests/")
        return self.test if inside else f"tests/papers/{self.paper}/theory/{self.test}"

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
        found = dict(vars(self.measure(case)))
        checks = [
            replace(
                check,
                relation=self.relation if check.relation is None else check.relation,
                tolerance=self.tolerance if check.tolerance is None else check.tolerance,
            )
            for check in found.pop("checks")
        ]
        on_paper = [check for check in checks if not check.training]
        in_training = [check for check in checks if check.training]
        return Finding(
            claim=self,
            case=case,
            verdict=judge(on_paper, hypotheses) if on_paper or not in_training else None,
            training=judge(in_training, hypotheses) if in_training else None,
            hypotheses=hypotheses,
            measurement=Measurement(*checks, **found),
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


def claim(
    id: str, *, statement: str, relation: Relation, source: str | Sequence[str] = (),
    hypotheses: Sequence[Assumption] = (), tolerance: float = 0.0, number: str = "",
    training_number: str = "", case: Case | None = None, general: bool = False,
    code: Sequence[str] = (), test: str = "", figure: str | None = None, ours: bool = False,
    reading: Reading | None = None,
) -> Callable[[Callable[[Any], Measurement]], Claim]:  # fmt: skip
    """Make a claim of the function below: it measures, and its docstring says how.

    Parameters
    ----------
    id : str
        The name of the claim, by which it is called in commands.
    statement : str
        What is said, in one sentence, with its formulas in LaTeX between dollars.
    relation : Relation
        How its sign is read.
    source : str or sequence of str, optional
        Where it is said; several where several say the same.
    hypotheses : sequence of callable, optional
        What is asked for, checked on the case.
    tolerance : float, optional
        How close measurement and prediction must be; 0 for a sign or an order.
    number, training_number : str, optional
        The sentences around the numbers quoted, each with a format field.
    case : Case, optional
        The classes and rates that it is tested on.
    general : bool, optional
        Whether it can be measured on other classes.
    code : sequence of str, optional
        Names of the theory functions that predict.
    test : str, optional
        The test that covers them, relative to the paper's theory tests.
    figure : str, optional
        The figure that it serves.
    ours : bool, optional
        Whether it is a question of ours, which the source does not answer.
    reading : {"printed text", "as we know it", "ours"}, optional
        How we know it, where that is not as the paper's `reading` says.

    Returns
    -------
    callable
        A decorator: from the function that measures to the `Claim`.

    Examples
    --------
    >>> from attnlab.auditing import Measurement, claim
    >>> from attnlab.theory import Check
    >>> from attnlab.theory.relation import BELOW
    >>> @claim("one-below-two", statement="$1 < 2$", relation=BELOW)
    ... def one_below_two(case):
    ...     \"\"\"Compare 2 with 1.\"\"\"
    ...     return Measurement(Check("one", 2.0, 1.0))
    >>> one_below_two.how
    'Compare 2 with 1.'
    """

    def made(measure: Callable[[Any], Measurement]) -> Claim:
        return Claim(
            id=id, statement=statement, relation=relation, measure=measure,
            source=(source,) if isinstance(source, str) else tuple(source),
            hypotheses=tuple(hypotheses), tolerance=tolerance, number=number,
            training_number=training_number, case=case, general=general, code=tuple(code),
            test=test, figure=figure, ours=ours, reading=reading,
        )  # fmt: skip

    return made


def claims_in(module: ModuleType) -> tuple[Claim, ...]:
    """Return the claims that a module defines, in the order of their definition."""
    return tuple(
        value
        for value in vars(module).values()
        if isinstance(value, Claim) and value.measure.__module__ == module.__name__
    )


@dataclass(frozen=True)
class Finding:
    """Result of examining a claim; a verdict is None if there was no check of its kind."""

    claim: Claim
    case: Case
    verdict: Verdict | None
    training: Verdict | None
    hypotheses: tuple[Hypothesis, ...]
    measurement: Measurement = field(repr=False)

    @property
    def as_recorded(self) -> bool:
        """True if both verdicts are the recorded ones; a claim of no paper has no record."""
        recorded = self.claim.recorded
        return not self.claim.paper or (
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

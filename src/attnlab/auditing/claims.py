"""Claims: a statement, its sources and hypotheses; and verdicts on it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

from attnlab.files.documents import texts_of
from attnlab.files.errors import InputError
from attnlab.files.mathematics import plain
from attnlab.theory import relation as relations
from attnlab.theory.facts import Case
from attnlab.theory.relation import Check, Hypothesis, Relation

if TYPE_CHECKING:
    from attnlab.simulation.simulation import Simulation

Assumption = Callable[[Any], tuple[Hypothesis, ...]]
Measure = Callable[[Any], "Measurement | Sequence[Check]"]
Runs = Mapping[str, "Callable[[], Simulation]"]
# How we know a statement; "ours" is what we say ourselves.
Reading = Literal["printed text", "as we know it", "ours"]


# An equality that holds to this relative error holds to rounding or to the tolerance of an ODE
# solver: nothing else is left in it.
ROUNDING = 1e-8


class Verdict(StrEnum):
    """Verdicts of an audit."""

    EXACT = "exact"
    HOLDS = "holds"
    CORRECTED = "corrected"
    PART = "in part"
    FAILS = "fails"
    PREMISE = "premise fails in training"
    OUTSIDE = "outside assumptions"
    UNDECIDED = "we cannot tell"


def judge(
    checks: Sequence[Check], hypotheses: Sequence[Hypothesis] = (), *, in_parts: bool = False
) -> Verdict:
    """Return the verdict of checks that were made under these hypotheses.

    `outside assumptions` when a hypothesis fails, `we cannot tell` when nothing was checked. Else,
    if everything printed holds, `exact` when all of it are equalities to rounding and `holds`
    otherwise. Else `corrected` when there is a corrected form and all of it holds; `in part` when
    the checks are parts of the statement and some of them hold; `premise fails in training` when a
    premise of the statement does not hold there, so that the statement says nothing; and `fails`
    when not.

    Parameters
    ----------
    checks : sequence of Check
        The checks.
    hypotheses : sequence of Hypothesis, optional
        The hypotheses of the statement, with their values.
    in_parts : bool, optional
        True if each check is a statement of its own, so that some may hold without the others.

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
    if in_parts and any(check.holds for check in printed):
        return Verdict.PART
    if not all(check.holds for check in checks if check.form == "premise"):
        return Verdict.PREMISE
    return Verdict.FAILS


def _to_rounding(check: Check) -> bool:
    equal = check.relation is None or check.relation.reading is relations.Reading.EQUALITY
    return equal and (check.tolerance or 0.0) <= ROUNDING


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
        self,
        *checks: Check,
        number: float | None = None,
        training_number: float | None = None,
        note: str = "",
        holds_from: float | None = None,
    ) -> None:
        vars(self).update(  # a frozen value is set once, here
            checks=checks,
            number=number,
            training_number=training_number,
            note=note,
            holds_from=holds_from,
        )


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
        """Return the entry in `expected.json`, without what is None; verdicts are texts."""
        return {name: value for name, value in vars(self).items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A statement and its test; `claim` makes one from a function.

    Parameters
    ----------
    id, statement, how, relation : str, str, str, Relation
        As in `claim`; `how` it is tested.
    measure : callable
        How it is tested: a function of the results of its runs, or of a case.
    sources : str or sequence of str, optional
        Where it is stated.
    hypotheses : sequence of callable, optional
        Functions that return each `Hypothesis` with its value; they take what `measure` takes.
    tolerance : float, optional
        Largest distance between measurement and prediction; 0 for a sign or an order.
    number, training_number : str, optional
        The sentences around the numbers quoted, each with a format field.
    case : Case, optional
        The classes and learning rates that it is tested on.
    general : bool, optional
        True if it can be measured on other classes.
    runs : mapping, optional
        Functions that return a `Simulation`, by name, in place of a case. Each distinct run is
        trained once per audit. Empty where nothing is trained.
    in_parts : bool, optional
        True if each check is a part of the statement: where some hold, the verdict is "in part".
    code : sequence of str, optional
        Names of the theory functions that predict.
    test : str, optional
        The test that covers them, relative to the paper's theory tests.
    figure : str, optional
        The figure that it serves.
    ours : bool, optional
        True for a question of ours, which the source does not answer.
    reading : {"printed text", "as we know it", "ours"}, optional
        How we know it, where that differs from the paper's `reading`.
    paper, section : str, optional
        The paper and the section among its claims; the catalogue adds them and what follows.
    origin : str, optional
        Whose statement it is.
    recorded : OnRecord, optional
        The last verdicts and numbers.
    """

    id: str
    statement: str
    how: str
    relation: Relation
    measure: Measure = field(repr=False)
    sources: Sequence[str] = ()  # one text may be given by itself
    hypotheses: Sequence[Assumption] = ()
    tolerance: float = 0.0
    number: str = ""
    training_number: str = ""
    case: Case | None = None
    general: bool = False
    runs: Runs | None = None
    in_parts: bool = False
    code: Sequence[str] = ()
    test: str = ""
    figure: str | None = None
    ours: bool = False
    reading: Reading | None = None
    paper: str = ""
    section: str = ""
    origin: str = "yours"
    recorded: OnRecord = OnRecord()

    def __post_init__(self) -> None:
        for name in ("statement", "how"):
            object.__setattr__(self, name, " ".join(getattr(self, name).split()))
        for name in ("sources", "hypotheses", "code"):
            given = getattr(self, name)
            object.__setattr__(self, name, (given,) if isinstance(given, str) else tuple(given))
        if self.case is not None and self.runs is not None:
            raise InputError(f"runs: {self.id} has a case as well; give the claim one of them")

    @property
    def plain(self) -> str:
        """The statement in plain text, for a terminal."""
        return plain(self.statement)

    @property
    def test_file(self) -> str:
        """The test with its path from the root of the repository."""
        inside = not self.paper or self.test.startswith("tests/")
        return self.test if inside else f"tests/papers/{self.paper}/theory/{self.test}"

    def examine(self, case: Case | None = None) -> Finding:
        """Predict, measure and judge, on its own runs or case, or on another case."""
        made = {name: make() for name, make in (self.runs or {}).items()}
        case = self.case if case is None else case
        facts: Any = case
        if self.runs is not None:
            from attnlab.auditing.runs import trained_run  # imports JAX

            # a run that claims share is trained once
            facts = {name: trained_run(run) for name, run in made.items()}
        if facts is None:
            raise InputError(
                f"claim: {self.id} has no classes of its own; give it to attnlab.audit with yours"
            )
        hypotheses = tuple(part for assumption in self.hypotheses for part in assumption(facts))
        measured = self.measure(facts)
        if not isinstance(measured, Measurement):
            measured = Measurement(*([measured] if isinstance(measured, Check) else measured))
        found = dict(vars(measured))
        own = {"relation": self.relation, "tolerance": self.tolerance}
        checks = [
            replace(check, **{key: of for key, of in own.items() if getattr(check, key) is None})
            for check in found.pop("checks")
        ]
        verdict = partial(judge, hypotheses=hypotheses, in_parts=self.in_parts)
        on_paper = [check for check in checks if not check.training]
        in_training = [check for check in checks if check.training]
        return Finding(
            claim=self,
            case=None if self.runs is not None else case,
            runs=made,
            verdict=verdict(on_paper) if on_paper or not in_training else None,
            training=verdict(in_training) if in_training else None,
            hypotheses=hypotheses,
            measurement=Measurement(*checks, **found),
        )

    def quote(self, number: float | None, *, training: bool = False) -> str:
        """Return `number` in its sentence; an exact claim without one quotes its tolerance."""
        sentence = self.training_number if training else self.number
        if number is not None:
            return (sentence or "{:.4g}").format(number)
        if not sentence and not training and self.recorded.verdict is Verdict.EXACT:
            return f"error below {self.tolerance:.0e}"
        return sentence


def claim(
    relation: Relation,
    sources: str | Sequence[str] = (),
    case: Case | None = None,
    hypotheses: Sequence[Assumption] = (),
    *,
    id: str = "",
    **fields: Any,
) -> Callable[[Measure], Claim]:
    r"""Make a claim of the function below: it measures, and its docstring says what and how.

    The first paragraph of the docstring is the statement, in one sentence, with its formulas in
    LaTeX between dollars; the rest says how it is tested.

    Fields that are text (the sentences around numbers, `code`, `test`, `figure`) may stand, under
    the id of the claim, in a YAML file beside the module: claims/model.yaml for claims/model.py.

    The function takes what the claim is about and returns a `Measurement`, or its checks alone. It
    is given the results of the claim's `runs`, datasets by name, or else the case that is examined,
    which in `attnlab.audit(simulation)` is an `AuditedRun`: a case with training and predictions.

    Parameters
    ----------
    relation : Relation
        How its sign is read.
    sources : str or sequence of str, optional
        Where the statement stands.
    case : Case, optional
        What it is tested on, where that is not its `runs`.
    hypotheses : sequence of callable, optional
        What it asks for.
    id : str, optional
        The name of the claim in commands; by default that of the function, with hyphens.
    **fields
        The other fields of a `Claim`, which explains them. With `statement` among them, all of the
        docstring says how it is tested.

    Returns
    -------
    callable
        A decorator: from the function that measures to the `Claim`.

    Examples
    --------
    >>> from attnlab.auditing import claim
    >>> from attnlab.theory import Check
    >>> from attnlab.theory.relation import BELOW
    >>> @claim(BELOW, runs={})
    ... def one_below_two(found):
    ...     '''$1 < 2$.
    ...
    ...     Compare 2 with 1.
    ...     '''
    ...     return [Check("one", 2.0, 1.0)]
    >>> one_below_two.statement, one_below_two.how
    ('$1 < 2$', 'Compare 2 with 1.')
    """

    def made(measure: Measure) -> Claim:
        doc = inspect.getdoc(measure) or ""
        first, _, rest = doc.partition("\n\n")
        words: dict[str, Any] = {"statement": first.removesuffix("."), "how": rest}
        if "statement" in fields:
            words = {"how": doc}
        name = id or measure.__name__.replace("_", "-")
        code = getattr(measure, "__code__", None)  # a built-in function has none
        texts = texts_of(code.co_filename).get(name, {}) if code else {}
        given: dict[str, Any] = {"relation": relation, "sources": sources, "case": case}
        given |= {"id": name, "measure": measure, "hypotheses": hypotheses}
        return Claim(**given, **words, **texts, **fields)

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
    """Result of examining a claim on a case or on runs.

    A verdict is None if there was no check of its kind. failure: the exception, in words, where the
    claim's code raised one.
    """

    claim: Claim
    case: Case | None
    runs: Mapping[str, Simulation] = field(default_factory=dict)
    verdict: Verdict | None = None
    training: Verdict | None = None
    hypotheses: tuple[Hypothesis, ...] = ()
    measurement: Measurement = field(default=Measurement(), repr=False)
    failure: str = ""

    @property
    def as_recorded(self) -> bool:
        """True if both verdicts are the recorded ones; a claim of no paper has no record."""
        recorded = self.claim.recorded
        same = self.verdict == recorded.verdict and self.training == recorded.training
        return not self.failure and (same or not self.claim.paper)

    @property
    def number(self) -> str:
        """The number in its sentence; without one, the error where it is too large."""
        if self.failure:
            return ""
        if self.measurement.number is None:
            printed = [c for c in self.measurement.checks if c.form == "printed" and not c.training]
            if not all(check.holds for check in printed):
                return f"error {max(check.error for check in printed):.1e}"
        return self.claim.quote(self.measurement.number)

    @property
    def training_number(self) -> str:
        """The number of the joint dynamics in its sentence."""
        if self.failure:
            return ""
        return self.claim.quote(self.measurement.training_number, training=True)

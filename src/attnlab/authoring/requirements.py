"""The list of what a paper has to fulfil; the checks themselves are in :mod:`.checks`."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal
from unittest import SkipTest

from attnlab.authoring import checks
from attnlab.files.documents import did_you_mean
from attnlab.files.errors import InputError
from attnlab.files.recipe import read_recipe
from attnlab.shelf import Paper
from attnlab.shelf import paper as paper_called
from attnlab.shelf.manifest import OFFERS, SINGLES

SETTINGS = "conformance.yaml"

Standing = Literal["passed", "failed", "nothing to check", "fails as expected"]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Contents of a paper's `conformance.yaml`.

    runs: by theory, the run on which prediction and simulation are compared, as a recipe has it.
    expected_failures: by requirement, the reason why it is not fulfilled.
    """

    runs: dict[str, dict[str, Any]] = field(default_factory=dict)
    expected_failures: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Requirement:
    """One requirement: call it, and it raises where the paper does not fulfil it.

    Parameters
    ----------
    id : str
        Its name, such as ``"theory printed: predict and simulate align"``.
    check : callable
        Returns a note, raises SkipTest where the paper has nothing to check, else any exception.
    expected : str, optional
        Why it is expected to fail; it must fail then.
    """

    id: str
    check: Callable[[], str] = field(repr=False)
    expected: str = ""

    def __str__(self) -> str:
        return self.id

    def __call__(self) -> str:
        """Check it; the note says what was looked at."""
        if not self.expected:
            return self.check()
        try:
            self.check()
        except SkipTest:
            raise
        except Exception as problem:
            return f"{self.expected} ({problem})"
        raise AssertionError(
            f"it was expected to fail ({self.expected}) and does not; take it out of {SETTINGS}"
        )


@dataclass(frozen=True)
class Outcome:
    """Result of a requirement: its standing, a note or the reason, and the seconds it took."""

    id: str
    standing: Standing
    note: str
    seconds: float

    @property
    def passed(self) -> bool:
        """Tell whether the paper may stay as it is."""
        return self.standing != "failed"


def requirements(
    paper: Paper | str, *, verdicts: bool | Collection[str] = True
) -> list[Requirement]:
    """List what a paper has to fulfil, without importing its code.

    Parameters
    ----------
    paper : Paper or str
        The paper, or its name.
    verdicts : bool or collection of str, optional
        Whether the recorded verdicts are found again, which may take minutes; or those of which
        claims.

    Returns
    -------
    list of Requirement
        In the order in which an author will want to fulfil them.
    """
    known = paper_called(paper) if isinstance(paper, str) else paper
    path = known.folder / SETTINGS
    settings = read_recipe(path, Settings) if path.exists() else Settings()
    found = dict(_listed(known, settings, verdicts))
    every = found if verdicts is True else dict(_listed(known, settings, True))
    for part, names, offered in (
        ("expected_failures", settings.expected_failures, every),
        ("runs", settings.runs, known.theories),
    ):
        for name in names:
            if name not in offered:
                raise InputError(f"{path}: {part}: {name!r}: {did_you_mean(name, offered)}")
    return [
        Requirement(name, check, settings.expected_failures.get(name, ""))
        for name, check in found.items()
    ]


def examine(requirement: Requirement) -> Outcome:
    """Check a requirement, and say what came of it; nothing is raised but an interrupt.

    Parameters
    ----------
    requirement : Requirement
        One of `requirements`.
    """
    begun = time.perf_counter()
    standing: Standing = "fails as expected" if requirement.expected else "passed"
    try:
        note = requirement()
    except SkipTest as reason:
        standing, note = "nothing to check", str(reason)
    except Exception as problem:
        named = isinstance(problem, (AssertionError, InputError))
        standing, note = "failed", str(problem) if named else f"{type(problem).__name__}: {problem}"
    return Outcome(requirement.id, standing, note, time.perf_counter() - begun)


def _listed(
    paper: Paper, settings: Settings, verdicts: bool | Collection[str]
) -> Iterator[tuple[str, Callable[[], str]]]:
    yield "manifest", partial(checks.manifest, paper)
    for kind in OFFERS:
        for name in getattr(paper, kind):
            yield f"reference {kind}.{name}", partial(checks.reference_loads, paper, kind, name)
    for kind in SINGLES:
        if getattr(paper, kind) is not None:
            yield f"reference {kind}", partial(checks.single_loads, paper, kind)
    yield "theory imports no simulator", partial(checks.theory_alone, paper)
    for name in paper.theories:
        run = settings.runs.get(name)
        yield f"predict and simulate align: {name}", partial(checks.aligned, paper, name, run)
    for name in paper.presets:
        yield f"samples agree with the population: {name}", partial(checks.samples, name)
    for _, _, module in paper.claim_modules():
        yield (
            f"claims have id, source and docstring: {module}",
            partial(checks.claims_documented, paper, module),
        )
    if not paper.claims:
        yield "claims have id, source and docstring", partial(checks.nothing, "no claims")
    wanted = None if isinstance(verdicts, bool) else verdicts
    if verdicts:
        yield "every claim has a recorded verdict", partial(checks.all_recorded, paper)
        for claim in paper.expected["claims"]:
            if wanted is None or claim in wanted:
                yield f"verdict as recorded: {claim}", partial(checks.verdict, paper, claim)
    for name in paper.figures:
        yield f"figure on a tiny recipe: {name}", partial(checks.figure, paper, name)
    yield "links of the page", partial(checks.links, paper)
    yield "values reach worker processes", partial(checks.travels, paper)

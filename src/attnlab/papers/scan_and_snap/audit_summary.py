"""Summary of an audit of a run: what the theorems claim, what tokens do, and which clock is off."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import xarray as xr

from attnlab import formulas
from attnlab.auditing import AuditedRun
from attnlab.auditing.audited_run import agreement, seen_roles
from attnlab.auditing.clocks import Clock
from attnlab.auditing.document import hypothesis_document, number
from attnlab.files.documents import texts_of
from attnlab.formulas.checks import IntArray
from attnlab.theory import Case, Hypothesis

from . import theory
from .hypotheses import ASKED, COROLLARY_2, EQ_10, THEOREM_1
from .predict import Level

WORDS = texts_of(__file__)
FEW = 3  # tokens that are named


def claimed_fates(case: Case) -> IntArray:
    """Return Theorem 2's fates, and Corollary 2's for several common tokens where it applies."""
    fates = theory.token_fates(case)
    if all(part.holds for hypothesis in COROLLARY_2 for part in hypothesis(case)):
        fates[seen_roles(case) == 2] = -1
    return fates


@dataclass(frozen=True, eq=False)
class AuditSummary:
    """Summary of an audit: what the theorems claim, what tokens do, and whose clock is off.

    tokens: those that a query sees, counted under each query. claimed: those of which Theorem 2 or
    Corollary 2 says that they gain or lose. unclaimed: why they say nothing of the others.
    as_claimed: of how many training agrees. astray: those that do the opposite, in words, furthest
    off first. moved: how many tokens have moved at all; for the others we cannot tell.
    asked: what the theorems ask for, each with its value here. signs: of how many tokens a theory
    has the right sign of z, by its name. transition: t_0' and t_0 of Lemma 9. end: of the run.
    clocks: when attention is fastest and when it snaps, each in the class where theories
    are furthest off. queries: how many there are. signs_claimed: +1, -1 or 0 for each query and
    token. assumptions: all that the paper asks for anywhere, each with its value.
    """

    tokens: int
    claimed: int
    unclaimed: str
    as_claimed: int
    astray: tuple[str, ...]
    moved: int
    asked: tuple[Hypothesis, ...]
    signs: Mapping[str, int]
    transition: tuple[float, float]
    end: float
    clocks: tuple[Clock, ...]
    queries: int
    signs_claimed: IntArray = field(repr=False)
    assumptions: tuple[Hypothesis, ...] = field(repr=False)

    @property
    def failing(self) -> tuple[Hypothesis, ...]:
        """Hypotheses that do not hold, in the order of the source."""
        return tuple(part for part in self.asked if not part.holds)

    @property
    def sentences(self) -> list[str]:
        """All of it in words."""
        every = [self._speaks(), self._behaves(), self._asks(), self._signs()]
        every += [self._clock(clock) for clock in self.clocks]
        return [sentence for sentence in every if sentence]

    def __str__(self) -> str:
        """The sentences, a line each."""
        return "\n".join(self.sentences)

    def document(self) -> dict[str, Any]:
        """All of it as plain data."""
        return {
            "sentences": self.sentences,
            "tokens": self.tokens,
            "claimed": self.claimed,
            "as_claimed": self.as_claimed,
            "astray": list(self.astray),
            "moved": self.moved,
            "asked": len(self.asked),
            "failing": [hypothesis_document(part) for part in self.failing],
            "signs": dict(self.signs),
            "transition": [number(time) for time in self.transition],
            "clocks": [clock.document() for clock in self.clocks],
        }

    def _speaks(self) -> str:
        under = WORDS["under"] if self.queries > 1 else ""
        return WORDS["speaks"].format(of=self, under=under).rstrip()

    def _behaves(self) -> str:
        if not self.claimed:
            return ""
        if self.as_claimed == self.claimed:
            return WORDS["all_behave"].format(of=self)
        said = [WORDS["some_behave"].format(of=self)]
        still = self.claimed - self.as_claimed - len(self.astray)
        if still:
            said.append(WORDS["still"].format(still=still))
        if self.astray:
            named, more = "; ".join(self.astray[:FEW]), len(self.astray) - FEW
            said.append(f"Not so: {named}{f'; and {more} more' if more > 0 else ''}.")
        return " ".join(said)

    def _asks(self) -> str:
        asked, failing = len(self.asked), self.failing
        if not failing:
            return WORDS["all_hold"].format(asked=asked)
        holding, first = asked - len(failing), failing[0]
        missed = {"source": first.source, "missed": _missed(first)}
        return WORDS["some_hold"].format(asked=asked, holding=holding, **missed)

    def _signs(self) -> str:
        if not self.signs or not self.moved:
            return ""
        (first, right), *others = self.signs.items()
        each = "".join(f", {name} about {count}" for name, count in others)
        return f"{first} is right about {right} of {self.moved} gains and losses{each}."

    def _clock(self, clock: Clock) -> str:
        said = "".join(
            f", by {name} {moment} ({clock.factor(name) or 'we cannot tell'})"
            for name, moment in clock.predicted.items()
        )
        where = f'in training (class {clock.sequence_class}, next "{clock.next}")'
        if clock.event == "snap":
            return f"It snaps {clock.simulated} {where}{said}."
        ends = WORDS["ends"].format(end=self.end) if self.transition[1] > self.end else ""
        window = WORDS["window"].format(transition=self.transition, ends=ends)
        return f"{window} Attention moves fastest {clock.simulated} {where}{said}."


def summarise_audit(
    run: AuditedRun, tokens: xr.Dataset, clocks: Mapping[str, Sequence[Clock]]
) -> AuditSummary | None:
    """Return the summary of an audited run; None where no level of this paper covers it."""
    if not any(isinstance(of, Level) for of in run.theories) or run.transition is None:
        return None
    fates = tokens.assign(claimed=(("query", "token"), claimed_fates(run)))
    seen = fates["role"].values != 0
    claimed, simulated = fates["claimed"].values, fates["simulated"].values
    agrees = np.where(seen, agreement(claimed, simulated), 0)
    wrong = agrees < 0
    order = sorted(np.argwhere(wrong).tolist(), key=lambda at: -abs(simulated[tuple(at)]))
    signs = {
        str(name): int((seen & (agreement(predicted, simulated) > 0)).sum())
        for name, predicted in zip(fates["theory"].values, fates["predicted"].values, strict=True)
        if str(name) in run.predicted
    }
    clock = run.simulation.clock
    return AuditSummary(
        tokens=int(seen.sum()),
        claimed=int((seen & (claimed != 0)).sum()),
        unclaimed=_why_not(run, fates),
        as_claimed=int((agrees > 0).sum()),
        astray=tuple(_astray(run, fates, q, j) for q, j in order),
        moved=int((seen & (agreement(1, simulated) != 0)).sum()),
        asked=tuple(part for hypothesis in THEOREM_1 for part in hypothesis(run)),
        signs=signs,
        transition=run.transition,
        end=float(run.simulated[clock].values[-1]),
        clocks=tuple(max(of, key=lambda clock: clock.off) for of in clocks.values()),
        queries=fates.sizes["query"],
        signs_claimed=claimed,
        assumptions=tuple(part for hypothesis in ASKED for part in hypothesis(run)),
    )


def _why_not(run: AuditedRun, fates: xr.Dataset) -> str:
    """Say why the theorems say nothing of some tokens; empty where they speak of all."""
    silent = fates["claimed"].values == 0
    distinct, common = (int((silent & (fates["role"].values == role)).sum()) for role in (1, 2))
    reasons = []
    if common:
        count = int(formulas.token_roles(run).common.sum())
        # what is its own tells more than what all theorems ask for
        asked = sorted(COROLLARY_2, key=lambda of: of in EQ_10)
        missing = [part for of in asked for part in of(run) if not part.holds]
        also = "".join(f", Corollary 2 for {_missed(part)}" for part in missing[:1])
        why = WORDS["several_common" if count > 1 else "one_common"].format(count=count, also=also)
        reasons.append(f"of {common} common ones: {why}")
    if distinct:
        reasons.append(WORDS["distinct"].format(distinct=distinct))
    return f"They say nothing {', and '.join(reasons)}." if reasons else ""


def _astray(run: AuditedRun, fates: xr.Dataset, q: int, j: int) -> str:
    cell = fates.isel(query=q, token=j)
    name, query = (run.classes.token_name(int(cell[dim])) for dim in ("token", "query"))
    should = "gain" if int(cell["claimed"]) > 0 else "lose"
    ends = f"z = {float(cell['simulated']):+.3g}"
    several = f' under "{query}"' if fates.sizes["query"] > 1 else ""
    return f'"{name}"{several} should {should} and ends at {ends}'


def _missed(part: Hypothesis) -> str:
    sign = part.relation.sign
    return f"{part.says} (here {part.value:.4g}, needs {sign} {part.needed:.4g})"

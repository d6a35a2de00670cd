"""The built-in audit: claims one after another, in the caller's process, and maps beside them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import xarray as xr

from attnlab.auditing.catalogue import audited_papers, claims_of
from attnlab.auditing.claim import Claim, Finding
from attnlab.files.errors import InputError
from attnlab.files.side_by_side import side_by_side
from attnlab.shelf import Paper, paper, single
from attnlab.theory.case import Case


def whole_audit(
    papers: Sequence[str] = (), *, tell: Callable[[str], None] = lambda name: None
) -> tuple[list[Finding], dict[str, xr.Dataset]]:
    """Examine every claim of papers, and draw up their maps of where theory breaks.

    Both compile much and share little of it, so that they are done at the same time.

    Parameters
    ----------
    papers : sequence of str, optional
        Names of papers; by default all on the shelf that can be imported (`readable`).
    tell : callable, optional
        Called with the name of each piece of work before its turn.

    Returns
    -------
    list of Finding, dict of xarray.Dataset
        The findings, and the maps by name.
    """
    chosen, _ = readable(papers)
    claims = [claim for known in chosen for claim in claims_of(known.name)]
    makers = _makers(chosen)

    def draw_maps() -> dict[str, xr.Dataset]:
        made = {}
        for name in reversed(makers):  # the last share programs with claims that come late
            tell(f"map of {name}")
            made[name] = makers[name]()
        return {name: made[name] for name in makers}

    return side_by_side(lambda: examine_all(claims, tell=tell), draw_maps)


def amount(papers: Sequence[str] = ()) -> int:
    """Return how many pieces of work `whole_audit` names."""
    chosen, _ = readable(papers)
    return sum(len(claims_of(known.name)) for known in chosen) + len(_makers(chosen))


def readable(papers: Sequence[str] = ()) -> tuple[list[Paper], list[str]]:
    """Return the papers that can be audited, and why others on the shelf cannot.

    A paper that is asked for by its name and cannot be imported is an InputError.
    """
    found, faults = [], []
    for known in [paper(name) for name in papers] or audited_papers():
        try:
            claims_of(known.name)
            _makers([known])
            found.append(known)
        except InputError as fault:
            if papers:
                raise
            faults.append(str(fault))
    return found, faults


def _makers(papers: Sequence[Paper]) -> dict[str, Callable[[], xr.Dataset]]:
    return {
        name: maker
        for known, offer in single("maps")
        if known in papers
        for name, maker in offer.load().items()
    }


def examine_all(
    claims: Sequence[Claim],
    *,
    case: Case | None = None,
    tell: Callable[[str], None] = lambda name: None,
) -> list[Finding]:
    """Examine claims one after another.

    Parameters
    ----------
    claims : sequence of Claim
        Which.
    case : Case, optional
        One case for all, on which a claim must be a general one; by default the built-in cases.
    tell : callable, optional
        Called with each id before its turn.

    Returns
    -------
    list of Finding
        One for each claim.
    """
    if case is not None:
        require_general(claims)
    findings = []
    for claim in claims:
        tell(claim.id)
        findings.append(claim.examine(case))
    return findings


def require_general(claims: Sequence[Claim]) -> None:
    """Refuse claims that can be measured on their built-in case alone."""
    for claim in claims:
        if not (claim.general or claim.case is None):
            raise InputError(
                f"claim: {claim.id} is tested on built-in classes only; leave CLASSES out"
            )


def changed(findings: Sequence[Finding]) -> list[Finding]:
    """The findings whose verdicts are not the recorded ones.

    Parameters
    ----------
    findings : sequence of Finding
        Of `examine_all`.

    Returns
    -------
    list of Finding
        Those of them.
    """
    return [finding for finding in findings if not finding.as_recorded]

"""The built-in audit: claims one after another, in the caller's process, and maps beside them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import xarray as xr

from attnlab.audit.breakdown import MAKERS, maps
from attnlab.audit.catalogue import claims_of
from attnlab.audit.claim import Claim, Finding
from attnlab.files.errors import InputError
from attnlab.files.side_by_side import side_by_side
from attnlab.prediction.case import Case

PAPER = "scan-and-snap"  # the source that is audited where none is asked for
WHOLE = len(claims_of(PAPER)) + len(MAKERS)  # what its whole audit tells of


def whole_audit(
    tell: Callable[[str], None] = lambda name: None,
) -> tuple[list[Finding], dict[str, xr.Dataset]]:
    """Every claim about "Scan and Snap" examined, and all maps.

    Both compile much and share little of it, so that they are done at the same time.

    Parameters
    ----------
    tell : callable, optional
        Called with the name of each piece of work before its turn.

    Returns
    -------
    list of Finding, dict of xarray.Dataset
        The findings, and the maps by name.
    """
    return side_by_side(
        lambda: examine_all(claims_of(PAPER), tell=tell),
        lambda: maps(lambda name: tell(f"map of {name}")),
    )


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

"""Running an audit: claims one after another, in the caller's process."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from attnlab.audit.claim import Claim, Finding
from attnlab.audit.settings import Setting


def examine_all(
    claims: Sequence[Claim],
    *,
    setting: Setting | None = None,
    tell: Callable[[str], None] = lambda name: None,
) -> list[Finding]:
    """Examine claims one after another; `tell` is called with each id before its turn.

    On the built-in settings, or all on the one given; then every claim must be a general one.
    """
    if setting is not None:
        for claim in claims:
            if not claim.general:
                raise ValueError(
                    f"claim: {claim.id} is tested on built-in classes only; leave CLASSES out"
                )
    findings = []
    for claim in claims:
        tell(claim.id)
        findings.append(claim.examine(setting))
    return findings


def changed(findings: Sequence[Finding]) -> list[Finding]:
    """The findings whose verdicts are not the recorded ones."""
    return [finding for finding in findings if not finding.as_recorded]

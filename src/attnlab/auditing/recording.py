"""Write what an audit found into `expected.json` of the papers, to be reviewed as a diff."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from attnlab.auditing.catalogue import claims_of, forget
from attnlab.auditing.claim import Finding, OnRecord
from attnlab.files.atomic import atomic_path
from attnlab.files.errors import InputError
from attnlab.shelf import Paper, paper
from attnlab.shelf.manifest import EXPECTED

DIGITS = 4  # significant
# Rounding and solvers move a number by far less; a recorded number that is this close is kept.
CLOSE = 5e-3


def record(findings: Sequence[Finding]) -> list[Path]:
    """Write verdicts and numbers into `expected.json` of each paper.

    Claims that were not examined keep their entries; entries of claims that are gone go.

    Parameters
    ----------
    findings : sequence of Finding
        Of `examine_all`.

    Returns
    -------
    list of Path
        The files written.
    """
    written = []
    for name in dict.fromkeys(finding.claim.paper for finding in findings):
        if not name:
            raise InputError("record: a claim of no paper has no expected.json to be recorded in")
        of = paper(name)
        if "site-packages" in of.folder.parts:
            raise InputError(f"record: {of.folder} is installed; record in a source checkout")
        document = expected_document(of, [f for f in findings if f.claim.paper == name])
        path = of.folder / EXPECTED
        with atomic_path(path) as temporary:
            temporary.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
        vars(of).pop("expected", None)  # read again when it is asked for
        written.append(path)
    forget()
    return written


def expected_document(of: Paper, findings: Sequence[Finding]) -> dict[str, Any]:
    """Return `expected.json` of a paper with these findings in it."""
    found = {finding.claim.id: as_found(finding) for finding in findings}
    entries = {claim.id: found.get(claim.id, claim.recorded) for claim in claims_of(of.name)}
    kept = {part: dict(rest) for part, rest in of.expected.items() if part != "claims" and rest}
    return {"claims": {name: entry.entry() for name, entry in entries.items()}, **kept}


def as_found(finding: Finding) -> OnRecord:
    """Return what goes on record: verdicts, and numbers to four significant digits."""
    before, measurement = finding.claim.recorded, finding.measurement
    return OnRecord(
        finding.verdict,
        _rounded(measurement.number, before.number),
        finding.training,
        _rounded(measurement.training_number, before.training_number),
    )


def _rounded(value: float | None, before: float | None) -> float | None:
    if value is None:
        return None
    if before is not None and math.isclose(value, before, rel_tol=CLOSE, abs_tol=1e-12):
        return before
    return float(f"{value:.{DIGITS}g}")

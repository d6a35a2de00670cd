"""The audit in the report: every claim examined, as JSON and as a page of its own."""

from __future__ import annotations

import json
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from attnlab.auditing import Verdict, whole_audit
from attnlab.auditing.catalogue import amount, audited_papers
from attnlab.auditing.document import audit_document, grouped, page
from attnlab.experiments.running import Part, file_digest, read_record, write_record
from attnlab.files.atomic import write_text
from attnlab.files.folders import claim, make_folder
from attnlab.files.numerics import numerics
from attnlab.files.progress import Progress
from attnlab.files.provenance import code_digest, digest_of, versions

NUMBERS = ("tasks", "models", "simulation", "measures", "theory")
CODE = ("formulas", "theory", "auditing", "papers")
FOLDER, DOCUMENT = "audit", "audit.json"
ABOUT = (
    "Every claim of the papers, predicted, measured and judged; what we did not read "
    "in print is counted apart."
)


def _key() -> str:
    papers = audited_papers()
    code = code_digest(*CODE, *(str(of.folder) for of in papers))
    recorded = {of.name: dict(of.expected["claims"]) for of in papers}
    return digest_of(["audit", recorded, numerics(*NUMBERS), code])


def find_audit(*, out: Path) -> Part | None:
    """Return the audit in `out`/audit, if it was made by this code."""
    return read_record(out / FOLDER, _key())


def make_audit(*, out: Path, progress: Progress = False) -> Part:
    """Run the audit in `out`/audit, or find it there."""
    found = find_audit(out=out)
    if found is not None:
        return found
    claim(out, [FOLDER])
    begun = time.perf_counter()
    names: list[str] = []
    total = amount()

    def tell(name: str) -> None:
        if progress:
            progress(len(names) / total)
        names.append(name)

    document = audit_document(*whole_audit(tell=tell))
    folder = make_folder(out / FOLDER, inside=out)
    texts = {
        DOCUMENT: json.dumps(document, indent=1, allow_nan=False),
        "audit.html": page(document),
    }
    for name, text in texts.items():
        write_text(folder / name, text, inside=out)
    claims = document["claims"]
    changed = [claim["id"] for claim in claims if not claim["as_recorded"]]
    made = Part(
        name="audit",
        key=_key(),
        title="Audit of every claim",
        about=ABOUT,
        outcome="as recorded" if not changed else "changed",
        headline=_headline(document, changed),
        summary=_summary(claims, changed),
        alt="",
        numbers={"claims": float(len(claims)), "changed": float(len(changed))},
        regression_bounds={"changed": [0.0, 0.0]},
        settings={},
        files={name: file_digest(folder / name) for name in texts},
        seconds=time.perf_counter() - begun,
        made_at=datetime.now(UTC).isoformat(timespec="seconds"),
        versions=versions(),
    )
    write_record(folder, made, inside=out)
    return made


def read_audit(out: Path) -> dict[str, Any]:
    """Return the document of the finished audit in `out`/audit."""
    text = (out / FOLDER / DOCUMENT).read_text(encoding="utf-8")
    document: dict[str, Any] = json.loads(text)
    return document


def _headline(document: dict[str, Any], changed: list[str]) -> str:
    """Count what papers say in print apart from what others say, and from what is ours."""
    claims, papers = document["claims"], document["papers"]
    printed = [found for found in claims if found["origin"] == papers[found["paper"]]["short"]]
    wrong = sum(found["verdict"] in ("corrected", "fails") for found in printed)
    of = " and ".join(dict.fromkeys(found["origin"] for found in printed)) or "no paper"
    as_recorded = "all as recorded" if not changed else f"{len(changed)} not as recorded"
    return (
        f"Of {len(printed)} claims of {of} {wrong} do not hold as printed; besides, "
        f"{len(claims) - len(printed)} of other origin were examined; {as_recorded}."
    )


def _summary(claims: list[dict[str, Any]], changed: list[str]) -> str:
    sentences = [
        f"{origin} ({len(of_origin)} claims): on paper (algebra and reduced dynamics) "
        f"{_tally(of_origin, 'verdict')}; in training (joint dynamics) "
        f"{_tally(of_origin, 'training')}."
        for origin, of_origin in grouped(claims, "origin")
    ]
    last = (
        f"Not as recorded: {', '.join(changed)}."
        if changed
        else "All verdicts are those on record."
    )
    return " ".join(f"{sentence[0].upper()}{sentence[1:]}" for sentence in (*sentences, last))


def _tally(claims: list[dict[str, Any]], of: str) -> str:
    counts = Counter(claim[of] for claim in claims)
    return ", ".join(f"{counts[key]} {key}" for key in Verdict if counts[key]) or "none"

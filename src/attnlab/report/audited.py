"""The audit in the report: every claim examined, as JSON and as a page of its own."""

from __future__ import annotations

import json
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from attnlab.audit import SOURCES, Verdict, claims_of, examine_all, whole_audit
from attnlab.audit.built_in import PAPER, WHOLE
from attnlab.audit.document import audit_document
from attnlab.audit.html import page
from attnlab.experiments.made import Made, file_digest, read_record, write_record
from attnlab.files.atomic import atomic_path
from attnlab.files.code import code_digest, digest_of
from attnlab.files.numerics import numerics
from attnlab.files.progress import Progress
from attnlab.files.provenance import versions
from attnlab.files.side_by_side import side_by_side

NUMBERS = ("data", "measures", "dynamics", "theory")
CODE = ("prediction", "audit")
DOCUMENT = "audit.json"
ABOUT = (
    "Every lemma, theorem, corollary, remark and informal claim of Scan and Snap, predicted, "
    "measured and judged; and, apart from them, the main ones of JoMA as we read it."
)


def _key() -> str:
    return digest_of(["audit", list(SOURCES), numerics(*NUMBERS), code_digest(*CODE)])


def find_audit(*, folder: Path) -> Made | None:
    """The audit in `folder`, if it was made by this code."""
    return read_record(folder, _key())


def make_audit(*, folder: Path, progress: Progress = False) -> Made:
    """Run the audit in `folder`, or find it there."""
    found = find_audit(folder=folder)
    if found is not None:
        return found
    begun = time.perf_counter()
    told: list[str] = []
    others = [claim for source in SOURCES if source != PAPER for claim in claims_of(source)]

    def tell(name: str) -> None:
        if progress:
            progress(len(told) / (WHOLE + len(others)))
        told.append(name)

    (findings, maps), more = side_by_side(
        lambda: whole_audit(tell), lambda: examine_all(others, tell=tell)
    )
    document = audit_document([*findings, *more], maps)
    folder.mkdir(parents=True, exist_ok=True)
    texts = {
        DOCUMENT: json.dumps(document, indent=1, allow_nan=False),
        "audit.html": page(document),
    }
    for name, text in texts.items():
        with atomic_path(folder / name) as temporary:
            temporary.write_text(text, encoding="utf-8")
    claims = document["claims"]
    changed = [claim["id"] for claim in claims if not claim["as_recorded"]]
    made = Made(
        name="audit",
        key=_key(),
        title="Audit of every claim",
        about=ABOUT,
        outcome="as recorded" if not changed else "changed",
        headline=_headline(claims, changed),
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
    write_record(folder, made)
    return made


def read_audit(folder: Path) -> dict[str, Any]:
    """The document of a finished audit."""
    document: dict[str, Any] = json.loads((folder / DOCUMENT).read_text(encoding="utf-8"))
    return document


def _headline(claims: list[dict[str, Any]], changed: list[str]) -> str:
    read, as_read = _by_reading(claims)
    wrong = sum(claim["verdict"] in ("corrected", "fails") and not claim["ours"] for claim in read)
    as_recorded = "all as recorded" if not changed else f"{len(changed)} not as recorded"
    others = f"{len(as_read)} claims of JoMA as we read it; " if as_read else ""
    return (
        f"{len(read)} claims examined, {wrong} of them do not hold as printed; {others}"
        f"{as_recorded}."
    )


def _summary(claims: list[dict[str, Any]], changed: list[str]) -> str:
    read, as_read = _by_reading(claims)
    told = f"{len(read)} claims. {_verdicts(read)}"
    if as_read:
        told += (
            f" Apart from these, {len(as_read)} claims of JoMA as we read it, whose printed text "
            f"is not known to us. {_verdicts(as_read)}"
        )
    if changed:
        return f"{told} Not as recorded: {', '.join(changed)}."
    return f"{told} All verdicts are those on record."


def _by_reading(claims: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Claims of sources that were read, and those that are stated as we read them."""
    return (
        [claim for claim in claims if not claim["as_read"]],
        [claim for claim in claims if claim["as_read"]],
    )


def _verdicts(claims: list[dict[str, Any]]) -> str:
    algebra = Counter(claim["verdict"] for claim in claims if claim["verdict"])
    training = Counter(claim["training"] for claim in claims if claim["training"])
    return (
        f"On paper (algebra and reduced dynamics): {_tally(algebra)}. In training (joint "
        f"dynamics), where a claim says something about it: {_tally(training)}."
    )


def _tally(verdicts: Counter[str]) -> str:
    return ", ".join(f"{verdicts[verdict]} {verdict}" for verdict in Verdict if verdicts[verdict])

"""docs/theorem-map.md, made from the claims of every paper and what is on record.

    ./lab python -m attnlab.auditing.claim_map docs/theorem-map.md

Nothing is run: the map shows the recorded verdicts and numbers, and the tests of each paper see to
it that these are what is measured.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from attnlab.auditing.catalogue import audited_papers, claims_of
from attnlab.auditing.claims import Claim, Verdict
from attnlab.auditing.document import KNOWN, grouped
from attnlab.files.atomic import write_text
from attnlab.files.mathematics import dollars, markdown
from attnlab.files.pages import template


def claim_map() -> str:
    """Return the page as text."""
    papers = [(of, claims_of(of.name)) for of in audited_papers()]
    page = template("attnlab.auditing", "theorem-map.md.jinja", cells=_cells, counted=_counted)
    text = page.render(
        verdicts=list(Verdict),
        origins=grouped([claim for _, claims in papers for claim in claims], "origin"),
        papers=[(of, grouped(claims, "section")) for of, claims in papers],
    )
    return text.rstrip("\n") + "\n"


def _counted(claims: Sequence[Claim], of: str) -> list[int]:
    """Count claims by their recorded verdict, on paper or in training."""
    counts = Counter(getattr(claim.recorded, of) for claim in claims)
    return [counts[verdict] for verdict in Verdict]


def _cells(claim: Claim) -> list[str]:
    recorded = claim.recorded
    file, _, test = claim.test_file.partition("::")
    return [
        f"**{claim.id}**" + (" (ours)" if claim.ours else ""),
        f"{markdown(claim.statement)} ({markdown(dollars('; '.join(claim.sources)))})",
        markdown(str(claim.relation)),
        _verdict(claim, recorded.verdict, claim.quote(recorded.number)),
        _verdict(claim, recorded.training, claim.quote(recorded.training_number, training=True)),
        ", ".join(f"`{name}`" for name in claim.code),
        f"[{test.removeprefix('test_').replace('_', ' ')}](../{file})" if test else "",
        claim.figure or "",
    ]


def _verdict(claim: Claim, verdict: Verdict | None, number: str) -> str:
    if verdict is None:
        return ""
    said = f"**{verdict}**" + (f", {KNOWN}" if claim.reading == KNOWN else "")
    return said + (f": {markdown(dollars(number))}" if number else "")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m attnlab.auditing.claim_map FILE")
    write_text(Path(sys.argv[1]), claim_map())

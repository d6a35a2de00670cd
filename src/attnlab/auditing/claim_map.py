"""docs/theorem-map.md, made from the claims of every paper and what is on record.

    ./lab python -m attnlab.auditing.claim_map docs/theorem-map.md

Nothing is run: the map shows the recorded verdicts and numbers, and the tests of each paper see to
it that these are what is measured.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from attnlab.auditing.catalogue import audited_papers, claims_of
from attnlab.auditing.claims import Claim, Verdict
from attnlab.auditing.document import grouped
from attnlab.files.atomic import write_text
from attnlab.files.markdown import template


def claim_map() -> str:
    """Return the page as text."""
    papers = audited_papers()
    page = template("attnlab.auditing:theorem-map.md.jinja", counted=_counted, grouped=grouped)
    claims = [claim for of in papers for claim in claims_of(of.name)]
    text = page.render(verdicts=list(Verdict), papers=papers, claims=claims)
    return text.rstrip("\n") + "\n"


def _counted(claims: Sequence[Claim], of: str, verdict: Verdict) -> int:
    """Count claims of a recorded verdict, on paper or in training."""
    return sum(getattr(claim.recorded, of) == verdict for claim in claims)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m attnlab.auditing.claim_map FILE")
    write_text(Path(sys.argv[1]), claim_map())

"""docs/theorem-map.md, made from the claims of every paper and what is on record.

    ./lab python -m attnlab.auditing.claim_map docs/theorem-map.md

Nothing is run: the map shows the recorded verdicts and numbers, and the tests of each paper see to
it that these are what is measured.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

from attnlab.auditing.catalogue import audited_papers, claims_of
from attnlab.auditing.claim import Claim
from attnlab.auditing.document import KNOWN
from attnlab.auditing.verdict import Verdict
from attnlab.files.atomic import atomic_path
from attnlab.files.mathematics import dollars, markdown
from attnlab.shelf import Paper

HEAD = """# The theorem map

Every claim of the papers on the shelf: how its relation is read, the code that predicts, the test \
of that code, the figure it serves, and what the audit found. Questions of ours, which the source \
does not answer, are marked so. What we know by re-derivation and from released numbers, and not \
from the printed text, says "as we know it".

*Generated from the claims by `./lab python -m attnlab.auditing.claim_map docs/theorem-map.md`; do \
not edit by hand. A test fails when this page is stale.* `./lab audit` measures all of it again \
(`./lab audit --claim NAME` one of it, with each hypothesis, its value and how it is read; \
`./lab audit --paper NAME` those of one paper) and compares the verdicts with those recorded here. \
[errata.md](errata.md) explains each departure from print.

Verdicts: **exact** (an equality, to rounding), **holds** (with numbers), **corrected** (the \
printed form fails, a corrected one holds), **fails** (with a counterexample), **premise fails in \
training** (a conditional statement says nothing there), **outside assumptions** (a hypothesis is \
not met where we asked), **we cannot tell** (nothing here decides it). \
The first verdict is about the formulas and the reduced dynamics that a paper analyses; the \
verdict *in training* is about the joint gradient flow of all parameters. Code is in `theory/` of \
each paper's folder.

Verdicts are counted by whose statement it is, and not added up.
"""


def claim_map() -> str:
    """Return the page as text."""
    papers = [(of, claims_of(of.name)) for of in audited_papers()]
    parts = [_paper(of, claims) for of, claims in papers]
    return "\n".join([HEAD, _tally(papers), *parts])


def _tally(papers: list[tuple[Paper, tuple[Claim, ...]]]) -> str:
    """Count claims by verdict: two rows for each origin, which are never added up."""
    lines = ["| whose | verdict | " + " | ".join(Verdict) + " |", "|---" * (len(Verdict) + 2) + "|"]
    groups: dict[str, list[Claim]] = {}
    for _, claims in papers:
        for claim in claims:
            groups.setdefault(claim.origin, []).append(claim)
    for whose, members in groups.items():
        algebra = Counter(claim.recorded.verdict for claim in members)
        training = Counter(claim.recorded.training for claim in members)
        for first, name, counts in (
            (f"{whose} ({len(members)} claims)", "formulas", algebra),
            ("", "in training", training),
        ):
            cells = [first, name, *(str(counts[verdict]) for verdict in Verdict)]
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _paper(of: Paper, claims: tuple[Claim, ...]) -> str:
    venue = f"{of.venue} {of.year}".strip()
    sections: dict[str, list[Claim]] = {}
    for claim in claims:
        sections.setdefault(claim.section, []).append(claim)
    head = f"## {of.short}\n\n{of.authors}: *{of.title}*, {venue}. How we know it: {of.reading}.\n"
    return "\n".join([head, *(_section(*item) for item in sections.items())])


def _section(title: str, claims: list[Claim]) -> str:
    lines = [
        f"### {title}\n",
        "| claim | statement | read as | verdict | in training | code | test | figure |",
        "|---|---|---|---|---|---|---|---|",
    ]
    return "\n".join([*lines, *map(_row, claims), ""])


def _row(claim: Claim) -> str:
    recorded = claim.recorded
    file, _, test = claim.test_file.partition("::")
    cells = [
        f"**{claim.id}**" + (" (ours)" if claim.ours else ""),
        f"{markdown(claim.statement)} ({markdown(dollars('; '.join(claim.source)))})",
        markdown(str(claim.relation)),
        _verdict(claim, recorded.verdict, claim.quote(recorded.number)),
        _verdict(claim, recorded.training, claim.quote(recorded.training_number, training=True)),
        ", ".join(f"`{name}`" for name in claim.code),
        f"[{test.removeprefix('test_').replace('_', ' ')}](../{file})" if test else "",
        claim.figure or "",
    ]
    return "| " + " | ".join(cells) + " |"


def _verdict(claim: Claim, verdict: Verdict | None, number: str) -> str:
    if verdict is None:
        return ""
    said = f"**{verdict}**" + (f", {KNOWN}" if claim.reading == KNOWN else "")
    return said + (f": {markdown(dollars(number))}" if number else "")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m attnlab.auditing.claim_map FILE")
    with atomic_path(Path(sys.argv[1])) as temporary:
        temporary.write_text(claim_map(), encoding="utf-8")

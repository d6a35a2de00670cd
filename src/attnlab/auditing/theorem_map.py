"""docs/theorem-map.md, made from the catalogue and what it has on record.

    ./lab python -m attnlab.auditing.theorem_map docs/theorem-map.md

Nothing is run: the map shows the recorded verdicts and numbers, and the tests of the audit see to
it that these are what is measured.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

from attnlab.auditing.catalogue import all_claims, origins, sections
from attnlab.auditing.claim import Claim
from attnlab.auditing.verdict import Verdict
from attnlab.files.atomic import atomic_path
from attnlab.files.mathematics import dollars, markdown

HEAD = """# The theorem map

Every claim of "Scan and Snap" (Tian, Wang, Chen, Du, NeurIPS 2023), of its poster and slides, and \
of a summary of it: how its relation is read, the code that predicts, the test of that code, the \
figure it serves, and what the audit found. Questions of ours, which the source does not answer, \
are marked so. At the end stand the claims of its successor, JoMA (Tian, Wang, Zhang, Chen, Du, \
ICLR 2024), as we read it: they are known to us by re-derivation and by its released numbers, not \
from its printed text, and numbered by ourselves ([theory-joma.md](theory-joma.md)); and where the \
two disagree.

*Generated from the claims by `./lab python -m attnlab.auditing.theorem_map docs/theorem-map.md`; \
do not edit by hand. A test fails when this page is stale.* `./lab audit` measures all of it again \
(`./lab audit --claim theorem-2` one of it), compares the verdicts with those recorded here, and \
shows where theory breaks: maps of the prediction error over $\\eta_Y/\\eta_Z$, $K$, overlap and \
$T$; \
`./lab audit --source joma` does the same for JoMA. [errata.md](errata.md) explains each departure \
from print.

Verdicts: **exact** (an equality, to rounding), **holds** (with numbers), **corrected** (the \
printed form fails, a corrected one holds), **fails** (with a counterexample), **premise fails in \
training** (a conditional statement says nothing there), **outside assumptions** (a hypothesis is \
not met where we asked), **we cannot tell** (nothing here decides it). \
The first verdict is about the algebra and the reduced dynamics that the paper analyses (Eq. 10); \
the verdict *in training* is about the joint gradient flow of $Y$ and $Z$ (Lemma 1, \
$T \\to \\infty$, no momentum), at $\\eta_Y/\\eta_Z = 30$ or more where $\\eta_Y \\gg \\eta_Z$ is \
asked for; of JoMA's claims, about \
the gradient flow of `Joint`. `./lab audit --claim \
NAME` prints each hypothesis with its value and how it is read. Code is in `attnlab.theory`, tests \
are in `tests/theory`; that every verdict and number is what is measured is tested in `tests/audit`.

Verdicts are counted by whose statement it is, and not added up.
"""


def theorem_map() -> str:
    """The page as text."""
    return "\n".join([HEAD, _tally(), *(_section(*item) for item in sections().items())])


def _tally() -> str:
    """Count claims by verdict: two rows for each origin, which are never added up."""
    lines = ["| whose | verdict | " + " | ".join(Verdict) + " |", "|---" * (len(Verdict) + 2) + "|"]
    whose_claim = origins()
    for origin in dict.fromkeys(whose_claim.values()):
        recorded = [claim.recorded for claim in all_claims() if whose_claim[claim.id] == origin]
        algebra = Counter(of.verdict for of in recorded)
        training = Counter(of.training for of in recorded)
        for whose, name, counts in (
            (f"{origin} ({len(recorded)} claims)", "algebra, Eq. 10", algebra),
            ("", "in training", training),
        ):
            cells = [whose, name, *(str(counts[verdict]) for verdict in Verdict)]
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _section(title: str, claims: tuple[Claim, ...]) -> str:
    lines = [
        f"## {title}\n",
        "| claim | statement | read as | verdict | in training | code | test | figure |",
        "|---|---|---|---|---|---|---|---|",
    ]
    return "\n".join([*lines, *map(_row, claims), ""])


def _row(claim: Claim) -> str:
    recorded = claim.recorded
    file, _, test = claim.test.partition("::")
    cells = [
        f"**{claim.id}**" + (" (ours)" if claim.ours else ""),
        f"{markdown(claim.latex or dollars(claim.statement))} ({markdown(dollars(claim.source))})",
        markdown(str(claim.relation)),
        _verdict(claim, recorded.verdict, claim.quote(recorded.number)),
        _verdict(claim, recorded.training, claim.quote(recorded.training_number, training=True)),
        ", ".join(f"`{name}`" for name in claim.code),
        f"[{test.removeprefix('test_').replace('_', ' ')}](../{file})",
        claim.figure or "",
    ]
    return "| " + " | ".join(cells) + " |"


def _verdict(claim: Claim, verdict: Verdict | None, number: str) -> str:
    if verdict is None:
        return ""
    said = f"**{verdict}**" + (", as we read it" if claim.as_read else "")
    return said + (f": {markdown(dollars(number))}" if number else "")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m attnlab.auditing.theorem_map FILE")
    with atomic_path(Path(sys.argv[1])) as temporary:
        temporary.write_text(theorem_map(), encoding="utf-8")

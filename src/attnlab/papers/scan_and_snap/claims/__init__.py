"""The claims of "Scan and Snap": the paper, its poster and its slides, by what they are about.

A claim stands in two places under one id: `statements.yaml` has its words (what is stated and
where, and the sentences around its numbers), and the module of its section measures it. Each
function there is given the case s on which its claim is examined: classes and learning rates under
the paper's symbols (s.P, s.K, s.M, s.eta_y, s.eta_z).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from attnlab import auditing
from attnlab.auditing.claims import Assumption, Claim, Measure
from attnlab.files.documents import read_document
from attnlab.theory import Case, Relation

STATEMENTS = Path(__file__).with_name("statements.yaml")


@cache
def statements() -> dict[str, dict[str, Any]]:
    """Return the words of every claim, by its id: arguments of `attnlab.auditing.claim`."""
    return dict(read_document(STATEMENTS, noun="claims", advice="it comes with attnlab"))


def claim(
    id: str, relation: Relation, case: Case, *hypotheses: Assumption, **how: Any
) -> Callable[[Measure], Claim]:
    """Make a claim of the function below, with its words from `statements.yaml`.

    how: `tolerance`, `general` and other arguments of `attnlab.auditing.claim`.
    """
    words = statements()[id]
    return auditing.claim(id, relation=relation, case=case, hypotheses=hypotheses, **words, **how)

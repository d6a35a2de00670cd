"""The claims of "Scan and Snap": the paper, its poster and its slides, by what they are about.

A claim stands in two places under one id: `statements.yaml` has its words (what is stated and
where, and the sentences around its numbers), and the module of its section measures it. Each
function there is given the case s on which its claim is examined: classes and learning rates under
the paper's symbols (s.P, s.K, s.M, s.eta_y, s.eta_z).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from attnlab import auditing
from attnlab.auditing.claims import Assumption, Claim, Measure
from attnlab.files.documents import read_document
from attnlab.formulas.checks import FloatArray
from attnlab.theory import Case, Check, Relation
from attnlab.theory.comparison import Form

FORMS: tuple[Form, Form] = ("printed", "corrected")
STATEMENTS = Path(__file__).with_name("statements.yaml")


@cache
def statements() -> dict[str, dict[str, Any]]:
    """Return the words of every claim, by its id: arguments of `attnlab.auditing.claim`."""
    return dict(read_document(STATEMENTS, noun="claims", advice="it comes with attnlab"))


def claim(
    id: str, relation: Relation, case: Case, *hypotheses: Assumption, **how: Any
) -> Callable[[Measure], Claim]:
    """Make a claim of the function below, with its words from `statements.yaml`.

    relation: how its sign is read. case: the classes and learning rates that it is tested on.
    hypotheses: what it asks for. how: `tolerance`, `general` and other arguments of
    `attnlab.auditing.claim`.
    """
    words = statements()[id]
    return auditing.claim(id, relation=relation, case=case, hypotheses=hypotheses, **words, **how)


def by_form(formula: Callable[..., Any], *given: Any, **named: Any) -> dict[Form, Any]:
    """Return a formula as it is printed and as it is corrected."""
    return {form: formula(*given, form=form, **named) for form in FORMS}


def in_both_forms(
    about: str, predicted: Any, measured: Any, relation: Relation | None = None, **how: Any
) -> list[Check]:
    """Check the printed form and the corrected one; what they do not share is given by form."""
    return [
        Check(about, _of(form, predicted), _of(form, measured), relation, form=form, **how)
        for form in FORMS
    ]


def in_training(
    about: str, predicted: Any, measured: Any, relation: Relation | None = None, **how: Any
) -> Check:
    """Check what the joint training of Y and Z shows; the other arguments are those of `Check`."""
    return Check(about, predicted, measured, relation, training=True, **how)


def on_both_paths(
    about: str,
    predicted: Any,
    measured: Mapping[str, Any],
    relation: Relation | None = None,
    **how: Any,
) -> list[Check]:
    """Check what is measured along "Eq. 10" and in training; predictions may be given by path."""
    return [
        Check(
            f"{about}, {name}", _of(name, predicted), of, relation, training=name != "Eq. 10", **how
        )
        for name, of in measured.items()
    ]


def falling(about: str, values: Mapping[str, FloatArray]) -> list[Check]:
    """Check each record along both paths against the one before."""
    before = {name: path[:-1] for name, path in values.items()}
    return on_both_paths(about, before, {name: path[1:] for name, path in values.items()})


def _of(name: str, values: Any) -> Any:
    return values[name] if isinstance(values, dict) else values

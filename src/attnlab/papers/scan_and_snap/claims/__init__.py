"""The claims of "Scan and Snap": the paper, its poster and its slides, a module for each section.

Each claim is measured on the case s that its decorator names: classes and learning rates under the
paper's symbols (s.P, s.K, s.M, s.eta_y, s.eta_z).
"""

from collections.abc import Callable, Mapping
from typing import Any

from attnlab.formulas.checks import FloatArray
from attnlab.theory import Check, Relation
from attnlab.theory.relation import Form

FORMS: tuple[Form, Form] = ("printed", "corrected")


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


def by_path(numbers: Mapping[str, float]) -> dict[str, Any]:
    """Return the numbers that a claim quotes, along "Eq. 10" and in training."""
    return {"number": numbers["Eq. 10"], "training_number": numbers["training"]}


def falling(about: str, values: Mapping[str, FloatArray]) -> list[Check]:
    """Check each record along both paths against the one before."""
    before = {name: path[:-1] for name, path in values.items()}
    return on_both_paths(about, before, {name: path[1:] for name, path in values.items()})


def _of(name: str, values: Any) -> Any:
    return values[name] if isinstance(values, dict) else values

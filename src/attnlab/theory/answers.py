"""Answers: what a theory says of a case, checked before it becomes a dataset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlab.files.errors import InputError
from attnlab.theory.case import Case
from attnlab.theory.hypothesis import Hypothesis
from attnlab.theory.theory import Labelled, Theory

FINITE = {"attention_logits", "attention"}
DIMS = {
    "blow_up_time": (),
    "attention_logits": ("time", "query", "token"),
    "attention": ("time", "sequence_class", "token"),
}
# Variables and coords that `predict` adds itself.
TAKEN = (
    "entropy", "distinct_entropy", "common_mass", "effective_tokens", "assumption",
    "assumption_value", "assumption_bound", "assumption_holds", "assumption_source",
    "assumption_sign", "setting", "eta_y", "eta_z", "seed", "step", "time", "query", "token",
    "sequence_class", "query_token", "next_token", "prior", "token_name",
)  # fmt: skip
BLOW_UP = "blow_up_time"  # from which on nothing is predicted
OWN_DIMS = ("time", "sequence_class", "query", "token")
ROUNDING = 1e-6  # how far attention may be from a sum of 1


def answers(
    theory: Theory, cases: Sequence[Case], t: NDArray[np.float64]
) -> list[dict[str, Labelled]]:
    """Return what the theory says of each case, as arrays of numbers.

    Raises InputError where an answer is not what `Theory.predict` promises. An error that the
    theory raises itself passes through, since it is in its author's code.
    """
    found = [_answer(theory, case, t) for case in cases]
    shapes = [{name: (dims, values.shape) for name, (dims, values) in of.items()} for of in found]
    for of in shapes[1:]:
        if of != shapes[0]:
            raise _refused(theory, f"answers differ between learning rates: {shapes[0]}, then {of}")
    return found


def assumptions(theory: Theory, case: Case) -> tuple[Hypothesis, ...]:
    """Return what the theory assumes; InputError unless these are hypotheses."""
    found = theory.assumptions(case)
    if not isinstance(found, (tuple, list)) or not all(isinstance(of, Hypothesis) for of in found):
        shown = repr(found)[:80]
        raise _refused(theory, f"assumptions: expected a tuple of Hypothesis, got {shown}")
    return tuple(found)


def _answer(theory: Theory, case: Case, t: NDArray[np.float64]) -> dict[str, Labelled]:
    said = theory.predict(case, t)
    if not isinstance(said, Mapping):
        kind = type(said).__name__
        raise _refused(
            theory, f"predict: expected a mapping of names to (dims, values), got {kind}"
        )
    if "attention_logits" not in said:
        names = ", ".join(map(str, said)) or "nothing"
        raise _refused(theory, f"predict: attention_logits is missing; it returned {names}")
    sizes = dict(zip(("sequence_class", "token"), case.P.shape, strict=True))
    sizes |= {"time": t.size, "query": int(case.psi.max()) + 1}
    found = {name: _array(theory, name, value, sizes) for name, value in said.items()}
    over = t >= np.asarray(found.get(BLOW_UP, ((), np.inf))[1])
    for name in FINITE & found.keys():
        values = found[name][1][~over]
        if not np.isfinite(values).all():
            first = t[~over][~np.isfinite(values).all((1, 2))][0]
            raise _refused(
                theory,
                f"{name}: not finite from time {first:g} on; give finite numbers, or the "
                "blow_up_time from which on there are none",
            )
    if "attention" in found:
        shares = found["attention"][1][~over]
        if (shares < 0).any() or (np.abs(shares.sum(-1) - 1) > ROUNDING).any():
            raise _refused(theory, "attention: expected probabilities that sum to 1 over tokens")
    return found


def _array(theory: Theory, name: Any, value: Any, sizes: Mapping[str, int]) -> Labelled:
    """Return dims and numbers, if they fit each other and the case."""
    if not isinstance(name, str) or not name.isidentifier():
        raise _refused(theory, f"{name!r}: expected a name of letters, digits and underscores")
    if name in TAKEN:
        raise _refused(theory, f"{name}: the name is taken; give the variable another")
    try:
        dims, given = value
        dims = (dims,) if isinstance(dims, str) else tuple(dims)
        values = np.asarray(given)
    except (TypeError, ValueError):
        kind = type(value).__name__
        raise _refused(theory, f"{name}: expected (dims, values), got {kind}") from None
    if dims != DIMS.get(name, dims):
        raise _refused(theory, f"{name}: expected dims {DIMS[name]}, got {dims}")
    if any(dim in TAKEN and dim not in OWN_DIMS for dim in dims):
        raise _refused(theory, f"{name}: expected dims among {OWN_DIMS}, or your own; got {dims}")
    if values.dtype.kind not in "biuf":
        raise _refused(theory, f"{name}: expected real numbers, got dtype {values.dtype}")
    expected = tuple(sizes.get(dim, size) for dim, size in zip(dims, values.shape, strict=False))
    if len(dims) != values.ndim or values.shape != expected:
        wanted = ", ".join(f"{dim}: {sizes.get(dim, 'any')}" for dim in dims)
        raise _refused(theory, f"{name}: expected the shape ({wanted}), got {values.shape}")
    if name in (*theory.times, BLOW_UP) and (values < 0).any():
        raise _refused(theory, f"{name}: expected times of at least 0, got {values.min():g}")
    return dims, values.astype(np.float64)


def _refused(theory: Theory, words: str) -> InputError:
    return InputError(f"theory {theory.name!r}: {words}")

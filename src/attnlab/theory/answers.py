"""Answers: what a theory predicts, checked before it becomes a dataset."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlab.files.errors import InputError
from attnlab.simulation.simulation import Simulation
from attnlab.theory.case import Case
from attnlab.theory.hypothesis import Hypothesis
from attnlab.theory.theory import Labelled, Theory

BLOW_UP = "blow_up_time"  # after it nothing is predicted
FINITE = ("attention_logits", "attention")
ROUNDING = 1e-6  # largest distance of attention from a sum of 1
STATISTICS = ("entropy", "distinct_entropy", "common_mass", "effective_tokens")
OF_CLASSES = ("query_token", "next_token", "prior", "token_name")
# Variables and coords that `predict` adds itself.
OF_ASSUMPTIONS = [f"assumption_{of}" for of in ("value", "bound", "holds", "source", "sign")]
ADDED = ("assumption", *OF_ASSUMPTIONS, "setting", "seed", "step", "time")
DIMS = ("query", "token", "sequence_class", "eta_y", "eta_z")
ADDED_TO_CLASSES = (*STATISTICS, *OF_CLASSES, *DIMS)


@dataclass(frozen=True)
class Schema:
    """The names, dims and sizes that an answer must keep to.

    sizes: of the dims that are known. dims: of the names that are known, "time" first where there
    is one. taken: names and dims that `predict` adds itself.
    """

    sizes: Mapping[str, int]
    dims: Mapping[str, tuple[str, ...]]
    taken: tuple[str, ...]

    @classmethod
    def of_case(cls, case: Case, times: int) -> Schema:
        """Return that of a theory of sequence classes."""
        classes, tokens = case.P.shape
        sizes = {"time": times, "sequence_class": classes, "token": tokens}
        dims = {
            BLOW_UP: (),
            "attention_logits": ("time", "query", "token"),
            "attention": ("time", "sequence_class", "token"),
        }
        return cls(sizes | {"query": int(case.psi.max()) + 1}, dims, (*ADDED, *ADDED_TO_CLASSES))

    @classmethod
    def of_run(cls, run: Simulation, times: int) -> Schema:
        """Return that of any other theory: what a run records is predicted as it is recorded."""
        from attnlab.simulation.learner import run_shapes

        sizes, dims = {"time": times}, {}
        for name, of in run_shapes(run).record.items():
            inner = run.learner.labels.get(name, tuple(f"{name}_{i}" for i in range(of.ndim)))
            dims[name] = ("time", *inner)
            sizes |= dict(zip(inner, of.shape, strict=True))
        return cls(sizes, dims, (*ADDED, *map(str, run.grid.dims())))


def answer(
    theory: Theory, facts: Any, t: NDArray[np.float64], schema: Schema
) -> dict[str, Labelled]:
    """Return what the theory predicts, as arrays of numbers.

    Raises InputError where an answer is not what `Theory.predict` promises. An error that the
    theory raises itself passes through, since it is in its author's code.
    """
    said = theory.predict(facts, t)
    if not isinstance(said, Mapping):
        kind = type(said).__name__
        raise _refused(
            theory, f"predict: expected a mapping of names to (dims, values), got {kind}"
        )
    return {name: _array(theory, name, value, schema) for name, value in said.items()}


def class_answer(
    theory: Theory, case: Case, t: NDArray[np.float64], schema: Schema
) -> dict[str, Labelled]:
    """Return what the theory predicts of a case: finite logits, and attention that sums to 1."""
    found = answer(theory, case, t, schema)
    if "attention_logits" not in found:
        names = ", ".join(map(str, found)) or "nothing"
        raise _refused(theory, f"predict: attention_logits is missing; it returned {names}")
    before = t < np.asarray(found.get(BLOW_UP, ((), np.inf))[1])
    for name in FINITE:
        if name not in found:
            continue
        finite = np.isfinite(found[name][1][before]).all((1, 2))
        if not finite.all():
            raise _refused(
                theory,
                f"{name}: not finite from time {t[before][~finite][0]:g} on; give finite numbers, "
                "or the blow_up_time after which there are none",
            )
    if "attention" in found:
        shares = found["attention"][1][before]
        if (shares < 0).any() or (np.abs(shares.sum(-1) - 1) > ROUNDING).any():
            raise _refused(theory, "attention: expected probabilities that sum to 1 over tokens")
    return found


def require_alike(theory: Theory, found: list[dict[str, Labelled]]) -> None:
    """Refuse answers whose names, dims or shapes differ between runs."""
    shapes = [{name: (dims, values.shape) for name, (dims, values) in of.items()} for of in found]
    for of in shapes[1:]:
        if of != shapes[0]:
            raise _refused(
                theory, f"answers differ between learning rates or seeds: {shapes[0]}, then {of}"
            )


def assumptions(theory: Theory, facts: Any) -> tuple[Hypothesis, ...]:
    """Return what the theory assumes; InputError unless these are hypotheses."""
    found = theory.assumptions(facts)
    if not isinstance(found, (tuple, list)) or not all(isinstance(of, Hypothesis) for of in found):
        shown = repr(found)[:80]
        raise _refused(theory, f"assumptions: expected a tuple of Hypothesis, got {shown}")
    return tuple(found)


def _array(theory: Theory, name: Any, value: Any, schema: Schema) -> Labelled:
    """Return dims and numbers, if they fit each other and the schema."""
    if not isinstance(name, str) or not name.replace(".", "_").isidentifier():
        raise _refused(
            theory, f"{name!r}: expected a name of letters, digits, underscores and dots"
        )
    if name in schema.taken:
        raise _refused(theory, f"{name}: the name is taken; give the variable another")
    try:
        dims, given = value
        dims = (dims,) if isinstance(dims, str) else tuple(dims)
        values = np.asarray(given)
    except (TypeError, ValueError):
        kind = type(value).__name__
        raise _refused(theory, f"{name}: expected (dims, values), got {kind}") from None
    sizes = schema.sizes
    if dims != schema.dims.get(name, dims):
        raise _refused(theory, f"{name}: expected dims {schema.dims[name]}, got {dims}")
    if any(dim in schema.taken and dim not in sizes for dim in dims) or "time" in dims[1:]:
        raise _refused(
            theory,
            f"{name}: expected dims among {tuple(sizes)}, time first, or your own; got {dims}",
        )
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

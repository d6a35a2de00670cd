"""predict(): what a theory expects of a run, in the schema of the run's result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from attnlab import measures
from attnlab.files.errors import InputError
from attnlab.files.provenance import provenance
from attnlab.formulas import attention_weights, momentum_steps, momentum_time
from attnlab.simulation.labels import label, of_one_set
from attnlab.simulation.learner import Learner
from attnlab.simulation.record import Record
from attnlab.simulation.settings import as_simulation
from attnlab.simulation.simulation import Simulation
from attnlab.tasks.base import Task
from attnlab.tasks.classes import SequenceClasses
from attnlab.tasks.sequences import Classes
from attnlab.theory.facts import Case, cases_of, facts_of
from attnlab.theory.relation import Hypothesis
from attnlab.theory.theory import ClassTheory, Labelled, Theory, as_theory, usual_theory

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


def predict(
    simulation: Simulation | Task | Learner | Classes,
    *,
    theory: str | Theory | None = None,
    at: ArrayLike | None = None,
    **settings: Any,
) -> xr.Dataset:
    """Return what a theory expects of a run, which is not trained.

    The result has the dims and coords of the run's own, so that the two subtract. Time is the
    run's own: a step with momentum counts as the number of plain steps that
    `formulas.momentum_time` gives.

    Parameters
    ----------
    simulation : Simulation, Task, Learner, SequenceClasses, str or sequence of classes
        A `Simulation`, which explains every field, or its task.
    theory : str or Theory, optional
        The name of a theory that a paper offers (`attnlab.shelf.offered("theories")`), or a
        `Theory`. By default the last that covers the run (`attnlab.theory.usual_theory`), which the
        attribute `theory` of the result names.
    at : array_like, optional
        Steps, or flow times; by default those that the run records. The last may be infinite where
        the theory says so (`Theory.infinite`).
    **settings
        Settings of the simulation, as in `simulate`.

    Returns
    -------
    xarray.Dataset
        What the theory predicts (docs/results.md). For sequence classes: `attention_logits`,
        `attention`, measures of it (entropy, common_mass, ...) and more. `assumption_value`,
        `assumption_bound` and `assumption_holds` say, along `assumption`, whether the theory
        applies.

    Examples
    --------
    >>> import attnlab
    >>> run = attnlab.Simulation("syn-small", gradient="population", eta_y=10.0, eta_z=0.1)
    >>> predicted = attnlab.predict(run, theory="sgd")
    >>> gap = predicted.attention - attnlab.simulate(run, progress=False).attention
    >>> bool(abs(gap).max() < 0.01)
    True
    """
    run = as_simulation(simulation, **settings)
    chosen = usual_theory(run) if theory is None else as_theory(theory)
    chosen.check(run)
    records = _records(run, chosen, at)
    if isinstance(chosen, ClassTheory):
        dataset = _of_classes(run, chosen, records)
        attrs = {"vocab_size": run.task.vocab_size}
    else:
        dataset, attrs = _of_facts(run, chosen, records), {}
    return dataset.assign_attrs(provenance(run.spec, theory=chosen.name, **attrs))


def _records(run: Simulation, theory: Theory, at: ArrayLike | None) -> NDArray[Any]:
    """Return the steps or times that are predicted."""
    if at is None:
        return run.record_steps
    times = np.atleast_1d(np.asarray(at, dtype=np.float64))
    ends = times[-1:] if theory.infinite and np.isposinf(times[-1:]).all() else times[:0]
    finite = times[: times.size - ends.size].tolist()
    if not finite and ends.size:
        return ends
    found = Record(at=finite).clock(run.last, whole=run.clock == "step")
    return np.concatenate([found, ends]) if ends.size else found


def _plain_steps(run: Simulation, records: NDArray[Any]) -> NDArray[np.float64]:
    return np.asarray(momentum_time(records, momentum=run.momentum), dtype=np.float64)


def _of_facts(run: Simulation, theory: Theory, records: NDArray[Any]) -> xr.Dataset:
    """Return what a theory predicts from the facts of each seed at each learning rate."""
    t = _plain_steps(run, records)
    schema = Schema.of_run(run, t.size)
    found = {
        where: (answer(theory, facts, t, schema), assumptions(theory, facts))
        for where, facts in facts_of(run)
    }
    said, assumed = zip(*(found[where] for where in sorted(found)), strict=True)
    require_alike(theory, list(said))
    dims = run.grid.dims()
    variables = {name: _gathered(run, dims, [of[name] for of in said]) for name in said[0]}
    variables |= _in_own_steps(run, theory, variables)
    dataset = xr.Dataset(variables, {**run.grid.coords(), run.clock: records})
    return dataset.merge(_assumptions(run, dims, assumed))


def _of_classes(run: Simulation, theory: ClassTheory, records: NDArray[Any]) -> xr.Dataset:
    """Return what a theory predicts of each set of classes, at every pair of learning rates."""
    sets = [_of_set(run, classes, theory, records) for classes in run.sets]
    if not isinstance(run.classes, tuple):
        return of_one_set(sets[0].expand_dims("setting"))
    coords = [name for name in OF_CLASSES if name in sets[0].coords]
    return xr.concat(sets, "setting", coords=coords, data_vars="all", join="exact")


def _of_set(
    run: Simulation, classes: SequenceClasses, theory: ClassTheory, records: NDArray[Any]
) -> xr.Dataset:
    t, cases = _plain_steps(run, records), cases_of(run, classes)
    schema = Schema.of_case(cases[0], t.size)
    said = [class_answer(theory, case, t, schema) for case in cases]
    require_alike(theory, said)
    z = np.stack([of.pop("attention_logits")[1] for of in said])
    given = [of.pop("attention")[1] for of in said if "attention" in of]
    attention = np.stack(given) if given else attention_weights(cases[0], z)
    of_tokens = {
        "attention_logits": _spread(z, classes, others=run.start_logits(classes)),
        "attention": _spread(attention, classes),
    }
    grid = replace(run.grid, seeds=run.grid.seeds[:1])  # seeds make no difference
    arrays = {name: of[None, None] for name, of in of_tokens.items()}
    dataset = label([classes], grid, arrays, clock=run.clock, steps=records, model=run.model)
    dataset = dataset.isel(setting=0, seed=0, drop=True)
    dataset = dataset.assign({name: getattr(measures, name)(dataset) for name in STATISTICS})
    swept = run.grid.swept.dims
    others = {name: _gathered(run, swept, [of[name] for of in said]) for name in said[0]}
    for name, (dims, values) in others.items():
        if dims[-1:] == ("token",):
            others[name] = dims, _spread(values, classes)
    found = dataset.assign(others | _in_own_steps(run, theory, others))
    # what a run records is recorded for every seed
    recorded = (*of_tokens, *STATISTICS, *run.model.extra_dims())
    order = (*run.grid.dims(), run.clock, ...)
    for_seeds = {
        name: found[name].expand_dims(seed=run.grid.seeds).transpose(*order)
        for name in recorded
        if name in found
    }
    assumed = [assumptions(theory, case) for case in cases]
    return found.assign(for_seeds).merge(_assumptions(run, swept, assumed))


def _spread(
    values: NDArray[np.float64], classes: SequenceClasses, others: ArrayLike = 0.0
) -> NDArray[np.float64]:
    """Return values of contextual tokens as those of all; the others have `others`."""
    out = np.broadcast_to(others, (*values.shape[:-1], classes.vocab_size)).copy()
    out[..., classes.in_play] = values
    return out


def _in_own_steps(
    run: Simulation, theory: Theory, variables: dict[str, Labelled]
) -> dict[str, Labelled]:
    """Return predicted times, which count plain steps, in the steps of the run."""
    names = [name for name in (*theory.times, BLOW_UP) if name in variables]
    return {
        name: (variables[name][0], momentum_steps(variables[name][1], momentum=run.momentum))
        for name in names
    }


def _gathered(run: Simulation, outer: Sequence[Any], said: Sequence[Labelled]) -> Labelled:
    """Return what is predicted of each run along the dims of the learning rates (and seeds)."""
    dims = tuple(run.clock if dim == "time" else dim for dim in said[0][0])
    values = np.stack([np.asarray(values, dtype=np.float64) for _, values in said])
    sizes = {**run.grid.swept.sizes, "seed": run.grid.seeds.size}
    shape = [sizes[dim] for dim in outer]
    return (*map(str, outer), *dims), values.reshape((*shape, *values.shape[1:]))


def _assumptions(
    run: Simulation, outer: Sequence[Any], found: Sequence[tuple[Hypothesis, ...]]
) -> xr.Dataset:
    """Return each assumption with its value, its bound and whether it holds."""
    along = ("assumption",)
    variables: dict[str, Any] = {
        f"assumption_{name}": _gathered(
            run, outer, [(along, [getattr(of, field) for of in each]) for each in found]
        )
        for name, field in (("value", "value"), ("bound", "needed"), ("holds", "holds"))
    }
    dims, holds = variables["assumption_holds"]
    variables["assumption_holds"] = dims, holds.astype(bool)
    return xr.Dataset(
        variables,
        {
            "assumption": [of.says for of in found[0]],
            "assumption_source": (along, [of.source for of in found[0]]),
            "assumption_sign": (along, [of.relation.sign for of in found[0]]),
        },
    )


# -- answers of a theory, checked before they become a dataset ------------------------------------


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

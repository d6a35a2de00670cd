"""predict(): what a theory expects of a simulation, in the schema of the simulation's result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Unpack

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from attnlab import defaults, measures
from attnlab.data import SequenceClasses
from attnlab.dynamics import Engine, Save, Simulation, as_simulation
from attnlab.dynamics.labels import label, of_one_set
from attnlab.dynamics.simulation import Classes, Fields
from attnlab.files.provenance import provenance
from attnlab.formulas import attention_weights, momentum_steps, momentum_time
from attnlab.theory.answers import BLOW_UP, answers, assumptions
from attnlab.theory.case import case_of
from attnlab.theory.hypothesis import Hypothesis
from attnlab.theory.named import as_theory
from attnlab.theory.theory import Labelled, Theory

STATISTICS = ("entropy", "distinct_entropy", "common_mass", "effective_tokens")
OF_CLASSES = ("query_token", "next_token", "prior", "token_name")


def predict(
    simulation: Simulation | Classes,
    engine: Engine | None = None,
    *,
    theory: str | Theory | None = None,
    at: ArrayLike | None = None,
    **fields: Unpack[Fields],
) -> xr.Dataset:
    """Say what a theory expects of a simulation, which is not run.

    The result has the dims and coords of the simulation's, so that the two subtract. Time is the
    simulation's own: a step with momentum counts for as many plain ones as `theory.momentum_time`
    says.

    Parameters
    ----------
    simulation : Simulation, SequenceClasses, str or sequence of them
        A `Simulation`, which explains every field, or its classes.
    engine : Engine, optional
        Of the simulation. With a `Simulation`, engine and fields replace its own.
    theory : str or Theory, optional
        The name of a theory that a paper offers (`attnlab.shelf.offered("theories")`), or a
        `Theory`. By default `attnlab.defaults.theory()`, which is "corrected": Eq. 10 of "Scan and
        Snap" with our corrections.
    at : array_like, optional
        Steps, or times of the flow; by default those that the simulation records.
    **fields
        Other fields of the simulation: model, optimizer, momentum, eta_y, eta_z, steps, init,
        seeds, independent, save, dtype, lump.

    Returns
    -------
    xarray.Dataset
        `attention_logits`, `attention` and measures of it (entropy, common_mass, ...), and what
        else the theory predicts (docs/results.md). `assumption_value`, `assumption_bound` and
        `assumption_holds` say, along `assumption`, how far the theory applies.

    Examples
    --------
    >>> import attnlab
    >>> run = attnlab.Simulation("syn-small", attnlab.Limit(), eta_y=10.0, eta_z=0.1, steps=100)
    >>> predicted = attnlab.predict(run, theory="sgd")
    >>> gap = predicted.attention - attnlab.simulate(run, progress=False).attention
    >>> bool(abs(gap).max() < 0.01)
    True
    """
    simulation = as_simulation(simulation, engine, **fields)
    chosen = as_theory(defaults.theory() if theory is None else theory)
    chosen.check(simulation)
    records = (
        simulation.record_steps if at is None else replace(simulation, save=_at(at)).record_steps
    )
    sets = [_predict_set(simulation, classes, chosen, records) for classes in simulation.sets]
    if isinstance(simulation.classes, tuple):
        coords = [name for name in OF_CLASSES if name in sets[0].coords]
        dataset = xr.concat(sets, "setting", coords=coords, data_vars="all", join="exact")
    else:
        dataset = of_one_set(sets[0].expand_dims("setting"))
    return dataset.assign_attrs(
        provenance(simulation.spec, theory=chosen.name, vocab_size=simulation.sets[0].vocab_size)
    )


def _predict_set(
    simulation: Simulation, classes: SequenceClasses, theory: Theory, records: NDArray[Any]
) -> xr.Dataset:
    """What is said of one set of classes, at every pair of rates."""
    momentum = simulation.moving.momentum or 0.0
    plain = np.asarray(momentum_time(records, momentum=momentum), dtype=np.float64)
    rates = zip(*simulation.grid.rates(), strict=True)
    cases = [case_of(simulation, classes, *pair) for pair in rates]
    said = answers(theory, cases, plain)
    z = np.stack([np.asarray(of.pop("attention_logits")[1]) for of in said])
    of_tokens = {"attention_logits": _over_vocabulary(z, simulation, classes)}
    given = [of.pop("attention") for of in said if "attention" in of]
    attention = (
        np.stack([np.asarray(shares) for _, shares in given])
        if given
        else attention_weights(cases[0], z)
    )
    of_tokens["attention"] = _spread(attention, classes)
    grid = replace(simulation.grid, seeds=simulation.grid.seeds[:1])  # they make no difference
    dataset = label(
        [classes], grid, {name: of[None, None] for name, of in of_tokens.items()},
        clock=simulation.clock, steps=records, model=simulation.model,
    ).isel(setting=0, seed=0, drop=True)  # fmt: skip
    dataset = dataset.assign({name: getattr(measures, name)(dataset) for name in STATISTICS})
    order = (*simulation.grid.dims(), simulation.clock, ...)
    seeds = simulation.grid.seeds
    beside = {name: _gathered(simulation, [of[name] for of in said]) for name in said[0]}
    for name, (dims, values) in beside.items():
        if dims[-1:] == ("token",):
            beside[name] = dims, _spread(values, classes)
    for name in (*theory.times, BLOW_UP):
        if name in beside:
            dims, plain_steps = beside[name]
            beside[name] = dims, momentum_steps(plain_steps, momentum=momentum)
    assumed = _assumptions(simulation, [assumptions(theory, case) for case in cases])
    found = dataset.assign(beside)
    # what a run records is recorded for every seed
    recorded = (*of_tokens, *STATISTICS, *simulation.model.extra_dims())
    alike = {
        name: found[name].expand_dims(seed=seeds).transpose(*order)
        for name in recorded
        if name in found
    }
    return found.assign(alike).merge(assumed)


def _at(at: ArrayLike) -> Save:
    return Save(at=np.atleast_1d(np.asarray(at, dtype=np.float64)).tolist())


def _over_vocabulary(
    z: NDArray[np.float64], simulation: Simulation, classes: SequenceClasses
) -> NDArray[np.float64]:
    """Logits of contextual tokens as those of all; the others stay as they start."""
    start = simulation.start_logits(classes)
    out = np.broadcast_to(start, (*z.shape[:-1], classes.vocab_size)).copy()
    out[..., classes.in_play] = z
    return out


def _spread(values: NDArray[np.float64], classes: SequenceClasses) -> NDArray[np.float64]:
    """What contextual tokens have, as what all have: 0 for the others."""
    out = np.zeros((*values.shape[:-1], classes.vocab_size))
    out[..., classes.in_play] = values
    return out


def _gathered(simulation: Simulation, said: Sequence[Labelled]) -> Labelled:
    """What is said at each pair of rates, along the dims of the rates."""
    dims = tuple(simulation.clock if dim == "time" else dim for dim in said[0][0])
    values = np.stack([np.asarray(values, dtype=np.float64) for _, values in said])
    rates = simulation.grid.eta_y
    return (*map(str, rates.dims), *dims), values.reshape((*rates.shape, *values.shape[1:]))


def _assumptions(simulation: Simulation, found: Sequence[tuple[Hypothesis, ...]]) -> xr.Dataset:
    """Each assumption with its value, what is needed of it and whether it is met."""
    along = ("assumption",)
    columns: dict[str, list[Any]] = {
        "assumption_value": [[of.value for of in each] for each in found],
        "assumption_bound": [[of.needed for of in each] for each in found],
        "assumption_holds": [[of.holds for of in each] for each in found],
    }
    variables: dict[str, Any] = {
        name: _gathered(simulation, [(along, row) for row in rows])
        for name, rows in columns.items()
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

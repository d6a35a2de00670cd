"""Facts: what a theory is given of a run, at one seed and one combination of learning rates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from attnlab.files.errors import InputError
from attnlab.simulation.simulation import Simulation

if TYPE_CHECKING:
    from attnlab.simulation.groups import Indices, Stack


@dataclass(frozen=True, eq=False)
class Facts:
    """The data and the start of one run, as the trainer draws them, in numpy.

    Parameters
    ----------
    run : Simulation
        The value, with all its settings.
    seed : int
        The seed.
    learning_rates : dict
        The learning rate of each group that moves at a constant one; `run.grid.schedules` has the
        others.
    data : tree of ndarray
        What the seed drew, as `Task.draw` or `Learner.draw` returns it.
    start : dict
        The parameters at step 0, by group.
    """

    run: Simulation
    seed: int
    learning_rates: dict[str, float]
    data: Any
    start: dict[str, Any]


def facts_of(run: Simulation) -> Iterator[tuple[tuple[int, int], Facts]]:
    """Yield the facts of each run with its indices: (combination of learning rates, seed)."""
    from attnlab.simulation.groups import stacks
    from attnlab.simulation.program import numbers

    if len(run.tables) > 1:
        raise InputError("task: the theory is about one setting; give one set of classes at a time")
    with numbers(run):
        ((stack,),) = stacks(run)
    for runs in stack.groups():
        with numbers(run):  # not while the caller has its turn
            made = list(_facts_of_group(stack, runs))
        yield from made


def _facts_of_group(stack: Stack, runs: Indices) -> Iterator[tuple[tuple[int, int], Facts]]:
    import jax

    from attnlab.simulation.program import begin

    run, grid = stack.run, stack.run.grid
    constant = {name: of for name, of in grid.rates().items() if name not in grid.schedules}
    kept, states = begin(*stack.beginning(runs))
    tables = _at(stack.tables, 0)
    for i, seed in enumerate(runs[1].tolist()):
        drawn, fixed = _at((kept.drawn, kept.fixed), 0, i)
        data = jax.device_get(run.learner.data(tables, drawn))
        for j, point in enumerate(runs[2].tolist()):
            start = jax.device_get({**fixed, **_at(states.params, 0, i, j)})
            rates = {name: float(of[point]) for name, of in constant.items()}
            yield (point, seed), Facts(run, int(grid.seeds[seed]), rates, data, start)


def _at(tree: Any, *index: int) -> Any:
    """Return the entries of all arrays of a tree at an index."""
    import jax

    return jax.tree.map(lambda leaf: leaf[index], tree)

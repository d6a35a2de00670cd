"""Facts: what a theory is given of a run.

`Facts` hold one run of any task and model as the trainer draws it; a `Case` is one set of sequence
classes at one pair of learning rates, in the symbols of the theory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attnlab import formulas
from attnlab.files.errors import InputError
from attnlab.models import Pairwise
from attnlab.models.sequence import SequenceModel, is_random
from attnlab.simulation.simulation import Simulation
from attnlab.tasks.classes import SequenceClasses

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
    # in numpy: JAX would compile a program for each shape that is indexed
    of_seeds, params, tables = jax.device_get(
        ((kept.drawn, kept.fixed), states.params, _at(stack.tables, 0))
    )
    for i, seed in enumerate(runs[1].tolist()):
        drawn, fixed = _at(of_seeds, 0, i)
        data = jax.device_get(run.learner.data(tables, drawn))
        for j, point in enumerate(runs[2].tolist()):
            start = {**fixed, **_at(params, 0, i, j)}
            rates = {name: float(of[point]) for name, of in constant.items()}
            yield (point, seed), Facts(run, int(grid.seeds[seed]), rates, data, start)


def _at(tree: Any, *index: int) -> Any:
    """Return the entries of all arrays of a tree at an index."""
    import jax

    return jax.tree.map(lambda leaf: leaf[index], tree)


@dataclass(frozen=True)
class Case:
    """Classes, learning rates, the time to train for, and the sequence length T.

    Parameters
    ----------
    classes : SequenceClasses
        The set of classes.
    eta_y : float
        Learning rate of the decoder.
    eta_z : float
        Learning rate of attention.
    steps : float
        Length of the run, in plain steps or flow time.
    length : float, optional
        T.
    z0 : ndarray, optional
        Logits at the start, (query, contextual token); None for zero.
    decoder_start : float, optional
        The largest entry of Y(0).
    momentum : float, optional
        Momentum of the optimizer; `steps` and other times count plain steps nevertheless.
    model : SequenceModel, optional
        The model that is trained.
    """

    classes: SequenceClasses
    eta_y: float
    eta_z: float
    steps: float
    length: float = np.inf
    z0: NDArray[np.float64] | None = None
    decoder_start: float = 0.0
    momentum: float = 0.0
    model: SequenceModel = field(default_factory=Pairwise)

    @cached_property
    def setting(self) -> formulas.Setting:
        """Classes and learning rates, as the formulas take them; they take the case as well."""
        return formulas.Setting(self.classes, eta_y=self.eta_y, eta_z=self.eta_z)

    @property
    def P(self) -> NDArray[np.float64]:
        """P(l|n) of the contextual tokens, (K, L)."""
        return self.setting.P

    @property
    def prior(self) -> NDArray[np.float64]:
        """P(n), the probability of each class."""
        return self.classes.prior

    @property
    def psi(self) -> NDArray[np.int64]:
        """The query of each class, as a row of Z."""
        return self.classes.query_index

    @property
    def K(self) -> int:
        """The number of classes."""
        return self.classes.num_classes

    @property
    def M(self) -> int:
        """The size of the vocabulary."""
        return self.classes.vocab_size

    def at(self, *, eta_y: float | None = None, eta_z: float | None = None) -> Case:
        """Return the same classes at other learning rates, as a plain case."""
        other = {of.name: getattr(self, of.name) for of in fields(Case)}
        other |= {"eta_y": eta_y} if eta_y is not None else {}
        other |= {"eta_z": eta_z} if eta_z is not None else {}
        return Case(**other)


def case_of(run: Simulation, classes: SequenceClasses, eta_y: float, eta_z: float) -> Case:
    """Return one of the run's sets of classes, at one of its pairs of learning rates."""
    start = run.start_logits(classes)[:, classes.in_play]
    return Case(
        classes,
        float(eta_y),
        float(eta_z),
        float(formulas.momentum_time(run.last, momentum=run.momentum)),
        length=float(run.task.length),
        z0=start if np.any(start) else None,
        decoder_start=classes.vocab_size**-0.5 if is_random(run.init) else 0.0,
        momentum=run.momentum,
        model=run.model,
    )


def cases_of(run: Simulation, classes: SequenceClasses) -> list[Case]:
    """Return one of the run's sets of classes, at each of its pairs of learning rates."""
    rates = run.grid.rates()
    fixed = np.zeros(run.grid.points)
    pairs = zip(rates.get("decoder", fixed), rates.get("attention", fixed), strict=True)
    return [case_of(run, classes, *pair) for pair in pairs]

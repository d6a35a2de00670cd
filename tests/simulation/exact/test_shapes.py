"""Arrays have the shapes of their annotations, one size for each symbol."""

import typing

import jax
import jaxtyping
import numpy as np
import pytest
from quickly import quickly

import attnlab
from attnlab import (
    Batches,
    Embedded,
    Extended,
    LearnedPosition,
    Pairwise,
    Population,
    Sequences,
    Simulation,
)
from attnlab.simulation.exact.learner import CONSTANTS
from attnlab.simulation.groups import stacks
from attnlab.simulation.program import begin

CLASSES = attnlab.SequenceClasses(
    [{0: 0.5, 1: 0.3, 2: 0.1, 3: 0.1}, {0: 0.4, 4: 0.4, 5: 0.2}, {6: 0.3, 1: 0.3, 7: 0.4}],
    query=[8, 8, 9],
    next_token=[10, 11, 12],
    vocab_size=20,
    prior=[0.5, 0.3, 0.2],
)
NAMES = {name: getattr(jaxtyping, name) for name in ("Bool", "Float", "Int")}
CASES = {
    "batches": Simulation(Sequences(CLASSES, length=8), gradient=Batches(4)),
    "training set": Simulation(
        Sequences(CLASSES, length=8, training_set=6), gradient=Batches(4), init="uniform"
    ),
    "batches of classes": Simulation(Sequences(CLASSES, length="inf"), gradient=Batches(5)),
    "not lumped": Simulation(
        Sequences(CLASSES, length="inf", lump=False), gradient=Population(), init="uniform"
    ),
    "embedded": Simulation(CLASSES, Embedded(6), gradient=Population()),
    "heads": Simulation(
        Sequences(CLASSES, length=8),
        gradient=Batches(4),
        model=Extended(heads=3, residual=True, position=LearnedPosition()),
    ),
    "layer": Simulation(CLASSES, Extended(normalization="layer"), gradient=Population()),
}


def check(value):
    """Check annotated arrays against their annotations, with the sizes that are known by now."""
    for name, hint in typing.get_type_hints(type(value), localns=NAMES).items():
        kinds = [kind for kind in (hint, *typing.get_args(hint)) if isinstance(kind, type)]
        if any(issubclass(kind, jaxtyping.AbstractArray) for kind in kinds):
            found = getattr(value, name)
            if found is None and name == "shared_log_mass" and value.places is not None:
                continue
            assert isinstance(found, hint), (type(value).__name__, name, np.shape(found), hint)


@pytest.mark.parametrize("case", CASES)
def test_shapes_are_as_annotated(case):
    run = CASES[case]
    ((stack,),) = stacks(run)
    kept, states = begin(*stack.beginning(next(stack.groups())))
    # the axes of settings, seeds and learning rates are not those of the values themselves
    layout, source, start = jax.tree.map(lambda leaf: leaf[0], stack.tables)
    constants = jax.tree.map(lambda leaf: leaf[0, 0], kept.fixed[CONSTANTS])
    attention = jax.tree.map(lambda leaf: leaf[0, 0, 0], states.params["attention"])
    draw = quickly(lambda key: source.draw(layout, key, source.collect(layout, key)))
    rows = draw(kept.keys[0])
    (laid_out,) = run.learner.laid_out(run)
    with jaxtyping.jaxtyped("context"):
        for value in (layout, laid_out.where, laid_out, source, rows, start):
            check(value)
        for value in (constants, attention):
            if hasattr(value, "_fields") and type(run.model) is not Pairwise:
                check(value)
    with jaxtyping.jaxtyped("context"), pytest.raises(AssertionError, match="query_place"):
        check(start._replace(query_place=np.zeros(7, np.int32)))

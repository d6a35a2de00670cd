"""Arrays have the shapes that their annotations say, one size for each letter."""

import typing

import jax
import jaxtyping
import numpy as np
import pytest

import attnlab
from attnlab import Embedded, Extended, LearnedPosition, Limit, Pairwise, Sampled, Simulation
from attnlab.dynamics.compiling import compiled
from attnlab.dynamics.run import Run
from attnlab.dynamics.stack import stacks

CLASSES = attnlab.SequenceClasses(
    [{0: 0.5, 1: 0.3, 2: 0.1, 3: 0.1}, {0: 0.4, 4: 0.4, 5: 0.2}, {6: 0.3, 1: 0.3, 7: 0.4}],
    query=[8, 8, 9], next_token=[10, 11, 12], vocab_size=20, prior=[0.5, 0.3, 0.2],
)  # fmt: skip
NAMES = {name: getattr(jaxtyping, name) for name in ("Bool", "Float", "Int")}
CASES = {
    "sampled": Simulation(CLASSES, Sampled(8, 4)),
    "training set": Simulation(CLASSES, Sampled(8, 4, sequences=6), init="uniform"),
    "limit": Simulation(CLASSES, Limit(5)),
    "not lumped": Simulation(CLASSES, Limit(), lump=False, init="uniform"),
    "embedded": Simulation(CLASSES, Limit(), model=Embedded(6)),
    "heads": Simulation(
        CLASSES, Sampled(8, 4), model=Extended(heads=3, residual=True, position=LearnedPosition())
    ),
    "layer": Simulation(CLASSES, Limit(), model=Extended(normalization="layer")),
}


def check(value):
    """Hold what is annotated against its annotations, in the dims that are known by now."""
    for name, hint in typing.get_type_hints(type(value), localns=NAMES).items():
        kinds = [kind for kind in (hint, *typing.get_args(hint)) if isinstance(kind, type)]
        if any(issubclass(kind, jaxtyping.AbstractArray) for kind in kinds):
            found = getattr(value, name)
            if found is None and name == "shared_log_mass" and value.places is not None:
                continue
            assert isinstance(found, hint), (type(value).__name__, name, np.shape(found), hint)


@pytest.mark.parametrize("case", CASES)
def test_shapes_are_as_annotated(case):
    run = Run.of(CASES[case])
    ((stack,),) = stacks(run)
    _, seeds, points = next(stack.batches())
    keys, fixed, states = stack.begin((stack.settings, seeds, points))
    # the axes that count settings, seeds and rates are not the values' own
    layout, source, start = jax.tree.map(lambda leaf: leaf[0], (*stack.data, stack.start))
    fixed = jax.tree.map(lambda leaf: leaf[0, 0], fixed)
    trained = jax.tree.map(lambda leaf: leaf[0, 0, 0], states.trained)
    rows = compiled()(lambda key: source.draw(layout, key, source.collect(layout, key)))(keys[0])
    with jaxtyping.jaxtyped("context"):
        for value in (layout, run.sets[0].where, run.sets[0], source, rows, start):
            check(value)
        for value in (fixed, trained.Z):
            if hasattr(value, "_fields") and type(run.simulation.model) is not Pairwise:
                check(value)
    with jaxtyping.jaxtyped("context"), pytest.raises(AssertionError, match="query_place"):
        check(start._replace(query_place=np.zeros(7, np.int32)))

"""Costs: what a run takes in memory and time, roughly, before anything is allocated.

The constants were read off two CPU cores (`./lab bench sweep` prints estimate and measurement side
by side). Another machine differs from them by one factor, which the display of a sweep in progress
does not need: it goes by the groups that are done.
"""

from dataclasses import dataclass

import numpy as np

from attnlab.files.memory import require_memory
from attnlab.simulation.exact.layout import Sizes
from attnlab.simulation.exact.learner import ExactLearner, row_numbers, rows_per_step, table_bytes
from attnlab.simulation.program import shapes_of
from attnlab.simulation.simulation import Simulation
from attnlab.sweeping.recipe import with_classes
from attnlab.tasks.classes.classes import SequenceClasses

# Records are held as they come, as they are labelled, as they are summed up and as they are checked
# against the file.
RECORD_COPIES = 4
# Numbers as large as the parameters that a run on the exact path needs: themselves, their gradient,
# the optimizer's memory, the stages of a solver.
EXACT_COPIES = {"step": 4, "time": 12}
ROW_COPIES = 2  # of sequences: what was drawn, and what the gradient makes of it
TABLE_COPIES = 2  # of what sequences are drawn from: alone and stacked
FLOW_EVALUATIONS = 2000  # of the gradient, however long the flow

EXACT_STEP_SECONDS = 2e-6  # of a step of a run, however small
DRAW_SECONDS = 4e-8  # for each sequence and token of a class
PRODUCT_SECONDS = 1.5e-10  # for each term of a product of rows, tokens and outputs
STEP_SECONDS = 5e-5  # of a step on the general path, however small
NUMBER_SECONDS = 3e-10  # for each number that a gradient makes on its way


@dataclass(frozen=True)
class Cost:
    """Cost of one run: bytes of memory while it lasts, bytes of its records, seconds on two cores.

    tables: bytes that a setting takes besides its runs, to draw sequences from. compiling: seconds
    of compiling the programs of one shape.
    """

    memory: float
    records: float
    seconds: float
    compiling: float
    tables: float = 0.0


def cost_of(run: Simulation, classes: SequenceClasses | None, records: int) -> Cost:
    """Return the cost of a run; refuse one that this machine has no memory for."""
    if classes is not None and isinstance(run.learner, ExactLearner):
        cost, name = _exact_cost(run, run.learner, classes, records), classes.origin
        advice = "take fewer tokens, classes, sequences, dims or records"
    else:
        whole = run if classes is None else with_classes(run, classes)
        cost, name = _general_cost(whole, records), type(run.task).__name__
        advice = "take a smaller model, fewer examples at a time, or fewer records"
    require_memory(name, cost.memory + cost.tables, advice)
    return cost


def _exact_cost(
    run: Simulation, learner: ExactLearner, classes: SequenceClasses, records: int
) -> Cost:
    model, what = learner.model, learner.recorded(run)
    sizes = Sizes.expected(classes, symmetric_start=model.symmetric(run))
    K, itemsize = sizes.classes, np.dtype(run.dtype).itemsize
    kept = float(run.model.numbers_recorded(classes, what) * records * itemsize)
    state = EXACT_COPIES[run.clock] * sum(model.numbers(sizes).values())
    state += ROW_COPIES * sum(row_numbers(run, sizes).values())
    rows = rows_per_step(run, K)
    drawn = 0.0 if run.task.infinite else rows * classes.num_nonzeros / K
    gradient = (
        EXACT_STEP_SECONDS + DRAW_SECONDS * drawn + PRODUCT_SECONDS * model.products(sizes, rows)
    )
    return Cost(
        memory=RECORD_COPIES * kept + state * itemsize,
        records=kept,
        seconds=_evaluations(run) * gradient,
        compiling=6.0,
        tables=TABLE_COPIES * table_bytes(run.task, classes),
    )


def _general_cost(run: Simulation, records: int) -> Cost:
    kept = float(run.learner.record_numbers(run) * records * np.dtype(run.dtype).itemsize)
    activations = shapes_of(run).activations
    return Cost(
        memory=RECORD_COPIES * kept + run.learner.bytes_of_run(run, None),
        records=kept,
        seconds=_evaluations(run) * (STEP_SECONDS + NUMBER_SECONDS * activations),
        compiling=8.0,
    )


def _evaluations(run: Simulation) -> float:
    """Return how often a run computes its gradient."""
    return FLOW_EVALUATIONS if run.clock == "time" else run.last

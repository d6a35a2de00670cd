"""What a run costs, roughly: to plan by, before anything has been run.

The constants were read off two CPU cores (`./lab bench sweep` prints estimate and truth side by
side); another machine differs from them by one factor, which the display of a sweep in progress
does not need: it goes by what has been done.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from attnlab.data import SequenceClasses
from attnlab.data.sampling import TABLE_BYTES
from attnlab.dynamics import Sampled
from attnlab.sweep.recipe import SweepRecipe

COMPILE_SECONDS = 6.0  # of the programs of one shape
CALL_SECONDS = 0.03  # of a call of simulate, besides its steps
SETTING_SECONDS = 0.003  # of laying out a set of classes
STEP_SECONDS = 2e-6  # of a step of a run, however small
DRAW_SECONDS = 4e-8  # for each sequence and token of a class
PRODUCT_SECONDS = 1.5e-10  # for each term of a product of rows, tokens and outputs
FLOW_EVALUATIONS = 2000  # of the gradient, however long the flow
# Records are held as they come, as they are labelled, as they are summed up and as they are checked
# against the file.
RECORD_COPIES = 4
# Numbers as large as Y that a run needs: itself, its gradient, memory and stages of a solver.
STATE_COPIES = {"step": 4, "time": 12}
ROW_COPIES = 2  # of sequences: what was drawn, and what the gradient makes of it


@dataclass(frozen=True)
class Cost:
    """Of one run: bytes of memory while it lasts, bytes of records, and seconds on two cores.

    tables: bytes that a setting takes besides its runs, to draw sequences from.
    """

    memory: float
    records: float
    seconds: float
    tables: float


def cost_of(setting: SweepRecipe, classes: SequenceClasses, records: int) -> Cost:
    """The cost of a run of these classes with so many records."""
    M, K, Q, A = classes.vocab_size, len(classes), classes.queries.size, classes.in_play.size
    heads, d = setting.model.heads or 1, setting.model.dim or 0
    symmetric = setting.init == "zero" and setting.model.name == "pairwise"
    outputs = np.unique(classes.next_token).size + 1 if symmetric else M
    itemsize = np.dtype(setting.dtype).itemsize
    what = setting.save.what
    numbers = heads * (
        ("attention" in what) * K * M + ("logits" in what) * Q * M + ("statistics" in what) * 4 * K
    ) + ("loss" in what)
    kept = float(numbers * records * itemsize)
    # Y; or an embedding, W_V, W_Q and W_K, and the Y that they make
    trained = outputs * A * heads + (M * d + 5 * d**2)
    state = STATE_COPIES[setting.clock] * trained * itemsize
    engine = setting.engine.engine()
    rows = engine.rows_per_step(K)
    tables = 0.0
    gradient = STEP_SECONDS + PRODUCT_SECONDS * (heads * rows * A * outputs + d * M * (d + A))
    if isinstance(engine, Sampled):
        gradient += DRAW_SECONDS * rows * classes.num_nonzeros / K
        # the counts of each sequence, of a training set too, and what they are multiplied with
        sequences = rows + (engine.sequences or 0)
        state += ROW_COPIES * sequences * (A + outputs) * itemsize
        if setting.model.position is not None:  # then it matters which token is where
            state += ROW_COPIES * sequences * engine.length * itemsize
        # for each probability a distribution of up to T counts, for each of up to T tokens; twice,
        # alone and stacked
        tables = 2 * min(TABLE_BYTES, 4 * classes.num_nonzeros * engine.length**2)
    steps = FLOW_EVALUATIONS if setting.clock == "time" else setting.steps
    return Cost(RECORD_COPIES * kept + state, kept, float(steps * gradient), tables)

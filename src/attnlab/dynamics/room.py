"""Room: what a call of simulate() needs at least, refused before it is allocated."""

from __future__ import annotations

import math
from collections.abc import Sequence

from attnlab.data.classes import SequenceClasses
from attnlab.data.machine_memory import require_memory
from attnlab.dynamics.engines import Limit, Sampled
from attnlab.dynamics.extended import Extended
from attnlab.dynamics.models import Embedded
from attnlab.dynamics.positions import LearnedPosition
from attnlab.dynamics.run import Run

RECORD_COPIES = 2  # as they come, and labelled
# Numbers as large as what is trained: itself, its gradient; the stages of the flow's solver.
STATE_COPIES = {"step": 2, "time": 10}
ADVICE = {
    "classes": "take fewer tokens or classes",
    "dim": "take fewer",
    "heads": "take fewer",
    "batch_size": "take fewer sequences",
    "sequences": "take fewer",
    "length": "take shorter sequences",
    "save": "record less, or take fewer seeds or rates at a time",
}


def require_room_for_classes(sets: Sequence[SequenceClasses], heads: int, dense: bool) -> None:
    """Refuse classes that cannot even be laid out: z(0), and log P where tokens are not lumped."""
    first = sets[0]
    numbers = heads * first.queries.size * first.vocab_size
    if dense:
        numbers += len(first) * first.in_play.size
    field = "heads" if heads > 1 else "classes"
    require_memory(field, 8 * len(sets) * numbers, ADVICE[field])


def require_room(run: Run) -> None:
    """Refuse a run that the machine cannot hold: one run at a time, and all records."""
    needed = _needed(run)
    field = max(needed, key=lambda name: needed[name])
    require_memory(field, sum(needed.values()), ADVICE[field])


def _needed(run: Run) -> dict[str, float]:
    """Bytes by the field that asks for them."""
    layout, classes, itemsize = run.settings[0].layout, run.settings[0].classes, run.dtype.itemsize
    M, K, Q = classes.vocab_size, len(classes), classes.queries.size
    outputs = layout.output_multiplicity.size
    shared = layout.shared_multiplicity.size
    tokens = shared + layout.own_multiplicity.size
    model, engine = run.model, run.engine
    heads, blocks = (model.heads, model.blocks) if isinstance(model, Extended) else (1, 1)
    record = ("loss" in run.what) + heads * (
        ("attention" in run.what) * K * M
        + ("logits" in run.what) * Q * M
        + ("statistics" in run.what) * 4 * K
    )
    copies = STATE_COPIES[run.clock] * itemsize
    needed = {
        "classes": copies * outputs * tokens,
        "heads": copies * ((blocks - 1) * outputs * tokens + heads * Q * tokens),
        "save": RECORD_COPIES * itemsize * record * math.prod(run.shape) * run.moments.size,
    }
    if {"attention", "logits"} & set(run.what):
        needed["classes"] += 8 * len(run.settings) * K * M  # the probabilities beside them
    if isinstance(model, Embedded):
        needed["dim"] = itemsize * (10 * model.dim**2 + 2 * M * model.dim)
    if isinstance(engine, Sampled):
        rows = engine.sequences or engine.rows
        name = "batch_size" if engine.sequences is None else "sequences"
        needed[name] = itemsize * rows * (outputs + 2 * heads * shared)
        if run.position is not None:
            needed["length"] = 8 * rows * engine.length
            if isinstance(run.position, LearnedPosition):
                needed["length"] += itemsize * rows * heads * engine.length
    elif isinstance(engine, Limit) and engine.batch_size is not None:
        needed["batch_size"] = itemsize * engine.batch_size * K
    return needed

"""Room: what a call of simulate() needs at least, refused before it is allocated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attnlab.data.classes import SequenceClasses
from attnlab.dynamics.engines import Limit, Sampled
from attnlab.dynamics.models import Embedded
from attnlab.dynamics.models.extended import Extended
from attnlab.dynamics.positions import LearnedPosition
from attnlab.dynamics.run import Run
from attnlab.files.memory import require_memory

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


def require_room_to_lay_out(
    sets: Sequence[SequenceClasses], *, heads: int, dense: bool, what: Sequence[str], runs: int,
    records: int, itemsize: int,
) -> None:  # fmt: skip
    """Refuse, before tokens have their places, what does not depend on them: z(0) and the roles of
    tokens, log P where none are lumped, and all records with the probabilities beside them."""
    first = sets[0]
    M, K, Q = first.vocab_size, len(first), first.queries.size
    labelled = {"attention", "logits"} & set(what)
    numbers = Q * M + 2 * M + (K * first.in_play.size if dense else 0) + (K * M if labelled else 0)
    record = ("loss" in what) + heads * (
        ("attention" in what) * K * M + ("logits" in what) * Q * M + ("statistics" in what) * 4 * K
    )
    _require(
        {
            "classes": 8 * len(sets) * numbers,
            "heads": 8 * len(sets) * (heads - 1) * Q * M,
            "save": RECORD_COPIES * itemsize * record * len(sets) * runs * records,
        }
    )


def require_room(run: Run) -> None:
    """Refuse what the machine cannot hold of one run."""
    layout, classes, itemsize = run.settings[0].layout, run.settings[0].classes, run.dtype.itemsize
    M, K, Q = classes.vocab_size, len(classes), classes.queries.size
    outputs = layout.output_multiplicity.size
    shared = layout.shared_multiplicity.size
    tokens = shared + layout.own_multiplicity.size
    model, engine = run.model, run.engine
    heads, blocks = (model.heads, model.blocks) if isinstance(model, Extended) else (1, 1)
    copies = STATE_COPIES[run.clock] * itemsize
    needed = {
        "classes": copies * outputs * tokens,
        "heads": copies * ((blocks - 1) * outputs * tokens + heads * Q * tokens),
    }
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
    _require(needed)


def _require(needed: Mapping[str, int]) -> None:
    """Bytes by the field that asks for them."""
    field = max(needed, key=lambda name: needed[name])
    require_memory(field, sum(needed.values()), ADVICE[field])

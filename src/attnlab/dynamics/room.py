"""Room: what a call of simulate() needs at least, refused before it is allocated."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from attnlab.dynamics.run import Run
from attnlab.dynamics.simulation import Simulation
from attnlab.files.memory import require_memory

RECORD_COPIES = 2  # as they come, and labelled
# Numbers as large as what is trained: itself, its gradient; the stages of the flow's solver.
STATE_COPIES = {"step": 2, "time": 10}
ADVICE = {
    "classes": "take fewer tokens or classes",
    "batch_size": "take fewer sequences",
    "length": "take shorter sequences",
    "model": "take a smaller one",
    "save": "record less, or take fewer seeds or rates at a time",
}


def require_room_to_lay_out(simulation: Simulation) -> None:
    """Refuse, before tokens have their places, what does not depend on them: z(0) and the roles of
    tokens, log P where none are lumped, and all records with the probabilities beside them."""
    sets, what, model = simulation.sets, simulation.save.what, simulation.model
    first, heads = sets[0], model.heads
    M, K, Q = first.vocab_size, len(first), first.queries.size
    places = K * first.in_play.size if model.dense(simulation.engine) else 0
    labelled = {"attention", "logits"} & set(what)
    numbers = Q * M + 2 * M + places + (K * M if labelled else 0)
    record = ("loss" in what) + heads * (
        ("attention" in what) * K * M + ("logits" in what) * Q * M + ("statistics" in what) * 4 * K
    )
    record += ("logits" in what) * model.extra_numbers(first)
    records = len(sets) * simulation.grid.runs * simulation.record_steps.size
    _require(
        {
            "classes": 8 * len(sets) * numbers,
            "heads": 8 * len(sets) * (heads - 1) * Q * M,
            "save": RECORD_COPIES * np.dtype(simulation.dtype).itemsize * record * records,
        }
    )


def require_room(run: Run) -> None:
    """Refuse what the machine cannot hold of one run."""
    model, engine, sizes = run.simulation.model, run.simulation.engine, run.sets[0].layout.sizes
    copies = STATE_COPIES[engine.clock]
    needed = {name: copies * numbers for name, numbers in model.numbers(sizes).items()}
    needed |= engine.numbers(sizes, model)
    _require({name: run.dtype.itemsize * numbers for name, numbers in needed.items()})


def _require(needed: Mapping[str, int]) -> None:
    """Bytes by the field that asks for them."""
    field = max(needed, key=lambda name: needed[name])
    require_memory(field, sum(needed.values()), ADVICE.get(field, "take fewer"))

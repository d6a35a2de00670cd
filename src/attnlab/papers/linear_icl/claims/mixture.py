"""In-context and in-weight sequences together: what is learned first, and what stays."""

from __future__ import annotations

from functools import partial

import numpy as np

from attnlab.auditing import Measurement, claim
from attnlab.experiments import mean
from attnlab.simulation import Simulation
from attnlab.theory import Trained
from attnlab.theory.relation import BELOW

from ..runs import Results, descent
from ..task import InContextRegression
from .population import TESTS

PARTS = (0.2, 0.4, 0.6, 0.8)
SEEDS, STEPS = 3, 5001
LEARNED = 0.7  # an in-weight loss below: at the start it is 1


def mixed(fresh: float) -> Simulation:
    """Return the published run on a mixture, white inputs; to step 5001, as far as it is drawn."""
    task = InContextRegression((0.25,) * 4, fresh=fresh)
    return descent(task, std=1e-6, rate=5e-4, steps=STEPS, every=20, seeds=SEEDS)


@claim(
    "icl-in-weight-first",
    sources="Linear ICL, its mixture of fresh tasks and a shared one",
    relation=BELOW,
    runs={f"{p:g}": partial(mixed, p) for p in (0.0, *PARTS, 1.0)},
    code=("first_gradient",),
    test=TESTS + "test_in_weight_learning_leads_up_to_four_fifths_of_fresh_tasks",
    figure="mixture",
    training_number="at p = 0.4 the in-weight loss falls to {:.2f}, and comes back",
)
def in_weight_first(found: Results) -> Measurement:
    """With a share $0 < p < 1$ of fresh tasks in-weight learning comes first, and is transient.

    Train on 5000 sequences of which a share p has tasks of its own, 3 seeds. The in-weight loss
    falls below 0.7 for p = 0.2 to 0.8, before the in-context loss does, and ends within 0.2 of its
    start; at p = 0 it stays low, at p = 1 it never falls.
    """
    losses = {
        name: {
            kind: of[f"{kind}_loss"].transpose("seed", "step").values
            for kind in ("in_weight", "in_context")
        }
        for name, of in found.items()
    }
    least = {name: of["in_weight"].min(1) for name, of in losses.items()}
    ends = {name: of["in_weight"][:, -1] for name, of in losses.items()}
    checks = []
    for p in PARTS:
        own = losses[f"{p:g}"]
        when = {kind: np.argmax(of < LEARNED, axis=1) for kind, of in own.items()}
        gap = np.abs(own["in_weight"][:, -1] - own["in_weight"][:, 0])
        checks += [
            Trained(f"p = {p:g}: least in-weight loss", LEARNED, least[f"{p:g}"]),
            Trained(f"p = {p:g}: first", when["in_context"], when["in_weight"]),
            Trained(f"p = {p:g}: gap of its end from its start", 0.2, gap),
        ]
    checks += [
        Trained("p = 0: in-weight loss at the end", LEARNED, ends["0"]),
        Trained("p = 1: least in-weight loss, below the start", 0.2, 1 - least["1"]),
    ]
    return Measurement(
        *checks,
        training_number=least["0.4"].mean(),
        note="in-weight loss, least and at the end: "
        + "; ".join(
            f"p = {name}: {mean(least[name]):.2f}, {mean(ends[name]):.2f}" for name in found
        ),
    )

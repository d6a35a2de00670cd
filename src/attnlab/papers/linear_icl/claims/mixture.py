"""In-context and in-weight sequences together: what is learned first, and what stays."""

from __future__ import annotations

from functools import partial

import xarray as xr

from attnlab.auditing import Measurement, claim
from attnlab.experiments.estimate import means
from attnlab.simulation import Simulation
from attnlab.theory import Trained
from attnlab.theory.relation import BELOW

from ..runs import Results, descent
from ..task import InContextRegression

PARTS = (0.2, 0.4, 0.6, 0.8)
SEEDS, STEPS = 3, 5001
LEARNED = 0.7  # an in-weight loss below: at the start it is 1
BACK = 0.2  # of its start: the in-weight loss has come back


def mixed(fresh: float) -> Simulation:
    """Return the published run on a mixture, white inputs; to step 5001, as far as it is drawn."""
    task = InContextRegression((0.25,) * 4, fresh=fresh)
    return descent(task, std=1e-6, rate=5e-4, steps=STEPS, every=20, seeds=SEEDS)


def passage(run: xr.Dataset) -> xr.Dataset:
    """Return how in-weight learning comes and goes.

    least, end: the in-weight loss, and gap, by how much its end differs from its start.
    in_weight, in_context: the first record at which each loss is below 0.7.
    """
    losses = {name: run[f"{name}_loss"] for name in ("in_weight", "in_context")}
    own = losses["in_weight"]
    return xr.Dataset(
        {
            "least": own.min("step"),
            "end": own.isel(step=-1, drop=True),
            "gap": abs(own.isel(step=-1, drop=True) - own.isel(step=0, drop=True)),
            **{name: (of < LEARNED).argmax("step") for name, of in losses.items()},
        }
    )


@claim(
    BELOW,
    id="icl-in-weight-first",
    sources="Linear ICL, its mixture of fresh tasks and a shared one",
    reading="as we know it",
    runs={f"{p:g}": partial(mixed, p) for p in (0.0, *PARTS, 1.0)},
)
def in_weight_first(found: Results) -> Measurement:
    """With a share $0 < p < 1$ of fresh tasks in-weight learning comes first, and is transient.

    Train on 5000 sequences of which a share p has tasks of its own, 3 seeds. The in-weight loss
    falls below 0.7 for p = 0.2 to 0.8, before the in-context loss does, and ends within 0.2 of its
    start; at p = 0 it stays low, at p = 1 it never falls.
    """
    of = {name: passage(run) for name, run in found.items()}
    return Measurement(
        *(
            check
            for p in PARTS
            for each in (of[f"{p:g}"],)
            for check in (
                Trained(f"p = {p:g}: least in-weight loss", LEARNED, each["least"].values),
                Trained(f"p = {p:g}: first", each["in_context"].values, each["in_weight"].values),
                Trained(f"p = {p:g}: gap of its end from its start", BACK, each["gap"].values),
            )
        ),
        Trained("p = 0: in-weight loss at the end", LEARNED, of["0"]["end"].values),
        Trained("p = 1: least in-weight loss, below the start", BACK, 1 - of["1"]["least"].values),
        training_number=float(of["0.4"]["least"].mean()),
        note="in-weight loss, least: "
        + means({f"p = {name}:": each["least"] for name, each in of.items()})
        + "; at the end: "
        + means({f"p = {name}:": each["end"] for name, each in of.items()}),
    )

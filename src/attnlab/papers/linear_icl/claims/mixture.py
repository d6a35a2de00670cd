"""In-context and in-weight sequences together: what is learned first, and what stays."""

from __future__ import annotations

import xarray as xr

from attnlab.auditing import Measurement, claim
from attnlab.experiments.estimate import means
from attnlab.simulation import Simulation
from attnlab.theory import Trained
from attnlab.theory.relation import BELOW

from ..runs import Results, descent
from ..task import InContextRegression

SHARES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
SEEDS, STEPS = 3, 5001
LEARNED = 0.7  # an in-weight loss below: at the start it is 1
BACK = 0.2  # of its start: the in-weight loss has come back


def mixtures() -> Simulation:
    """Return the published run on mixtures, white inputs; to step 5001, as far as it is drawn."""
    task, *others = (InContextRegression((0.25,) * 4, fresh=p) for p in SHARES)
    return descent(
        task, std=1e-6, rate=5e-4, steps=STEPS, every=25, seeds=SEEDS, beside=tuple(others)
    )


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
    runs={"mixtures": mixtures},
)
def in_weight_first(found: Results) -> Measurement:
    """With a share $0 < p < 1$ of fresh tasks in-weight learning comes first, and is transient.

    Train on 5000 sequences of which a share p has tasks of its own, 3 seeds. The in-weight loss
    falls below 0.7 for p = 0.2 to 0.8, before the in-context loss does, and ends within 0.2 of its
    start; at p = 0 it stays low, at p = 1 it never falls.
    """
    each = passage(found["mixtures"]).assign_coords(setting=list(SHARES))
    mixed, alone = each.sel(setting=slice(0.1, 0.9)), each.sel(setting=[0.0, 1.0])
    return Measurement(
        Trained("least in-weight loss", LEARNED, mixed["least"].values),
        Trained("first", mixed["in_context"].values, mixed["in_weight"].values),
        Trained("gap of its end from its start", BACK, mixed["gap"].values),
        Trained("p = 0: in-weight loss at the end", LEARNED, alone["end"].values[0]),
        Trained("p = 1: least, below the start", BACK, 1 - alone["least"].values[1]),
        training_number=float(each["least"].sel(setting=0.4).mean()),
        note="; ".join(
            f"in-weight loss, {what}: {means({f'p = {p:g}:': of.sel(setting=p) for p in SHARES})}"
            for what, of in (("least", each["least"]), ("at the end", each["end"]))
        ),
    )

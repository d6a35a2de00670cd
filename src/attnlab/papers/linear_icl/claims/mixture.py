"""In-context and in-weight sequences together: what is learned first, and what stays."""

from __future__ import annotations

from attnlab.auditing import Measurement, claim
from attnlab.experiments.estimate import means
from attnlab.theory import Trained
from attnlab.theory.relation import BELOW

from ..evidence import EVIDENCE, LEARNED, SHARES

BACK = 0.2  # of its start: the in-weight loss has come back


@claim(
    BELOW,
    id="icl-in-weight-first",
    sources="Linear ICL, its mixture of fresh tasks and a shared one",
    reading="as we know it",
    runs={},
)
def in_weight_first(found: object) -> Measurement:
    """With a share $0 < p < 1$ of fresh tasks in-weight learning comes first, and is transient.

    Train on 5000 sequences of which a share p has tasks of its own, 3 seeds. The in-weight loss
    falls below 0.7 for p = 0.2 to 0.8, before the in-context loss does, and ends within 0.2 of its
    start; at p = 0 it stays low, at p = 1 it never falls.
    """
    each = EVIDENCE.read("mixtures").assign_coords(setting=list(SHARES))
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

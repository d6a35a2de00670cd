"""Three layers: sinks, residual peaks and what the first block is for, from numbers on file.

Ours are small chains (d = 48), 10 seeds; published are a text's characters, d = 256, one seed.
"""

from __future__ import annotations

from functools import partial

import xarray as xr

from attnlab.auditing import Measurement
from attnlab.experiments import mean, published
from attnlab.experiments.estimate import with_range
from attnlab.theory import Trained
from attnlab.theory.relation import ABOVE, AT_LEAST, AT_MOST, BELOW

from ..evidence import EVIDENCE
from .head import Found
from .transformer import RELEASED, filed_claim

PEAK = 2.0  # ours: |h_0| over that of other positions from which on it is a peak
of_layers = partial(filed_claim, figure="layers", in_parts=True)


def last(name: str) -> xr.Dataset:
    """Return the measures of a run at its last step, by seed and layer."""
    return EVIDENCE.read(f"three-{name}").isel(step=-1)


@of_layers(
    AT_LEAST,
    id="ad-three-sink",
    sources="here",
    ours=True,
    training_number="sink {:.2f} in the block where it is largest (mean of 10 seeds)",
)
def sink(found: Found) -> Measurement:
    """With three layers some block is active-dormant, and the value of the first token drains.

    Check at the last step, by seed, in the block with the largest attention to <s> at tokens that
    are not triggers, that it is at least 1/2 there, at most 0.1 at triggers, and that the value of
    <s> is below that of other positions.
    """
    of = last("adam")
    most = of.isel(layer=of["sink_at_others"].argmax("layer"))
    mass = most["sink_at_others"]
    blocks = [int((most["layer"] == layer).sum()) for layer in of["layer"]]
    return Measurement(
        *(Trained(f"sink, seed {seed}", 0.5, value) for seed, value in enumerate(mass.values)),
        Trained("sink at triggers", 0.1, most["sink_at_triggers"].values, AT_MOST),
        Trained("value over others", 1.0, most["drain"].values, BELOW),
        training_number=float(mass.mean()),
        note=f"sink {with_range(mass)}, above 1/2 in {int((mass > 0.5).sum())} of {mass.size} "
        f"seeds, by block {blocks}; value over others {with_range(most['drain'])}; copying "
        f"{with_range(of['previous_at_triggers'].max('layer'))}",
    )


@of_layers(
    ABOVE,
    id="ad-peak",
    training_number="residual of the first token over others {:.2f} after the first block, Adam",
)
def peak(found: Found) -> Measurement:
    """With three layers Adam makes a residual peak at the first token, SGD makes none.

    Check at the last step that the residual of <s> over that of other positions, largest over
    blocks, is above 2 with Adam in each seed, and below 2 with SGD. Released, after the first block
    at step 10,000: 5.8 times the start with Adam, 0.84 times with SGD; they part after 2,000.
    """
    of = {name: last(name)["peak"] for name in ("adam", "sgd")}
    most = {name: value.max("layer") for name, value in of.items()}
    return Measurement(
        *(
            Trained(f"Adam, seed {seed}", PEAK, value)
            for seed, value in enumerate(most["adam"].values)
        ),
        Trained("SGD", PEAK, most["sgd"].values, BELOW),
        training_number=float(of["adam"].isel(layer=0).mean()),
        note="; ".join(
            f"{name}: largest over blocks {with_range(most[name])}, after the first "
            f"{with_range(of[name].isel(layer=0))}, sink {with_range(_largest(name))}"
            for name in of
        ),
    )


@of_layers(
    BELOW,
    id="ad-relu-peak",
    training_number="residual of the first token over others {:.2f}, largest over blocks",
)
def relu_peak(found: Found) -> Measurement:
    """With three layers and ReLU attention there is neither sink nor residual peak.

    Check at the last step that attention to <s> at tokens that are not triggers is below 0.1 in
    every block and seed, and that the residual of <s> over that of other positions, largest over
    blocks, is below 2 in each seed.
    """
    of = last("relu")
    most = of["peak"].max("layer")
    high = most > PEAK
    return Measurement(
        Trained("sink", 0.1, of["sink_at_others"].values),
        *(Trained(f"peak, seed {seed}", PEAK, value) for seed, value in enumerate(most.values)),
        training_number=float(most.mean()),
        note=f"largest peak {with_range(most)}, above 2 in {int(high.sum())} of {high.size} seeds; "
        f"largest sink {with_range(_largest('relu'))}",
    )


@of_layers(
    BELOW,
    id="ad-first-block",
    sources=RELEASED,
    training_number="sink logit of the second block {:.2f} without the first (mean of 10 seeds)",
)
def first_block(found: Found) -> Measurement:
    """The first block makes the peak that feeds sink and drain of the second.

    Check at the last step, without the first block and by two errors: the residual of <s> over
    others before the second block is below that with it, its sink logit below half of that with it,
    and its value of <s> above that with it.
    """
    of = last("adam")
    pairs = {
        "peak": of["peak"].isel(layer=0),
        "sink logit": of["sink_logit"].isel(layer=1),
        "value": of["first_value"].isel(layer=1),
    }
    without = {
        "peak": of["peak_without_first"].isel(layer=0),
        "sink logit": of["sink_logit_without_first"].isel(layer=1),
        "value": of["first_value_without_first"].isel(layer=1),
    }
    drop = {name: mean(without[name] - pairs[name]) for name in ("peak", "value")}
    drop["sink logit"] = mean(without["sink logit"] - pairs["sink logit"] / 2)
    rows = {row["model"]: row for row in published(__file__, "first_block")}
    whole, cut = rows["whole"], rows["without first block"]
    return Measurement(
        *(
            Trained(name, 0.0, drop[name].value + 2 * drop[name].error)
            for name in ("peak", "sink logit")
        ),
        Trained("value", 0.0, drop["value"].value - 2 * drop["value"].error, ABOVE),
        training_number=float(without["sink logit"].mean()),
        note="; ".join(f"{name} {mean(pairs[name])}, then {mean(without[name])}" for name in pairs)
        + f"; released: logit {whole['sink_logit']:g}, then {cut['sink_logit']:g}, value "
        f"{whole['value']:g}, then {cut['value']:g}",
    )


def _largest(name: str) -> xr.DataArray:
    return last(name)["sink_at_others"].max("layer")

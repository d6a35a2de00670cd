"""One layer on Bigram-Backcopy: ten seeds on file, 1,500 steps (see `evidence`)."""

from __future__ import annotations

from functools import partial

import numpy as np
import xarray as xr

from attnlab.auditing import Measurement, claim
from attnlab.experiments import mean, published
from attnlab.experiments.estimate import with_range
from attnlab.theory import Trained
from attnlab.theory.relation import ABOVE, AT_LEAST, AT_MOST, BELOW, EQUAL

from ..evidence import EVIDENCE
from ..runs import THREE
from .head import PAPER, Found

RELEASED = "Active-dormant, released code and data"
FILED = "tests/papers/active_dormant/test_evidence.py::test_a_recorded_seed_is_trained_again"
filed_claim = partial(claim, sources=PAPER, runs={}, test=FILED, figure="dynamics")


def path(name: str = "softmax", size: str = "one") -> xr.Dataset:
    """Return the measures of one layer on file, by seed and step; size: "wide" is the published."""
    return EVIDENCE.read(f"{size}-{name}").isel(layer=0)


def end(name: str = "softmax", size: str = "one") -> xr.Dataset:
    """Return the measures of one layer at the last step, by seed."""
    return path(name, size).isel(step=-1)


@filed_claim(
    ABOVE,
    id="ad-dormant",
    in_parts=True,
    training_number="sink {:.2f} at tokens that are not triggers (mean of 10 seeds)",
)
def dormant(found: Found) -> Measurement:
    """A head that is needed at some tokens only sinks at the others, and only there.

    Check at step 1,500, by seed: attention to <s> at triggers below 0.01, to the token before it
    above 0.9, and attention to <s> at other tokens above 1/2.
    """
    of = end()
    sink, idle = of["sink_at_others"], of["on_triggers_at_others"]
    low = sink < 0.5
    return Measurement(
        Trained("sink at triggers", 0.01, of["sink_at_triggers"].values, BELOW),
        Trained("copying", 0.9, of["previous_at_triggers"].values),
        *(Trained(f"sink, seed {seed}", 0.5, value) for seed, value in enumerate(sink)),
        training_number=float(sink.mean()),
        note=f"sink {mean(sink)}, above 1/2 in {int((~low).sum())} of 10 seeds; of the others "
        f"{mean(idle[low])} goes to triggers, which are never what has to be copied",
    )


@filed_claim(
    BELOW,
    id="ad-value-drain",
    training_number="value of the first token over that of others {:.2f} (mean of 10 seeds)",
)
def value_drain(found: Found) -> Measurement:
    """The value of the first token becomes small.

    Check at step 1,500 that its norm over that of other positions is below 1 in each seed, and
    below half of that at the start on average, by two errors.
    """
    start, drain = (path()["drain"].isel(step=at) for at in (0, -1))
    return Measurement(
        Trained("value over others", 1.0, drain.values),
        Trained("share of the start", 0.5, _bound(drain / start)),
        training_number=float(drain.mean()),
        note=f"start {mean(start)}, step 1,500 {with_range(drain)}",
    )


@filed_claim(
    AT_MOST,
    id="ad-roles",
    sources=RELEASED,
    in_parts=True,
    training_number="bigram KL changes by {:.4f} without attention (mean of 10 seeds)",
)
def roles(found: Found) -> Measurement:
    """The head does the copying and the MLP the bigrams: without attention bigrams stay.

    Check at step 1,500, by seed: without attention the bigram KL changes by 0.01 at most, while the
    copy risk is above 1; without the MLP both are above 0.5. The last fails in some seeds: there
    the head copies without the MLP, as it nearly does at the published width (`ad-text`).
    """
    of = end()
    change = abs(of["bigram_kl_without_attention"] - of["bigram_kl"])
    names = ("copy_risk", "bigram_kl")
    released = {row["part"]: row for row in published(__file__, "parts")}
    return Measurement(
        Trained("change of the bigram KL", 0.01, change.values),
        Trained("copying, no attention", 1.0, of["copy_risk_without_attention"], ABOVE),
        *(
            Trained(f"{name}, no MLP", 0.5, of[f"{name}_without_mlp"].values, ABOVE)
            for name in names
        ),
        training_number=float(change.mean()),
        note="; ".join(
            f"{part}: copy {mean(of[f'copy_risk{suffix}'])}, bigram KL "
            f"{mean(of[f'bigram_kl{suffix}'])} (released risks {released[part]['copy_risk']:g}, "
            f"{released[part]['bigram_risk']:g})"
            for part, suffix in (
                ("whole", ""),
                ("without attention", "_without_attention"),
                ("without MLP", "_without_mlp"),
            )
        ),
    )


@filed_claim(
    ABOVE,
    id="ad-hump",
    sources=RELEASED,
    training_number="height {:.2f} times the value at the start (mean of 10 seeds)",
)
def hump(found: Found) -> Measurement:
    """The value of the first token grows at first, then drains.

    Check by seed that its height is at least 1.2 times both its start and its end (published: 5.2,
    8.7 at step 200, 0.10 in the end).
    """
    size = path()["first_value"]
    height = size.max("step")
    ends = {name: height / size.isel(step=at) for name, at in (("start", 0), ("end", -1))}
    when = size["step"].values[size.transpose("seed", "step").values.argmax(1)]
    return Measurement(
        *(Trained(f"height over {name}", 1.2, of.values) for name, of in ends.items()),
        training_number=float(ends["start"].mean()),
        note=f"height over start {mean(ends['start'])}, over end {mean(ends['end'])}; at step "
        f"{np.median(when):.0f} (median)",
    )


@filed_claim(
    BELOW,
    id="ad-concentration",
    in_parts=True,
    training_number="spread over mean {:.2f} at step 1,500 (median of 10 seeds)",
)
def concentration(found: Found) -> Measurement:
    """Sink logits of different query tokens concentrate.

    Check from step 200 to the end, by medians over seeds, that the spread over the mean falls, and
    that the spread itself falls. Released, from step 1,000: 0.44 to 0.20, and 4.3 to 7.3.
    """
    of = path()
    spread = of["sink_logit_spread"]
    ratio = (spread / of["sink_logit"]).median("seed")
    paths = {"spread over mean": ratio, "spread": spread.median("seed")}
    return Measurement(
        *(
            Trained(name, float(of.sel(step=200)), float(of.isel(step=-1)))
            for name, of in paths.items()
        ),
        training_number=float(ratio.isel(step=-1)),
        note="; ".join(
            f"{name} {', '.join(f'{float(value):.2f}' for value in of.sel(step=[200, 500, 1500]))}"
            for name, of in paths.items()
        )
        + " (steps 200, 500, 1,500)",
    )


@filed_claim(
    EQUAL,
    id="ad-growth-adam",
    sources="Active-dormant, on its one-layer transformer",
    tolerance=0.5,
    training_number="slope {:.1f} against ln(step), 500 to 1,500 (mean of 10 seeds)",
)
def growth_adam(found: Found) -> Measurement:
    r"""In the transformer, too, sink logits grow as $\frac12 \log t$.

    Fit the slope of the mean sink logit against ln(step) from step 500 to 1,500 by seed, and check
    that 1/2 is within two errors of it; released curves from 1,000 to 10,000 and to 100,000 stand
    beside it. The optimizer is Adam.
    """
    logit = path()["sink_logit"]
    slopes = (logit.sel(step=1500) - logit.sel(step=500)) / np.log(3)
    rows = [row for row in published(__file__, "one_layer") if row["sink_logit"] != ""]
    known = {row["step"]: row["sink_logit"] for row in rows}
    released = [(known[10 * step] - known[step]) / np.log(10) for step in (1e3, 1e4)]
    fit = mean(slopes)
    return Measurement(
        Trained("slope", 0.5, fit.value, tolerance=2 * fit.error, relative=False),
        training_number=fit.value,
        note=f"slope {fit}; released {released[0]:.1f}, then {released[1]:.1f}",
    )


@filed_claim(
    AT_MOST, id="ad-relu", training_number="attention to the first token {:.4f} (mean of 10 seeds)"
)
def relu(found: Found) -> Measurement:
    """ReLU attention needs no sink and has none, at the same risks.

    Check at step 1,500 by seed: attention to <s> at most 0.05 at tokens that are not triggers, and
    copy risk and bigram KL at most twice those of softmax on average.
    """
    of, softmax = end("relu"), end()
    names = ("copy_risk", "bigram_kl")
    return Measurement(
        Trained("attention to <s>", 0.05, of["sink_at_others"].values),
        *(Trained(name, 2 * float(softmax[name].mean()), float(of[name].mean())) for name in names),
        training_number=float(of["sink_at_others"].mean()),
        note="; ".join(f"{name} {mean(of[name])} against {mean(softmax[name])}" for name in names)
        + f"; value of <s> over others {mean(of['drain'])}, residual {with_range(of['peak'])}",
    )


@filed_claim(
    AT_MOST,
    id="ad-bare",
    sources="here",
    ours=True,
    in_parts=True,
    training_number="{:.2f} of idle attention goes to triggers (mean of 10 seeds)",
)
def bare(found: Found) -> Measurement:
    """Without a start token the first position is no sink: idle queries attend to triggers.

    Check at step 1,500 by seed: attention to the first position at most 0.1, to triggers at least
    1.3 times that at the start, which is their share of the positions; and copy risk and bigram KL
    at most three times those with <s> on average. A trigger is never what has to be copied.
    """
    of, whole = end("bare"), end()
    start = path("bare")["on_triggers_at_others"].isel(step=0)
    idle, names = of["on_triggers_at_others"], ("copy_risk", "bigram_kl")
    return Measurement(
        Trained("first position", 0.1, of["sink_at_others"].values),
        *(
            Trained(f"on triggers, seed {seed}", 1.3, share, AT_LEAST)
            for seed, share in enumerate((idle / start).values)
        ),
        *(Trained(name, 3 * float(whole[name].mean()), float(of[name].mean())) for name in names),
        training_number=float(idle.mean()),
        note=f"first position {mean(of['sink_at_others'])}, triggers {mean(idle)} against "
        f"{mean(start)} at the start; "
        + "; ".join(f"{name} {mean(of[name])} against {mean(whole[name])}" for name in names),
    )


@filed_claim(
    ABOVE,
    id="ad-text",
    sources=RELEASED,
    in_parts=True,
    training_number="sink {:.2f} with one layer (mean of 4 seeds)",
)
def text(found: Found) -> Measurement:
    """On a text's characters, at the published width, one and three layers do the same.

    Check at step 10,000 of the recipes `published` (d = 256, 256 positions), by seed, what the
    claims of small chains check: sinks above 1/2 at other tokens than triggers alone, drained
    values, none with one layer of ReLU attention; with three layers a residual peak above 2 with
    Adam, none with SGD or ReLU. Four seeds on file: fewer than the ten of our other claims.
    """
    one, flat = end("softmax", "wide"), end("relu", "wide")
    three = {name: EVIDENCE.read(f"wide-three-{name}").isel(step=-1) for name in THREE}
    sink, drain, on = (one[of] for of in ("sink_at_others", "drain", "on_triggers_at_others"))
    sinks = {name: of["sink_at_others"].max("layer") for name, of in three.items()}
    peaks = {name: of["peak"].max("layer") for name, of in three.items()}
    return Measurement(
        *(Trained(f"sink, seed {seed}", 0.5, value) for seed, value in enumerate(sink.values)),
        Trained("sink at triggers", 0.01, one["sink_at_triggers"].values, BELOW),
        Trained("value over others", 1.0, drain.values, BELOW),
        Trained("sink, ReLU", 0.05, flat["sink_at_others"].values, BELOW),
        *(Trained(f"sink, three, {name}", 0.5, sinks[name].values) for name in ("adam", "sgd")),
        *(
            Trained(f"peak, three, {name}", 2.0, of.values, ABOVE if name == "adam" else BELOW)
            for name, of in peaks.items()
        ),
        training_number=float(sink.mean()),
        note=f"one layer: sink {with_range(sink)}, on triggers {with_range(on)}, value over others "
        f"{mean(drain)}; three: "
        + "; ".join(
            f"{name} sink {with_range(sinks[name])}, peak {with_range(peaks[name])}"
            for name in three
        ),
    )


def _bound(values: xr.DataArray) -> float:
    found = mean(values)
    return found.value + 2 * found.error

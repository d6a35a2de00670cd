"""How fast: attention, and the direction of the weights, over steps."""

from __future__ import annotations

from functools import partial

import numpy as np

from attnlab.auditing import Measurement, claim
from attnlab.experiments import mean
from attnlab.theory import Trained
from attnlab.theory.relation import ABOVE, AT_MOST, EQUAL, LEADING

from .. import runs, theory
from ..evidence import EVIDENCE
from ..predict import equal_scores, separable
from . import asked

# Equal scores from W = 0: as we know it, every start leads to one direction then.
global_claim = partial(
    claim, runs={}, hypotheses=asked(separable(runs.EVEN), equal_scores(runs.EVEN))
)


@global_claim(LEADING, sources=("T24", "ours: the rate"), tolerance=0.02)
def mm_sparsify(found: object) -> Measurement:
    r"""Under normalised descent the weights of other tokens fall exponentially, as $e^{-\eta
    t/\lVert W^{mm} \rVert}$ to leading order in $t$.

    Compare the slope of the log of the largest other weight, from 3,000 to 10,000 steps, with
    -eta/|W_mm|, run by run, in accurate arithmetic: the naive form ends near 1e-16. The tolerance
    is the part of the offset that is still settling.
    """
    of = EVIDENCE.read("late")
    ends = of["others"].sel(step=[3000, 10_000])
    slopes = ends.diff("step").squeeze("step") / 7000
    said = -runs.ETA / of["margin"].isel(step=0)
    return Measurement(
        Trained("slope over steps", said.values, slopes.values),
        training_number=float((slopes / said).mean()),
        note=f"mean log {runs.over_steps(of['others'])} steps",
    )


@global_claim(AT_MOST, sources="V24")
def mm_rate(found: object) -> Measurement:
    r"""As $t \to \infty$, normalised descent reaches the direction at least as fast as $t^{-3/4}$.

    Fit the exponent of the direction's error from 1,000 to 10,000 steps, run by run, with equal
    scores from W = 0 in accurate arithmetic. V24's bound is read as an exponent of at most -0.75 in
    every run; 1/t is what we derive, with W = eta t w_mm/|w_mm| + offset.
    """
    of = EVIDENCE.read("late")
    late = of.sel(step=slice(1000, None))
    slopes = runs.exponents(late["error"])
    last = late.isel(step=-1)
    ratio = last["error"] * last["size"] / last["offset"]
    pace = float((last["size"] / last["step"]).mean())
    return Measurement(
        Trained("exponent, run by run", theory.BOUND, slopes.values),
        Trained("|W| over eta t", 1.0, pace / runs.ETA, LEADING, tolerance=0.01),
        Trained("share of the best tokens", 1.0, last["optimal"].values, EQUAL),
        training_number=float(slopes.mean()),
        note=f"exponent {mean(slopes)}, {float(slopes.min()):.2f} to {float(slopes.max()):.2f}; "
        f"the error at 10,000 steps is {float(last['error'].mean()):.4f}, {mean(ratio)} times what "
        f"the offset in the span of the support vectors predicts; |W| = {pace:.4f} t",
    )


@global_claim(LEADING, sources="V24", tolerance=0.1)
def mm_gd_slow(found: object) -> Measurement:
    r"""Plain gradient descent is logarithmic: $\lVert W \rVert \approx \lVert W^{mm} \rVert \ln t$
    to leading order as $t \to \infty$.

    Compare the growth of W along its limit from 1,000 to 10,000 plain steps at learning rate 1 with
    |W_mm| ln 10, run by run, on the instances of mm-rate; and check that the error is larger than
    under normalised steps. The tolerance is what has not settled at 1,000 steps. The size of the
    error depends on the scores: where those of the other tokens differ, outside the hypothesis, it
    is nearly twice as large, and this is the setting in which we first measured it.
    """
    of, random = (EVIDENCE.read(f"plain-{scores}") for scores in ("equal", "random"))
    projection = (of["size"] * of["correlation"]).sel(step=[1000, 10_000])
    growth = projection.diff("step").squeeze("step") / of["margin"].isel(step=0)
    grown = growth / np.log(10)
    quick, slow = (each["error"].sel(step=10_000) for each in (EVIDENCE.read("late"), of))
    return Measurement(
        Trained("growth, mean over runs", 1.0, float(grown.mean())),
        Trained("error against normalised steps", quick.values, slow.values, ABOVE),
        training_number=float(grown.mean()),
        note="; ".join(
            f"{scores} scores: error {runs.over_steps(each['error'])}, "
            f"|W| {runs.over_steps(each['size'])}"
            for scores, each in (("equal", of), ("random", random))
        ),
    )


@claim(
    ABOVE,
    sources=("T24, released figure", "ours: the size"),
    runs={},
    hypotheses=asked(separable(runs.PUBLISHED)),
)
def mm_kq_faster(found: object) -> Measurement:
    r"""Trained $K, Q$ saturate sooner than $W$ from starts of the same scale: while the start is
    forgotten, $\lVert KQ^\top \rVert_* \approx (\eta t)^2$ where $\lVert W \rVert \approx \eta t$.

    Compare the mean largest weight after 80 steps of K, Q (40 seeds) and of W, by seed, on the
    published setting; and |K Q^T|_* after 80 and 100 steps with (eta t)^2, to a quarter: the start
    counts.
    """
    factors, whole = EVIDENCE.read("factors"), EVIDENCE.read("local")
    early = factors["weight"].sel(step=80)
    gap = early - whole["weight"].sel(step=80, seed=early["seed"])
    of = factors["nuclear"].sel(step=[80, 100])
    size = of.mean("seed") / (runs.ETA * of["step"]) ** 2
    return Measurement(
        Trained("mean weight at 80 steps", 0.0, gap.values),
        Trained("|K Q^T|_* over (eta t)^2", 1.0, size.values, LEADING, tolerance=0.25),
        training_number=float(early.mean()),
        note=f"K, Q: {runs.over_steps(factors['weight'].sel(step=[80, 100]))}; "
        f"W: {runs.over_steps(whole['weight'].sel(step=[80, 100, 200, 300]))}",
    )

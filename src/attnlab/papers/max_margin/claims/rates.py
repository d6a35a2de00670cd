"""How fast: attention, and the direction of the weights, over steps."""

from __future__ import annotations

import numpy as np
import xarray as xr

from attnlab.auditing import Measurement, claim
from attnlab.auditing.runs import assumed
from attnlab.experiments import mean
from attnlab.simulation import Simulation
from attnlab.theory import Trained
from attnlab.theory.relation import ABOVE, AT_MOST, LEADING

from .. import runs, theory
from ..model import CrossAttention
from ..predict import MaxMargin

Found = dict[str, xr.Dataset]
THEOREM = assumed(MaxMargin(), runs.equal_scores)  # the same instances by plain descent
RATE = 1.0  # of plain descent


def plain() -> Simulation:
    """Equal scores from W = 0 by plain gradient descent."""
    model = CrossAttention(scale=0)
    return runs.descent(
        runs.EVEN, model, at=(1000, 3000, 10_000), seeds=20, optimizer="sgd", rate=RATE
    )


@claim(
    LEADING,
    sources=("T24", "ours: the rate"),
    tolerance=0.02,
    runs={"equal": runs.equal_scores},
    hypotheses=(THEOREM,),
)
def mm_sparsify(found: Found) -> Measurement:
    r"""Under normalised descent the weights of other tokens fall exponentially, as $e^{-\eta
    t/\lVert W^{mm} \rVert}$.

    Compare the slope of the log of the largest other weight, from 3,000 to 10,000 steps, with
    -eta/|W_mm|, run by run, in accurate arithmetic: the naive form ends near 1e-16. The tolerance
    is the part of the offset that is still settling.
    """
    run = runs.equal_scores()
    others = runs.compared(run)["others"]
    ends = others.sel(step=[3000, 10_000])
    slopes = ends.diff("step").squeeze("step") / 7000
    said = [-runs.ETA / late.norm for late in runs.late_training(run)]
    return Measurement(
        Trained("slope over steps", said, slopes.values),
        training_number=float((slopes / said).mean()),
        note=f"mean log {runs.over_steps(others)} steps",
    )


@claim(AT_MOST, sources="V24", runs={"equal": runs.equal_scores}, hypotheses=(THEOREM,))
def mm_rate(found: Found) -> Measurement:
    """Normalised descent reaches the direction at least as fast as $t^{-3/4}$.

    Fit the exponent of the direction's error from 1,000 to 10,000 steps, run by run, with equal
    scores from W = 0 in accurate arithmetic. V24's bound is read as an exponent of at most -0.75 in
    every run; 1/t is what we derive, with W = eta t w_mm/|w_mm| + offset.
    """
    of = runs.compared(runs.equal_scores(), best=True)
    late = of.sel(step=slice(1000, None))
    slopes = runs.exponents(late["error"])
    last = late.isel(step=-1)
    said = [float(np.linalg.norm(of.offset)) for of in runs.late_training(runs.equal_scores())]
    ratio = last["error"] * last["size"] / said
    pace = float((last["size"] / last["step"]).mean())
    return Measurement(
        Trained("exponent, run by run", theory.BOUND, slopes.values),
        Trained("|W| over eta t", 1.0, pace / runs.ETA, LEADING, tolerance=0.01),
        training_number=float(slopes.mean()),
        note=f"exponent {mean(slopes)}, {float(slopes.min()):.2f} to {float(slopes.max()):.2f}; "
        f"the error at 10,000 steps is {float(last['error'].mean()):.4f}, {mean(ratio)} times what "
        f"the offset in the span of the support vectors predicts; |W| = {pace:.4f} t",
    )


@claim(LEADING, sources="V24", tolerance=0.1, runs={"plain": plain}, hypotheses=(THEOREM,))
def mm_gd_slow(found: Found) -> Measurement:
    r"""Plain gradient descent is logarithmic: $\lVert W \rVert \approx \lVert W^{mm} \rVert \ln t$.

    Compare the growth of W along its limit from 1,000 to 10,000 plain steps at learning rate 1 with
    |W_mm| ln 10, run by run, on the instances of mm-rate; and check that the error is larger than
    under normalised steps. The tolerance is what has not settled at 1,000 steps.
    """
    run = plain()
    of, fast = runs.compared(run, best=True), runs.compared(runs.equal_scores(), best=True)
    projection = (of["size"] * of["correlation"]).sel(step=[1000, 10_000])
    norms = np.array([late.norm for late in runs.late_training(run)])
    grown = projection.diff("step").squeeze("step") / (norms * np.log(10))
    slow, quick = (some["error"].sel(step=10_000).values for some in (of, fast))
    return Measurement(
        Trained("growth, mean over runs", 1.0, float(grown.mean())),
        Trained("error against normalised steps", quick, slow, ABOVE),
        training_number=float(grown.mean()),
        note=f"error {runs.over_steps(of['error'])}; |W| {runs.over_steps(of['size'])}",
    )


@claim(
    ABOVE,
    sources=("T24, released figure", "ours: the size"),
    runs={"factors": runs.factors, "local": runs.local},
)
def mm_kq_faster(found: Found) -> Measurement:
    r"""Trained $K, Q$ saturate sooner than $W$: $\lVert KQ^\top \rVert_* \approx (\eta t)^2$ where
    $\lVert W \rVert \approx \eta t$.

    Compare the mean largest weight after 80 steps of K, Q and of W, by seed, on the published
    setting; and |K Q^T|_* after 80 and 100 steps with (eta t)^2, to a quarter: the start counts.
    """
    weights = {
        name: of["attention"].max("token").mean("sequence").sel(step=[80, 100])
        for name, of in found.items()
    }
    early = weights["factors"].sel(step=80)
    gap = early - weights["local"].sel(step=80, seed=early["seed"])
    W = found["factors"]["matrix"].sel(step=[80, 100])
    nuclear = xr.DataArray(np.linalg.norm(W.values, "nuc", axis=(-2, -1)), dims=("seed", "step"))
    size = nuclear.mean("seed") / (runs.ETA * W["step"].values) ** 2
    return Measurement(
        Trained("mean weight at 80 steps", 0.0, gap.values),
        Trained("|K Q^T|_* over (eta t)^2", 1.0, size.values, LEADING, tolerance=0.25),
        training_number=float(early.mean()),
        note="; ".join(f"{name} {runs.over_steps(of)}" for name, of in weights.items()),
    )

"""Focus and dilution (Chen, Lin, Xu and Luo), as we know them: a chain that is sticky."""

from __future__ import annotations

from functools import partial

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from attnlab import predict
from attnlab.auditing import Measurement, claim
from attnlab.auditing.fit import listed
from attnlab.auditing.runs import assumed
from attnlab.experiments import mean
from attnlab.simulation import Simulation
from attnlab.theory import Check, Trained
from attnlab.theory.relation import ABOVE, AT_LEAST, BELOW, LEADING

from .. import runs, theory
from ..predict import DilutionStageOne

Found = dict[str, xr.Dataset]
PAPER = "Focus and dilution"
PI = (0.75, 0.19, 0.05, 0.01)
EQUAL_RARE = (0.7, 0.1, 0.1, 0.1)
STICKINESS = 0.5
MOVED = 0.1  # of attention, what counts as focus, or as its loss


def to_frequent(result: xr.Dataset) -> NDArray[np.float64]:
    """Return the attention of each query to the most frequent token, (seed, time, query)."""
    return np.asarray(result["attention"].values[..., 0])


def turn_counts(result: xr.Dataset) -> NDArray[np.int64]:
    """Count the turns of attention to the most frequent token, (seed, query)."""
    return np.array([[runs.turns(of) for of in each.T] for each in to_frequent(result)])


def half_time(t: NDArray[np.float64], losses: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the time of half the first drop of each loss, from ln d to H(pi)."""
    level = (np.log(len(PI)) + theory.group_loss(PI, STICKINESS, [0] * len(PI))) / 2.0
    return np.array([np.interp(-level, -loss, t) for loss in losses])


CHAIN = {"chain": runs.chain}
small_start_claim = partial(claim, sources=PAPER, hypotheses=(assumed(DilutionStageOne()),))
START = {"0.01": lambda: runs.chain_start(1e-2), "0.001": lambda: runs.chain_start(1e-3)}


@small_start_claim(
    ABOVE,
    id="fd-condense",
    statement=r"First $W_0$ condenses to rank one along $\pi$ while attention stands still",
    runs={"start": START["0.01"]},
)
def condense(found: Found) -> Measurement:
    """Check at half of the first drop of the loss the cosine of W_0's first direction with pi
    (above 0.999), its share of the squares (above 0.99) and the change of W_Q (below 0.02), over 5
    starts; the note has the error of `dilution-stage-one`."""
    result = found["start"]
    half = half_time(result["time"].values, result["loss"].values)
    at = np.abs(result["time"].values - half[:, None]).argmin(1)
    rows = np.arange(at.size)
    W0 = result["parameters.embedding"].values
    W_Q = result["parameters.query"].values
    left, size, _ = np.linalg.svd(W0[rows, at])
    cosine = np.abs(left[:, :, 0] @ PI) / np.linalg.norm(PI)
    share = size[:, 0] ** 2 / (size**2).sum(1)
    still = W_Q[:, 0]
    change = np.linalg.norm(W_Q[rows, at] - still, axis=(1, 2)) / np.linalg.norm(still, axis=(1, 2))
    said = predict(Simulation.of(result), theory="dilution-stage-one")["parameters.embedding"]
    moved = np.abs(W0[rows, at] - W0[:, 0]).max((1, 2))
    off = np.abs(said.values[rows, at] - W0[rows, at]).max((1, 2)) / moved
    return Measurement(
        Trained("cosine with pi", 0.999, cosine),
        Trained("share of the first singular value", 0.99, share),
        Trained("change of W_Q", 0.02, change, BELOW),
        training_number=float(share.mean()),
        note=f"cosine {mean(cosine)}, change of W_Q {mean(change)}; error of "
        f"stage I over how far W_0 has moved {mean(off)} (nothing moves: 1), nothing "
        "fitted",
    )


@small_start_claim(
    ABOVE,
    id="fd-focus",
    statement="Then all queries focus on the frequent token",
    runs=CHAIN,
    in_parts=True,
)
def focus(found: Found) -> Measurement:
    """Check that the attention of each query to the frequent token peaks 0.1 above its frequency,
    for 5 starts. In stage II logits are along pi pi^T: the note has the error of that form, its one
    strength read off the frequent query, when this one is at 0.9."""
    attention = found["chain"]["attention"].values
    peaks = to_frequent(found["chain"]).max(1)
    at = (attention[:, :, 0, 0] > 0.9).argmax(1)
    errors, still = [], []
    for seed, record in enumerate(at):
        b = attention[seed, record]
        logits = np.log(b[0] / PI)
        strength = (logits[0] - logits[-1]) / (PI[0] * (PI[0] - PI[-1]))
        errors.append(np.abs(theory.focused_attention(PI, strength) - b).max())
        still.append(np.abs(b - PI).max())
    told = ", ".join(str(mean(each)) for each in peaks.T)
    return Measurement(
        *(Trained(f"peak of query {q}", PI[0] + MOVED, each) for q, each in enumerate(peaks.T)),
        training_number=float(peaks[:, 0].mean()),
        note=f"peaks by query {told}; error of logits along pi pi^T {mean(errors)}, one "
        f"number fitted (nothing moves: {mean(still)})",
    )


@small_start_claim(
    BELOW,
    id="fd-dilute",
    statement="Focus is lost again, without any schedule",
    runs={**CHAIN, "end": runs.chain_end},
)
def dilute(found: Found) -> Measurement:
    """Check that attention to the frequent token ends 0.1 or more below its peak: query 1 at t =
    600 (5 starts), query 0 at t = 10^4 (2 starts, width 4)."""
    middle, end = to_frequent(found["chain"])[..., 1], to_frequent(found["end"])[..., 0]
    return Measurement(
        *(
            Trained(f"{name}: end", x.max(1) - MOVED, x[:, -1])
            for name, x in (("query 1", middle), ("query 0", end))
        ),
        training_number=float(middle[:, -1].mean()),
        note=f"query 1 from {mean(middle.max(1))} to {runs.with_range(middle[:, -1])}; "
        f"query 0 from {end.max():.3f} to {listed(end[:, -1], '.2f')} at t = 10^4",
    )


@small_start_claim(
    AT_LEAST,
    id="fd-cycles",
    statement="Focus and dilution repeat, cycle after cycle",
    runs={**CHAIN, "end": runs.chain_end},
    in_parts=True,
)
def cycles(found: Found) -> Measurement:
    """Check the turns of attention to the frequent token by more than 0.02 up to t = 600, 2 at
    least for queries 1 and 2 (5 starts); and check that something is left to learn at t = 10^4: a
    loss 0.001 above that of Bayes (2 starts, width 4)."""
    counts, late = (turn_counts(found[name]) for name in ("chain", "end"))
    left = found["end"]["loss"].values[:, -1] - theory.group_loss(PI, STICKINESS, range(4))
    return Measurement(
        Trained("turns of queries 1 and 2", 2.0, counts[:, 1:3]),
        Trained("loss above Bayes at t = 10^4", 1e-3, left, ABOVE),
        training_number=float(left.mean()),
        note="turns by query up to t = 600: "
        + listed(counts.mean(0), ".1f")
        + f" (means of 5 starts); up to t = 10^4: {listed(late.mean(0), '.1f')} (2 starts)",
    )


@small_start_claim(
    LEADING,
    id="fd-degenerate",
    statement="With equal rare tokens training gets stuck",
    tolerance=1e-3,
    runs={"equal": lambda: runs.chain(EQUAL_RARE)},
)
def degenerate(found: Found) -> Measurement:
    """Compare the loss over the last half decade up to t = 600 with the least loss of a model that
    cannot tell equal tokens apart (5 starts)."""
    loss = found["equal"]["loss"].sel(time=slice(200.0, None)).values
    stuck, bayes = (
        theory.group_loss(EQUAL_RARE, STICKINESS, groups) for groups in ([0, 1, 1, 1], range(4))
    )
    return Measurement(
        Trained("loss from t = 200 on", stuck, loss),
        training_number=float(loss[:, -1].mean()),
        note=f"levels: stuck {stuck:.4f}, Bayes {bayes:.4f}; at most "
        f"{turn_counts(found['equal']).max()} turns of attention",
    )


@small_start_claim(
    LEADING,
    id="fd-log-time",
    statement=r"Stage I lasts $\Theta(\ln 1/\epsilon)$: by "
    r"$1/(\lvert\pi\rvert\lvert\pi - 1/d\rvert)$ for each unit of the logarithm",
    tolerance=0.01,
    runs=START,
)
def log_time(found: Found) -> Measurement:
    """Compare how much later half of the first drop comes from a start ten times as small with
    ln 10 over the rate, 5 starts; on paper the slope over three decades by `stage_one`."""
    rate = theory.condensation_rate(PI)
    rng, t = np.random.default_rng(0), np.linspace(0.0, 30.0, 601)
    W0, W1 = rng.normal(size=(4, 16)), rng.normal(size=(16, 4))
    scales = np.array([1e-2, 1e-3, 1e-4, 1e-5])
    halves = half_time(t, np.array([theory.stage_one(PI, e * W0, e * W1, t).loss for e in scales]))
    slope = np.polyfit(-np.log(scales), halves, 1)[0]
    first, later = (half_time(of["time"].values, of["loss"].values) for of in found.values())
    gap = later - first
    return Measurement(
        Check("slope against ln 1/epsilon", 1.0 / rate, slope),
        Trained("later by", np.log(10.0) / rate, gap),
        training_number=float(gap.mean()),
        note=f"half of the first drop at {mean(first)} and {mean(later)}; rate {rate:.4f}",
    )

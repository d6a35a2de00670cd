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
from attnlab.experiments.estimate import with_range
from attnlab.simulation import Simulation
from attnlab.theory import Check, Trained
from attnlab.theory.relation import ABOVE, AT_LEAST, BELOW, LEADING

from .. import runs, theory
from ..evidence import EQUAL_RARE, EVIDENCE
from ..predict import DilutionStageOne

Found = dict[str, xr.Dataset]
PAPER = "Focus and dilution"
PI = (0.75, 0.19, 0.05, 0.01)
STICKINESS = 0.5
MOVED = 0.1  # of attention, what counts as focus, or as its loss
# predictors by the group of each token: they give tokens of one group the same prediction
STUCK, UNIGRAM, BAYES = [0, 1, 1, 1], [0, 0, 0, 0], [0, 1, 2, 3]


def half_time(result: xr.Dataset) -> NDArray[np.float64]:
    """Return the time of half the first drop of each loss, from ln d to H(pi)."""
    level = (np.log(len(PI)) + theory.group_loss(PI, STICKINESS, UNIGRAM)) / 2.0
    t = result["time"].values
    return np.array([np.interp(-level, -loss, t) for loss in result["loss"].values])


CHAIN = {"chain": runs.chain}
SMALLER = {"smaller": partial(runs.chain, time=30.0, scale=1e-3)}
small_start_claim = partial(
    claim, sources=PAPER, runs=CHAIN, hypotheses=(assumed(DilutionStageOne()),)
)


@small_start_claim(
    ABOVE,
    id="fd-condense",
    statement=r"First $W_0$ condenses to rank one along $\pi$ while attention stands still",
)
def condense(found: Found) -> Measurement:
    """Check at half of the first drop of the loss the cosine of W_0's first direction with pi
    (above 0.999), its share of the squares (above 0.99) and the change of W_Q (below 0.02), over 5
    starts; the note has the error of `dilution-stage-one`."""
    result = found["chain"]
    at = np.abs(result["time"].values - half_time(result)[:, None]).argmin(1)
    rows, early = np.arange(at.size), {"time": slice(at.max() + 1)}
    W0 = result["parameters.embedding"].values
    W_Q = result["parameters.query"].values
    left, size, _ = np.linalg.svd(W0[rows, at])
    cosine = np.abs(left[:, :, 0] @ PI) / np.linalg.norm(PI)
    share = size[:, 0] ** 2 / (size**2).sum(1)
    still = W_Q[:, 0]
    change = np.linalg.norm(W_Q[rows, at] - still, axis=(1, 2)) / np.linalg.norm(still, axis=(1, 2))
    times = result.isel(early)["time"].values
    said = predict(Simulation.of(result), theory="dilution-stage-one", at=times)
    moved = np.abs(W0[rows, at] - W0[:, 0]).max((1, 2))
    off = np.abs(said["parameters.embedding"].values[rows, at] - W0[rows, at]).max((1, 2)) / moved
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
    ABOVE, id="fd-focus", statement="Then all queries focus on the frequent token", in_parts=True
)
def focus(found: Found) -> Measurement:
    """Check that the attention of each query to the frequent token peaks 0.1 above its frequency,
    for 5 starts. In stage II logits are along pi pi^T: the note has the error of that form, its one
    strength read off the frequent query, when this one is at 0.9."""
    attention = found["chain"]["attention"].values
    peaks = runs.focus(found["chain"])["peak"].values
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


@small_start_claim(BELOW, id="fd-dilute", statement="Focus is lost again, without any schedule")
def dilute(found: Found) -> Measurement:
    """Check that attention to the frequent token ends 0.1 or more below its peak: query 1 at t =
    600 (5 starts), query 0 at t = 10^4 (10 starts on file, width 4)."""
    middle = runs.focus(found["chain"]).isel(query=1)
    frequent = EVIDENCE.read("chain-end").isel(query=0)
    return Measurement(
        *(
            Trained(f"query {q}: end", of["peak"].values - MOVED, of["end"].values)
            for q, of in ((1, middle), (0, frequent))
        ),
        training_number=float(middle["end"].mean()),
        note=f"query 1 from {mean(middle['peak'])} to {with_range(middle['end'].values)}; "
        f"query 0 from {float(frequent['peak'].min()):.3f} to "
        f"{with_range(frequent['end'].values)} at t = 10^4",
    )


@small_start_claim(
    AT_LEAST,
    id="fd-cycles",
    statement="Focus and dilution repeat, cycle after cycle",
    in_parts=True,
)
def cycles(found: Found) -> Measurement:
    """Check the turns of attention to the frequent token by 0.02 or more up to t = 600, 2 at least
    for queries 1 and 2 (5 starts); and check that something is left to learn at t = 10^4: a loss
    0.001 above that of Bayes (10 starts on file, width 4)."""
    counts, end = runs.focus(found["chain"])["turns"], EVIDENCE.read("chain-end")
    left = end["above_bayes"].values
    return Measurement(
        Trained("turns of queries 1 and 2", 2.0, counts.isel(query=slice(1, 3)).values),
        Trained("loss above Bayes at t = 10^4", 1e-3, left, ABOVE),
        training_number=float(left.mean()),
        note=f"turns by query up to t = 600: {listed(counts.mean('seed').values, '.1f')} (means of "
        f"5 starts); up to t = 10^4: {listed(end['turns'].mean('seed').values, '.1f')} (10)",
    )


@small_start_claim(
    LEADING,
    id="fd-degenerate",
    statement="With equal rare tokens training gets stuck",
    tolerance=1e-3,
    runs={},
    hypotheses=(assumed(DilutionStageOne(), partial(runs.chain, EQUAL_RARE)),),
)
def degenerate(found: Found) -> Measurement:
    """Compare the loss at t = 200 and 600 with the least loss of a model that cannot tell equal
    tokens apart (10 starts on file)."""
    filed = EVIDENCE.read("chain-equal")
    stuck, bayes = (theory.group_loss(EQUAL_RARE, STICKINESS, of) for of in (STUCK, BAYES))
    loss = filed[["loss_before", "loss"]].isel(query=0).to_dataarray()
    return Measurement(
        Trained("loss from t = 200 on", stuck, loss.values),
        training_number=float(filed["loss"].mean()),
        note=f"levels: stuck {stuck:.4f}, Bayes {bayes:.4f}; at most "
        f"{filed['turns'].max():.0f} turns of attention",
    )


@small_start_claim(
    LEADING,
    id="fd-log-time",
    statement=r"Stage I lasts $\Theta(\ln 1/\epsilon)$: by "
    r"$1/(\lvert\pi\rvert\lvert\pi - 1/d\rvert)$ for each unit of the logarithm",
    tolerance=0.01,
    runs={**CHAIN, **SMALLER},
)
def log_time(found: Found) -> Measurement:
    """Compare how much later half of the first drop comes from a start ten times as small with
    ln 10 over the rate, 5 starts; on paper the slope over three decades by `stage_one`."""
    rate = theory.condensation_rate(PI)
    rng, t = np.random.default_rng(0), np.linspace(0.0, 30.0, 601)
    W0, W1 = rng.normal(size=(4, 16)), rng.normal(size=(16, 4))
    scales = np.array([1e-2, 1e-3, 1e-4, 1e-5])
    losses = [theory.stage_one(PI, e * W0, e * W1, t).loss for e in scales]
    on_paper = half_time(xr.Dataset({"loss": (("seed", "time"), losses)}, {"time": t}))
    first, later = map(half_time, found.values())
    gap = later - first
    return Measurement(
        Check(
            "slope against ln 1/epsilon", 1.0 / rate, np.polyfit(-np.log(scales), on_paper, 1)[0]
        ),
        Trained("later by", np.log(10.0) / rate, gap),
        training_number=float(gap.mean()),
        note=f"half of the first drop at {mean(first)} and {mean(later)}; rate {rate:.4f}",
    )

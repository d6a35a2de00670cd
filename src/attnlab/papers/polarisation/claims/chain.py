"""Focus and dilution (Chen, Lin, Xu and Luo), as we know them: a chain that is sticky."""

from __future__ import annotations

from functools import partial

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

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
from ..task import StickyChain

Found = dict[str, xr.Dataset]
PAPER = "Focus and dilution, as we know its stages"
PI, STICKINESS = StickyChain().frequencies, StickyChain().stickiness
MOVED = 0.1  # of attention, what counts as focus, or as its loss
# predictors by the group of each token: they give tokens of one group the same prediction
STUCK, UNIGRAM, BAYES = [0, 1, 1, 1], [0, 0, 0, 0], [0, 1, 2, 3]
CHAIN = {"chain": runs.chain}
chain_claim = partial(claim, sources=PAPER, runs=CHAIN, hypotheses=(assumed(DilutionStageOne()),))


def half_time(t: NDArray[np.float64], losses: ArrayLike) -> NDArray[np.float64]:
    """Return the time of half the first drop of each loss, from ln d to H(pi)."""
    level = (np.log(len(PI)) + theory.group_loss(PI, STICKINESS, UNIGRAM)) / 2.0
    return np.array([np.interp(-level, -loss, t) for loss in np.asarray(losses)])


@chain_claim(ABOVE, id="fd-condense")
def condense(found: Found) -> Measurement:
    r"""From a start of scale $\epsilon \to 0$, first $W_0$ condenses to rank one along $\pi$ while
    attention stands still (infinite sequences, population loss).

    Check at half of the first drop of the loss the cosine of W_0's first direction with pi (above
    0.999), its share of the squares (above 0.99) and the change of W_Q (below 0.02), over 5 starts
    of 0.01 N; the note has the error of `dilution-stage-one`.
    """
    run, result = Simulation.of(found["chain"]), found["chain"]
    parts = ("time", "parameters.embedding", "parameters.query")
    t, W0, W_Q = (result[name].values for name in parts)
    half = np.abs(t - half_time(t, result["loss"])[:, None]).argmin(1)
    at = np.arange(half.size), half
    left, size, _ = np.linalg.svd(W0[at])
    cosine = np.abs(left[:, :, 0] @ PI) / np.linalg.norm(PI)
    share = size[:, 0] ** 2 / (size**2).sum(1)
    norm = partial(np.linalg.norm, axis=(1, 2))
    change = norm(W_Q[at] - W_Q[:, 0]) / norm(W_Q[:, 0])
    said = predict(run, theory="dilution-stage-one", at=t[: half.max() + 1])[parts[1]].values
    off = np.abs(said[at] - W0[at]).max((1, 2)) / np.abs(W0[at] - W0[:, 0]).max((1, 2))
    return Measurement(
        Trained("cosine with pi", 0.999, cosine),
        Trained("share of the first singular value", 0.99, share),
        Trained("change of W_Q", 0.02, change, BELOW),
        training_number=float(share.mean()),
        note=f"cosine {mean(cosine)}, change of W_Q {mean(change)}; error of stage I over how far "
        f"W_0 has moved {mean(off)} (nothing moves: 1), nothing fitted",
    )


@chain_claim(ABOVE, id="fd-focus", in_parts=True)
def focus(found: Found) -> Measurement:
    r"""From a small start, after stage I ($W_0$ of rank one along $\pi$), all queries focus on the
    frequent token.

    Check that the attention of each query to the frequent token peaks 0.1 above its frequency,
    for 5 starts of 0.01 N. In stage II logits are along pi pi^T: the note has the error of that
    form, its one strength read off the frequent query, when this one is at 0.9.
    """
    attention = found["chain"]["attention"].values
    peaks = runs.focus(found["chain"])["peak"].values.T
    errors, still = [], []
    for b in attention[range(len(attention)), (attention[:, :, 0, 0] > 0.9).argmax(1)]:
        logits = np.log(b[0] / PI)
        strength = (logits[0] - logits[-1]) / (PI[0] * (PI[0] - PI[-1]))
        errors.append(np.abs(theory.focused_attention(PI, strength) - b).max())
        still.append(np.abs(b - PI).max())
    return Measurement(
        *(Trained(f"peak of query {q}", PI[0] + MOVED, each) for q, each in enumerate(peaks)),
        training_number=float(peaks[0].mean()),
        note=f"peaks by query {listed(map(mean, peaks), '')}; error of logits along pi pi^T "
        f"{mean(errors)}, one number fitted (nothing moves: {mean(still)})",
    )


@chain_claim(BELOW, id="fd-dilute")
def dilute(found: Found) -> Measurement:
    """From a small start focus is lost again after stage II, without any schedule.

    Check that attention to the frequent token ends 0.1 or more below its peak: query 1 at t =
    600 (5 starts), query 0 at t = 10^4 (10 starts on file, width 4).
    """
    middle = runs.focus(found["chain"]).isel(query=1)
    frequent = EVIDENCE.read("chain-end").isel(query=0)
    return Measurement(
        *(
            Trained(f"query {q}: end", of["peak"].values - MOVED, of["end"].values)
            for q, of in ((1, middle), (0, frequent))
        ),
        training_number=float(middle["end"].mean()),
        note=f"query 1 from {mean(middle['peak'])} to {with_range(middle['end'])}; query 0 from "
        f"{float(frequent['peak'].min()):.3f} to {with_range(frequent['end'])} at t = 10^4",
    )


@chain_claim(AT_LEAST, id="fd-cycles", in_parts=True)
def cycles(found: Found) -> Measurement:
    r"""From a small start focus and dilution repeat, cycle after cycle, above the Bayes loss
    $\sum_q \pi_q H(P_q)$.

    Check the turns of attention to the frequent token by 0.02 or more up to t = 600, 2 at least
    for queries 1 and 2 (5 starts); and check that something is left to learn at t = 10^4: a loss
    0.001 above that of Bayes (10 starts on file, width 4).
    """
    counts, end = runs.focus(found["chain"])["turns"], EVIDENCE.read("chain-end")
    left = end["above_bayes"].values
    return Measurement(
        Trained("turns of queries 1 and 2", 2.0, counts.isel(query=slice(1, 3)).values),
        Trained("loss above Bayes at t = 10^4", 1e-3, left, ABOVE),
        training_number=float(left.mean()),
        note=f"turns by query up to t = 600: {listed(counts.mean('seed').values, '.1f')} (means of "
        f"5 starts); up to t = 10^4: {listed(end['turns'].mean('seed').values, '.1f')} (10)",
    )


@chain_claim(
    LEADING,
    id="fd-degenerate",
    tolerance=1e-3,
    runs={},
    hypotheses=(assumed(DilutionStageOne(), partial(runs.chain, EQUAL_RARE)),),
)
def degenerate(found: Found) -> Measurement:
    r"""If the rare tokens are equally frequent, training from a small start gets stuck at the least
    loss of a model that cannot tell them apart.

    Compare the loss at t = 200 and 600 with that level, for $\pi$ = (0.7, 0.1, 0.1, 0.1) (10
    starts on file).
    """
    filed = EVIDENCE.read("chain-equal")
    stuck, bayes = (theory.group_loss(EQUAL_RARE, STICKINESS, of) for of in (STUCK, BAYES))
    loss = filed[["loss_before", "loss"]].isel(query=0).to_dataarray()
    return Measurement(
        Trained("loss from t = 200 on", stuck, loss.values),
        training_number=float(filed["loss"].mean()),
        note=f"levels: stuck {stuck:.4f}, Bayes {bayes:.4f}; at most "
        f"{filed['turns'].max():.0f} turns of attention",
    )


@chain_claim(
    LEADING,
    id="fd-log-time",
    sources=(PAPER, "the rate is ours"),
    tolerance=0.01,
    runs={**CHAIN, "smaller": partial(runs.chain, time=30.0, scale=1e-3)},
)
def log_time(found: Found) -> Measurement:
    r"""As the scale $\epsilon$ of the start tends to 0, stage I lasts $\Theta(\ln 1/\epsilon)$: by
    $1/(\lvert\pi\rvert\lvert\pi - 1/d\rvert)$ for each unit of the logarithm.

    Compare how much later half of the first drop comes from a start ten times as small with
    ln 10 over the rate, 5 starts; on paper the slope over three decades by `stage_one`.
    """
    rate = theory.condensation_rate(PI)
    rng, t = np.random.default_rng(0), np.linspace(0.0, 30.0, 601)
    W0, W1 = rng.normal(size=(4, 16)), rng.normal(size=(16, 4))
    scales = np.array([1e-2, 1e-3, 1e-4, 1e-5])
    on_paper = half_time(t, [theory.stage_one(PI, e * W0, e * W1, t).loss for e in scales])
    slope = np.polyfit(-np.log(scales), on_paper, 1)[0]
    first, later = (half_time(of["time"].values, of["loss"]) for of in found.values())
    return Measurement(
        Check("slope against ln 1/epsilon", 1.0 / rate, slope),
        Trained("later by", np.log(10.0) / rate, later - first),
        training_number=float((later - first).mean()),
        note=f"half of the first drop at {mean(first)} and {mean(later)}; rate {rate:.4f}",
    )

"""Stages of the transformer: ten seeds on file, 600, 900 or 6,000 steps (see `evidence`)."""

from __future__ import annotations

from functools import partial

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from attnlab.auditing import Measurement
from attnlab.experiments import mean
from attnlab.experiments.estimate import median
from attnlab.theory import Trained
from attnlab.theory.relation import AT_LEAST, AT_MOST, BELOW

from .. import runs
from ..distances import STAGES, HeldOut, nearest
from ..evidence import EVIDENCE
from .minimal import Found, filed_claim, in_order

TESTS = "tests/papers/statistical_induction/test_evidence.py::"
PLATEAU = 0.155  # KL at k = 3 between the bigram rule's 0.049 and the unigram rule's 0.174
LIT, RISEN = 1.15, 0.1  # induction score, and lag-1 attention (0.07 at the start), that have risen
MOST, NEAR = 60, 0.25  # steps of a sharp transition; share of the way that may be left at the end
stage_claim = partial(
    filed_claim,
    code=("last_rules", "divergence"),
    test=TESTS + "test_a_recorded_seed_is_trained_again",
    figure="stages",
)


def transition(found: xr.Dataset) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the last step, by seed, at which KL is above PLATEAU for good, and how many steps
    later it has gone 3/4 of the way from there to its end."""
    kl, steps = found["kl"].transpose("seed", "step").values, found["step"].values
    leaves, takes = [], []
    for path in kl:
        last = int(np.flatnonzero(path > PLATEAU)[-1])
        low = path[-1] + 0.25 * (path[last] - path[-1])
        leaves.append(steps[last])
        takes.append(steps[last + np.argmax(path[last:] < low)] - steps[last])
    return np.array(leaves, float), np.array(takes, float)


def interval(values: NDArray[np.float64]) -> str:
    """Return the median over seeds with its interval."""
    return median(xr.DataArray(values, dims="seed")).told(".0f")


@stage_claim(
    AT_LEAST,
    id="si-transformer-stages",
    training_number="bigram is nearest from step {:.0f} on (mean of 10 seeds)",
)
def stages(found: Found) -> Measurement:
    """The transformer passes uniform, unigram and bigram.

    Check that the rules nearest at the last position, k = 3, T = 50, at every 30th step to 600, are
    these three in this order in each of 10 seeds.
    """
    at = nearest(EVIDENCE.read("dirichlet"))
    bigram = runs.first_step(at == STAGES.index("bigram"))
    return Measurement(
        Trained("stages", 3.0, in_order(at)),
        training_number=float(bigram.mean()),
        note=f"unigram from step 30 on; bigram from {interval(bigram)} on (median of 10 seeds)",
    )


@stage_claim(
    AT_MOST,
    id="si-transition",
    training_number="3/4 of the rest of KL falls within {:.0f} steps (mean of 10 seeds)",
)
def sharp(found: Found) -> Measurement:
    """A plateau at unigram, then a sharp transition.

    Check that KL leaves the plateau after step 120 in each of 10 seeds (k = 3), and that 3/4 of
    what is left then falls within 60 steps, two records.
    """
    leaves, takes = transition(EVIDENCE.read("dirichlet"))
    return Measurement(
        Trained("plateau", 120.0, leaves, AT_LEAST),
        Trained("transition", float(MOST), takes),
        training_number=float(takes.mean()),
        note=f"left at step {interval(leaves)} ({leaves.min():.0f} to {leaves.max():.0f}); takes "
        f"{interval(takes)} steps",
    )


@stage_claim(
    BELOW,
    id="si-transformer-order",
    in_parts=True,
    code=("first_step", "first_signal"),
    training_number="{:.0f} steps before layer 1 (mean of 10 seeds)",
)
def order(found: Found) -> Measurement:
    """The second layer moves first in the transformer, too.

    Compare the first record with an induction score above 1.15 with the first that has lag-1
    attention above 0.1 (0.07 at the start), in each of 10 seeds (k = 3).
    """
    of = EVIDENCE.read("dirichlet")
    score, previous = runs.first_step(of["score"] > LIT), runs.first_step(of["previous"] > RISEN)
    return Measurement(
        *(
            Trained(f"seed {seed}", *pair)
            for seed, pair in enumerate(zip(previous, score, strict=True))
        ),
        training_number=float((previous - score).mean()),
        note=f"score at {interval(score)}, lag-1 attention at {interval(previous)}; first in "
        f"{(score < previous).sum()} of 10 seeds",
    )


@stage_claim(
    AT_MOST, id="si-induction-head", training_number="KL {:.4f} at step 600 (mean of 10 seeds)"
)
def induction_head(found: Found) -> Measurement:
    """It ends as a statistical induction head, near Bayes.

    Check at step 600, k = 3, in each of 10 seeds: lag-1 attention of layer 1 at least 0.5, a score
    of layer 2 at least 2, and at most a quarter of the way left from the unigram rule's KL to the
    bigram rule's.
    """
    end = EVIDENCE.read("dirichlet").isel(step=-1)
    rule = HeldOut.of(runs.chains(3)).kl
    kl = end["kl"].values
    left = (kl - rule["bigram"]) / (rule["unigram"] - rule["bigram"])
    return Measurement(
        Trained("lag-1 attention", 0.5, end["previous"].values, AT_LEAST),
        Trained("score", 2.0, end["score"].values, AT_LEAST),
        Trained("way left", NEAR, left),
        training_number=float(kl.mean()),
        note=f"KL {mean(kl)} (bigram {rule['bigram']:.4f}, unigram {rule['unigram']:.4f}):"
        f" {left.mean():.2f} of the way left; lag-1 {mean(end['previous'])}, score "
        f"{mean(end['score'])}",
    )


@stage_claim(
    AT_LEAST,
    id="si-avoids",
    sources="Statistical induction, our runs",
    in_parts=True,
    ours=True,
    code=("first_signal",),
    figure=None,
    training_number="lag-1 attention rises in {:.0%} of 10 seeds",
)
def avoids(found: Found) -> Measurement:
    """With two symbols layer 1 attends to the previous one, as with three.

    Check lag-1 attention at step 900 at k = 2 in each of 10 seeds, 0.5 at least. Elsewhere layer 1
    avoids lag 1, and tells the previous symbol by that.
    """
    end = EVIDENCE.read("two_symbols").isel(step=-1)
    previous, kl, score = (end[name].values for name in ("previous", "kl", "score"))
    rises = previous > 0.5
    avoided = previous < 0.02
    return Measurement(
        *(Trained(f"seed {seed}", 0.5, of) for seed, of in enumerate(previous)),
        training_number=float(rises.mean()),
        note=f"rises in {rises.sum()} of 10: KL {mean(kl[rises])}, score "
        f"{mean(score[rises])}; falls below 0.02 in {avoided.sum()}: KL "
        f"{mean(kl[avoided])}, score {mean(score[avoided])}",
    )


@stage_claim(
    AT_MOST,
    id="si-eight-symbols",
    sources="Statistical induction, our runs",
    tolerance=0.0,
    ours=True,
    training_number="KL {:.3f} at step 6,000 (mean of 10 seeds)",
)
def eight_symbols(found: Found) -> Measurement:
    """With eight symbols the transformer skips the unigram stage.

    Check that of the three rules unigram is nearest at no record, k = 8, T = 100, at every
    100th step to 6,000 in each of 10 seeds, and that bigram is nearest at the end.

    The add-one unigram rule is hardly nearer to the true row than uniform is: a context of 100
    symbols says little about eight frequencies.
    """
    of = EVIDENCE.read("eight_symbols")
    at = nearest(of).transpose("seed", "step").values
    rule = HeldOut.of(runs.chains(8, 100)).kl
    kl = of["kl"].isel(step=-1)
    bigram = STAGES.index("bigram")
    first = of["step"].values[(at == bigram).argmax(1)].astype(float)
    return Measurement(
        Trained("records at unigram", 0.0, (at == STAGES.index("unigram")).sum(1)),
        Trained("bigram at the end", 1.0, at[:, -1] == bigram, AT_LEAST),
        training_number=float(kl.mean()),
        note=f"bigram from step {interval(first)} on; KL {mean(kl)} at the end (bigram "
        f"{rule['bigram']:.3f}, unigram {rule['unigram']:.3f}, uniform {rule['uniform']:.3f})",
    )

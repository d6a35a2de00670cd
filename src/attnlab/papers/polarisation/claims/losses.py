"""Losses that stop, conditioning, and weightings other than softmax."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray
from scipy.special import logit
from scipy.stats import spearmanr

from attnlab.auditing import Measurement, claim
from attnlab.auditing.fit import listed
from attnlab.auditing.runs import assumed
from attnlab.experiments import Estimate, jackknife, mean
from attnlab.experiments.estimate import means, with_range
from attnlab.theory import Check, Trained
from attnlab.theory.relation import ABOVE, LEADING

from .. import runs, theory
from ..evidence import EVIDENCE, SHARPNESS
from ..model import WEIGHTINGS
from ..predict import Polarisation
from ..task import Regression

Found = dict[str, xr.Dataset]
CODE = "Polarisation, released code"
HALF = 0.5  # of attention on one token is called polarised; we know no number of the paper's
SPREADS = (1e-3, 1e-1)
NORMS = (1.0, 3.0, 8.0)
STARTS = 300  # they differ: a mean over a few says little
filed_claim = partial(claim, ABOVE, runs={}, in_parts=True)


def filed(kind: str, names: Any, what: str = "top") -> dict[str, NDArray[np.float64]]:
    """Return a number on file of each run of a kind, by the name of the run."""
    return {name: EVIDENCE.read(f"{kind}-{name}")[what].values for name in names}


def ends(spreads: ArrayLike, norms: ArrayLike, seeds: int, n: int = 10) -> NDArray[np.float64]:
    """Return max sigma where the square loss stops, (spread, seed, norm), from V_0 = 0.

    a_0 ~ spread N(0, 1).
    """
    draws = [np.random.default_rng(seed).normal(size=n) for seed in range(seeds)]
    a0 = np.multiply.outer(np.asarray(spreads), draws)
    settings: Any = {"along": "output", "rtol": 1e-7, "atol": 1e-10}
    path = theory.one_direction(np.zeros_like(a0), a0, norms, **settings)
    return np.moveaxis(path.weights.max(-1), 0, -1)


def boundary(spreads: ArrayLike, seeds: int, n: int = 10) -> NDArray[np.float64]:
    """Return the norm b at which max sigma passes 1/2, (spread, seed)."""
    norms = np.linspace(0.5, 16.0, 120)
    tops = ends(spreads, norms, seeds, n)
    return np.apply_along_axis(lambda top: np.interp(HALF, top, norms), -1, tops)


@filed_claim(
    id="pol-square",
    sources=("Polarisation", "the boundary is ours"),
    runs={"norm 8": partial(runs.one_way, Regression(10, norm=8.0))},
    hypotheses=(assumed(Polarisation()),),
)
def square(found: Found) -> Measurement:
    r"""Whatever the loss, attention ends on one token; so for the square loss, which from $V_0 = 0$
    stops at $\bar u = \lvert\beta\rvert$.

    Check max sigma > 1/2 where the loss stops: on the path from V_0 = 0 with spread 0.1 and b = 1,
    3, 8 (300 starts); and in training with b = 8, and at the published sizes (20 seeds on file).
    The boundary is where it passes 1/2, for two spreads and 20 starts; and the growth of the spread
    of a is held against cosh b (tolerance 0.1).
    """
    by_norm = ends((0.1,), NORMS, STARTS)[0]
    beyond = boundary(SPREADS, 2 * runs.SEEDS) + np.log(SPREADS)[:, None]
    published = EVIDENCE.read("regression-1")
    grown, expected = published["growth"].values, np.cosh(published["solution"].values)
    trained = found["norm 8"]["weights"].isel(time=-1).max("token")
    tops = {"norm 8": trained.values, "published": published["top"].values}
    return Measurement(
        *(
            Check(f"mean max sigma, b = {norm:g}, spread 0.1", HALF, each.mean())
            for norm, each in zip(NORMS, by_norm.T, strict=True)
        ),
        *(Trained(f"mean max sigma, {name}", HALF, each.mean()) for name, each in tops.items()),
        Trained("growth of the spread of a over cosh b", expected, grown, LEADING, tolerance=0.1),
        number=float(beyond.mean()),
        training_number=float(tops["published"].max()),
        note=f"max sigma at b = 1, 3, 8: {', '.join(map(with_range, by_norm.T))}; boundary "
        f"b - ln(1/spread) = {mean(beyond.mean(0))} (sd {beyond.mean(0).std(ddof=1):.2f}), at "
        f"spreads 1e-3, 1e-1: {listed(beyond.mean(1), '.2f')}; published sizes: growth "
        f"{grown.min():.1f} to {grown.max():.1f}, cosh b {expected.min():.1f} to "
        f"{expected.max():.1f}; nothing fitted",
    )


@filed_claim(id="pol-condition", sources=(CODE, "the part of the norm is ours"))
def condition(found: Found) -> Measurement:
    r"""In regression $\lvert\beta - X f\rvert^2$ with $\beta \sim N(0, I)$, from a small start, a
    larger condition number $\kappa$ of $X$ polarises attention more, and to one token.

    Compare max sigma at t = 300 of kappa = 5 with 1, and of 50 with 5, on the same 20 targets, and
    of kappa = 5 with 1/2, in 20 and in 10 dimensions, whose solutions are shorter (on file). The
    norm of the solution at 1/2 is by a logistic fit over the 40 targets of kappa = 5 (two numbers
    fitted), its error by leaving out one at a time.
    """
    tops = filed("regression", ("1", "5", "50", "5-dim-10"))
    fives = ("5", "5-dim-10")
    norm = np.concatenate([*filed("regression", fives, "solution").values()])
    top = np.concatenate([tops[name] for name in fives])
    at_half = crossing(norm, top)
    alone = boundary((1e-3,), runs.SEEDS, 20)[0]
    told = "; ".join(f"kappa {name}: {with_range(each)}" for name, each in tops.items())
    return Measurement(
        Trained("kappa = 5 less 1", 0.0, tops["5"] - tops["1"]),
        Trained("kappa = 50 less 5", 0.0, tops["50"] - tops["5"]),
        *(Trained(f"least, kappa = {name}", HALF, tops[name].min()) for name in fives),
        training_number=at_half.value,
        note=f"max sigma, {told}; it passes 1/2 at the norm {at_half}, in one "
        f"direction at {mean(alone)}; Spearman's correlation with the norm "
        f"{spearmanr(norm, top).statistic:.2f}",
    )


def crossing(norm: NDArray[np.float64], top: NDArray[np.float64]) -> Estimate:
    """Return the norm at which a line through the log-odds of max sigma is 0."""

    def where(of: xr.DataArray) -> float:
        slope, offset = np.polyfit(of.values[0], of.values[1], 1)
        return float(-offset / slope)

    return jackknife(where, xr.DataArray([norm, logit(top)], dims=("part", "seed")))


@filed_claim(id="pol-kl", sources=(CODE, "the boundary is ours"))
def cross_entropy(found: Found) -> Measurement:
    r"""Cross entropy against a target $p^*$ polarises attention (uniform $a_0$); with an interior
    $p^*$ training stops, with a one-hot one it goes on as $t \to \infty$.

    Check max sigma > 1/2 for targets of four sharpnesses, V_0 of 0.1 N: at t = 10^4, where it has
    nearly stopped, and at the published 10^6 with a one-hot target (10 seeds on file). The boundary
    is the norm of ln p* less its mean at which max sigma passes 1/2, by a logistic fit over 20
    targets of sharpness 5 (two numbers fitted).
    """
    tops, entropies = (filed("target", SHARPNESS, what) for what in ("top", "loss"))
    at_half = crossing(filed("target", ["5"], "solution")["5"], tops["5"])
    rise = (tops["one-hot"] - filed("target", ["one-hot"], "top_before")["one-hot"]).mean()
    return Measurement(
        *(
            Trained(f"mean max sigma, sharpness {name}", HALF, top.mean())
            for name, top in tops.items()
        ),
        training_number=float(tops["one-hot"].mean()),
        note=f"max sigma by sharpness: {means(tops)}; H(p*): {means(entropies)}; it passes 1/2 "
        f"where |ln p* - mean| is {at_half}; with a one-hot target it still rises by {rise:.1g} "
        "over the last record",
    )


@filed_claim(id="pol-softmax-only", sources=CODE)
def softmax_only(found: Found) -> Measurement:
    r"""With the logistic loss softmax polarises attention, and other maps $\alpha(a)$ do not ($a_0$
    and $V_0$ random).

    Compare the mean share of the largest weight, |alpha| over its sum, after 20,000 steps of 0.5
    with 0.9, and that of each other map with the least share of softmax; 10 starts on file.
    """
    shares = filed("weighting", WEIGHTINGS)
    softmax, *others = shares.values()
    return Measurement(
        Trained("softmax", 0.9, softmax.mean()),
        *(
            Trained(f"softmax's least, over {name}'s mean", share.mean(), softmax.min())
            for name, share in zip(WEIGHTINGS[1:], others, strict=True)
        ),
        training_number=float(shares["square"].mean()),
        note="; ".join(f"{name} {with_range(each)}" for name, each in shares.items()),
    )

"""The flow in one direction: its kernel, its clock, order, gaps, winner and tail."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from attnlab import predict
from attnlab.auditing import Measurement, claim
from attnlab.auditing.fit import listed, slope
from attnlab.auditing.runs import assumed
from attnlab.experiments import mean
from attnlab.experiments.estimate import with_range
from attnlab.measures import maps
from attnlab.simulation import Simulation
from attnlab.theory import Check, Hypothesis, Trained
from attnlab.theory.relation import ABOVE, AT_MOST, BELOW, EQUAL, LEADING

from .. import runs, theory
from ..evidence import EVIDENCE
from ..predict import Polarisation
from ..task import Distribution, Regression

Found = dict[str, xr.Dataset]
READER = "Polarisation, a reader's notes"
ROUNDING = 1e-6  # of records of a flow, of what its solver leaves
STARTS = 5


def in_order(toy: xr.Dataset) -> tuple[NDArray[np.float64], ...]:
    """Return u, a and sigma, (seed, time, token), with tokens in the order of u_0."""
    u = toy["scores"].values[:, :, 0, 0]
    order = np.argsort(-u[:, :1])
    found = (u, toy["parameters.attention"].values, toy["weights"].values)
    return tuple(np.take_along_axis(x, order, -1) for x in found)


def ordered_start(found: Found) -> tuple[Hypothesis, ...]:
    """Ask that attention logits start equal, and that no two scores do."""
    u, a, _ = in_order(found["toy"])
    spread, least = float(np.ptp(a[:, 0])), float(-np.diff(u[:, 0]).max())
    return (
        Hypothesis(READER, "a_0 is uniform: its spread", spread, AT_MOST, 0.0),
        Hypothesis(READER, "u_0 is strictly ordered: its smallest gap", least, ABOVE, 0.0),
    )


TOY = {"toy": runs.toy}
toy_claim = partial(
    claim, sources=READER, runs=TOY, hypotheses=(ordered_start,), figure="evolution"
)


@claim(EQUAL, id="pol-ntk", sources="Polarisation, re-derived", ours=True, tolerance=1e-12, runs={})
def ntk(found: Found) -> Measurement:
    r"""For any loss and any $V$, $a$: $\dot f = -M g$ with $M = \lvert\sigma\rvert^2 I + \rho V C^2
    V^\top$, $C = \operatorname{diag} \sigma - \sigma \sigma^\top$.

    Compare M g with the velocity of f by the product rule, at 20 random states, n = 6; the number
    is of the form with C in place of its square, which a line in print is said to have.
    """
    moved, kernel, printed = [], [], []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        V, a, g = rng.normal(size=(3, 6)), rng.normal(size=6), rng.normal(size=3)
        dV, da = theory.velocity(V, a, g, rho=0.7)
        moved.append(dV @ theory.attend(a) + theory.pull_back(a, V) @ da)
        kernel.append(-theory.output_kernel(V, a, rho=0.7) @ g)
        printed.append(-theory.output_kernel(V, a, rho=0.7, form="printed") @ g)
    off = np.linalg.norm(np.subtract(printed, moved), axis=1) / np.linalg.norm(moved, axis=1)
    check = Check("velocity of f", np.array(kernel), np.array(moved), relative=False)
    return Measurement(check, number=float(np.median(off)))


@claim(
    EQUAL,
    id="pol-one-clock",
    sources="ours, on Polarisation",
    tolerance=1e-8,
    hypotheses=(assumed(Polarisation()),),
    runs={
        **TOY,
        "square": partial(runs.one_way, Regression(10, norm=8.0)),
        "one-hot": partial(runs.one_way, Distribution(10, None)),
    },
    ours=True,
)
def one_clock(found: Found) -> Measurement:
    r"""If $g = -\gamma\beta$ keeps its direction, $u' = \sigma$ and $a' = \rho \sigma (u - \bar u)$
    in the time $d\tau = \gamma\,dt$: one path for every loss, which is its clock alone.

    Compare a along the whole flow of V and a with the path, over how far a moves, 5 starts: the
    published toy to t = 10^5, the square loss and a one-hot target to t = 100; beside it the error
    of `polarisation-even`.
    """
    checks, notes, worst = [], [], 0.0
    for name, result in found.items():
        run = replace(Simulation.of(result), seeds=STARTS)
        a = result["parameters.attention"].isel(seed=slice(STARTS))
        moved = float(abs(a - a.isel(time=0)).max())
        path, even = (
            predict(run, theory=of)["parameters.attention"]
            for of in ("polarisation", "polarisation-even")
        )
        checks.append(Trained(f"a / {moved:.3g}, {name}", path / moved, a / moved, relative=False))
        worst = max(worst, float(abs(path - a).max()) / moved)
        notes.append(f"{name} {float(abs(even - a).max()) / moved:.2f}")
    note = "error of a over how far it moves: nothing moves 1; even weights " + ", ".join(notes)
    return Measurement(*checks, training_number=worst, note=note)


@toy_claim(ABOVE, id="pol-order")
def order(found: Found) -> Measurement:
    r"""From uniform $a_0$ and $u_{0,1} > \dots > u_{0,n}$ the flow of the logistic loss keeps the
    order of $u$, and $a$ takes it up: $a_1 > \dots > a_n$ for all $t > 0$.

    Check that all gaps between neighbours in the order of u_0 stay above 0: 20 starts, n = 8.
    """
    u, a, _ = in_order(found["toy"])
    of_u, of_a = (-np.diff(x[:, 1:]) for x in (u, a))
    return Measurement(
        Trained("gaps of u", 0.0, of_u),
        Trained("gaps of a", 0.0, of_a),
        training_number=float(of_a[:, 0].min()),
    )


RATIOS = (0.3, 1.0, 3.0)


def uneven_winners(seeds: int = 40) -> xr.DataArray:
    """Return who wins, (ratio of spreads of a_0 and u_0, rule, seed), 1 where a rule is right.

    Rules: the largest a_0 + u_0 (`linear_winner` of equal learning rates), the most frequent token,
    the largest u_0.
    """
    draws = np.array([np.random.default_rng(seed).normal(size=(2, 8)) for seed in range(seeds)])
    a0 = np.multiply.outer(RATIOS, 0.1 * draws[:, 1])
    u0 = np.broadcast_to(0.1 * draws[:, 0], a0.shape)
    path = theory.one_direction(u0, a0, 1e3, rtol=1e-6, atol=1e-9)
    rules = np.stack([(a0 + u0).argmax(-1), a0.argmax(-1), u0.argmax(-1)], axis=1)
    return xr.DataArray(rules == path.weights.argmax(-1)[:, None], dims=("ratio", "rule", "seed"))


@toy_claim(EQUAL, id="pol-winner")
def winner(found: Found) -> Measurement:
    r"""From uniform $a_0$ and distinct $u_0$ (logistic loss) the token $\operatorname{argmax} u_0$
    wins; nothing is said of uneven $a_0$.

    Compare the largest weight at t = 10^5 with the largest u_0. The note has who wins from uneven
    logits: 40 starts of the path, u_0 of 0.1 N, a_0 of the ratio times that.
    """
    right = in_order(found["toy"])[2][:, -1].argmax(-1) == 0
    told = "; ".join(
        f"a_0/u_0 = {ratio:g}: " + ", ".join(f"{mean(rule):.2f}" for rule in rules)
        for ratio, rules in zip(RATIOS, uneven_winners(), strict=True)
    )
    return Measurement(
        Trained("starts in which the largest u_0 wins", 1.0, right.mean()),
        training_number=right.mean(),
        note="uneven a_0, how often the largest a_0 + u_0, the most frequent token and the largest "
        f"u_0 win, nothing fitted: {told}",
    )


SIZES = (2, 8, 20)


@toy_claim(LEADING, id="pol-one-hot", sources=(READER, "the rate is ours"), tolerance=0.01)
def one_hot(found: Found) -> Measurement:
    r"""From uniform $a_0$ and distinct $u_0$ (logistic loss) $\sigma \to$ one-hot as $t \to
    \infty$; at the rate $1 - \max \sigma \sim 2(n-1)/(n \rho \tau^2)$, $\tau \sim \ln t$.

    Check the slope of ln(1 - max sigma) against ln tau over 10^4 to 10^6 (band 0.02), and its
    constant, for n = 2, 8, 20; 1 - max is a sum over losers. In training: still rising at the end.
    """
    tau = np.geomspace(1e4, 1e6, 9)
    slopes, constants = [], []
    for n in SIZES:
        u0 = 0.1 * np.random.default_rng(n).normal(size=n)
        left = theory.remainder(theory.one_direction(u0, np.zeros(n), tau).logits)
        slopes.append(slope(tau, left))
        constants.append(left[-1] / theory.tail(tau[-1], n))
    sigma = found["toy"]["weights"].values
    before, top = sigma[:, -2:].max(-1).T
    return Measurement(
        Check("exponent of tau", -2.0, np.array(slopes)),
        Check("constant at tau = 10^6", 1.0, np.array(constants)),
        Trained("max sigma over the last record", before, top, ABOVE),
        number=float(np.abs(np.subtract(constants, 1)).max()),
        training_number=float(top.mean()),
        note=f"max sigma {mean(top)} (sd {top.std(ddof=1):.3f}), entropy "
        f"{mean(maps.entropy(sigma[:, -1]))} of {np.log(8):.2f} over {len(top)} starts; exponents "
        f"{listed(slopes, '.3f')}",
    )


@toy_claim(
    AT_MOST,
    id="pol-gaps",
    sources=(READER, "all pairs in the text, $i < j$ in the proof"),
    tolerance=ROUNDING,
    in_parts=True,
)
def gaps(found: Found) -> Measurement:
    """From uniform $a_0$ and distinct $u_0$ (logistic loss) every gap between two tokens grows all
    the time, of $u$ and of $a$.

    Check how far each gap falls below its maximum up to t = 10^5, over all pairs: those of u, the
    winner's of a, and those of a between losers.
    """
    u, a, sigma = in_order(found["toy"])
    i, j = np.triu_indices(u.shape[-1], 1)
    of_u, of_a = (np.moveaxis(x[..., i] - x[..., j], 1, 0) for x in (u, a))  # (time, seed, pair)
    fell = theory.drawdown(of_a)
    losers, peak = fell[:, i > 0], of_a[..., i > 0].argmax(0)
    at = np.take_along_axis(sigma.max(-1), peak, 1)
    return Measurement(
        Trained("gaps of u", 0.0, theory.drawdown(of_u)),
        Trained("the winner's gaps of a", 0.0, fell[:, i == 0]),
        Trained("gaps of a between losers", 0.0, losers),
        training_number=float(losers.max()),
        note=f"{(losers > ROUNDING).mean():.0%} of the pairs of losers shrink, the most in a start "
        f"by {mean(losers.max(1))}; they begin when max sigma is "
        f"{mean(at.mean(1))} ({at.min():.2f} to {at.max():.2f} over pairs)",
    )


@toy_claim(BELOW, id="pol-entropy-falls", sources="Polarisation")
def entropy_falls(found: Found) -> Measurement:
    """From uniform $a_0$ and distinct $u_0$ (logistic loss) the entropy of attention falls
    monotonically.

    Check that it falls from record to record: 20 starts, 121 records to t = 10^5.
    """
    steps = np.diff(maps.entropy(found["toy"]["weights"].values))
    return Measurement(
        Trained("change of entropy between records", 0.0, steps),
        training_number=int((steps < 0).all(1).sum()),
    )


MASSIVE = 3.0  # times the median; we know no number of the paper's


@claim(ABOVE, id="pol-massive", sources="Polarisation", runs=TOY)
def massive(found: Found) -> Measurement:
    r"""As $t \to \infty$ the winner's value grows without bound, $u_{win} \sim \ln t$ (logistic
    loss), and the others stay: a massive activation.

    Check the slope of the winner's u against ln t over the last decade (1, band 0.1), that other
    scores move by less than a tenth of it there, and that norms of values over their median are
    above 3 (ours): cross entropy with a one-hot target, and the tied model (10 starts on file).
    """
    u, _, _ = in_order(found["toy"])
    t = found["toy"]["time"].values
    late = t > t[-1] / 10
    growth = np.polyfit(np.log(t[late]), u[:, late, 0].T, 1)[0]
    moved = np.abs(u[:, -1] - u[:, late][:, 0])
    filed = {name: EVIDENCE.read(name) for name in ("target-one-hot", "tied-10", "tied-50")}
    told = "; ".join(
        f"{name}: norm over median {with_range(of['over_median'], '.1f')}, max sigma "
        f"{with_range(of['top'], '.3f')}"
        for name, of in filed.items()
    )
    return Measurement(
        Trained("d u_win / d ln t", 1.0, growth, LEADING, tolerance=0.1),
        Trained("others over it", 0.1, moved[:, 1:].max(1) / moved[:, 0], BELOW),
        *(
            Trained(f"norm over median, {name}", MASSIVE, of["over_median"].values)
            for name, of in filed.items()
        ),
        training_number=float(u[:, -1, 0].mean()),
        note=f"u of the winner {mean(u[:, -1, 0])}; {told}",
    )

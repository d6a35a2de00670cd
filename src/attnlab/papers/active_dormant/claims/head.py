"""The reparametrised head: what sink logits and the value of <s> do to each other."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from attnlab.auditing import Measurement, claim
from attnlab.auditing.runs import assumed
from attnlab.experiments import mean
from attnlab.formulas.chains import stationary
from attnlab.simulation import Simulation
from attnlab.theory import Check, Hypothesis, Trained, predict
from attnlab.theory.facts import facts_of
from attnlab.theory.relation import ABOVE, AT_LEAST, AT_MOST, EQUAL, LEADING

from .. import runs, theory
from ..evidence import EVIDENCE
from ..predict import FULL_SUPPORT, DormantLate, DormantSink

Found = dict[str, xr.Dataset]
TESTS = "tests/papers/active_dormant/test_theory.py::"
PAPER = "Active-dormant"
ALONE = partial(runs.flow, 0, alone=True)
ONE = partial(runs.flow, 0, at=runs.EARLY)
V, N, CHAINS = 8, 100, 10


def chain(seed: int, contexts: int = 0) -> tuple[NDArray[np.float64], ...]:
    """Return P with Dirichlet(1) rows, its stationary distribution, and contexts of N tokens."""
    rng = np.random.default_rng(seed)
    P = rng.dirichlet(np.ones(V), V)
    pi = stationary(P)
    return P, pi, rng.multinomial(N, pi, contexts).astype(float) if contexts else N * pi


def asked_of_chains(contexts: int = 0) -> Callable[[Found], tuple[Hypothesis, ...]]:
    """Return what formulas of rest ask of the chains drawn: full support, and W that differ."""

    def hypotheses(found: Found) -> tuple[Hypothesis, ...]:
        drawn = [chain(seed, contexts) for seed in range(CHAINS)]
        support = min(P.min() for P, _, _ in drawn)
        variances = [theory.context_variance(P, W, balanced=contexts > 0) for P, _, W in drawn]
        differs = "contexts differ" if contexts else "W is not constant"
        return (
            Hypothesis("here", f"{FULL_SUPPORT}: least entry of P", support, ABOVE, 0.0),
            Hypothesis("here", f"{differs}: least variance", np.min(variances), ABOVE, 0.0),
        )

    return hypotheses


def many_contexts() -> xr.Dataset:
    """Return the numbers on file of the flow with contexts that differ, along time."""
    return EVIDENCE.read("flow").rename(record="time").assign_coords(time=list(runs.TIMES))


def late_slope(logit: xr.DataArray) -> xr.DataArray:
    """Return the slope of the mean sink logit against ln t over the last two decades, by seed."""
    last = logit.sel(time=[1e8, 1e10], method="nearest")
    return (last.isel(time=1) - last.isel(time=0)) / np.log(100)


@claim(
    EQUAL,
    id="ad-gradient",
    sources="here",
    tolerance=1e-8,
    ours=True,
    runs={},
    code=("gradient", "excess_loss"),
    test=TESTS + "test_gradient_is_that_of_the_loss",
)
def gradient(found: Found) -> Measurement:
    r"""$\partial L/\partial\alpha_v = \pi_v s_v (q_v - p_v)\cdot(\beta - \delta_v)$ and
    $\partial L/\partial\beta = \sum_v \pi_v s_v (q_v - p_v)$.

    Compare with central differences of the loss: 10 chains of 8 tokens, three contexts, random
    sink logits and values.
    """
    gaps = []
    for seed in range(CHAINS):
        P, pi, W = chain(seed, 3)
        at = np.random.default_rng(seed).normal([[3.0], [0.0]], size=(2, V))

        def loss(x: NDArray[np.float64], of: tuple[NDArray[np.float64], ...] = (P, pi, W)) -> float:
            return theory.excess_loss(*of, alpha=x[0], beta=x[1], visible=N)

        formula = theory.gradient(P, pi, W, alpha=at[0], beta=at[1], visible=N)
        steps = 1e-5 * np.eye(2 * V).reshape(-1, 2, V)
        slopes = [(loss(at + step) - loss(at - step)) / 2e-5 for step in steps]
        gaps.append(np.ravel(formula) - slopes)
    return Measurement(Check("difference", 0.0, np.array(gaps)))


@claim(
    LEADING,
    id="ad-growth",
    sources=PAPER,
    tolerance=0.02,
    hypotheses=(assumed(DormantSink()),),
    runs={"alone": ALONE},
    code=("late_sink_logit",),
    test=TESTS + "test_sink_alone_follows_the_implicit_solution",
    figure="flow",
    training_number="slope {:.4f} against ln t over the last two decades",
)
def growth(found: Found) -> Measurement:
    r"""With $\beta = 0$ fixed, $\alpha_v(t) = \frac12 \log t + O(1)$ for $t \to \infty$.

    Until it takes off (ad-constant) it hardly moves. Fit the slope of the mean sink logit against
    ln t from t = 10^8 to 10^10, which is to be 1/2: 8 tokens, N = 100, one context, 10 chains.
    """
    slopes = late_slope(found["alone"]["parameters.sink"].mean("parameters.sink_0"))
    return Measurement(
        Trained("slope", 0.5, slopes.values),
        training_number=float(slopes.mean()),
        note=f"slope {mean(slopes)}",
    )


@claim(
    AT_MOST,
    id="ad-constant",
    sources="here",
    ours=True,
    hypotheses=(assumed(DormantSink()),),
    runs={"alone": ALONE},
    code=("sink_logit", "late_sink_logit", "take_off"),
    test=TESTS + "test_sink_alone_follows_the_implicit_solution",
    figure="flow",
    training_number="largest error {:.3f} at any time",
)
def constant(found: Found) -> Measurement:
    r"""The constant is $\frac12 \log(2 \pi_v \mathrm{Var}_{p_v} W)$, and $F(\alpha) - F(\alpha(0))
    = \pi_v \mathrm{Var}_{p_v}(W)\, t$ at all times.

    Compare with training, 10 chains: at t = 10^10 both forms within 0.02 for each token, and the
    implicit one on average within 0.1 at any recorded time. Where the sink takes off, small errors
    of time are large ones of alpha.
    """
    run = Simulation.of(found["alone"])
    alpha = found["alone"]["parameters.sink"]
    predicted = predict(run, theory="dormant-sink")["parameters.sink"]
    data = [facts.data for _, facts in facts_of(run)]
    drives = np.stack([of["pi"] * theory.context_variance(of["P"], of["W"]) for of in data])
    late = theory.late_sink_logit(runs.TIMES[-1], drives)
    starts = theory.take_off(0.0, drive=drives, visible=N)
    gap, end = abs(predicted - alpha), alpha.isel(time=-1)
    return Measurement(
        Trained("on average", 0.1, gap.mean(["seed", "parameters.sink_0"]).values),
        Trained("at the last time", 0.02, gap.isel(time=-1).values),
        Trained("late form", 0.02, abs(late - end.transpose("seed", ...).values)),
        training_number=float(gap.max()),
        note=f"at t = 1e10 {float(gap.isel(time=-1).max()):.4f}; sink logits have moved by "
        f"{float(end.min()):.1f} and more; they take off at t = {starts.min():.1e} and later",
    )


@claim(
    LEADING,
    id="ad-drain",
    sources=PAPER,
    tolerance=0.1,
    hypotheses=(asked_of_chains(),),
    runs={},
    code=("drain_rate", "concentrated_value"),
    test=TESTS + "test_drain_alone_ends_at_the_concentrated_value_at_its_rate",
    number="slope of ln |beta - beta*| over minus the rate: {:.3f}",
)
def drain(found: Found) -> Measurement:
    r"""With equal, fixed sink logits $\beta$ drains to its mean plus $e^{-\alpha}(\bar W - W)$, in
    the end exponentially.

    Close to the end, the rate is the second smallest eigenvalue of
    s^2 sum_v pi_v (diag p_v - p_v p_v^T), ours. Fit the decay over 12 to 20 of its time constants
    at alpha = 6, and compare beta at 40 with the end: 10 chains, random starts.
    """
    ratios, ends = [], []
    for seed in range(CHAINS):
        P, pi, W = chain(seed)
        beta = np.random.default_rng(seed).normal(size=V)
        rate = theory.drain_rate(P, pi, alpha=6.0, visible=N)
        t = np.array([12.0, 14.0, 16.0, 18.0, 20.0, 40.0]) / rate
        start: dict[str, Any] = {"alpha": np.full(V, 6.0), "beta": beta, "visible": N}
        path = theory.joint_flow(t, P, pi, W, rates=(0.0, 1.0), rtol=1e-11, atol=1e-14, **start)
        end = theory.concentrated_value(6.0, W, mean=float(beta.mean()))
        left = np.linalg.norm(path.values - end, axis=1)
        ratios.append(-np.polyfit(t[:-1], np.log(left[:-1]), 1)[0] / rate)
        ends.append(left[-1])
    return Measurement(
        Check("decay over rate", 1.0, np.array(ratios)),
        Check("distance from the end", 1e-8, np.array(ends), AT_MOST),
        number=float(np.mean(ratios)),
        note=f"decay over rate {mean(ratios)}",
    )


@claim(
    EQUAL,
    id="ad-stationary",
    sources=PAPER,
    tolerance=1e-10,
    hypotheses=(asked_of_chains(),),
    runs={},
    code=("concentrated_value", "gradient"),
    test=TESTS + "test_concentrated_points_have_no_loss_and_other_sinks_do",
)
def rest(found: Found) -> Measurement:
    r"""With one context the stationary points have equal sink logits, $\beta = c - e^{-\alpha} W$
    and loss 0, whatever $\alpha$.

    There are no others (ours): sum_v e^{alpha_v} dL/dalpha_v + W.dL/dbeta is
    N sum_v pi_v s_v (q_v - p_v).delta_v, above 0 unless every delta_v is constant. Check loss and
    gradient for alpha in -1, 2, 7, that the loss is above 0 once one sink logit differs, and that
    sum at random points: 10 chains.
    """
    zero, apart, elsewhere = [], [], []
    for seed in range(CHAINS):
        P, pi, W = chain(seed)
        for alpha in (-1.0, 2.0, 7.0):
            beta = theory.concentrated_value(alpha, W, mean=0.3)
            of: dict[str, Any] = {"beta": beta, "visible": N}
            equal = np.full(V, alpha)
            zero.append(np.ravel(theory.gradient(P, pi, W, alpha=equal, **of)))
            zero.append(np.full(2 * V, theory.excess_loss(P, pi, W, alpha=equal, **of)))
            apart.append(theory.excess_loss(P, pi, W, alpha=equal + np.eye(V)[2], **of))
        for alpha, beta in np.random.default_rng(seed).normal(size=(10, 2, V)):
            of_sinks, of_value = theory.gradient(P, pi, W, alpha=alpha, beta=beta, visible=N)
            elsewhere.append(np.exp(alpha) @ of_sinks + W @ of_value)
    return Measurement(
        Check("loss and gradient", 0.0, np.array(zero)),
        Check("loss with one that differs", 0.0, np.array(apart), ABOVE),
        Check("gradient at random points", 0.0, np.array(elsewhere), ABOVE),
    )


@claim(
    AT_MOST,
    id="ad-end",
    sources="here",
    ours=True,
    hypotheses=(assumed(DormantLate()),),
    runs={"one": ONE},
    code=("conserved", "joint_end"),
    test=TESTS + "test_joint_flow_with_one_context_ends_where_the_conserved_quantity_says",
    figure="flow",
    training_number="all sink logits end at {:.2f} (mean of 10 chains)",
)
def end(found: Found) -> Measurement:
    r"""With one context the flow keeps
    $\sum_v (\alpha_v + e^{\alpha_v}/N)/\eta_\alpha
    - (\lvert\beta\rvert^2/2 - \beta\cdot W/N)/\eta_\beta$, which fixes where it ends.

    Check the drift along training (1e-5 at most), and sink logits (2e-3) and the size of the value
    (0.02) at t = 10^7 against the end known in advance: 10 chains, from zero.
    """
    trained = found["one"].transpose("seed", "time", ...)
    run = Simulation.of(trained)
    predicted = predict(run, theory="dormant-late").isel(time=-1)
    gaps = {
        name: abs(predicted[name] - trained[name].isel(time=-1))
        for name in ("parameters.sink", "value_size")
    }
    alpha, beta = (trained[f"parameters.{name}"].values for name in ("sink", "value"))
    contexts = [facts.data["W"][0] for _, facts in facts_of(run)]
    kept = np.stack(
        [
            theory.conserved(a, b, W, visible=N)
            for a, b, W in zip(alpha, beta, contexts, strict=True)
        ]
    )
    return Measurement(
        Trained("drift", 1e-5, np.abs(kept - kept[:, :1])),
        Trained("sink logits", 2e-3, gaps["parameters.sink"].values),
        Trained("size of the value", 0.02, gaps["value_size"].values),
        training_number=float(trained["parameters.sink"].isel(time=-1).mean()),
    )


@claim(
    AT_LEAST,
    id="ad-mutual",
    sources=PAPER,
    in_parts=True,
    hypotheses=(assumed(DormantLate()),),
    runs={"one": ONE},
    code=("joint_end", "joint_flow"),
    test=TESTS + "test_contexts_that_differ_make_a_sink_and_drain_its_value",
    figure="flow",
    training_number="sink mass {:.3f} with one context at t = 10^7",
)
def mutual(found: Found) -> Measurement:
    """Trained together, sink logit and value reinforce each other to a sink and a drain.

    Check in the end a mean sink mass of 1/2 at least, and a value of at most a tenth of its height,
    for each of 10 chains: with one context (t = 10^7, at rest), and with 48 that differ (10^10, on
    file).
    """
    checks, notes = [], []
    one = found["one"].assign(sink_mass=found["one"]["sink_mass"].mean("query"))
    for name, of in {"one": one, "many": many_contexts()}.items():
        mass, size, height = of["sink_mass"], of["value_size"], of["value_size"].max("time")
        last = size.isel(time=-1)
        peak = size["time"].values[size.transpose("seed", "time").values.argmax(1)]
        checks += [
            Trained(f"sink, {name}", 0.5, mass.isel(time=-1).values),
            Trained(f"drain, {name}", 0.1, (last / height).values, AT_MOST),
        ]
        notes.append(
            f"{name}: sink {mean(mass.isel(time=-1))}, value {mean(height)} at its height (median "
            f"t = {np.median(peak):.0e}), {mean(last)} at the end"
        )
    number = float(one["sink_mass"].isel(time=-1).mean())
    return Measurement(*checks, training_number=number, note="; ".join(notes))


@claim(
    AT_MOST,
    id="ad-late",
    sources="here",
    ours=True,
    hypotheses=(assumed(DormantLate(), ONE),),  # whose chains have the same P
    runs={},
    code=("late_sink_logit", "context_variance"),
    test=TESTS + "test_contexts_that_differ_make_a_sink_and_drain_its_value",
    figure="flow",
    training_number="range of sink logits {:.2f} at t = 10^10",
)
def late(found: Found) -> Measurement:
    r"""Contexts that differ: $\frac12\log t$ again, with $\mathrm{Var}(W_m - \bar W)$, and sink
    logits concentrate in part.

    Check from 10^8 to 10^10 that the slope is within 0.02 of 1/2, sink logits within 0.3 of the
    late form, and their range above 0.05 and as large at both times to 0.02: 10 chains, 48
    contexts, on file.
    """
    of = many_contexts()
    width = of["range"].sel(time=[1e8, 1e10], method="nearest")
    gap, slope = of["late_error"].isel(time=-1), late_slope(of["sink_logit"])
    return Measurement(
        Trained("slope from 1/2", 0.02, abs(slope - 0.5).values),
        Trained("late form", 0.3, gap.values),
        Trained("range", 0.05, width.isel(time=-1).values, ABOVE),
        Trained("change of the range", 0.02, abs(width.diff("time")).values),
        training_number=float(width.isel(time=-1).mean()),
        note=f"slope {mean(slope)}, range {mean(width.isel(time=-1))}, late form off by at most "
        f"{mean(gap)}",
    )


@claim(
    LEADING,
    id="ad-spread",
    sources="here",
    tolerance=0.1,
    ours=True,
    hypotheses=(asked_of_chains(4),),
    runs={},
    code=("joint_flow", "context_variance"),
    test=TESTS + "test_contexts_that_differ_make_a_sink_and_drain_its_value",
    figure="flow",
    number="time to half of the mass goes as spread to the power {:.2f}",
)
def spread(found: Found) -> Measurement:
    r"""Contexts that differ make a sink however little they differ; the time to it goes as their
    spread to the power $-2$, for small spreads.

    The late form of ad-late says so: in it t comes with the variance. Compare the times at which
    the mean sink mass reaches 1/2 if the deviations of 4 contexts from their mean are taken times 1
    and times 0.1: their exponent is within 0.1 of -2; 10 chains, from zero, equal learning rates.
    """
    powers = []
    t = np.append(0.0, np.geomspace(1e4, 1e9, 31))
    start: dict[str, Any] = {"alpha": np.zeros(V), "beta": np.zeros(V), "visible": N}
    for seed in range(CHAINS):
        P, pi, W = chain(seed, 4)
        times = []
        for factor in (1.0, 0.1):
            W_m = W.mean(0) + factor * (W - W.mean(0))
            alpha = theory.joint_flow(t, P, pi, W_m, rtol=1e-6, atol=1e-8, **start).sink_logits
            mass = theory.sink_mass(alpha, N).mean(1)
            times.append(np.interp(0.5, mass[1:], np.log10(t[1:])))
        powers.append(times[0] - times[1])
    return Measurement(
        Check("power", -2.0, np.array(powers), relative=False),
        number=float(np.mean(powers)),
        note=f"power {mean(powers)}",
    )

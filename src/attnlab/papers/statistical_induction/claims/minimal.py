"""The minimal model: a silent first layer, its first signal, stages, order and end."""

from __future__ import annotations

from functools import partial

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy.special import log_softmax
from scipy.stats import linregress

from attnlab.auditing import Measurement, claim
from attnlab.auditing.fit import listed
from attnlab.auditing.runs import assumed
from attnlab.experiments import mean
from attnlab.experiments.estimate import means
from attnlab.theory import Check, Hypothesis, Trained, predict
from attnlab.theory.relation import ABOVE, AT_LEAST, AT_MOST, BELOW, EQUAL, LEADING

from .. import runs, theory
from ..distances import STAGES, HeldOut, nearest
from ..evidence import EVIDENCE
from ..predict import InductionStart, end_weight

Found = dict[str, xr.Dataset]
SOURCE = "Statistical induction"
TESTS = "tests/papers/statistical_induction/test_theory.py::"
CHAINS, DRAWS = 4000, 5  # matrices for a mean over a prior, and repetitions for its error
SYMBOLS = (2, 3)
FIRST = {"2": lambda: runs.minimal(2, at=(0, 1, 10)), "3": lambda: runs.minimal(3, at=(0, 1, 10))}


def silent_start(found: Found) -> tuple[Hypothesis, ...]:
    """Ask that W starts constant and v at 0, as the formulas of the start do."""
    (result, *_) = found.values()
    W, v = (result[f"parameters.{name}"].values[:, 0] for name in ("second", "first"))
    spread = float(max(np.ptp(W), np.abs(v).max()))
    return (Hypothesis("here", "W is constant and v = 0 at the start", spread, AT_MOST, 0.0),)


first_claim = partial(claim, sources=SOURCE, hypotheses=(silent_start, assumed(InductionStart())))
filed_claim = partial(claim, sources=SOURCE, runs={})


def filed(k: int) -> xr.Dataset:
    """Return the numbers on file of the minimal model, 10 seeds to step 800."""
    return EVIDENCE.read(f"minimal_{k}")


def matrices(prior: str, k: int, draw: int = 0) -> NDArray[np.float64]:
    """Return transition matrices of a prior; another draw for each repetition."""
    return theory.PRIORS[prior](np.random.default_rng(draw), CHAINS, k)


def sticky(k: int, weight: float, draw: int) -> NDArray[np.float64]:
    """Return chains with rows Dirichlet(1, ..., 1 + weight, ..., 1): the next symbol repeats."""
    rng = np.random.default_rng(draw)
    draws = rng.exponential(size=(CHAINS, k, k))
    extra = rng.gamma(weight, size=(CHAINS, k)) if weight else np.zeros((CHAINS, k))
    draws = draws + extra[..., None] * np.eye(k)
    return np.asarray(draws / draws.sum(-1, keepdims=True))


@claim(
    EQUAL,
    id="si-silent",
    sources="Statistical induction, re-derived",
    tolerance=1e-15,
    runs={},
    code=("gradient",),
    test=TESTS + "test_gradient_equals_differences",
    number="error below 1e-15; without the softmax in layer 1 up to {:.2g}",
)
def silent(found: Found) -> Measurement:
    r"""With a softmax in layer 1 it has no gradient at the start: $\partial L/\partial v = 0$ where
    $W$ is constant.

    Measure dL/dv by its formula at W = 0.01 and W = 1 and random v, for 200 chains of 2, 3 and 8
    symbols; beside it the same without the softmax, where it is not 0.
    """
    rng, with_softmax, without = np.random.default_rng(0), [], []
    for k in (2, 3, 8):
        x = theory.sample(rng, theory.dirichlet(rng, 200, k), 51)
        for c in (0.01, 1.0):
            args = x[:, :-1], x[:, 1:], np.full((k, k), c), rng.normal(size=50)
            with_softmax.append(np.abs(theory.gradient(*args).first).max())
            without.append(np.abs(theory.gradient(*args, linear=True).first).max())
    return Measurement(Check("dL/dv", 0.0, np.max(with_softmax)), number=float(np.max(without)))


@first_claim(
    ABOVE,
    id="si-first-step",
    sources="Statistical induction, re-derived",
    runs={"3": FIRST["3"]},
    code=("first_step", "leading_step"),
    test=TESTS + "test_first_step_equals_the_gradient",
    figure="minimal",
    number="k = 3, T = 50: diagonal {:.3f}",
    training_number="first step of training, over its rate: diagonal {:.3f}",
)
def first_step(found: Found) -> Measurement:
    """The first step of $W$ is larger on the diagonal than off it, and positive, on Dirichlet(1)
    chains.

    Compare the diagonal of the step with the rest, for 2 and 3 symbols, T = 50 and 200: exactly
    (powers of P, 4,000 chains, 5 draws), and in the first step of training, 10 seeds. The note has
    the leading term in T.
    """
    checks, notes, number = [], [], 0.0
    for k, T in ((2, 50), (2, 200), (3, 200), (3, 50)):
        draws = range(DRAWS) if T == 50 else range(1)
        exact = np.array([theory.first_step(matrices("dirichlet", k, i), T) for i in draws])
        diagonal, off = exact[:, 0, 0], exact[:, 0, 1]
        leading = theory.leading_step(matrices("dirichlet", k), T)
        checks += [Check(f"k = {k}, T = {T}", off, diagonal), Check(f"{k}, {T}, off", 0.0, off)]
        notes.append(
            f"k = {k}, T = {T}: {diagonal.mean():.3f}, {off.mean():.3f} "
            f"(leading {leading[0, 0]:.3f}, {leading[0, 1]:.3f})"
        )
        number = float(diagonal.mean())
    rate = runs.MINIMAL_RATES["second"]
    moved = (found["3"].sel(step=1) - found["3"].sel(step=0)) / rate
    diagonal, off = moved["diagonal"].values, moved["off_diagonal"].values
    checks.append(Trained("training", off, diagonal))
    notes.append(f"training {mean(diagonal)}, {mean(off)} (c = 0.01)")
    return Measurement(
        *checks, number=number, training_number=float(diagonal.mean()), note="; ".join(notes)
    )


@first_claim(
    ABOVE,
    id="si-lag-one",
    sources="Statistical induction, re-derived",
    runs={"3": FIRST["3"]},
    code=("first_signal", "leading_signal", "lag_kernel"),
    test=TESTS + "test_first_signal_equals_the_gradient",
    figure="lags",
    number="k = 3, T = 50: {:.4f} at lag 1",
    training_number="largest at lag 1 in {:.0%} of seeds at step 10",
)
def lag_one(found: Found) -> Measurement:
    r"""For $W = c \mathbf 1 \mathbf 1^\top + wI$ with $cT \ll 1$ the first signal for layer 1 is
    largest at lag 1, by the lag kernel; not so for chains that repeat.

    The kernel is the leading order in T. Check that the exact signal is largest at lag 1, and that
    the leading form is within 0.006 of it, for 2 and 3 symbols, Dirichlet and doubly stochastic, T
    = 50; and that v is largest there after 10 steps of training, 10 seeds. The boundary: rows
    Dirichlet(1 + weight on the diagonal), 5 draws.
    """
    checks, number = [], 0.0
    for prior in ("dirichlet", "doubly"):
        for k in (2, 3):
            P = matrices(prior, k)
            exact, leading = theory.first_signal(P, runs.T), theory.leading_signal(P, runs.T)
            others = np.delete(exact, 1).max()
            name = f"{prior}, k = {k}"
            checks += [
                Check(name, others, exact[1]),
                Check(f"{name}, leading", leading, exact, LEADING, False, tolerance=6e-3),
            ]
            number = float(exact[1]) if (prior, k) == ("dirichlet", 3) else number
    v = found["3"]["parameters.first"].sel(step=10).values
    right = v.argmax(1) == 1
    checks.append(Trained("training", np.delete(v, 1, 1).max(1), v[:, 1]))
    weights = np.linspace(0.0, 2.0, 9)
    turn = []
    for k in (2, 3):
        gaps = [
            [np.subtract(*theory.leading_signal(sticky(k, w, i), runs.T)[:2]) for w in weights]
            for i in range(DRAWS)
        ]
        turn.append(mean([np.interp(0.0, gap, weights) for gap in gaps]))
    return Measurement(
        *checks,
        number=number,
        training_number=float(right.mean()),
        note=f"lag 0 wins for chains that repeat: from a weight of {turn[0]} (k = 2) and {turn[1]} "
        "(k = 3) on the diagonal on",
    )


@first_claim(
    ABOVE,
    id="si-odd-even",
    runs=FIRST,
    in_parts=True,
    code=("first_signal",),
    test=TESTS + "test_signs_alternate_for_two_symbols",
    figure="lags",
    training_number="k = 2: lags 1 to 5 alternate in {:.0%} of seeds at step 10",
)
def odd_even(found: Found) -> Measurement:
    """Position weights alternate: odd lags rise, even lags fall.

    Check the sign of lags 1 to 5 of the first signal (T = 50), and of v after 10 steps, for 2 and 3
    symbols, 10 seeds.
    """
    sign = np.array([1.0, -1.0, 1.0, -1.0, 1.0])
    checks, notes, share = [], [], {}
    for k, result in found.items():
        signal = theory.first_signal(matrices("dirichlet", int(k)), runs.T)[1:6]
        v = result["parameters.first"].sel(step=10).values[:, 1:6]
        share[k] = ((sign * v) > 0).all(1).mean()
        checks += [
            Check(f"k = {k}", 0.0, sign * signal),
            Trained(f"k = {k}, training", 0.0, sign * v.mean(0)),
        ]
        notes.append(f"k = {k}: signal {listed(signal, '.4f')}, v {listed(v.mean(0), '.4f')}")
    return Measurement(*checks, training_number=float(share["2"]), note="; ".join(notes))


@filed_claim(
    AT_LEAST,
    id="si-stages",
    code=("last_rules", "divergence"),
    test="tests/papers/statistical_induction/test_distances.py::test_stages",
    figure="stages",
    training_number="k = 3: bigram is nearest from step {:.0f} on (mean of 10 seeds)",
)
def stages(found: Found) -> Measurement:
    """The minimal model passes uniform, unigram and bigram.

    Check that the rules nearest to the model are these three in this order, in each of 10 seeds: by
    KL(rule || model) at the last position of 768 chains, at each of 20 steps up to 100.
    """
    checks, notes, number = [], [], 0.0
    for k in SYMBOLS:
        at = nearest(filed(k).sel(step=list(runs.EARLY))).transpose("seed", "step")
        times = [runs.first_step(at == i) for i in range(len(STAGES))]
        checks.append(Trained(f"k = {k}", 3.0, in_order(at)))
        number = float(times[2].mean())
        notes.append(f"k = {k}: {means(dict(zip(STAGES, times, strict=True)))}")
    return Measurement(
        *checks, training_number=number, note=f"first nearest at step: {', '.join(notes)}"
    )


def in_order(at: xr.DataArray) -> NDArray[np.int64]:
    """Return how many stages each seed passes; 0 where one comes back."""
    rising = (at.diff("step") >= 0).all("step").values
    return np.where(rising, [len(set(of)) for of in at.transpose("seed", "step").values], 0)


def half_times(result: xr.Dataset) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the steps, by seed, at which the excess of W's diagonal and lag 1 are half of what
    they are at the last record."""

    def half(of: xr.DataArray) -> NDArray[np.float64]:
        paths, steps = np.maximum.accumulate(of.transpose("seed", "step").values, 1), of["step"]
        level = of.isel(step=[0, -1]).mean("step").values
        return np.array([np.interp(at, path, steps) for at, path in zip(level, paths, strict=True)])

    return half(result["diagonal"] - result["off_diagonal"]), half(result["previous"])


@filed_claim(
    BELOW,
    id="si-second-first",
    code=("descend",),
    test="tests/papers/statistical_induction/test_predict.py::test_descent_is_the_mean_of_training",
    figure="minimal",
    training_number="k = 3: lag 1 is half way {:.0f} steps after W",
)
def second_first(found: Found) -> Measurement:
    """The second layer is learnt first, then the first.

    Compare the steps at which W's diagonal excess and lag-1 attention are half of what they are at
    step 100, 10 seeds. Also each theory's error of lag-1 attention (largest over steps, mean of
    seeds), beside nothing moves.
    """
    checks, notes, number = [], [], 0.0
    for k in SYMBOLS:
        of = filed(k).sel(step=list(runs.EARLY))
        lag, (second, first) = of["previous"], half_times(of)
        checks.append(Trained(f"k = {k}", first, second))
        number = float((first - second).mean())
        paths = {"nothing moves": lag.isel(step=0, drop=True)}
        for name in ("induction-descent", "induction-start"):
            predicted = predict(runs.minimal(k, seeds=1), theory=name)
            paths[name] = predicted["lag_mass"].isel(lag=1, seed=0, drop=True)
        errors = {name: abs(path - lag).max("step").mean() for name, path in paths.items()}
        notes.append(f"k = {k}: W {mean(second)}, lag 1 {mean(first)}")
        notes += [f"{name} {error:.3f}" for name, error in errors.items()]
    return Measurement(*checks, training_number=number, note=", ".join(notes) + "; nothing fitted")


@filed_claim(
    AT_MOST,
    id="si-minimal-bayes",
    tolerance=0.1,
    code=("last_rules", "divergence"),
    test=TESTS + "test_end",
    figure="minimal",
    training_number="k = 3: KL {:.3f} at step 800",
)
def minimal_bayes(found: Found) -> Measurement:
    """The minimal model reaches the Bayes rule.

    Compare KL(true row || model) at step 800 with that of the bigram rule, within a tenth; 768
    chains, 10 seeds. Logits are linear in counts, so it cannot.
    """
    checks, notes, number = [], [], 0.0
    for k in SYMBOLS:
        kl = filed(k)["kl"].isel(step=-1)
        rule = HeldOut.of(runs.chains(k)).kl
        checks.append(Trained(f"k = {k}", rule["bigram"], kl))
        number = float(kl.mean())
        notes.append(
            f"k = {k}: {mean(kl)} (bigram {rule['bigram']:.3f}, unigram {rule['unigram']:.3f})"
        )
    return Measurement(*checks, training_number=number, note="; ".join(notes))


@filed_claim(
    LEADING,
    id="si-minimal-end",
    sources="Statistical induction, re-derived",
    tolerance=0.08,
    ours=True,
    code=("end_weight", "lag_one"),
    test=TESTS + "test_end",
    figure="minimal",
    training_number="k = 3: w = {:.3f} at step 800",
)
def minimal_end(found: Found) -> Measurement:
    """It ends at $W = wI$ on lag 1 alone, with the best $w$.

    Compare the diagonal of W and KL(true row || model) at step 800 with those of the best w, over
    6,000 chains of its own; 10 seeds. Nothing fitted.
    """
    checks, notes, number = [], [], 0.0
    for k in SYMBOLS:
        end, task = filed(k).isel(step=-1), runs.chains(k)
        w, of = end_weight(task), HeldOut.of(task)
        assert of.row is not None
        outputs = theory.logits(of.tokens, w * np.eye(k), theory.lag_one(runs.T))[:, -1]
        predicted = float(theory.divergence(of.row, log_softmax(outputs, axis=-1)).mean())
        number = float(end["diagonal"].mean())
        checks += [
            Trained(f"k = {k}, w", w, end["diagonal"]),
            Trained(f"k = {k}, KL", predicted, end["kl"]),
        ]
        notes.append(
            f"k = {k}: w {w:.3f}, trained {mean(end['diagonal'])}; KL {predicted:.3f}, "
            f"{mean(end['kl'])}; lag 1 has {mean(end['previous'])}"
        )
    return Measurement(*checks, training_number=number, note="; ".join(notes))


@claim(
    AT_MOST,
    id="si-leading",
    sources="Statistical induction, re-derived",
    runs={},
    code=("first_step", "leading_step", "first_signal", "leading_signal"),
    test=TESTS + "test_leading_terms_are_the_limit",
    number="diagonal's relative error goes like T^{:.2f}",
)
def leading(found: Found) -> Measurement:
    """The formulas of the start hold to leading order in $T$.

    Fit the power of T with which the relative error of the leading step falls, T = 25 to 400, at
    1,000 chains, k = 2 and 3: it and its 95% band are below -1/2. The signal's leading form is
    within 0.003 of the exact one at every T.
    """
    lengths, checks, notes, number = np.array([25, 50, 100, 200, 400]), [], [], 0.0
    for k in (2, 3):
        P = matrices("dirichlet", k)[:1000]
        pairs = [(theory.first_step(P, T), theory.leading_step(P, T)) for T in lengths]
        error = [abs(lead[0, 0] / exact[0, 0] - 1.0) for exact, lead in pairs]
        fit = linregress(np.log(lengths), np.log(error))
        top = fit.slope + 3.18 * fit.stderr  # Student's t of 5 points
        apart = [
            abs(theory.first_signal(P, T) - theory.leading_signal(P, T)).max() for T in lengths[:4]
        ]
        checks += [
            Check(f"k = {k}: exponent", -0.5, top),
            Check(f"k = {k}: signal", 3e-3, np.max(apart)),
        ]
        number = fit.slope
        notes.append(
            f"k = {k}: exponent {fit.slope:.2f} ± {fit.stderr:.2f}, errors "
            f"{listed(error, '.3f')}; signal within {max(apart):.4f}"
        )
    return Measurement(*checks, number=float(number), note="; ".join(notes))

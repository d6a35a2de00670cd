"""Separate key and query: plateaus, the order of the components, and when each is learned."""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from attnlab import predict
from attnlab.auditing import Measurement, claim
from attnlab.auditing.fit import listed
from attnlab.simulation import Simulation
from attnlab.theory import Check
from attnlab.theory.relation import ABOVE, AT_MOST, EQUAL, LEADING

from .. import theory
from ..measures import dwell, first_crossing, purity
from ..model import LinearAttention
from ..runs import Results, flow, geometric, starts_of, weights_of
from ..task import InContextRegression
from .merged import with_error
from .population import PUBLISHED, REGRESSION, of_size

EIGHT = InContextRegression(tuple((np.arange(8.0, 0.0, -1.0) / 36).tolist()))
STARTS = 20
HEADS, RANKS = (1, 2, 3, 4), (2, 4, 8)
ALIGNED = 0.02  # v, |k| and |q| of a head along one eigenvector
CLOSE, LONG = 0.004, 0.1  # of a level; of log time on a conspicuous plateau
DRAWN = 200  # starts whose times are predicted


def staircases(std: float = 0.01, last: float = 1e5, seeds: int = STARTS) -> Simulation:
    """Return the flow of five heads of rank 1 on the published task."""
    at = geometric(last / 2000, last, 1000)
    return flow(PUBLISHED, LinearAttention(5, 1, std), at, seeds=seeds)


def eight(std: float, last: float, *, rank: int = 1, seeds: int = 10) -> Simulation:
    """Return the flow of nine heads in eight dimensions."""
    return flow(EIGHT, LinearAttention(9, rank, std), geometric(last / 2000, last, 500), seeds=seeds)


def few(heads: int) -> Simulation:
    """Return the flow of this number of heads, to its end."""
    at = [0.0, 2e5]
    return flow(PUBLISHED, LinearAttention(heads, 1, 0.01), at, seeds=5)


def one_head() -> Simulation:
    """Return the flow of a head along the second eigenvector, to high accuracy."""
    k = ALIGNED * np.eye(4)[1][None, None]
    start = {"value": np.array([ALIGNED]), "key": k, "query": k}
    at = np.linspace(0.0, 1000.0, 41).tolist()
    return flow(PUBLISHED, LinearAttention(1, 1), at, seeds=1, init=start, rtol=1e-11)


def learned_at(found: object) -> NDArray[np.float64]:
    """Return when half of each component is learned, (seed, component)."""
    learned = found["learned"].transpose("time", "seed", "component")  # type: ignore[index]
    return first_crossing(learned["time"], learned)


def in_order(found: object) -> NDArray[np.bool_]:
    """Return which seeds learn components in order; those not learned in time count as last."""
    times = learned_at(found)
    return np.all((times[:, 1:] > times[:, :-1]) | np.isinf(times[:, 1:]), axis=1)


def winners(found: object) -> NDArray[np.float64]:
    """Return the purity of the keys that learn a component at the end, (seed, head that does)."""
    v, k, q = (weights_of(found, name)[:, -1] for name in ("value", "key", "query"))  # type: ignore[arg-type]
    share = np.abs(v[:, :, None] * k[:, :, 0] * q[:, :, 0]).argmax(1)
    return purity(np.take_along_axis(k[:, :, 0], share[..., None], 1))


def drawn_times(heads: int) -> NDArray[np.float64]:
    """Return predicted times of components from drawn starts of std 0.01, (start, component)."""
    rng, shape = np.random.default_rng(0), (heads, 1, 4)
    starts = [
        theory.Separate(*(0.01 * rng.normal(size=of) for of in (heads, shape, shape)))
        for _ in range(DRAWN)
    ]
    return np.array([theory.staircase_times(REGRESSION, start) for start in starts])


@claim(
    "icl-levels",
    sources="Linear ICL, Eq. 19",
    statement=r"The loss rests on the plateaus $L(M_m) = \operatorname{tr}\Lambda - \sum_{d \le m} "
    r"\lambda_d (1 + (1 + \operatorname{tr}\Lambda/\lambda_d)/N)^{-1}$",
    relation=AT_MOST,
    tolerance=1e-4,
    runs={"flow": staircases},
    code=("plateau_losses", "plateau_matrix", "fixed_points"),
    test="tests/papers/linear_icl/test_theory.py::"
    "test_plateaus_are_the_published_ones_with_31_examples_and_not_with_32",
    figure="staircase",
    training_number="every level is met to {:.0e}, from 20 starts",
)
def levels(found: Results) -> Measurement:
    """Measure the least distance of the loss to each level, in 20 flows from std 0.01."""
    loss = found["flow"]["loss"].transpose("time", "seed").values
    apart = np.abs(loss[..., None] - theory.plateau_losses(REGRESSION)).min(0)
    return Measurement(
        Check("distance to each level", 0.0, apart, relative=False, training=True),
        training_number=apart.max(),
    )


@claim(
    "icl-order",
    sources="Linear ICL, separate key and query",
    statement=r"Components are learned in the order of their eigenvalues",
    relation=EQUAL,
    in_parts=True,
    runs={
        "0.3": partial(staircases, 0.3, 2e4),
        "0.01": staircases,
        "0.001": partial(staircases, 0.001, 1e5, 10),
        "8: 0.005": partial(eight, 0.005, 1e5),
        "8: 0.0002": partial(eight, 2e-4, 5e5),
    },
    test="tests/papers/linear_icl/test_theory.py::test_components_are_learned_in_order_and_on_time",
    figure="spectra",
    training_number="4:3:2:1 in {:.0%} of starts of std 0.01; asymptotic in the start",
)
def order(found: Results) -> Measurement:
    """Count the flows that learn half of each component in order: 4:3:2:1 from std 0.3 and 0.01
    (20 starts) and 0.001 (10, to the third or fourth component), 8:...:1 with nine heads from std
    0.005 and 0.0002 (10 starts, to the fifth component or so).
    """
    kept = {name: in_order(of) for name, of in found.items()}
    return Measurement(
        *(Check(name, 1.0, float(of.mean()), training=True) for name, of in kept.items()),
        training_number=float(kept["0.01"].mean()),
        note="in order: "
        + "; ".join(f"{of.sum()} of {of.size} at std {name}" for name, of in kept.items())
        + " (8: of eight dimensions)",
    )


@claim(
    "icl-scalar",
    sources="Linear ICL, Eq. 21",
    statement=r"The head that learns $e_m$ follows $\dot v = \lambda_m^2 v^2 - \lambda_m^2 "
    r"\gamma_m v^5$ where it is aligned and balanced",
    relation=EQUAL,
    tolerance=1e-8,
    runs={"aligned": one_head, "random": staircases},
    code=("head_curve", "head_time"),
    test="tests/papers/linear_icl/test_theory.py::test_an_aligned_head_follows_the_scalar_equation",
    figure="staircase",
    number="to {:.0e} of v",
    training_number="heads from random starts end with purity {:.4f} (median)",
)
def scalar(found: Results) -> Measurement:
    """Compare v and |k| of a head along the second eigenvector with the equation; and measure the
    purity max k_d^2/|k|^2 at the end of the heads that learn, from 20 random starts; above 0.8.
    """
    aligned = found["aligned"].isel(seed=0)
    v = theory.head_curve(REGRESSION, 1, aligned["time"].values, v0=ALIGNED).v
    run = [weights_of(found["aligned"], name)[0] for name in ("value", "key")]
    gap = max(np.abs(run[0][:, 0] - v).max(), np.abs(run[1][:, 0, 0, 1] - v).max())
    pure = winners(found["random"])
    return Measurement(
        Check("v", v, run[0][:, 0]),
        Check("|k|", v, run[1][:, 0, 0, 1]),
        Check("purity", 0.8, pure, ABOVE, tolerance=0.0, training=True),
        number=gap,
        training_number=np.median(pure),
        note=f"purity from std 0.01: median {np.median(pure):.5f}, least {pure.min():.2f}",
    )


@claim(
    "icl-duration",
    sources="Linear ICL, separate key and query",
    statement=r"The time to learn $e_m$ goes as $\lambda_m^{-2}$",
    relation=LEADING,
    tolerance=0.25,
    in_parts=True,
    runs={"flow": staircases},
    code=("head_time", "staircase_times"),
    test="tests/papers/linear_icl/test_theory.py::test_mean_times_are_those_measured",
    number="with 5 heads the fourth takes {:.2f} times what lambda^-2 says",
    training_number="mean time of the fourth component: {:.0f}",
)
def duration(found: Results) -> Measurement:
    """Compare mean times over that of the first component with lambda^-2, to a quarter: predicted
    from 200 starts of std 0.01 (`staircase_times`), for 5 and 40 heads, and of 20 flows. The law is
    that of heads with equal v; which head is next is a matter of its start, and later ones had
    less.
    """
    law = (REGRESSION.eigenvalues[0] / REGRESSION.eigenvalues) ** 2

    def over(times: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(times.mean(0) / times[:, 0].mean() / law)

    times = learned_at(found["flow"])
    said = {heads: drawn_times(heads) for heads in (5, 40)}
    without = [over(np.delete(said[5], i, 0)) for i in range(DRAWN)]
    error = np.sqrt((DRAWN - 1) * np.var(without, axis=0))
    checks = [
        Check(f"component {d + 1}", 1.0, over(said[5])[d], LEADING) for d in range(1, law.size)
    ]
    checks += [
        Check(f"component {d + 1}, flow", 1.0, over(times)[d], training=True)
        for d in range(1, law.size)
    ]
    spread = times.std(0, ddof=1)
    return Measurement(
        *checks,
        number=over(said[5])[-1],
        training_number=times.mean(0)[-1],
        note=f"mean times of 20 flows {listed(times.mean(0), '.0f')} (standard errors "
        f"{listed(spread / np.sqrt(len(times)), '.0f')}; a start varies by "
        f"{listed(100 * spread / times.mean(0), '.0f')} %); predicted, over lambda^-2: "
        f"{listed(over(said[5]), '.2f')} with 5 heads (± {listed(error, '.2f')}), "
        f"{listed(over(said[40]), '.2f')} with 40",
    )


@claim(
    "icl-heads",
    sources="Linear ICL, separate key and query",
    statement=r"With $H < D$ heads of rank 1 the loss ends at $L(M_H)$",
    relation=AT_MOST,
    tolerance=1e-6,
    runs={f"{heads}": partial(few, heads) for heads in HEADS},
    code=("plateau_losses",),
    test="tests/papers/linear_icl/test_theory.py::test_fewer_heads_stop_on_their_plateau",
    training_number="losses at the end are those levels to {:.0e}",
)
def heads(found: Results) -> Measurement:
    """Compare the loss at t = 2 10^5 with the level, for H = 1, 2, 3 and 4, 5 starts each."""
    levels = theory.plateau_losses(REGRESSION)
    gaps = {H: np.abs(found[f"{H}"]["loss"].isel(time=-1).values - levels[H]) for H in HEADS}
    return Measurement(
        *(Check(f"H = {H}", 0.0, gap, relative=False, training=True) for H, gap in gaps.items()),
        training_number=max(gap.max() for gap in gaps.values()),
    )


@claim(
    "icl-rank",
    sources="Linear ICL, separate key and query; the print says that m divides R",
    statement=r"With rank $R$ plateaus are conspicuous only where $m$ divides $R$",
    relation=EQUAL,
    tolerance=0.0,
    runs={f"{rank}": partial(eight, 0.005, 1e5, rank=rank, seeds=5) for rank in RANKS},
    code=("plateau_losses",),
    test="tests/papers/linear_icl/test_theory.py::"
    "test_only_plateaus_that_the_rank_divides_grow_as_the_start_shrinks",
    figure="ranks",
    training_number="time on plateaus that R divides is {:.1f} times that on others",
)
def rank(found: Results) -> Measurement:
    """Measure the dwell in log time within 0.004 of each level, D = 8, std 0.005, mean of 5 starts;
    above 0.1 is conspicuous. Corrected: m is a multiple of R.
    """
    one = theory.Regression(EIGHT.spectrum, EIGHT.examples)
    m, means = np.arange(1, 8), {}
    for R in RANKS:
        run = found[f"{R}"].isel(time=slice(1, None))
        each = [
            dwell(np.log(run["time"]), loss, theory.plateau_losses(one)[1:-1], within=CLOSE)
            for loss in run["loss"].transpose("seed", "time").values
        ]
        means[R] = np.mean(each, axis=0)
    rest = {R: of > LONG for R, of in means.items()}
    divides = np.concatenate([m % R == 0 for R in RANKS])
    times = np.concatenate(list(means.values()))
    checks = [
        Check(f"R = {R}", (R % m == 0).astype(float), of.astype(float), relative=False, training=True)
        for R, of in rest.items()
    ]
    checks += [
        Check(
            f"R = {R}, R divides m",
            (m % R == 0).astype(float),
            of.astype(float),
            relative=False,
            form="corrected",
            training=True,
        )
        for R, of in rest.items()
    ]
    return Measurement(
        *checks,
        training_number=times[divides].min() / times[~divides].max(),
        note="dwell in log time at m = 1 to 7: "
        + "; ".join(f"R = {R}: {listed(of, '.2f')}" for R, of in means.items()),
    )


@claim(
    "icl-first-escape",
    sources="Linear ICL does not have it",
    statement=r"The first component is learned when the first head blows up, at the least "
    r"$t^* = \int_0^\infty dV/v(V)$ over heads",
    relation=LEADING,
    tolerance=0.1,
    reading="ours",
    ours=True,
    runs={"flow": staircases},
    code=("blow_up_times", "staircase_times"),
    test="tests/papers/linear_icl/test_theory.py::test_heads_blow_up_when_their_equation_does",
    training_number="half of it is learned at {:.3f} of the least t* (mean of 20 starts)",
)
def first_escape(found: Results) -> Measurement:
    """Compare with when half of the first component is learned, with nothing fitted, from 20
    starts of std 0.01; and (corrected) less the time from half to infinity, to 0.5 %.
    """
    starts, first = starts_of(found["flow"]), learned_at(found["flow"])[:, 0]
    least = np.array([theory.blow_up_times(REGRESSION, of).min() for of in starts])
    half = np.array([theory.staircase_times(REGRESSION, of)[0] for of in starts])
    return Measurement(
        Check("least t*", least, first, training=True),
        Check("less the rest", half, first, tolerance=5e-3, form="corrected", training=True),
        training_number=(first / least).mean(),
        note=f"measured over least t*: {with_error(first / least, '.4f')}, sd "
        f"{(first / least).std(ddof=1):.3f}; over that less the rest: "
        f"{with_error(first / half, '.5f')}",
    )


@claim(
    "icl-theories",
    sources="Linear ICL does not ask",
    statement="Every theory, with nothing fitted, is a tenth as far from training as if nothing "
    "moved",
    relation=AT_MOST,
    tolerance=0.1,
    reading="ours",
    ours=True,
    runs={"separate": partial(staircases, 0.01, 1e5, 5), "merged": partial(of_size, 5000)},
    code=("staircase_curve", "one_head_curve", "separate_flow", "merged_flow"),
    test="tests/papers/linear_icl/test_predict.py::test_each_level_comes_nearer",
    training_number="the worst is {:.3f} as far",
)
def theories(found: Results) -> Measurement:
    """Predict and train; the mean error of how far components are learned, over records, seeds and
    components, beside that of "nothing moves". Separate key and query in the population, from
    t = 50 in log time; merged on 5000 sequences, over 6001 steps.
    """
    runs = {"separate": staircases(0.01, 1e5, 5), "merged": of_size(5000)}
    of = {"separate": ("icl-staircase", "icl-population"), "merged": ("icl-one-head", "icl-population")}
    errors = {}
    for name, run in runs.items():
        learned = found[name]["learned"]
        still = float(abs(learned - learned.isel({run.clock: 0})).mean())
        for level in of[name]:
            said = predict(run, theory=level)["learned"]
            errors[f"{level}, {name}"] = float(abs(said - learned).mean()) / still
    return Measurement(
        *(Check(name, 0.0, err, relative=False, training=True) for name, err in errors.items()),
        training_number=max(errors.values()),
        note="error over that of nothing moves, no number fitted: "
        + "; ".join(f"{name} {err:.2g}" for name, err in errors.items()),
    )

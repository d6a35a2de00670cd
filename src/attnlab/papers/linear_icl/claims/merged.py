"""Merged key and query: two fixed points, one drop, and how long the drop takes."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlab.auditing import Measurement, claim
from attnlab.auditing.fit import listed
from attnlab.auditing.runs import assumed
from attnlab.experiments import mean
from attnlab.experiments.estimate import means
from attnlab.simulation import Simulation
from attnlab.theory import Check, Trained
from attnlab.theory.relation import AT_MOST, EQUAL, LEADING

from .. import theory
from ..model import LinearAttention
from ..predict import OneHead, White
from ..runs import Results, crossed, flow, geometric, gone, starts_of
from ..task import InContextRegression
from .population import PUBLISHED, REGRESSION, all_sizes, far_starts, of_size, of_sizes

TINY = 1e-6 * np.sqrt(31)  # the published start, in our units
WHITE = InContextRegression((0.25,) * 4)
ALIGNED = 0.01  # norm of each layer where the start is balanced and along I
SHARES = (0.5, 0.9, 0.99)
EXPONENTS = np.linspace(0.7, 1.0, 7)  # of spectra around that whose tail is as long as its wait


def steep(exponent: float, dimensions: int, examples: int = 31) -> InContextRegression:
    """Return the task whose spectrum is lambda_d ~ d^-exponent, of trace 1."""
    falling = np.arange(1.0, dimensions + 1) ** -exponent
    return InContextRegression(tuple((falling / falling.sum()).tolist()), examples)


SPECTRA = {
    "white": WHITE,
    "4:3:2:1": PUBLISHED,
    "1/d^2, D = 4": steep(2.0, 4),
    "1/d^2, D = 8": steep(2.0, 8),
}
TRAINED = tuple(list(SPECTRA)[:3])


def random_start() -> Simulation:
    """Return the flow from the published start, with its tail, for three spectra at once."""
    at = geometric(10.0, 2500.0, 300)
    others = tuple(SPECTRA[name] for name in TRAINED[1:])
    return flow(WHITE, LinearAttention(8, std=TINY), at, seeds=10, beside=others)


def aligned() -> Simulation:
    """Return the flow of white inputs from one head along I, to high accuracy."""
    start = {"value": np.array([ALIGNED]), "key_query": ALIGNED * np.eye(4)[None] / 2}
    at = np.linspace(0.0, 150.0, 31).tolist()
    return flow(WHITE, LinearAttention(1), at, seeds=1, init=start, rtol=1e-11)


def tails(task: InContextRegression, seeds: int = 10) -> NDArray[np.float64]:
    """Return (t_99 - t_50)/t_50 of published starts, (seeds,)."""
    rng, one, D = np.random.default_rng(0), task.regression, len(task.spectrum)
    start = theory.Merged(*(TINY * rng.normal(size=(seeds, 8, *of)) for of in ((), (D, D))))
    return tail(theory.drop_times(one, theory.growing_start(one, start), SHARES).T)


def tail(times: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the tail over the wait of times at which `SHARES` are gone, (share, ...)."""
    return np.asarray((times[2] - times[0]) / times[0])


@claim(
    AT_MOST,
    id="icl-two-fixed-points",
    sources="Linear ICL, merged key and query",
    tolerance=1e-5,
    runs={"flow": far_starts},
)
def two_fixed_points(found: Results) -> Measurement:
    r"""The flow of merged attention has two fixed points in function space, $A = 0$ and $A =
    \Gamma^{-1}$.

    Take the drive at both; and follow 40 starts far from zero. If some v_i is not 0 at a fixed
    point, U_i' = v_i G is 0 only for G = 0, and G is linear in A; if all v_i are 0, so is A.
    """
    best = theory.optimum(REGRESSION)
    still = np.abs(theory.drive(REGRESSION, best)).max()
    off = np.abs(found["flow"]["matrix"].isel(time=-1).values - best).max()
    return Measurement(
        Check("drive at the inverse of Gamma", 0.0, still, relative=False, tolerance=1e-12),
        Trained("distance of A from it at the end", 0.0, off, relative=False),
        number=max(still, 1e-17),
        training_number=off,
    )


@claim(
    AT_MOST,
    id="icl-one-drop",
    sources="Linear ICL, merged key and query",
    reading="as we know it",
    runs={"flow": random_start},
    in_parts=True,
)
def one_drop(found: Results) -> Measurement:
    """The loss of merged attention falls in a single abrupt drop, for any spectrum.

    Measure (t_99 - t_50)/t_50, the tail over the wait, from the published start; a drop is abrupt
    where it is at most 1. For 10 starts: of one head along Lambda^2, and of the flow. The tail does
    not depend on the start, the wait grows as its logarithm.
    """
    lost = gone(found["flow"])
    times = np.array([crossed(lost, share).transpose("setting", "seed") for share in SHARES])
    trained = dict(zip(TRAINED, tail(times), strict=True))
    said = {name: tails(of) for name, of in SPECTRA.items()}
    near = np.log([tails(steep(exponent, 4)) for exponent in EXPONENTS])
    edge = np.array([np.interp(0.0, of, EXPONENTS) for of in near.T])
    return Measurement(
        *(Check(name, 1.0, of) for name, of in said.items()),
        *(Trained(name, 1.0, of) for name, of in trained.items()),
        number=edge.mean(),
        training_number=trained["white"].mean(),
        note=f"tail over wait, of one head along Lambda^2: {means(said)}; of the flow: "
        f"{means(trained)}; it is 1 at lambda_d ~ d^-a with a = {mean(edge)}",
    )


@claim(
    LEADING,
    id="icl-escape-time",
    sources="Linear ICL, merged key and query",
    tolerance=0.15,
    runs={"descent": all_sizes, "flow": random_start},
    hypotheses=(assumed(OneHead(), partial(of_size, 5000)),),
)
def escape_time(found: Results) -> Measurement:
    r"""The drop comes at about $\lVert\Lambda^2\rVert_F^{-1}\ln(1/w_{init})$, as weights grow at
    the rate $\lVert\Lambda^2\rVert_F$.

    Compare with the step at which half of the loss is gone (P = 5000, 4 seeds), with w the norm of
    the value layer. Corrected (ours): from the growing part of the start, to 6 %. The rate is half
    the slope of ln |A|, fitted from t = 35 to 50.
    """
    per_step, _ = theory.released_clock(1, learning_rate=1e-3, examples=31, factors=2)
    run = of_sizes(found["descent"], 5000)
    halves = crossed(gone(run))
    layers = {
        name: float(theory.escape_time(REGRESSION, np.sqrt(size) * TINY)) / float(per_step)
        for name, size in (("value", 8), ("key_query", 128))
    }
    published = found["flow"].isel(setting=TRAINED.index("4:3:2:1"))
    sizes = (published["matrix"] ** 2).sum(["context_input", "query_input"]) ** 0.5
    early = sizes.sel(time=slice(35.0, 50.0)).transpose("seed", "time")
    rates = np.polyfit(early["time"], np.log(early.values).T, 1)[0] / 2
    norms = theory.growing_start(REGRESSION, starts_of(run))
    ours = theory.drop_times(REGRESSION, norms, 0.5)[:, 0] / per_step
    return Measurement(
        Check("growth rate", theory.escape_rate(REGRESSION), rates, tolerance=0.03),
        Trained("by the value layer", layers["value"], halves.values),
        Trained("ours: by the growing part", ours, halves.values, tolerance=0.06, form="corrected"),
        number=layers["value"],
        training_number=float(halves.mean()),
        note=f"half of the drop at {mean(halves.values):.0f} steps "
        f"({listed(halves.values, '.0f')}); by the norm of the value layer "
        f"{layers['value']:.0f}, of the layer of U {layers['key_query']:.0f}; by the growing part "
        f"of each start {listed(ours, '.0f')}",
    )


@claim(
    EQUAL,
    id="icl-white-curve",
    sources="Linear ICL, Eq. 10",
    tolerance=1e-8,
    runs={"aligned": aligned, "random": random_start},
    hypotheses=(assumed(White(), aligned),),
)
def white_curve(found: Results) -> Measurement:
    r"""White inputs, balanced start along $I$: $A = a(t) I$, $a = e^s/(\gamma (e^s - 1) +
    \sqrt{D}/m_0)$, $s = 2\sqrt{D}\lambda^2 t$.

    Compare with the flow of one head along I, and (corrected) with 10 random starts of std 5.6e-6,
    of each its growing part; there A is not exactly along I, and 1e-3 is allowed.
    """
    one = WHITE.regression
    how: dict[str, Any] = {"dimensions": 4, "examples": 31, "variance": 0.25}
    run, random = found["aligned"].isel(seed=0), found["random"].isel(setting=0)
    a = theory.white_curve(run["time"].values, **how, norm=ALIGNED)
    diagonal = random["learned"].transpose("seed", "time", "component").values
    norms = theory.growing_start(one, starts_of(random))
    curves = theory.white_curve(random["time"].values, **how, norm=norms[:, None])
    off = np.abs(diagonal - one.gamma[0] * curves[..., None]).max()
    return Measurement(
        Check("A", a[:, None, None] * np.eye(4), run["matrix"].values, relative=False),
        Trained("gamma a from random starts", 0.0, off, relative=False, tolerance=1e-3),
        training_number=off,
    )

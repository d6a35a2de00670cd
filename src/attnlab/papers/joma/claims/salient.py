"""Claims 3 and 4: salient tokens first, the rest later; sparse, then dense."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from attnlab import measures
from attnlab.auditing.claim import Claim, Measurement, OnRecord
from attnlab.auditing.verdict import Verdict
from attnlab.papers.joma import theory
from attnlab.papers.joma.claims.runs import PAIRS, trained_long
from attnlab.papers.joma.model import Joint
from attnlab.theory.case import Case
from attnlab.theory.comparison import Check
from attnlab.theory.relation import ABOVE, AT_MOST, BELOW, LEADING

# Theorem 4's picture, as we know it: 5,000 steps of 0.02 from 0.05.
START, DRAWN = 0.05, 100.0
SETTLED = 0.01  # by which |v| may still grow in the last decade of time, if it tends to a mu
NONLINEAR = replace(PAIRS, model=Joint(hidden=16, activation="gelu"))


def _centres(seed: int, count: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.sort(np.random.default_rng(seed).uniform(1.0, 4.0, count))


def _pull(case: Case) -> Measurement:
    return Measurement(())


pull = Claim(
    id="joma-pull",
    statement="A nonlinear activation on mixture data gives v' = (mu - v) * exp(v^2/2)",
    latex=r"A nonlinear activation on mixture data gives $\dot v = (\mu - v) \circ \exp(v^2/2)$",
    source="JoMA, claim 3, as we read it",
    relation=LEADING,
    case=NONLINEAR,
    predicts="nothing that we could derive: as we read it, the step is a heuristic",
    measures="nothing: its conditions on data and activation are not known to us",
    because="nothing is compared",
    code=("salient_flow",),
    test="tests/theory/test_salient.py::test_it_solves_its_equation",
    number="a heuristic, which we cannot derive; with cross entropy v has no mu: joma-dip",
    recorded=OnRecord(Verdict.UNDECIDED),
    measure=_pull,
)


def _ratio(case: Case) -> Measurement:
    mu = _centres(0, 10)
    t = np.array([DRAWN, 10 * DRAWN, 100 * DRAWN])
    y = theory.salient_flow(mu, t, v0=START).closeness
    limit = theory.salient_ratio(mu[-1], mu[0])
    ratio = y[:, -1] / y[:, 0]
    rate = np.polyfit(np.log(t), np.log(np.abs(ratio / limit - 1.0)), 1)[0]
    return Measurement(
        (
            Check("ratio at t = 10^4", limit, ratio[-1]),
            Check("exponent of its error", -1.0, rate, tolerance=0.1),
        ),
        number=float(ratio[0] / limit),
        note=f"mu from {mu[0]:.2f} to {mu[-1]:.2f}: the limit {limit:.4g} is approached as t^"
        f"{rate:.2f}",
    )


ratio = Claim(
    id="joma-ratio",
    statement="ln(1/delta)/ln(1/delta') tends to exp((mu^2 - mu'^2)/2): salient tokens come first",
    latex=(
        r"With $\delta_l = 1 - v_l/\mu_l$: $\frac{\ln(1/\delta_l)}{\ln(1/\delta_{l'})} \to "
        r"\exp((\mu_l^2 - \mu_{l'}^2)/2)$: salient tokens come first"
    ),
    source="JoMA, claim 4 (its Theorem 4), as we read it; re-derived",
    relation=LEADING,
    case=NONLINEAR,
    predicts="the limit, approached as 1/t; the constant of 1/t is ours, the order may not be",
    measures="v' = (mu - v) exp(v^2/2), for ten mu in U(1, 4) as in the paper's picture",
    tolerance=0.01,
    because="1/t of the last time",
    code=("salient_flow", "salient_ratio", "salient_lag"),
    test="tests/theory/test_salient.py::test_the_ratio_is_reached_as_one_over_time",
    number="at the end of the paper's picture, t = 100, the ratio is {:.3f} of its limit",
    recorded=OnRecord(Verdict.HOLDS, 1.0009),
    measure=_ratio,
)


def _dip(case: Case) -> Measurement:
    found = [theory.entropy_dip(_centres(seed, 10), v0=START) for seed in range(20)]
    start, low, end = (np.array([getattr(of, name) for of in found])
                       for name in ("start", "lowest", "end"))  # fmt: skip
    run = trained_long(case, ((1.0, 0.3), (1.0, 1.0), (1.0, 3.0)))
    H = measures.entropy(run).mean("sequence_class").transpose("run", "time").values
    squares = (run["mlp_weights"] ** 2).sum(["unit", "token"])
    size = np.sqrt(squares.transpose("run", "time").values)
    decade = run["time"].values >= run["time"].values[-1] / 10
    grown = size[:, -1] / size[:, decade][:, 0] - 1.0
    rise = H[:, -1] - H.min(1)
    return Measurement(
        (
            Check("lowest against the start", start, low, BELOW),
            Check("lowest against the end", end, low, BELOW),
            Check("the end above the lowest", 0.0, rise, ABOVE, relative=False, training=True),
            Check("growth of |v| in the last decade: is there a mu?", SETTLED, grown, AT_MOST,
                  relative=False, form="premise", training=True),
        ),
        number=float(np.mean(end - low)),
        training_number=float(rise.max()),
        note=f"GELU, 16 hidden units, cross entropy: entropy falls from {H[0, 0]:.2f} to "
        + ", ".join(f"{h:.2f}" for h in H[:, -1])
        + " at eta_z = 0.3, 1, 3 and does not rise by t = 10^4; |v| still grows, by "
        + ", ".join(f"{g:.2f}" for g in grown) + " in the last decade: it tends to no mu",
    )  # fmt: skip


dip = Claim(
    id="joma-dip",
    statement="From an equal start, 0 <= v(0) < min mu: entropy falls, then rises (sparse, dense)",
    latex=(
        r"From an equal start, $0 \le v(0) < \min \mu$: the entropy of attention, "
        r"$\operatorname{softmax}(v^2/2)$, falls, then rises: sparse, then dense"
    ),
    source="JoMA, claim 4, as we read it; re-derived; the condition on v(0) is ours",
    relation=BELOW,
    case=NONLINEAR,
    predicts="v' = (mu - v) exp(v^2/2), not all mu equal: entropy ends above its lowest",
    measures="20 draws of ten mu; the flow of Joint, one layer, cross entropy, to t = 10^4",
    because="an order",
    code=("entropy_dip", "salient_entropy"),
    test="tests/theory/test_salient.py::test_entropy_dips_from_an_equal_start_below_every_mu",
    number="it ends {:.2f} above its lowest (mean over 20 draws of mu)",
    training_number="with cross entropy v has no mu: it rises by {:.2g} up to t = 10^4",
    recorded=OnRecord(Verdict.HOLDS, 0.865, Verdict.PREMISE, 0.0),
    measure=_dip,
)


def _rank(case: Case) -> Measurement:
    run = trained_long(case, ((1.0, 0.3), (1.0, 1.0), (1.0, 3.0)))
    rank = measures.stable_rank(run).transpose("run", "time").values
    low = rank.min(1)
    after = np.array([of[of.argmin() :].max() for of in rank])
    return Measurement(
        (
            Check("lowest against the start", rank[:, 0], low, BELOW, training=True),
            Check("later against the lowest", low, after, ABOVE, training=True),
        ),
        training_number=float((after - low).max()),
        note="stable rank at the start, at its lowest and at its highest after that: "
        + "; ".join(f"{a:.2f}, {b:.2f}, {c:.2f}"
                    for a, b, c in zip(rank[:, 0], low, after, strict=True))
        + " (eta_z = 0.3, 1, 3)",
    )  # fmt: skip


rank = Claim(
    id="joma-rank",
    statement="The stable rank of the MLP's lower matrix falls, then rises",
    latex=(
        r"The stable rank of the MLP's lower matrix, $\lVert W \rVert_F^2/\lVert W \rVert_2^2$, "
        r"falls, then rises"
    ),
    source="JoMA, claim 4, as we read it",
    relation=BELOW,
    case=NONLINEAR,
    predicts="a rank that is lowest in between",
    measures="the flow of Joint (GELU, 16 hidden units, from N(0, 1)/100) to t = 10^4",
    because="an order",
    code=("stable_rank",),
    test="tests/theory/test_salient.py::test_stable_rank_of_known_matrices",
    training_number="it falls and rises again, by {:.2f} at most",
    recorded=OnRecord(None, None, Verdict.HOLDS, 0.7093),
    measure=_rank,
)

CLAIMS = (pull, ratio, dip, rank)

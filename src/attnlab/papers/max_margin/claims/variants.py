"""Other parameters and tokens: K and Q, several tokens, and one-hot tokens."""

from __future__ import annotations

from functools import partial

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from attnlab.auditing import Measurement, claim
from attnlab.experiments import mean, share
from attnlab.experiments.estimate import means
from attnlab.models import Extended
from attnlab.simulation import Flow, Population, Record, Simulation
from attnlab.tasks.classes import SequenceClasses
from attnlab.theory import Check, Trained
from attnlab.theory.relation import ABOVE, AT_MOST, BELOW, EQUAL

from .. import theory
from ..runs import compared, factors, ranks
from ..several import BY, several_tokens, several_tokens_run
from .direction import published_size

Found = dict[str, xr.Dataset]
RANKS = ((5, 5), (10, 10))  # n and d, T = 5
CERTIFIED = 1e-7  # of the nuclear solution's duality gap

# Two classes of one query: common tokens 0 and 1, two distinct tokens each, and two outputs.
TOKENS = ((0, 1, 2, 3), (0, 1, 4, 5))
QUERY, OUTPUTS, M = 6, (7, 8), 9
COUNTS = {"even": ((1, 1, 1, 1), (1, 1, 1, 1)), "uneven": ((8, 6, 4, 2), (2, 4, 13, 1))}
VALUES = {  # Y_{l,7} - Y_{l,8}: which tokens speak for the next token of their class
    "distinct": (0.2, -0.1, 1.0, 0.5, -0.8, -0.3),
    "common": (0.9, -0.1, 0.5, 0.1, -0.8, -0.3),
}
WINNERS = {"distinct": (2, 4), "common": (0, 4)}  # of the two classes, by their values
LOSERS = [0, 1, 3, 5]  # of both classes, where the winners are distinct
UNUSED = -60.0  # logit of every other output, which leaves two
TIMES = (1e9, 1e10, 1e11)


@claim(ABOVE, sources="T24", runs={"factors": factors}, hypotheses=(published_size,))
def mm_nuclear(found: Found) -> Measurement:
    """Trained $K, Q$ go in direction to the solution of least nuclear norm, not of least Frobenius
    norm.

    Train K and Q for 2,000 released steps, 40 seeds of the published setting, and compare K Q^T
    with both solutions, run by run. Its rank counts singular values above 5% of the largest.
    """
    nuclear, frobenius = (compared(factors(), norm=norm) for norm in ("nuclear", "frobenius"))
    low, short = (of["correlation"].isel(step=-1) for of in (nuclear, frobenius))
    return Measurement(
        Trained("nuclear against Frobenius", short.values, low.values),
        Trained("correlation with the nuclear solution", 0.98, low.values),
        training_number=float(low.mean()),
        note=f"correlation {mean(low)} (least {float(low.min()):.3f}) with the nuclear solution, "
        f"{mean(short)} with the Frobenius one; rank {mean(nuclear['rank'])}, of the nuclear "
        f"solution {mean(nuclear['solution_rank'])}, of the Frobenius one "
        f"{mean(frobenius['solution_rank'])}",
    )


@claim(BELOW, sources="T24, released figure", runs={})
def mm_rank(found: Found) -> Measurement:
    r"""Nuclear solutions have a lower rank than Frobenius ones, whose rank is at most $\min(n, d)$.

    Solve both programmes for the best tokens of 40 instances, T = 5, at n = d = 5 and 10; each
    nuclear solution is certified by its dual. Ours: the Frobenius rank is the number of sequences
    that have a support vector.
    """
    of = {n: ranks(n, d, 40).dropna("seed") for n, d in RANKS}
    return Measurement(
        *(
            check
            for n, each in of.items()
            for check in (
                Check(f"n = {n}: nuclear", each["frobenius"].values, each["nuclear"].values),
                Check(f"n = {n}: gap", CERTIFIED, each["gap"].values),
                Check(f"n = {n}: Frobenius", float(n), each["frobenius"].values, AT_MOST),
                Check(f"n = {n}: pulling", each["pulling"].values, each["frobenius"].values, EQUAL),
            )
        ),
        number=float(of[10]["nuclear"].mean()),
        note="; ".join(
            f"n = d = {n}: nuclear {mean(each['nuclear'])}, Frobenius {mean(each['frobenius'])}"
            for n, each in of.items()
        ),
    )


@claim(
    BELOW,
    sources="T24, released code",
    runs={f"d={d}": partial(several_tokens_run, d) for d in (4, 8)},
)
def mm_multi(found: Found) -> Measurement:
    r"""With a ReLU head, where several tokens keep weight, $W \approx W^{fin} + R\, W^{mm}$: nearer
    than the programme of one token.

    Train n=3, T=4 with a head of 4 ReLUs by released steps, 100 seeds, and keep the instances that
    the released filter keeps. Compare 1 - correlation of W, on average, with W_fin + R W_mm (R is
    fitted), W_mm alone, and the programme of the largest token; the filter's share is part of the
    result.
    """
    of = {d: several_tokens(several_tokens_run(d)) for d in (4, 8)}
    gaps = {d: each["gap"].isel(step=-1)[:, each["kept"].values] for d, each in of.items()}
    return Measurement(
        *(
            Trained(
                f"d = {d}: both parts against {other}",
                float(each.sel(by=other).mean()),
                float(each.sel(by="both parts").mean()),
            )
            for d, each in gaps.items()
            for other in ("margin alone", "one token")
        ),
        training_number=float(gaps[4].sel(by="both parts").mean()),
        note="; ".join(
            f"d = {d}, of the {share(of[d]['kept'])} instances that are kept: "
            + means({name: gap.sel(by=name) for name in BY})
            for d, gap in gaps.items()
        ),
    )


def one_hot(values: str, counts: str) -> Simulation:
    """Two classes of one query with a fixed decoder, in gradient flow."""
    shares = [
        {token: count / sum(row) for token, count in zip(tokens, row, strict=True)}
        for tokens, row in zip(TOKENS, COUNTS[counts], strict=True)
    ]
    classes = SequenceClasses(shares, query=[QUERY] * 2, next_token=list(OUTPUTS), vocab_size=M)
    Y = np.full((1, M, M), UNUSED)
    Y[0, :QUERY, OUTPUTS[0]] = np.array(VALUES[values]) / 2
    Y[0, :QUERY, OUTPUTS[1]] = -Y[0, :QUERY, OUTPUTS[0]]
    return Simulation(
        classes,
        Extended(normalization="none"),
        motion=Flow(TIMES[-1]),
        gradient=Population(),
        eta_y=None,
        eta_z=1.0,
        init={"decoder": Y},
        record=Record("attention_logits", at=TIMES),
        dtype="float64",
    )


@claim(
    EQUAL,
    sources="ours",
    ours=True,
    tolerance=1e-4,
    runs={
        f"{values}, {counts}": partial(one_hot, values, counts)
        for values in VALUES
        for counts in COUNTS
    },
)
def mm_one_hot(found: Found) -> Measurement:
    """On sequence classes with fixed $Y$ the row of $Z$ grows along the programme's solution,
    whatever the frequencies of tokens; losers end equal.

    Train Z of `Extended` without normalisation by gradient flow, with even and uneven token counts,
    where the best token is distinct and where it is common. z is R times the solution plus a
    constant, so its growth from t = 10^9 to 10^11 is compared with `one_hot_margin`, by cosine. The
    tolerance is what frequencies still change at 10^9.
    """
    row = {name: theory.one_hot_margin(TOKENS, winners, QUERY) for name, winners in WINNERS.items()}
    late, grown = {}, {}
    for name, run in found.items():
        said = row[name.split(", ")[0]]
        z = run["attention_logits"].isel(seed=0).values[:, QUERY, :QUERY]
        late[name] = _cosine(z[-1], said)
        grown[name] = _cosine(z[-1] - z[0], said)
        if "distinct" in name:
            spread = np.ptp((z[-1] - z[0])[LOSERS])
    return Measurement(
        Trained("cosine of the growth", 1.0, list(grown.values())),
        Trained("spread of the losers' growth", 0.0, spread, AT_MOST, tolerance=0.05),
        training_number=1 - min(grown.values()),
        note="; ".join(
            f"{name}: 1 - cosine {1 - grown[name]:.1e} of the growth, {1 - late[name]:.1e} of z"
            for name in found
        ),
    )


def _cosine(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    return float(theory.correlation(a[None], b[None]))

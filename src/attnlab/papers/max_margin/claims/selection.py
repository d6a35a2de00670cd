"""Which tokens are selected: locally and globally optimal ones, and where neither exists."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from attnlab.auditing import Measurement, claim
from attnlab.auditing.fit import listed
from attnlab.auditing.runs import assumed
from attnlab.experiments import mean, share
from attnlab.simulation import Simulation
from attnlab.theory import Check, Trained
from attnlab.theory.relation import ABOVE, AT_LEAST, BELOW, EQUAL

from .. import runs, theory
from ..model import CrossAttention, released
from ..predict import MaxMargin
from ..task import Scores
from .direction import published_size

Found = dict[str, xr.Dataset]
LONGER = 16_000  # steps, where 2,000 leave a selection that is not locally optimal
MANY = 300  # seeds: one run in a hundred is left like that
FAR = 10.0  # factor of a start that is far out
WIDTHS = (2, 4, 8, 32)


def many() -> Simulation:
    """The published setting, with more seeds."""
    return runs.descent(runs.PUBLISHED, at=(2000,), seeds=MANY)


def selecting(scores: Scores, scale: float) -> Simulation:
    """Equal or random scores, from W = 0 or from a start that is `scale` times larger."""
    model = replace(runs.EXACT, scale=scale)
    return runs.descent(replace(runs.SMALL, scores=scores), model, at=(3000,), seeds=60)


@claim(EQUAL, sources="T24", in_parts=True, runs={"many": many}, hypotheses=(published_size,))
def mm_local(found: Found) -> Measurement:
    """The selected tokens are locally optimal: no support vector has a higher score.

    Count locally optimal selections after 2,000 steps of 300 runs of the published setting; then
    let the others go on to 16,000 steps, in accurate arithmetic and by the released steps, which
    stop where the gradient is 2.2e-16.
    """
    of = runs.compared(many())
    left = tuple(int(seed) for seed in of["seed"][~of["local"]])
    longer = partial(runs.descent, runs.PUBLISHED, at=(2000, LONGER), seeds=left)
    exact = runs.compared(longer()) if left else of.isel(seed=[])
    usual = CrossAttention(arithmetic="usual")
    stuck = runs.compared(longer(usual, optimizer=released)) if left else exact
    return Measurement(
        Trained("locally optimal at 2,000 steps", True, of["local"].values),
        Trained("the others, at 16,000 steps", True, exact["local"].values),
        training_number=float(of["local"].mean()),
        note=f"{share(of['local'])} ({mean(of['local'].astype(float))}) at 2,000 steps; of the "
        f"{len(left)} others (correlation with their programme "
        f"{listed(of['correlation'].isel(step=-1).sel(seed=list(left)).values, '.3f')}) "
        f"{int((~exact['local']).sum())} are not at 16,000 in accurate arithmetic, and "
        f"{int((~stuck['local']).sum())} by the released steps: it is the experiment that stops "
        "too soon",
    )


@claim(BELOW, sources="T24", runs={"local": runs.local})
def mm_global_not(found: Found) -> Measurement:
    """The selection need not be the globally optimal one.

    Count runs of the published setting that select the highest score in all sequences: a share
    below 1 by more than two errors. Its correlation with the programme of the highest scores.
    """
    of, best = runs.compared(runs.local()), runs.compared(runs.local(), best=True)
    every = mean(runs.all_optimal(of).astype(float))
    tokens = mean(of["optimal"].mean("sequence"))
    correlation = mean(best["correlation"].isel(step=-1))
    return Measurement(
        Trained("share of runs, with two errors", 1.0, every.value + 2 * every.error),
        training_number=every.value,
        note=f"share of runs {every}, of tokens {tokens}; correlation with the programme of the "
        f"highest scores {correlation}",
    )


def stable_wrong(instance: dict[str, NDArray[Any]]) -> NDArray[np.float64] | None:
    """Return W far out along a stable selection with a wrong token, for equal scores; or None.

    A wrong token has the lowest score of its sequence, which then constrains nothing: the programme
    is that of the other sequences, and the wrong token is the one that it puts ahead.
    """
    x, z, scores = (instance[name] for name in ("x", "z", "scores"))
    best, n = scores.argmax(-1), len(z)
    for right in range(1, 2**n - 1):
        kept = np.array([right >> i & 1 for i in range(n)], dtype=bool)
        W = theory.max_margin(x[kept], z[kept], best[kept]).weights
        ahead = np.einsum("ntd,dk,nk->nt", x, W, z).argmax(-1)
        selected = np.where(kept, best, ahead)
        pulled = theory.pulled_margin(x, z, scores, selected)
        if (ahead != best)[~kept].all() and theory.stays_selected(scores, selected, pulled):
            return FAR * FAR * pulled.weights
    return None


SELECTING = {
    (scores, scale): partial(selecting, scores, scale)
    for scores in ("equal", "random")
    for scale in (0.0, FAR)
}


@claim(
    EQUAL,
    sources="T24",
    in_parts=True,
    runs={f"{scores}, {scale:g}": run for (scores, scale), run in SELECTING.items()},
    hypotheses=(assumed(MaxMargin(), SELECTING["equal", 0.0]),),
)
def mm_equal_scores(found: Found) -> Measurement:
    """If all tokens of a sequence but the best have the same score, every start leads to
    $W^{mm}_{opt}$.

    Count runs that select the best tokens, n=4, T=5, d=8, 60 seeds, from W = 0 and from ten times
    the usual start. Then look for a stable selection with a wrong token, in a sequence that the
    programme of the others decides, and train from far out along it.
    """
    reached = {
        setting: runs.all_optimal(runs.compared(run())) for setting, run in SELECTING.items()
    }
    run = selecting("equal", 0.0)
    stable = xr.zeros_like(reached["equal", 0.0], dtype=float)
    for seed, of in enumerate(runs.instances(run)):
        if (W := stable_wrong(of)) is not None:
            start = replace(run, seeds=(seed,), init={"attention": W})
            stable[seed] = not runs.all_optimal(runs.compared(start)).item()
    return Measurement(
        *(
            Trained(f"equal scores, start {scale:g}", True, reached["equal", scale].values)
            for scale in (0.0, FAR)
        ),
        Trained("runs that a start can keep from the best", 0.0, stable.values),
        training_number=float(reached["random", 0.0].mean()),
        note="; ".join(
            f"{scores} scores, start {scale:g}: {share(of)}"
            for (scores, scale), of in reached.items()
        )
        + f"; {share(stable)} instances with equal scores ({mean(stable)}) have a selection with a "
        f"wrong token that training from far out keeps",
    )


@claim(ABOVE, sources="T23, T24", runs={f"d={d}": partial(runs.wide, d, 100) for d in WIDTHS})
def mm_overparameterised(found: Found) -> Measurement:
    """Larger $d$ is benign: from $W = 0$ training comes to select the best tokens.

    Count runs that select the best tokens, that are only locally optimal, and neither, n=4, T=5,
    100 seeds at each d, after 2,000 steps: the share of the first must rise from d = 2 to 4, 8 and
    32.
    """
    parts = {d: runs.kinds(runs.wide(d, 100)) for d in WIDTHS}
    best = {d: mean(of["global"].astype(float)) for d, of in parts.items()}
    rise = np.diff([of.value for of in best.values()])
    return Measurement(
        Trained("rise of the share with d", 0.0, rise),
        Trained("share at d = 32", 0.95, best[32].value, AT_LEAST),
        training_number=best[32].value,
        note="; ".join(
            f"d={d}: "
            + ", ".join(f"{int(of[kind].sum())} {kind}" for kind in ("global", "local", "neither"))
            + f" ({best[d]} global)"
            for d, of in parts.items()
        ),
    )


@claim(EQUAL, sources="T23, T24", runs={})
def mm_feasible(found: Found) -> Measurement:
    r"""The programme has a solution for almost all data if $d \ge \max(T - 1, n)$.

    Solve the programme of the best tokens of 200 random instances at d = max(T - 1, n) for three
    sizes, and below it. A certificate of infeasibility is a vanishing residual; linear programming
    agrees (its test).
    """
    sizes = ((5, 5), (6, 8), (15, 5))
    enough = [_feasible(n, T, theory.sufficient_dimension(n, T)) for n, T in sizes]
    below = {(n, d): _feasible(n, 5, d) for n, d in ((10, 4), (15, 4))}
    return Measurement(
        Check("share of instances", 1.0, [float(of.mean()) for of in enough], tolerance=0),
        number=float(below[10, 4].mean()),
        note="T=5: " + ", ".join(f"n={n}, d={d}: {mean(of)}" for (n, d), of in below.items()),
    )


def _feasible(n: int, T: int, d: int) -> xr.DataArray:
    solved = [float(of.feasible) for of in runs.best_solutions(n, T, d, 200)]
    return xr.DataArray(solved, dims="seed")

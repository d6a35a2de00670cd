"""Numbers of the trainings that claims are about, on file: half a minute of one core.

    python -m attnlab.papers.max_margin.evidence local

trains the run again and writes `evidence/local.csv`; without a name, all of them.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np
import xarray as xr

from attnlab import predict
from attnlab.experiments import Evidence
from attnlab.models import Extended
from attnlab.simulation import Flow, Population, Record, Simulation
from attnlab.tasks.classes import SequenceClasses

from . import runs, theory
from .model import CrossAttention, released
from .predict import LateTraining, MaxMargin, RegularisationPath
from .task import Scores

LEVELS = (MaxMargin(), LateTraining(), RegularisationPath())
LEVEL_STEPS = (10, 100, 1000)
SCORES: tuple[Scores, ...] = ("equal", "random")
SCALES = (0.0, 10.0)  # of the start, in usual ones
FAR = 100.0  # of a start along a wrong selection, in lengths of the solution
WIDTHS, SEVERAL = (2, 4, 8, 32), (4, 8)  # d
SELECTED = 3000  # steps of a selection
LONGER = 16_000  # steps, where 2,000 leave a selection that is not locally optimal
# Seeds of the published setting whose selection after 2,000 steps is not locally optimal; as
# evidence/many.csv has them.
LEFT = (219, 244, 278)

# Two classes of one query: common tokens 0 and 1, two distinct tokens each, and two outputs.
TOKENS = ((0, 1, 2, 3), (0, 1, 4, 5))
QUERY, OUTPUTS, M = 6, (7, 8), 9
COUNTS = {"even": ((1, 1, 1, 1), (1, 1, 1, 1)), "uneven": ((8, 6, 4, 2), (2, 4, 13, 1))}
VALUES = {  # Y_{l,7} - Y_{l,8}: which tokens speak for the next token of their class
    "distinct": (0.2, -0.1, 1.0, 0.5, -0.8, -0.3),
    "common": (0.9, -0.1, 0.5, 0.1, -0.8, -0.3),
}
UNUSED = -60.0  # logit of every other output, which leaves two


def one_hot(values: str, counts: str) -> Simulation:
    """Return two classes of one query with a fixed decoder, in gradient flow."""
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
        motion=Flow(1e11),
        gradient=Population(),
        eta_y=None,
        eta_z=1.0,
        init={"decoder": Y},
        record=Record("attention_logits", at=(1e9, 1e11)),
        dtype="float64",
    )


def measured(run: Simulation, found: xr.Dataset) -> xr.Dataset:
    """Return what is kept of a run: `runs.compared`, or `runs.several_tokens` of a ReLU head.

    Besides, of K and Q: own and own_rank, correlation with the nuclear solution and its rank. Of
    equal scores: offset, the length of late training's; the errors of `levels`; keeps, 1 if
    training from a start far out keeps a wrong token. Of one-hot tokens: z, the row of logits at
    the end, and grown, what it gained from t = 1e9 on.
    """
    if not isinstance(run.model, CrossAttention):
        z = found["attention_logits"].isel(query=QUERY, token=slice(QUERY), drop=True)
        last = z.isel(time=-1, drop=True)
        return xr.Dataset({"z": last, "grown": last - z.isel(time=0, drop=True)})
    if run.model.hidden:
        return runs.several_tokens(run, found)
    of = runs.compared(run, found)
    if run.model.width is not None:
        nuclear = runs.compared(run, found, norm="nuclear")
        of = of.assign(own=nuclear["correlation"], own_rank=nuclear["solution_rank"])
    if run.task == runs.EVEN:
        of["offset"] = "seed", [np.linalg.norm(late.offset) for late in runs.late_training(run)]
    if run.record.at == LEVEL_STEPS:
        of = of.merge(levels(run, found))
    if (run.task.scores, run.model.scale, run.last) == ("equal", 0, SELECTED):
        of["keeps"] = "seed", [keeps_wrong(run, *each) for each in enumerate(runs.instances(run))]
    return of


def levels(run: Simulation, found: xr.Dataset) -> xr.Dataset:
    """Return the errors of the theory's levels, and of weights that never move, by step.

    NAME_direction is a norm, NAME_attention a root mean square over sequences and tokens.
    """
    attention, W = xr.apply_ufunc(np.exp, found["log_attention"]), found["matrix"]
    direction = W / (W**2).sum(["key_dim", "query_dim"]) ** 0.5
    squares = {"still_attention": (attention - 1 / attention.sizes["token"]) ** 2}
    for level in LEVELS:
        said = predict(run, theory=level)
        squares[f"{level.name}_attention"] = (said["attention"] - attention) ** 2
        gap = (said["direction"] - direction) ** 2
        squares[f"{level.name}_direction"] = gap.sum(["key_dim", "query_dim"])
    return xr.Dataset({name: of.mean(of.dims[2:]) ** 0.5 for name, of in squares.items()})


def keeps_wrong(run: Simulation, seed: int, instance: runs.Instance) -> bool:
    """Return True if a start far out, along a stable selection with a wrong token, keeps it.

    A wrong token has the lowest score of its sequence, which then constrains nothing: the programme
    is that of the other sequences, and the wrong token is the one that it puts ahead.
    """
    x, z, scores = (instance[name] for name in ("x", "z", "scores"))
    best = scores.argmax(-1)
    for right in list(product((False, True), repeat=len(z)))[1:-1]:
        kept = np.array(right)
        W = theory.max_margin(x[kept], z[kept], best[kept]).weights
        selected = np.where(kept, best, np.einsum("ntd,dk,nk->nt", x, W, z).argmax(-1))
        pulled = theory.pulled_margin(x, z, scores, selected)
        if (selected != best)[~kept].all() and theory.stays_selected(scores, selected, pulled):
            start = replace(run, seeds=(seed,), init={"attention": FAR * pulled.weights})
            if runs.compared(start)["optimal"].item() < 1:
                return True
    return False


def selecting(scores: Scores, scale: float) -> Simulation:
    """Return a run of the small setting from W = 0, or a start `scale` times larger than usual."""
    task, model = replace(runs.SMALL, scores=scores), replace(runs.EXACT, scale=scale)
    return runs.descent(task, model, at=(SELECTED,), seeds=60)


def plain(scores: Scores) -> Simulation:
    """Return a run by plain gradient descent of learning rate 1, from W = 0."""
    task, model = replace(runs.EVEN, scores=scores), CrossAttention(scale=0)
    at = (1000, 3000, 10_000)
    return runs.descent(task, model, at=at, seeds=20, optimizer="sgd", rate=1.0)


LOCAL = partial(runs.descent, runs.PUBLISHED)
RELEASED = partial(LOCAL, runs.USUAL, optimizer=released)
EVEN = partial(runs.descent, runs.EVEN, runs.FROM_ZERO)
EVIDENCE = Evidence(
    __file__,
    {
        "local": partial(LOCAL, at=(0, 80, 100, 200, 300, 500, 1000, 2000), seeds=100),
        "released": partial(RELEASED, at=(100, 500, 1000, 2000), seeds=40),
        "factors": partial(runs.factors, at=(80, 100, 1000, 2000), seeds=40),
        "many": partial(LOCAL, at=(2000,), seeds=300),
        "left": partial(LOCAL, at=(2000, LONGER), seeds=LEFT),
        "left-released": partial(RELEASED, at=(2000, LONGER), seeds=LEFT),
        "levels": partial(EVEN, at=LEVEL_STEPS, seeds=3),
        "late": partial(EVEN, at=(300, 1000, 1800, 3000, 5500, 10_000), seeds=20),
        **{f"plain-{scores}": partial(plain, scores) for scores in SCORES},
        **{
            f"{scores}-{scale:g}": partial(selecting, scores, scale)
            for scores in SCORES
            for scale in SCALES
        },
        **{f"wide-{d}": partial(runs.wide, d, seeds=100) for d in WIDTHS},
        **{f"several-{d}": partial(runs.relus, d, at=(2000,), seeds=100) for d in SEVERAL},
        **{
            f"one-hot-{values}-{counts}": partial(one_hot, values, counts)
            for values in VALUES
            for counts in COUNTS
        },
    },
    measured,
)

if __name__ == "__main__":
    EVIDENCE.write(*sys.argv[1:])

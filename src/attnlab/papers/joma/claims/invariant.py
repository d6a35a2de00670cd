"""Claim 1: what ties the attention logits to the MLP's lower weights."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from attnlab.auditing.claim import Claim, Measurement, OnRecord
from attnlab.auditing.verdict import Verdict
from attnlab.data import family
from attnlab.papers.joma import theory
from attnlab.papers.joma.claims.runs import (
    DRAWS,
    PAIRS,
    TOY,
    TOY_EARLY,
    factorises,
    fixed_mean,
    implied,
    in_play,
    one_query,
    orthonormal,
    toy_draws,
    trained,
)
from attnlab.papers.joma.model import Joint
from attnlab.papers.joma.predict import IN_SIZE, SMALL, joint_model
from attnlab.theory.case import Case
from attnlab.theory.comparison import Check
from attnlab.theory.relation import ABOVE, AT_MOST, EQUAL, LEADING

SHORT = replace(PAIRS, steps=100.0)
# Two queries with two classes each, which share common tokens.
SHARED = Case(
    family(classes=4, queries=2, common=2, distinct=2), 1.0, 1.0, 100.0,
    model=Joint(attention="exp"),
)  # fmt: skip
PERCENT = 0.01


def _velocities(case: Case) -> Check:
    """The velocity of z at a random state, over the largest, and what ties it to that of v."""
    rng, s, model = np.random.default_rng(0), theory.mixture(case.classes), joint_model(case.model)
    J, L, Q = s.wanted.shape[1], s.P.shape[1], case.classes.queries.size
    v, z, r = rng.normal(size=(J, L)), rng.normal(size=(Q, L)), rng.normal(size=(J, Q))
    found = theory.joint_gradient(
        s, v, z, r=r, attention=model.attention, temperature=model.temperature
    )
    moved = (z if model.attention == "linear" else model.temperature) * found.logits
    said = np.einsum("hl,qhl->ql", v, found.shares)
    size = np.abs(said).max()
    return Check("velocities at a random state", said / size, moved / size, relative=False)


def _errors(case: Case, rung: str) -> NDArray[np.float64]:
    """The largest error of z at each record, over how far z has moved by then."""
    z = in_play(trained(case)["attention_logits"], case)
    found = in_play(implied(case)["implied_logits"].sel(rung=rung), case)
    moved = np.abs(z - z[0]).max((-2, -1))
    return np.asarray(np.abs(found - z).max((-2, -1))[1:] / moved[1:])


def _exact(case: Case) -> Measurement:
    z = in_play(trained(case)["attention_logits"], case)
    found = in_play(implied(case)["implied_logits"].sel(rung="joma"), case)
    size = np.abs(z).max()
    return Measurement(
        (
            _velocities(case),
            Check("z in training, over its largest", found / size, z / size, relative=False,
                  training=True),
        ),
    )  # fmt: skip


linear_attention = Claim(
    id="joma-linear",
    statement="Linear attention: z^2 = sum_k v_k^2 + c along gradient flow, whatever arrives",
    latex=r"Linear attention: $z_m^2 = \sum_k v_k^2 + c$ along gradient flow, whatever arrives",
    source="JoMA, claim 1, as we read it; re-derived",
    relation=EQUAL,
    case=replace(SHORT, model=Joint(attention="linear", temperature=0.5)),
    hypotheses=(orthonormal, one_query),
    predicts="z from the weights v",
    measures="velocities at a random state; the flow of Joint to t = 100",
    tolerance=1e-8,
    because="an identity; in training the tolerance of the solver",
    code=("linear_invariant", "joint_gradient"),
    test="tests/theory/test_invariants.py::test_velocities_are_tied_at_any_state",
    number="error below 1e-08, at any temperature: it drops out",
    recorded=OnRecord(Verdict.EXACT, None, Verdict.EXACT),
    measure=_exact,
)

exp_attention = Claim(
    id="joma-exp",
    statement="Exp attention: z = 1/2 sum_k v_k^2 + c along gradient flow, whatever arrives",
    latex=(
        r"Exp attention: $z_m = \frac{1}{2} \sum_k v_k^2 + c$ along gradient flow, whatever arrives"
    ),
    source="JoMA, claim 1, as we read it; re-derived",
    relation=EQUAL,
    case=replace(SHORT, model=Joint(attention="exp", temperature=0.5)),
    hypotheses=(orthonormal, one_query),
    predicts="z from the weights v; a temperature divides",
    measures="velocities at a random state; the flow of Joint to t = 100",
    tolerance=1e-8,
    because="an identity; in training the tolerance of the solver",
    code=("exp_invariant", "joint_gradient"),
    test="tests/theory/test_invariants.py::test_velocities_are_tied_at_any_state",
    recorded=OnRecord(Verdict.EXACT, None, Verdict.EXACT),
    measure=_exact,
)


def _range(of: xr.DataArray) -> str:
    return f"{float(of.min()):.2g} to {float(of.max()):.2g}"


def _softmax(case: Case) -> Measurement:
    draws = toy_draws()
    inside = (draws["drift"] <= SMALL) & (draws["residual"] <= SMALL)
    until = inside.argmin("time") - 1  # the last record up to which both hold
    last = draws.isel(time=until)
    return Measurement(
        (Check("error of z where the hypotheses last hold", 0.0, last["fixed"].values,
               relative=False, training=True),),
        training_number=float(last["fixed"].max()),
        note=f"over {DRAWS} draws of the toy, each at the last record up to which drift and "
        f"residual are below {SMALL:g} (t = {_range(last['time'])}): the error is "
        f"{_range(last['fixed'])} of how far z has moved (mean {float(last['fixed'].mean()):.2g})",
    )  # fmt: skip


softmax_attention = Claim(
    id="joma-softmax",
    statement="Softmax attention: z = 1/2 sum_k (v_k^2 - |v_k|^2 b-bar) + c if b-bar is constant",
    latex=(
        r"Softmax attention: $z_m = \frac{1}{2} \sum_k (v_k^2 - \lVert v_k \rVert_2^2 \bar b_m) + "
        r"c$ if $\bar b_m = \mathbb{E}[b \mid m]$ is constant and $\mathbb{E}[\sum_k g_k h_k' b "
        r"b^\top] = \bar b_m \mathbb{E}[\sum_k g_k h_k' b]^\top$"
    ),
    source="JoMA, claim 1, as we read it; re-derived",
    relation=LEADING,
    case=TOY_EARLY,
    hypotheses=(orthonormal, one_query, fixed_mean, factorises),
    predicts="z from the weights v, with b-bar as it starts",
    measures="30 draws of the paper's toy, as long as b-bar and factorisation are within a tenth",
    tolerance=IN_SIZE,
    because="drift and residual of a tenth each are allowed, and drift counts by its integral",
    code=("softmax_invariant", "joint_assumptions"),
    test="tests/theory/test_invariants.py::test_with_a_moving_mean_softmax_comes_nearer",
    training_number="error at most {:.2g} of z over 30 draws",
    recorded=OnRecord(None, None, Verdict.HOLDS, 0.2804),
    measure=_softmax,
)


def _correlation(case: Case) -> Measurement:
    end = toy_draws()["correlation"].isel(time=-1)
    return Measurement(
        (Check("correlation at the end", 0.95, end.values, training=True),),
        training_number=float(end.min()),
        note=f"over {DRAWS} draws of the toy the correlation is {float(end.min()):.3f} to "
        f"{float(end.max()):.3f}",
    )


correlation = Claim(
    id="joma-correlation",
    statement="On the paper's toy z and what the invariant predicts have a correlation near 1",
    latex=r"On the paper's toy $z_m$ and what the invariant predicts have a correlation near $1$",
    source="JoMA, experiment on claim 1, as we read it",
    relation=ABOVE,
    case=TOY,
    hypotheses=(orthonormal, one_query),
    predicts="z from the weights v, with b-bar as it starts",
    measures="Pearson's correlation over tokens at t = 200 (2,000 steps at 0.1), 30 draws of it",
    because="near 1 is read as above 0.95",
    code=("softmax_invariant",),
    test="tests/theory/test_invariants.py::"
    "test_with_equal_pulls_the_moving_mean_is_exact_and_the_fixed_one_is_not",
    training_number="at least {:.3f} over 30 draws; its size is another matter: joma-size",
    recorded=OnRecord(None, None, Verdict.HOLDS, 0.9909),
    measure=_correlation,
)


def _size(case: Case) -> Measurement:
    draws = toy_draws().isel(time=-1)
    fixed, moving, drift = (draws[name] for name in ("fixed", "moving", "drift"))
    return Measurement(
        (
            Check("error of z, b-bar fixed", 0.0, fixed.values, relative=False, training=True),
            Check("error of z, b-bar moving", 0.0, moving.values, relative=False, form="corrected",
                  training=True),
            Check("drift of b-bar", SMALL, drift.values, AT_MOST, relative=False, tolerance=0.0,
                  form="premise", training=True),
        ),
        training_number=float(fixed.mean()),
        note=f"over {DRAWS} draws of the toy: at t = {case.steps:g} b-bar has moved by "
        f"{_range(drift)} of attention; with it fixed the error is {_range(fixed)} of how far z "
        f"has moved, with it moving (ours) {_range(moving)}, mean {float(moving.mean()):.2g}, and "
        f"below {IN_SIZE:g} in {int((moving <= IN_SIZE).sum())} draws",
    )  # fmt: skip


size = Claim(
    id="joma-size",
    statement="On the paper's toy the softmax invariant gives z in size, too",
    latex=r"On the paper's toy the softmax invariant gives $z_m$ in size, too",
    source="JoMA, claim 1, on its own experiment; as we read it, it reports correlations only",
    relation=LEADING,
    case=TOY,
    hypotheses=(orthonormal, one_query),
    predicts="z with b-bar fixed; corrected: 1/2 sum v^2 less the integral of b-bar d(|v|^2/2)",
    measures="the error's norm over tokens at t = 200, over that of how far z has moved, 30 draws",
    tolerance=IN_SIZE,
    because="the tolerance of joma-softmax; its premise is that b-bar stays within a tenth",
    code=("softmax_invariant", "moving_invariant"),
    test="tests/theory/test_invariants.py::test_with_a_moving_mean_softmax_comes_nearer",
    training_number="b-bar is not constant there: error {:.2g} times z (mean of 30 draws)",
    recorded=OnRecord(None, None, Verdict.PREMISE, 7.702),
    measure=_size,
    ours=True,
)


def _several(case: Case) -> Measurement:
    run, model = trained(case), joint_model(case.model)
    z, v = in_play(run["attention_logits"], case), in_play(run["mlp_weights"], case)
    total = theory.exp_invariant(
        v, v0=v[0], z0=z[0], eta_w=case.eta_y, eta_z=case.eta_z, temperature=model.temperature
    )
    whole, most = z.sum(1), np.abs(z.sum(1)).max()
    alone, shared = (_errors(case, rung)[-1] for rung in ("joma", "joma-moving"))
    return Measurement(
        (
            _velocities(case),
            Check("each z_m from the whole of v", 0.0, alone, relative=False, tolerance=PERCENT,
                  training=True),
            Check("the sum over queries", total / most, whole / most, relative=False,
                  form="corrected", training=True),
            Check("each z_m by its own share of v'", 0.0, shared, relative=False, tolerance=PERCENT,
                  form="corrected", training=True),
        ),
        training_number=float(alone),
        note=f"from the whole of v each z_m is off by {alone:.2f} of its size; their sum is exact, "
        f"and by its own share of v' each is right to {shared:.0e} (the rule of integration)",
    )  # fmt: skip


several_queries = Claim(
    id="joma-several-queries",
    statement="Several queries that share one MLP: each z_m keeps the invariant of one query",
    latex=(
        r"Several queries that share one MLP: each $z_m$ keeps the invariant of one query, $z_m = "
        r"\frac{1}{2} \sum_k v_k^2 + c$"
    ),
    source="JoMA, claim 1, which, as we read it, does not cover them",
    relation=EQUAL,
    case=SHARED,
    hypotheses=(orthonormal,),
    predicts="z_m from v; corrected: the sum of z_m over queries; each by its own share of v'",
    measures="exp attention, two queries, to t = 100",
    tolerance=1e-8,
    because="the sum is an identity; each query to one per cent, which integration takes",
    code=("exp_invariant", "shared_invariant"),
    test="tests/theory/test_invariants.py::test_several_queries_keep_the_sum",
    number="the velocity of z_m is tied to its own share of v': error below 1e-08",
    training_number="each alone is off by {:.2g} of its size; the sum over queries is exact",
    recorded=OnRecord(Verdict.EXACT, None, Verdict.CORRECTED, 1.0),
    measure=_several,
    ours=True,
)

CLAIMS = (linear_attention, exp_attention, softmax_attention, correlation, size, several_queries)

"""Claim 1: what ties the attention logits to the MLP's lower weights."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from attnlab import theory
from attnlab.audit.claim import Claim, Measurement, OnRecord
from attnlab.audit.claims.joma.runs import (
    PAIRS,
    TOY,
    TOY_EARLY,
    factorises,
    fixed_mean,
    implied,
    in_play,
    one_query,
    orthonormal,
    trained,
)
from attnlab.audit.verdict import Verdict
from attnlab.data import family
from attnlab.dynamics import Joint
from attnlab.prediction.case import Case
from attnlab.prediction.comparison import Check
from attnlab.prediction.joma import SMALL, joint_model
from attnlab.prediction.relation import ABOVE, EQUAL, LEADING

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
    source="JoMA, claim 1; from memory, re-derived",
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
    source="JoMA, claim 1; from memory, re-derived",
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


def _softmax(case: Case) -> Measurement:
    errors = _errors(case, "joma")
    return Measurement(
        (Check("error of z at the end, of its size", 0.0, errors[-1], relative=False,
               training=True),),
        training_number=float(errors[-1]),
    )  # fmt: skip


softmax_attention = Claim(
    id="joma-softmax",
    statement="Softmax attention: z = 1/2 sum_k (v_k^2 - |v_k|^2 b-bar) + c if b-bar is constant",
    latex=(
        r"Softmax attention: $z_m = \frac{1}{2} \sum_k (v_k^2 - \lVert v_k \rVert_2^2 \bar b_m) + "
        r"c$ if $\bar b_m = \mathbb{E}[b \mid m]$ is constant and $\mathbb{E}[\sum_k g_k h_k' b "
        r"b^\top] = \bar b_m \mathbb{E}[\sum_k g_k h_k' b]^\top$"
    ),
    source="JoMA, claim 1; from memory, re-derived",
    relation=LEADING,
    case=TOY_EARLY,
    hypotheses=(orthonormal, one_query, fixed_mean, factorises),
    predicts="z from the weights v, with b-bar as it starts",
    measures="the toy of the paper, as long as b-bar moves by less than a tenth",
    tolerance=3 * SMALL,
    because="drift and residual of a tenth each are allowed, and drift counts by its integral",
    code=("softmax_invariant", "joint_assumptions"),
    test="tests/theory/test_invariants.py::test_with_a_moving_mean_softmax_comes_nearer",
    training_number="error {:.2g} of z",
    recorded=OnRecord(None, None, Verdict.HOLDS, 0.2211),
    measure=_softmax,
)


def _correlation(case: Case) -> Measurement:
    z = in_play(trained(case)["attention_logits"], case)[-1, 0]
    found = in_play(implied(case)["implied_logits"].sel(rung="joma"), case)[-1, 0]
    r = float(np.corrcoef(z, found)[0, 1])
    return Measurement(
        (Check("correlation at the end", 0.95, r, training=True),),
        training_number=r,
    )


correlation = Claim(
    id="joma-correlation",
    statement="On the paper's toy z and what the invariant predicts have a correlation near 1",
    latex=r"On the paper's toy $z_m$ and what the invariant predicts have a correlation near $1$",
    source="JoMA, experiment on claim 1; from memory",
    relation=ABOVE,
    case=TOY,
    hypotheses=(orthonormal, one_query),
    predicts="z from the weights v, with b-bar as it starts",
    measures="Pearson's correlation over tokens at t = 200, which is 2,000 steps at 0.1",
    because="near 1 is read as above 0.95",
    code=("softmax_invariant",),
    test="tests/theory/test_invariants.py::"
    "test_with_equal_pulls_the_moving_mean_is_exact_and_the_fixed_one_is_not",
    training_number="correlation {:.3f}; its size is another matter: joma-size",
    recorded=OnRecord(None, None, Verdict.HOLDS, 0.9945),
    measure=_correlation,
)


def _size(case: Case) -> Measurement:
    fixed, moving = (_errors(case, rung)[-1] for rung in ("joma", "joma-moving"))
    drift = float(implied(case)["mean_attention_drift"].values[-1, 0])
    return Measurement(
        (
            Check("error of z, b-bar fixed", 0.0, fixed, relative=False, training=True),
            Check("error of z, b-bar moving", 0.0, moving, relative=False, form="corrected",
                  training=True),
        ),
        training_number=float(fixed),
        note=f"at t = {case.steps:g} b-bar has moved by {drift:.2f} of attention: with it fixed "
        f"the error is {fixed:.2f} of how far z has moved, with it moving {moving:.2f}",
    )  # fmt: skip


size = Claim(
    id="joma-size",
    statement="On the paper's toy the softmax invariant gives z in size, too",
    latex=r"On the paper's toy the softmax invariant gives $z_m$ in size, too",
    source="JoMA, claim 1, on its own experiment",
    relation=LEADING,
    case=TOY,
    hypotheses=(orthonormal, one_query),
    predicts="z with b-bar fixed; corrected: 1/2 sum v^2 less the integral of b-bar d(|v|^2/2)",
    measures="the largest error over tokens at t = 200, over how far z has moved",
    tolerance=0.5,
    because="in size is read as within half; random starts move the corrected form by 0.1",
    code=("softmax_invariant", "moving_invariant"),
    test="tests/theory/test_invariants.py::test_with_a_moving_mean_softmax_comes_nearer",
    training_number="with b-bar fixed the error is {:.2g} times z; with it moving 0.23",
    recorded=OnRecord(None, None, Verdict.CORRECTED, 7.627),
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
    source="JoMA, claim 1, which does not cover them",
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

"""Claim 1: what ties the attention logits to the MLP's lower weights."""

from dataclasses import replace

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from attnlab.auditing import Measurement, claim
from attnlab.tasks.classes import family
from attnlab.theory import Case, Check
from attnlab.theory.relation import ABOVE, EQUAL, LEADING

from .. import theory
from ..model import Joint
from ..predict import IN_SIZE, SMALL, joint_model
from . import runs
from .runs import PAIRS, TOY, TOY_EARLY, in_play, in_training, one_query, orthonormal, trained

LINEAR, EXP = (
    replace(PAIRS, steps=100.0, model=Joint(attention=kind, temperature=0.5))
    for kind in ("linear", "exp")
)
# Two queries with two classes each, which share common tokens.
EXP_PLAIN = Joint(attention="exp")
SHARED = Case(family(classes=4, queries=2, common=2, distinct=2), 1.0, 1.0, 100.0, model=EXP_PLAIN)
PERCENT = 0.01


def _velocities(case: Case) -> Check:
    """The velocity of z at a random state, over the largest, and what ties it to that of v."""
    rng, s, model = np.random.default_rng(0), case.setting, joint_model(case.model)
    J, L, Q = s.wanted.shape[1], s.P.shape[1], case.classes.queries.size
    v, z, r = rng.normal(size=(J, L)), rng.normal(size=(Q, L)), rng.normal(size=(J, Q))
    found = theory.joint_gradient(
        s, v, z, r=r, attention=model.attention, temperature=model.temperature
    )
    moved = (z if model.attention == "linear" else model.temperature) * found.logits
    said = np.einsum("hl,qhl->ql", v, found.shares)
    size = np.abs(said).max()
    return Check("velocities at a random state", said / size, moved / size, relative=False)


def _errors(s: Case, level: str) -> NDArray[np.float64]:
    """The largest error of z at each record, over how far z has moved by then."""
    z = in_play(trained(s)["attention_logits"], s)
    found = in_play(runs.implied(s)["implied_logits"].sel(level=level), s)
    moved = np.abs(z - z[0]).max((-2, -1))
    return np.asarray(np.abs(found - z).max((-2, -1))[1:] / moved[1:])


def _exact(s: Case) -> Measurement:
    z = in_play(trained(s)["attention_logits"], s)
    found = in_play(runs.implied(s)["implied_logits"].sel(level="joma"), s)
    size = np.abs(z).max()
    return Measurement(
        _velocities(s), in_training("z in training, over its largest", found / size, z / size)
    )


@claim(EQUAL, "JoMA, claim 1; re-derived", LINEAR, (orthonormal, one_query), tolerance=1e-8)
def joma_linear(s: Case) -> Measurement:
    r"""Linear attention: $z_m^2 = \sum_k v_k^2 + c$ along gradient flow, whatever arrives.

    Compare z from the weights v with velocities at a random state, and with the flow of Joint to t
    = 100. It is an identity; in training the tolerance is that of the solver.
    """
    return _exact(s)


@claim(EQUAL, "JoMA, claim 1; re-derived", EXP, (orthonormal, one_query), tolerance=1e-8)
def joma_exp(s: Case) -> Measurement:
    r"""Exp attention: $z_m = \frac{1}{2} \sum_k v_k^2 + c$ along gradient flow, whatever arrives.

    Compare z from the weights v, which a temperature divides, with velocities at a random state,
    and with the flow of Joint to t = 100. It is an identity; in training the tolerance is that of
    the solver.
    """
    return _exact(s)


def _range(of: xr.DataArray) -> str:
    return f"{float(of.min()):.2g} to {float(of.max()):.2g}"


@claim(
    LEADING,
    "JoMA, claim 1; re-derived",
    TOY_EARLY,
    (orthonormal, one_query, runs.fixed_mean, runs.factorises),
    tolerance=IN_SIZE,
)
def joma_softmax(s: Case) -> Measurement:
    r"""Softmax attention: $z_m = \frac{1}{2} \sum_k (v_k^2 - \lVert v_k \rVert_2^2 \bar b_m) + c$
    if $\bar b_m = \mathbb{E}[b \mid m]$ is constant and $\mathbb{E}[\sum_k g_k h_k' b b^\top] =
    \bar b_m \mathbb{E}[\sum_k g_k h_k' b]^\top$.

    Compare z from the weights v, with b-bar as it starts, with 30 draws of the paper's toy, as long
    as b-bar and factorisation are within a tenth. Drift and residual of a tenth each are allowed,
    and drift counts by its integral.
    """
    draws = runs.toy_draws()
    inside = (draws["drift"] <= SMALL) & (draws["residual"] <= SMALL)
    until = inside.argmin("time") - 1  # the last record up to which both hold
    last = draws.isel(time=until)
    return Measurement(
        in_training("error of z where the hypotheses last hold", 0.0, last["fixed"].values),
        training_number=float(last["fixed"].max()),
        note=f"over {runs.DRAWS} draws of the toy, each at the last record up to which drift and "
        f"residual are below {SMALL:g} (t = {_range(last['time'])}): the error is "
        f"{_range(last['fixed'])} of how far z has moved (mean {float(last['fixed'].mean()):.2g})",
    )


@claim(ABOVE, "JoMA, experiment on claim 1", TOY, (orthonormal, one_query))
def joma_correlation(s: Case) -> Measurement:
    """On the paper's toy $z_m$ and what the invariant predicts have a correlation near $1$.

    Compare z from the weights v, with b-bar as it starts, by Pearson's correlation over tokens at t
    = 200 (2,000 steps at 0.1), in 30 draws. Near 1 is read as above 0.95.
    """
    end = runs.toy_draws()["correlation"].isel(time=-1)
    return Measurement(
        Check("correlation at the end", 0.95, end.values, training=True),
        training_number=float(end.min()),
        note=f"over {runs.DRAWS} draws of the toy the correlation is {float(end.min()):.3f} to "
        f"{float(end.max()):.3f}",
    )


@claim(
    LEADING,
    "JoMA, claim 1, on its own experiment; it reports correlations only",
    TOY,
    (orthonormal, one_query),
    tolerance=IN_SIZE,
    ours=True,
)
def joma_size(s: Case) -> Measurement:
    """On the paper's toy the softmax invariant gives $z_m$ in size, too.

    Compare z with b-bar fixed by the error's norm over tokens at t = 200, over that of how far z
    has moved, in 30 draws; the corrected form is 1/2 sum v^2 less the integral of b-bar d(|v|^2/2).
    The tolerance is that of joma-softmax; its premise is that b-bar stays within a tenth.
    """
    draws = runs.toy_draws().isel(time=-1)
    fixed, moving, drift = (draws[name] for name in ("fixed", "moving", "drift"))
    return Measurement(
        in_training("error of z, b-bar fixed", 0.0, fixed.values),
        in_training("error of z, b-bar moving", 0.0, moving.values, form="corrected"),
        runs.premise("drift of b-bar", SMALL, drift.values),
        training_number=float(fixed.mean()),
        note=f"over {runs.DRAWS} draws of the toy: at t = {s.steps:g} b-bar has moved by "
        f"{_range(drift)} of attention; with it fixed the error is {_range(fixed)} of how far z "
        f"has moved, with it moving (ours) {_range(moving)}, mean {float(moving.mean()):.2g}, and "
        f"below {IN_SIZE:g} in {int((moving <= IN_SIZE).sum())} draws",
    )


@claim(
    EQUAL,
    "JoMA, claim 1, which does not cover them",
    SHARED,
    (orthonormal,),
    tolerance=1e-8,
    ours=True,
)
def joma_several_queries(s: Case) -> Measurement:
    r"""Several queries that share one MLP: each $z_m$ keeps the invariant of one query, $z_m =
    \frac{1}{2} \sum_k v_k^2 + c$.

    Compare z_m from v with exp attention and two queries, to t = 100; the corrected form has the
    sum of z_m over queries, and each by its own share of v'. The sum is an identity; each query is
    right to one per cent, which integration takes.
    """
    run, model = trained(s), joint_model(s.model)
    z, v = in_play(run["attention_logits"], s), in_play(run["mlp_weights"], s)
    total = theory.exp_invariant(
        v, v0=v[0], z0=z[0], eta_w=s.eta_y, eta_z=s.eta_z, temperature=model.temperature
    )
    whole, most = z.sum(1), np.abs(z.sum(1)).max()
    alone, shared = (_errors(s, level)[-1] for level in ("joma", "joma-moving"))
    return Measurement(
        _velocities(s),
        in_training("each z_m from the whole of v", 0.0, alone, tolerance=PERCENT),
        in_training("the sum over queries", total / most, whole / most, form="corrected"),
        in_training(
            "each z_m by its own share of v'", 0.0, shared, tolerance=PERCENT, form="corrected"
        ),
        training_number=float(alone),
        note=f"from the whole of v each z_m is off by {alone:.2f} of its size; their sum is exact, "
        f"and by its own share of v' each is right to {shared:.0e} (the rule of integration)",
    )

"""The cases of JoMA's claims, and their training: gradient flow of `Joint`, in float64."""

from dataclasses import replace
from functools import cache, lru_cache, partial

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from attnlab.simulation import Flow, Motion, Optimizer, Steps, simulate
from attnlab.tasks.classes import single_common
from attnlab.theory import Case, Check, Hypothesis
from attnlab.theory.relation import AT_MOST, EQUAL

from ..classes import joma_toy
from ..invariants import joint_invariants
from ..model import Joint
from ..predict import SMALL, joint_model

# A check of numbers from training, in units of their own.
in_training = partial(Check, relative=False, training=True)
premise = partial(in_training, relation=AT_MOST, tolerance=0.0, form="premise")
Rates = tuple[tuple[float, float], ...]
RECORDS = 201
STEP = 0.1  # of time, where the flow is followed by small steps

# JoMA's test of its invariants, as we know it: 2,000 steps at learning rate 0.1.
TOY = Case(joma_toy(), 1.0, 1.0, 200.0, model=Joint(temperature=0.5, scale=0.0))
DRAWS = 30  # of the toy, half of whose frequencies are random; TOY is the first
# A third of that time, in which b-bar has moved by less than a tenth.
TOY_EARLY = replace(TOY, steps=65.0)
# One common token and three distinct ones for each of three classes.
PAIRS = Case(single_common(num_classes=3, distinct=3, common_prob=0.4), 1.0, 1.0, 1e4)


@lru_cache(maxsize=16)
def _trained(
    s: Case, motion: Motion, rates: Rates, at: tuple[float, ...], step: float = 1.0
) -> xr.Dataset:
    """Train at several pairs of learning rates (dim `run`), each times the length of a step."""
    eta_y, eta_z = (xr.DataArray(list(column), dims="run") for column in zip(*rates, strict=True))
    result = simulate(
        s.classes,
        model=s.model,
        motion=motion,
        gradient="population",
        eta_y=step * eta_y,
        eta_z=step * eta_z,
        what=("attention", "logits", "loss"),
        at=at,
        dtype="float64",
        progress=False,
    )
    return result.isel(seed=0, drop=True).assign_coords(eta_y=eta_y, eta_z=eta_z)


def trained(s: Case) -> xr.Dataset:
    """Train the gradient flow of a case, recorded at even times."""
    at = tuple(np.linspace(0.0, s.steps, RECORDS).tolist())
    return _trained(s, Flow(s.steps), ((s.eta_y, s.eta_z),), at).isel(run=0)


def trained_long(s: Case, rates: Rates, weight_decay: float = 0.0) -> xr.Dataset:
    """Train the gradient flow at several pairs of learning rates (dim `run`).

    It is recorded at times in even ratios. A ReLU is followed by small steps: its flow comes to
    slide along the boundary where a unit turns off, and the solver stalls there.
    """
    times = np.append(0.0, np.geomspace(STEP, s.steps, 61))
    if getattr(s.model, "activation", None) != "relu":
        flow = Flow(s.steps, weight_decay=weight_decay)
        return _trained(s, flow, rates, tuple(times.tolist()))
    at = np.unique(np.round(times / STEP).astype(np.int64))
    motion = Steps(int(at[-1]), optimizer=Optimizer(momentum=0.0, weight_decay=weight_decay))
    run = _trained(s, motion, rates, tuple(at.tolist()), STEP)
    return run.rename(step="time").assign_coords(time=STEP * at)


@lru_cache(maxsize=8)
def implied(s: Case) -> xr.Dataset:
    """Return what the invariants imply along the training of a case, and their assumptions."""
    return joint_invariants(trained(s))


@cache
def toy_draws() -> xr.Dataset:
    """Return the invariants along the training of each draw of TOY, over (draw, time).

    Times begin with the first record past the start.

    fixed, moving: the error of z with b-bar as it starts and as it moves, its norm over tokens over
    that of how far z has moved. correlation: of z with what b-bar fixed gives. drift, residual: how
    far b-bar has moved, and how far the factorisation is from holding.
    """
    at = np.linspace(0.0, TOY.steps, RECORDS).tolist()
    toys = [joma_toy(seed=seed) for seed in range(DRAWS)]
    runs = simulate(
        toys,
        model=TOY.model,
        time=TOY.steps,
        eta_y=TOY.eta_y,
        eta_z=TOY.eta_z,
        what="logits",
        at=at,
        dtype="float64",
        progress=False,
    ).isel(seed=0, drop=True)
    found = [_compared(runs.isel(setting=draw)) for draw in range(DRAWS)]
    return xr.concat(found, "draw").isel(time=slice(1, None))


def _compared(run: xr.Dataset) -> xr.Dataset:
    said = joint_invariants(run).isel(query=0, token=TOY.classes.in_play)
    z = run["attention_logits"].isel(query=0, token=TOY.classes.in_play)
    implied = said["implied_logits"]
    with np.errstate(invalid="ignore"):  # nothing has moved at the start
        error = _norm(implied - z) / _norm(z - z.isel(time=0))
        straight = xr.corr(implied.sel(level="joma"), z, "token")
    return xr.Dataset(
        {
            "fixed": error.sel(level="joma", drop=True),
            "moving": error.sel(level="joma-moving", drop=True),
            "correlation": straight.drop_vars("level"),
            "drift": said["mean_attention_drift"],
            "residual": said["factorisation_residual"],
        }
    )


def _norm(of: xr.DataArray) -> xr.DataArray:
    return (of**2).sum("token") ** 0.5


def in_play(array: xr.DataArray, s: Case) -> NDArray[np.float64]:
    """Return the values of contextual tokens."""
    return np.asarray(array.isel(token=s.classes.in_play).values, dtype=np.float64)


# -- hypotheses, measured in training -------------------------------------------------------------


def one_query(s: Case) -> tuple[Hypothesis, ...]:
    """Ask for one query for all classes."""
    count = float(s.classes.queries.size)
    return (Hypothesis("claim 1", "one query for all classes", count, EQUAL, 1.0),)


def orthonormal(s: Case) -> tuple[Hypothesis, ...]:
    """Ask for orthonormal embeddings, which `Joint` has by construction."""
    joint_model(s.model)
    says = "orthonormal embeddings: overlaps in the model"
    return (Hypothesis("claim 1", says, 0.0, AT_MOST, 0.0),)


def fixed_mean(s: Case) -> tuple[Hypothesis, ...]:
    """Ask that b-bar stays where it starts: at most a tenth of attention moves."""
    drift = float(implied(s)["mean_attention_drift"].max())
    return (Hypothesis("claim 1", "b-bar is constant: its drift", drift, AT_MOST, SMALL),)


def factorises(s: Case) -> tuple[Hypothesis, ...]:
    """Ask that b and S are uncorrelated, to a tenth, at the end: a random start has no pull yet."""
    residual = float(implied(s)["factorisation_residual"].values[-1].max())
    says = "E[S b] = E[S] b-bar: residual of the factorisation, at the end"
    return (Hypothesis("claim 1", says, residual, AT_MOST, SMALL),)

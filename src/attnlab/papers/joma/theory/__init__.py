"""JoMA's joint dynamics of MLP and attention as functions of numpy arrays, as we know them.

Read in this order: `gradient` (the model written out), `delta`, `invariants` (what ties attention
to the MLP), `assumptions`, `stationary` and `reduced` (what follows), `salient`, `rank`, `tree`.
"""

from attnlab.papers.joma.theory.assumptions import JointAssumptions, joint_assumptions
from attnlab.papers.joma.theory.delta import delta, discriminancy, start_gradient
from attnlab.papers.joma.theory.gradient import (
    JointGradient,
    attend,
    joint_gradient,
    mean_attention,
)
from attnlab.papers.joma.theory.invariants import (
    exp_invariant,
    linear_invariant,
    moving_invariant,
    shared_invariant,
    softmax_invariant,
)
from attnlab.papers.joma.theory.rank import stable_rank
from attnlab.papers.joma.theory.reduced import ReducedJoint, reduced_joint_flow
from attnlab.papers.joma.theory.salient import (
    EntropyDip,
    SalientFlow,
    entropy_dip,
    salient_entropy,
    salient_flow,
    salient_lag,
    salient_ratio,
)
from attnlab.papers.joma.theory.stationary import (
    StationaryLaw,
    blow_up_time,
    cosh_law,
    erf_law,
    frozen_weights,
)
from attnlab.papers.joma.theory.tree import tree_co_occurrence

__all__ = [
    "EntropyDip",
    "JointAssumptions",
    "JointGradient",
    "ReducedJoint",
    "SalientFlow",
    "StationaryLaw",
    "attend",
    "blow_up_time",
    "cosh_law",
    "delta",
    "discriminancy",
    "entropy_dip",
    "erf_law",
    "exp_invariant",
    "frozen_weights",
    "joint_assumptions",
    "joint_gradient",
    "linear_invariant",
    "mean_attention",
    "moving_invariant",
    "reduced_joint_flow",
    "salient_entropy",
    "salient_flow",
    "salient_lag",
    "salient_ratio",
    "shared_invariant",
    "softmax_invariant",
    "stable_rank",
    "start_gradient",
    "tree_co_occurrence",
]

"""What JoMA assumes of a run, as numbers along it.

Orthonormal embeddings are a property of the model: with coordinates v_k for its weights there is
nothing left to measure. The other three can be measured at any state.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from attnlab.theory._check import Contexts, FloatArray
from attnlab.theory.joma.gradient import Mixture, joint_gradient, mean_attention, mixture


@dataclass(frozen=True)
class JointAssumptions:
    """How far a run is from what is assumed, along its first axis; 0 is as assumed.

    `drift`: half of |b-bar_m(t) - b-bar_m(0)|_1, for each query, (time, Q). `residual`: of the
    factorisation, |E[S b | m] - E[S | m] b-bar_m| / |E[S b | m]|, (time, Q); nan where nothing
    pulls. `change`: |g(t) - g(0)| / |g(0)| over classes and hidden units, (time,).
    """

    drift: FloatArray
    residual: FloatArray
    change: FloatArray


def joint_assumptions(
    P: Contexts | Mixture,
    v: ArrayLike,
    z: ArrayLike,
    *,
    psi: ArrayLike | None = None,
    weight: ArrayLike | None = None,
    target: ArrayLike | None = None,
    **model: Any,
) -> JointAssumptions:
    """Measure a run of which v (time, H, L) and z (time, Q, L) are known, from its start on.

    The other arguments are those of `joint_gradient`. b-bar is of attention as it is: its sum is 1
    for softmax alone.
    """
    s = mixture(P, psi=psi, weight=weight, target=target)
    found = joint_gradient(s, v, z, **model)
    mean = mean_attention(s, found.attention)
    together = s.by_query(found.pull[..., None] * found.attention)
    apart = s.by_query(found.pull[..., None]) * mean
    size = np.linalg.norm(together, axis=-1)
    with np.errstate(invalid="ignore", divide="ignore"):
        residual = np.linalg.norm(together - apart, axis=-1) / size
    g = found.incoming
    moved = np.linalg.norm(g - g[0], axis=(-2, -1)) / np.linalg.norm(g[0])
    return JointAssumptions(np.abs(mean - mean[0]).sum(-1) / 2.0, residual, np.asarray(moved))

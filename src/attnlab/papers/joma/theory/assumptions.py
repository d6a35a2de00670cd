"""What JoMA assumes of a run, as numbers along it.

Orthonormal embeddings are a property of the model: with coordinates v_k for its weights there is
nothing left to measure. The other three can be measured at any state.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from attnlab.formulas.checks import FloatArray
from attnlab.formulas.setting import Setting, SettingLike
from attnlab.papers.joma.theory.gradient import by_query, joint_gradient, mean_attention


@dataclass(frozen=True)
class JointAssumptions:
    """How far a run is from what is assumed, along its first axis; 0 is as assumed.

    drift: half of |b-bar_m(t) - b-bar_m(0)|_1, for each query, (time, Q).
    residual: of the factorisation, |E[S b | m] - E[S | m] b-bar_m| / |E[S b | m]|, (time, Q); nan
        where nothing pulls.
    change: |g(t) - g(0)| / |g(0)| over classes and hidden units, (time,).
    """

    drift: FloatArray
    residual: FloatArray
    change: FloatArray


def joint_assumptions(
    setting: SettingLike, v: ArrayLike, z: ArrayLike, **model: Any
) -> JointAssumptions:
    """Measure what JoMA assumes of a run, whose records (time, ...) begin at the start.

    b-bar is of attention as it is: its sum is 1 for softmax alone.

    Parameters
    ----------
    **model
        The other arguments of `joint_gradient`.

    Examples
    --------
    >>> v, z = np.zeros((2, 2, 3)), np.zeros((2, 1, 3))
    >>> joint_assumptions([[0.5, 0.5, 0], [0.5, 0, 0.5]], v, z).drift  # nothing has moved
    array([[0.],
           [0.]])
    """
    s = Setting.of(setting)
    found = joint_gradient(s, v, z, **model)
    mean = mean_attention(s, found.attention)
    together = by_query(s, found.pull[..., None] * found.attention)
    apart = by_query(s, found.pull[..., None]) * mean
    size = np.linalg.norm(together, axis=-1)
    with np.errstate(invalid="ignore", divide="ignore"):
        residual = np.linalg.norm(together - apart, axis=-1) / size
    g = found.incoming
    moved = np.linalg.norm(g - g[0], axis=(-2, -1)) / np.linalg.norm(g[0])
    return JointAssumptions(np.abs(mean - mean[0]).sum(-1) / 2.0, residual, np.asarray(moved))

"""What JoMA assumes of a run, as numbers along it.

Orthonormal embeddings are a property of the model: with coordinates v_k for its weights there is
nothing left to measure. The other three can be measured at any state.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from attnlab.formulas.checks import Contexts, FloatArray
from attnlab.papers.joma.theory.gradient import Mixture, joint_gradient, mean_attention, mixture


@dataclass(frozen=True)
class JointAssumptions:
    """How far a run is from what is assumed, along its first axis; 0 is as assumed.

    Attributes
    ----------
    drift
        Half of |b-bar_m(t) - b-bar_m(0)|_1, for each query, (time, Q).
    residual
        Of the factorisation, |E[S b | m] - E[S | m] b-bar_m| / |E[S b | m]|, (time, Q); nan where
        nothing pulls.
    change
        |g(t) - g(0)| / |g(0)| over classes and hidden units, (time,).
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
    """Measure what JoMA assumes of a run, from its start on.

    b-bar is of attention as it is: its sum is 1 for softmax alone.

    Parameters
    ----------
    P : array_like, SequenceClasses or Mixture
        P(l|n): a row for each class, a column for each contextual token, (K, L). `SequenceClasses`
        and a `Mixture` bring the following three with them.
    v : array_like
        Lower weights of the run, (time, H, L).
    z : array_like
        Its attention logits, (time, Q, L).
    psi : array_like, optional
        The row of z of each class, 0 to Q - 1, as `classes.query_index` has it. By default one
        query for all.
    weight : array_like, optional
        How often each class is drawn, P(n); 1/K by default.
    target : array_like, optional
        The label of each class, numbered from 0 without gaps. By default each class has its own, or
        what `SequenceClasses` have as next tokens.
    **model
        The other arguments of `joint_gradient`.

    Returns
    -------
    JointAssumptions
        Three numbers along the run.

    Examples
    --------
    >>> import numpy as np
    >>> from attnlab.papers.joma.theory import joint_assumptions
    >>> v, z = np.zeros((2, 2, 3)), np.zeros((2, 1, 3))
    >>> joint_assumptions([[0.5, 0.5, 0], [0.5, 0, 0.5]], v, z).drift  # nothing has moved
    array([[0.],
           [0.]])
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

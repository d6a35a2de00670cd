"""Solving an equation of motion at the times asked for."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy

from attnlab.theory._check import FloatArray

# Beyond so many numbers an implicit solver's Jacobian costs more than the small steps of an
# explicit one.
MOST_IMPLICIT = 1000

# Up to here a straight line is exact to rounding; near the smallest numbers that there are, the
# solvers' own steps round to nothing and they go on for ever.
SHORT = 1e-100


def solve(
    velocity: Callable[[float, FloatArray], FloatArray],
    initial: FloatArray,
    times: FloatArray,
    *,
    rtol: float,
    atol: float,
    jacobian: Callable[[float, FloatArray], FloatArray] | None = None,
) -> FloatArray:
    """The state, from `initial` at time 0, at each of the times, in any order: (..., state).

    jacobian: how the velocity changes with the state. An implicit solver that is not given it calls
    the velocity once for each number of the state, many times over.
    """
    at, where = np.unique(times, return_inverse=True)
    states = np.repeat(initial[None], len(at), axis=0)
    if 0 < at[-1] < SHORT:
        states = initial + at[:, None] * velocity(0.0, initial)
    elif at[-1] > 0:
        implicit = initial.size <= MOST_IMPLICIT
        solution = scipy.integrate.solve_ivp(
            velocity, (0.0, at[-1]), initial, t_eval=at, rtol=rtol, atol=atol,
            **({"method": "LSODA", "jac": jacobian} if implicit else {"method": "RK45"}),
        )  # fmt: skip
        if not solution.success:
            raise RuntimeError(f"the attention flow could not be solved: {solution.message}")
        states = solution.y.T
    return np.asarray(states[where.reshape(times.shape)])

"""Solve an equation of motion at given times."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy

from attnlab.formulas.checks import FloatArray

# With more numbers in the state, an implicit solver's Jacobian costs more than the small steps of
# an explicit one.
MOST_IMPLICIT = 1000

# Calls of the velocity after which a flow is given up, as the simulator gives up after as many
# steps. Flows that end take a few thousand.
MOST_CALLS = 100_000

# Up to here a straight line is exact to rounding; near the smallest numbers that there are, the
# solvers' own steps round to nothing and they go on for ever.
SHORT = 1e-100

DIFFERENCE = 1e-8  # of a state, for a derivative

Velocity = Callable[[float, FloatArray], FloatArray]


class Unsolved(RuntimeError):
    """An equation of motion that the solver could not follow to the times asked for."""


def solve(
    velocity: Velocity,
    initial: FloatArray,
    times: FloatArray,
    *,
    rtol: float,
    atol: float,
    batched: bool = False,
) -> FloatArray:
    """Return the state at each of the times, from `initial` at time 0: (*times, state).

    Raises `Unsolved` where the solver fails, or needs more than `MOST_CALLS` calls. A Jacobian in
    one call counts as a quarter as many calls as the state has numbers, which is about what it and
    its factors cost.

    Parameters
    ----------
    velocity : callable
        Of time and state.
    initial : ndarray
        The state at time 0.
    times : ndarray
        Times of at least 0, in any order and shape.
    batched : bool, optional
        The velocity takes states (..., state), so that one call gives all differences that an
        implicit solver needs for a Jacobian.

    Examples
    --------
    >>> solve(lambda t, x: -x, np.ones(1), np.array([1.0]), rtol=1e-9, atol=1e-12).round(6)
    array([[0.367879]])
    """
    at, where = np.unique(times, return_inverse=True)
    states = np.repeat(initial[None], len(at), axis=0)
    if 0 < at[-1] < SHORT:
        states = initial + at[:, None] * velocity(0.0, initial)
    elif at[-1] > 0:
        implicit = initial.size <= MOST_IMPLICIT
        calls = _Calls(at[-1])
        slopes = calls.counted(_differences(velocity), initial.size / 4) if batched else None
        solution = scipy.integrate.solve_ivp(
            calls.counted(velocity, 1.0),
            (0.0, at[-1]),
            initial,
            t_eval=at,
            rtol=rtol,
            atol=atol,
            **({"method": "LSODA", "jac": slopes} if implicit else {"method": "RK45"}),
        )
        if not solution.success:
            raise Unsolved(f"the flow could not be solved: {solution.message}")
        states = solution.y.T
    return np.asarray(states[where.reshape(times.shape)])


def _differences(velocity: Velocity) -> Velocity:
    """Return a function for the derivative of the velocity by the state, (state, state)."""

    def slopes(t: float, state: FloatArray) -> FloatArray:
        step = DIFFERENCE * np.maximum(abs(state), 1.0)
        moved = velocity(t, state + np.diag(step)) - velocity(t, state)
        return np.asarray((moved / step[:, None]).T)

    return slopes


class _Calls:
    """The calls that a solver has made, up to `MOST_CALLS`."""

    def __init__(self, end: float) -> None:
        self.end, self.made = end, 0.0

    def counted(self, function: Velocity, cost: float) -> Velocity:
        """Return the function, each call of which counts as `cost` calls."""

        def call(t: float, state: FloatArray) -> FloatArray:
            self.made += cost
            if self.made > MOST_CALLS:
                raise Unsolved(
                    f"the flow was given up after {MOST_CALLS:,} calls, at time {t:.3g} "
                    f"of {self.end:.3g}; give rates closer to each other, or a shorter time"
                )
            return function(t, state)

        return call

"""Two samples of the same cells, whose runs share seeds: do they agree, and if not, how not?

Cells that share seeds deviate together, so that an r.m.s. over them says little: most of it is one
number, drawn once. Here a panel is judged by two numbers, its common shift and the rest, each in
units of what chance gives with the covariance of the cells.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attnlab.files.errors import InputError

FEWEST_SEEDS = 4  # for a covariance


@dataclass(frozen=True)
class Agreement:
    """Agreement of one panel with another sample of it.

    shift: the mean over cells of the difference in standard errors, in its own standard errors.
    rest: the mean square of what is left, over what is expected of it: near 1 for equal panels.
    shift_chance, rest_chance: how often equal panels have a larger one.
    """

    shift: float
    shift_chance: float
    rest: float
    rest_chance: float


def agreement(
    values: NDArray[np.float64],
    mean: NDArray[np.float64],
    std: NDArray[np.float64],
    *,
    seeds: int,
    rounding: float = 0.0,
) -> Agreement:
    """Compare our `values` (cell, seed) with a published `mean` and `std` (cell) over `seeds`.

    Both samples are taken to come from one distribution, in which cells correlate over seeds; the
    correlations are estimated from our seeds. rounding: of the published means.
    """
    from scipy import stats

    cells, ours = values.shape
    if ours < FEWEST_SEEDS:
        raise InputError(f"seeds: a covariance needs at least {FEWEST_SEEDS}, got {ours}")
    freedom = ours - 1
    own_std = values.std(axis=1, ddof=1)
    pooled = freedom + seeds - 1
    variance = (freedom * own_std**2 + (seeds - 1) * std**2) / pooled
    error = np.sqrt(variance * (1 / ours + 1 / seeds) + rounding**2 / 12)
    u = (values.mean(axis=1) - mean) / error
    # R over seeds; var(mean of u) = sum(R) / n^2, and E sum (u - mean u)^2 = tr(C R C), C centring
    w = (values - values.mean(axis=1, keepdims=True)) / own_std[:, None]
    of_shift = float(w.mean(axis=0) @ w.mean(axis=0)) / freedom
    left = w - w.mean(axis=0)
    gram = left.T @ left / freedom  # (seed, seed), with the traces of C R C and of its square
    trace = float(np.trace(gram))
    # unbiased for tr((C R C)^2) of normal samples, which the plain square overestimates
    square = float(np.sum(gram**2)) - trace**2 / freedom
    square *= freedom**2 / ((freedom + 2) * (freedom - 1))
    # as many independent cells as would vary as much (Satterthwaite)
    effective = float(np.clip(trace**2 / max(square, 1e-300), 1, cells - 1))
    shift = float(u.mean()) / np.sqrt(of_shift)
    # u^2 is expected to be more than 1, because its error is estimated too
    rest = float(np.sum((u - u.mean()) ** 2)) / (trace * pooled / (pooled - 2))
    return Agreement(
        shift=shift,
        shift_chance=float(2 * stats.t.sf(abs(shift), freedom)),
        rest=rest,
        rest_chance=float(stats.f.sf(rest * pooled / (pooled - 2), effective, pooled)),
    )

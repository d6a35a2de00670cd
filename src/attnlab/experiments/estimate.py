"""Estimates: a number, or a proportion, with its standard error over seeds.

An error over a few seeds is itself a rough number, and often too small. So every number of a study
is found again on each half of its seeds, which have no run in common: where the halves differ by
much more than their errors, or have no value, there are too few seeds.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from attnlab.auditing.fit import slope
from attnlab.experiments.base import Judgement
from attnlab.files.errors import InputError

MOST_APART = 3.0  # halves agree where they differ by no more errors than this
COVERAGE = 0.95  # of an interval, where there are seeds enough

Numbers = Mapping[str, float]


@dataclass(frozen=True)
class Estimate:
    """A number, its standard error, and the number of seeds.

    Parameters
    ----------
    value : float
        The number.
    error : float
        Its standard error.
    count : int
        Number of seeds.
    """

    value: float
    error: float
    count: int

    def __str__(self) -> str:
        return f"{self:.3g}"

    def __format__(self, form: str) -> str:
        """The number in this format, with its error in one digit; as a text without a format."""
        return f"{self.value:{form}} ± {self.error:.1g}" if form else str(self)

    def numbers(self, name: str) -> dict[str, float]:
        """The number and its error, as a finding has them."""
        return {name: self.value, f"{name}_error": self.error}

    def interval(self) -> tuple[float, float]:
        """The interval of `COVERAGE` by Student's t."""
        from scipy.stats import t

        half = t.ppf((1 + COVERAGE) / 2, max(self.count - 1, 1)) * self.error
        return self.value - half, self.value + half

    def below(self, bound: float) -> bool:
        """Return whether the number is below `bound` by more than two errors."""
        return self.value + 2 * self.error < bound

    def above(self, bound: float) -> bool:
        """Return whether the number is above `bound` by more than two errors."""
        return self.value - 2 * self.error > bound


@dataclass(frozen=True)
class Share(Estimate):
    """A proportion, printed as "k of n": where k is n, the seeds show no error.

    Parameters
    ----------
    hits : int
        Number of hits.
    total : int
        Number of entries.
    """

    hits: int
    total: int

    def __str__(self) -> str:
        return f"{self.hits} of {self.total}"

    def numbers(self, name: str) -> dict[str, float]:
        """The share, its error and its count."""
        count = {f"{name}_hits": float(self.hits), f"{name}_total": float(self.total)}
        return {**super().numbers(name), **count}


def jackknife(statistic: Callable[[xr.DataArray], float], values: xr.DataArray) -> Estimate:
    """`statistic` of all seeds, and its standard error by leaving out one seed at a time.

    For a mean this is the ordinary standard error; it serves slopes and crossings just as well. One
    seed has no error: NaN.

    Parameters
    ----------
    statistic : callable
        A function of values along `seed`.
    values : xarray.DataArray
        What each seed has.

    Returns
    -------
    Estimate
        With its error.
    """
    n = values.sizes["seed"]
    if n == 1:
        return Estimate(float(statistic(values)), math.nan, n)
    without = np.array(
        [statistic(values.isel(seed=np.arange(n) != left_out)) for left_out in range(n)]
    )
    error = np.sqrt((n - 1) / n * ((without - without.mean()) ** 2).sum())
    return Estimate(float(statistic(values)), float(error), n)


@dataclass(frozen=True)
class Median:
    """A median over seeds, and an interval that holds the median of all possible seeds.

    Parameters
    ----------
    value : float
        The median.
    low, high : float
        Ends of the interval, each the value of a seed.
    count : int
        Number of seeds that have a value.
    """

    value: float
    low: float
    high: float
    count: int

    def numbers(self, name: str) -> dict[str, float]:
        """The median and the ends of its interval."""
        return {name: self.value, f"{name}_low": self.low, f"{name}_high": self.high}

    def told(self, digits: str = ".2f") -> str:
        """The median and its interval in brackets; "-" of no seed."""
        if not self.count:
            return "-"
        between = f" ({self.low:{digits}} to {self.high:{digits}})" if self.count > 1 else ""
        return f"{self.value:{digits}}{between}"


def median(values: xr.DataArray) -> Median:
    """Return the median over seeds, with an interval between two of the seeds' values.

    What a seed has along other dims (learning rates) shares its start, so it is averaged first, and
    a seed counts once. The interval is that of the order statistics: of n seeds the k-th and the
    (n+1-k)-th hold the median with `coverage(n)`, whatever the distribution, and never leave the
    range of the values.

    Parameters
    ----------
    values : xarray.DataArray
        What each seed has; NaN where it has none.

    Returns
    -------
    Median
        Of the seeds that have a value.
    """
    own = values.mean([dim for dim in values.dims if dim != "seed"]).values.astype(np.float64)
    own = np.sort(own[np.isfinite(own)])
    if not own.size:
        return Median(math.nan, math.nan, math.nan, 0)
    rank = _rank(own.size)
    return Median(float(np.median(own)), float(own[rank]), float(own[-1 - rank]), own.size)


def coverage(seeds: int) -> float:
    """Probability with which the interval of `median` holds the median; 0.94 of 5 seeds."""
    return _between(seeds, _rank(seeds))


def _rank(seeds: int) -> int:
    """The innermost rank, from 0, whose interval covers enough; 0, the range, where none does."""
    enough = [k for k in range((seeds + 1) // 2) if _between(seeds, k) >= COVERAGE]
    return max(enough, default=0)


def _between(seeds: int, rank: int) -> float:
    """Probability that the median lies between the seeds of this rank from either end."""
    outside = sum(math.comb(seeds, fewer) for fewer in range(rank + 1))
    return 1 - 2 * outside / 2**seeds


def standard_error(values: xr.DataArray) -> xr.DataArray:
    """Return the standard error of the mean over seeds: the bars of a figure."""
    error: xr.DataArray = values.std("seed", ddof=1) / np.sqrt(values.sizes["seed"])
    return error


def mean(values: xr.DataArray | ArrayLike) -> Estimate:
    """The mean over seeds of a number that each seed has; NaN where one of them has none.

    Parameters
    ----------
    values : xarray.DataArray or array_like
        What each seed has; along other dims they are averaged first. Without labels every number is
        a seed's.

    Returns
    -------
    Estimate
        With its error.

    Examples
    --------
    >>> from attnlab.experiments import mean
    >>> print(mean([1.0, 2.0, 3.0, 2.0]))
    2 ± 0.4
    """
    if isinstance(values, xr.DataArray):
        values = values.mean([dim for dim in values.dims if dim != "seed"], skipna=False).values
    own = np.ravel(np.asarray(values, dtype=np.float64))
    error = own.std(ddof=1) / math.sqrt(own.size) if own.size > 1 else math.nan
    return Estimate(float(own.mean()), float(error), own.size)


def means(found: Mapping[Any, xr.DataArray | ArrayLike], form: str = "") -> str:
    """Return the mean over seeds of each entry after its name, as a note lists them.

    Examples
    --------
    >>> from attnlab.experiments.estimate import means
    >>> means({"one": [1.0, 3.0], "two": [2.0, 2.0]})
    'one 2 ± 1; two 2 ± 0'
    """
    return "; ".join(f"{name} {mean(values):{form}}" for name, values in found.items())


def with_range(values: xr.DataArray | NDArray[np.float64], form: str = ".2f") -> str:
    """Return the mean over seeds with its error, and the range of the seeds in brackets.

    Examples
    --------
    >>> from attnlab.experiments.estimate import with_range
    >>> with_range(np.array([1.0, 2.0, 3.0]))
    '2 ± 0.6 (1.00 to 3.00)'
    """
    return f"{mean(values)} ({float(values.min()):{form}} to {float(values.max()):{form}})"


def numbers_of(found: Mapping[str, Estimate]) -> dict[str, float]:
    """Return the numbers of all estimates, each by the name it has in `found`."""
    return {key: value for name, of in found.items() for key, value in of.numbers(name).items()}


def number_name(text: str) -> str:
    """Return a text as part of a number's name: lower case, "_" in place of other signs."""
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")


def mean_and_range(name: str, values: xr.DataArray) -> dict[str, float]:
    """Mean, least and most of `values` as named numbers: `name`, `name`_least, `name`_most."""
    return {
        name: float(values.mean()),
        f"{name}_least": float(values.min()),
        f"{name}_most": float(values.max()),
    }


def share(hits: xr.DataArray, *, of: xr.DataArray | None = None) -> Share:
    """Return the proportion of hits: of the totals `of`, or of the entries that are not NaN.

    Parameters
    ----------
    hits : xarray.DataArray
        0, 1 or NaN for each entry, or counts.
    of : xarray.DataArray, optional
        Out of how many.

    Returns
    -------
    Share
        With its error.
    """
    both = xr.concat(xr.broadcast(hits, hits.notnull() if of is None else of), "part")
    found = jackknife(lambda kept: float(kept[0].sum() / kept[1].sum()), both)
    return Share(found.value, found.error, found.count, int(both[0].sum()), int(both[1].sum()))


def count_of(hits: xr.DataArray) -> str:
    """Return how many entries are true, as "k of n"."""
    return f"{int(hits.sum())} of {hits.size}"


def power(x: ArrayLike, y: ArrayLike) -> float:
    """The exponent a of y ~ x^a, by least squares in logarithms; NaN where y is not positive."""
    y = np.asarray(y, dtype=np.float64)
    if not np.all(y > 0):
        return float("nan")
    return slope(x, y)


def on_halves(judge: Callable[[xr.Dataset], Judgement], runs: xr.Dataset) -> list[dict[str, float]]:
    """The numbers that `judge` finds on the first and on the second half of the seeds.

    Parameters
    ----------
    judge : callable
        Of an experiment.
    runs : xarray.Dataset
        Its data.

    Returns
    -------
    list of dict
        Numbers by name, of each half.
    """
    if "seed" not in runs.dims:
        raise InputError("data: a study keeps its seeds apart, along the dim seed")
    middle = runs.sizes["seed"] // 2
    return [
        dict(judge(runs.isel(seed=half)).numbers)
        for half in (slice(None, middle), slice(middle, None))
    ]


def apart(halves: Sequence[Numbers]) -> dict[str, float]:
    """Return the difference of the halves in standard errors, for each number that has one.

    Parameters
    ----------
    halves : sequence
        Of `on_halves`.

    Returns
    -------
    dict
        By name.
    """
    first, second = halves
    found = {}
    for name in first:
        if f"{name}_error" in first:
            difference = abs(first[name] - second[name])
            error = math.hypot(first[f"{name}_error"], second[f"{name}_error"])
            found[name] = difference / error if error else math.inf if difference else 0.0
    return found


def unsettled(halves: Sequence[Numbers]) -> dict[str, float]:
    """The numbers in which the halves do not agree, with how many errors they differ by.

    Parameters
    ----------
    halves : sequence
        Of `on_halves`.

    Returns
    -------
    dict
        By name.
    """
    return {name: by for name, by in apart(halves).items() if not by <= MOST_APART}

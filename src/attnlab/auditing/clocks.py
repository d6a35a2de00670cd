"""Clocks: when attention moves fastest and when it snaps, by theories and in training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import xarray as xr

from attnlab import measures
from attnlab.auditing.document import number
from attnlab.measures.motion import FEWEST_RECORDS, equal_spans

if TYPE_CHECKING:
    from attnlab.auditing.audited_run import AuditedRun


class Moment(NamedTuple):
    """A time; with sign ">=" it is the end of a run in which the event did not happen.

    nan where there is none: attention never moved, or the records are too unequal to tell.
    """

    at: float
    sign: Literal["==", ">="] = "=="

    def __str__(self) -> str:
        """Return the time as a part of a sentence."""
        if np.isnan(self.at):
            return "at no known time"
        return f"at t {'=' if self.sign == '==' else self.sign} {self.at:.4g}"


class Factor(NamedTuple):
    """Factor from a predicted time to that of training, or a bound on it."""

    value: float
    sign: Literal["==", "<=", ">="] = "=="

    @property
    def off(self) -> float:
        """Absolute logarithm of the factor."""
        return abs(float(np.log(self.value)))

    def __str__(self) -> str:
        """Return in words how much too early or too late."""
        if self.sign == "==" and f"{self.value:.2g}" == "1":
            return "right, to the record"
        late = self.value < 1.0
        times = (
            f"{1 / self.value if late else self.value:.2g} times too {'late' if late else 'early'}"
        )
        if self.sign == "==":
            return times
        return f"{'<=' if late == (self.sign == '>=') else '>='} {times}"


@dataclass(frozen=True)
class Clock:
    """Time of an event in one class: in training, and by each theory that predicts it.

    event: "fastest", when attention changes fastest; "snap" (`attnlab.measures.snap_time`). Both
    are known to the spacing of the records. next: the next token of the class, by name.
    """

    event: str
    sequence_class: int
    next: str
    simulated: Moment
    predicted: Mapping[str, Moment]

    def factor(self, theory: str) -> Factor | None:
        """Return the factor by which a theory's clock is off; None if neither side has a time."""
        said, seen = self.predicted[theory], self.simulated
        if np.isnan(said.at) or np.isnan(seen.at) or (said.sign == seen.sign == ">="):
            return None
        value = seen.at / said.at
        if seen.sign == ">=":
            return Factor(value, ">=")
        return Factor(value, "<=" if said.sign == ">=" else "==")

    @property
    def off(self) -> float:
        """Largest `off` of its theories."""
        factors = [self.factor(theory) for theory in self.predicted]
        return max((factor.off for factor in factors if factor is not None), default=0.0)

    def document(self) -> dict[str, Any]:
        """All of it as plain data."""
        factors = {theory: self.factor(theory) for theory in self.predicted}
        return {
            "event": self.event,
            "sequence_class": self.sequence_class,
            "next": self.next,
            "simulated": _plain(self.simulated),
            "predicted": {theory: _plain(moment) for theory, moment in self.predicted.items()},
            "factor": {theory: factor and _plain(factor) for theory, factor in factors.items()},
        }


def clocks_of(run: AuditedRun) -> dict[str, tuple[Clock, ...]]:
    """Return the clocks of all classes, by event."""
    predicted = {name: _moments(of) for name, of in run.predicted.items()}
    names = [run.classes.token_name(token) for token in run.classes.next_token.tolist()]
    return {
        event: tuple(
            Clock(event, n, names[n], seen, {name: of[event][n] for name, of in predicted.items()})
            for n, seen in enumerate(moments)
        )
        for event, moments in _moments(run.simulated).items()
    }


def _moments(dataset: xr.Dataset) -> dict[str, list[Moment]]:
    """Return the time of each event in each class: the mean over seeds where all have it."""
    clock = measures.clock_of(dataset)
    times = dataset[clock].values.astype(np.float64)
    speed = measures.attention_speed(dataset).transpose("seed", "sequence_class", clock)
    snap = measures.snap_time(dataset).transpose("seed", "sequence_class").values
    values, last = speed.values, times.size - 2
    moved = np.asarray(values.max(-1) > 0)
    peak = values.argmax(-1)
    can_tell = clock == "time" or len(equal_spans(times)) >= FEWEST_RECORDS
    fastest = (times[peak] + times[peak + 1]) / 2  # of the interval that is fastest
    return {
        "fastest": _by_class(np.where(peak < last, fastest, np.nan), moved, float(times[-1])),
        "snap": _by_class(snap, moved & can_tell, float(times[-1])),
    }


def _by_class(at: Any, moved: Any, end: float) -> list[Moment]:
    def moment(mean: float, ever: bool) -> Moment:
        if not ever:
            return Moment(np.nan)
        return Moment(mean) if np.isfinite(mean) else Moment(end, ">=")

    return [moment(*of) for of in zip(at.mean(0).tolist(), moved.all(0).tolist(), strict=True)]


def _plain(of: Moment | Factor) -> dict[str, Any]:
    value, sign = of
    return {"sign": sign, "value": number(value)}

"""Run: a setting simulated, kept, and read class by class."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from threading import Event
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from attnlab.data import SequenceClasses
from attnlab.dynamics import simulate
from attnlab.measures import clock_of, roles
from attnlab.playground.setting import Setting
from attnlab.prediction.case import Case

KEPT = 24  # runs; a run is a few megabytes at most


@dataclass(frozen=True, eq=False)
class Run:
    """A setting and what came of it; `result` has no dim `seed`, and `head` only with several."""

    setting: Setting
    result: xr.Dataset

    @property
    def classes(self) -> SequenceClasses:
        """What was learnt from."""
        return self.setting.sequence_classes

    @property
    def clock(self) -> str:
        """`step`, or `time` for the flow."""
        return clock_of(self.result)

    @property
    def moments(self) -> NDArray[np.float64]:
        """The recorded steps or times."""
        return np.asarray(self.result[self.clock].values, dtype=np.float64)

    @cached_property
    def is_common(self) -> NDArray[np.bool_]:
        """Whether a token occurs in several classes."""
        return np.asarray(roles.is_common(self.result).values)

    def head(self, head: int) -> xr.Dataset:
        """The result of one head; a model with one head has no other."""
        if "head" not in self.result.dims:
            return self.result
        return self.result.isel(head=min(head, self.result.sizes["head"] - 1))

    def in_theory(self) -> Case:
        """The setting as the theory speaks of it: classes, rates and time."""
        return Case(self.classes, self.setting.eta_y, self.setting.eta_z, float(self.setting.steps))


class Cancelled(Exception):
    """A run that was ended because nobody waits for it any more."""


@dataclass(frozen=True)
class _Wish:
    """A setting to run, and what ends the run early; runs are kept by the setting alone."""

    setting: Setting
    stop: Event = field(compare=False)


def run(setting: Setting, *, stop: Event | None = None) -> Run:
    """Simulate a setting; the same one again costs nothing.

    Raises what `simulate` raises, and `Cancelled` between two compiled calls once `stop` is set.
    """
    return _run(_Wish(setting, Event() if stop is None else stop))


@lru_cache(maxsize=KEPT)
def _run(wish: _Wish) -> Run:
    def go_on(fraction: float) -> None:
        if wish.stop.is_set():
            raise Cancelled

    go_on(0.0)
    setting = wish.setting
    result = simulate(setting.simulation, progress=go_on)
    return Run(setting, result.isel(seed=0, drop=True))


def table(run: Run) -> Any:
    """A run as one table (a pandas DataFrame): a row for each moment, class and token it draws."""
    result = run.result
    rows = result["query"].to_index().get_indexer(result["query_token"].values)
    logits = result["attention_logits"].isel(query=("sequence_class", rows)).drop_vars("query")
    names = ("attention", "probability", "entropy", "distinct_entropy", "common_mass", "loss")
    whole = result[list(names)].assign(attention_logits=logits)
    frame = whole.to_dataframe().reset_index()
    frame["token_name"] = frame["token"].astype(str)
    return frame[frame["probability"] > 0]

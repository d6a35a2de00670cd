"""Alerts: what goes wrong with attention while a model trains, found at each measurement.

An alert never stops a training. It is given once for each kind and layer, at the first step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import xarray as xr

from attnlab.files.errors import InputError
from attnlab.observing.layer_statistics import Arrays

OF_HEADS = ("layer", "head")
NEEDED = ("entropy", "visible_keys", "max_logit", "relative_entropy", "output_norm", "sink_mass")


@dataclass(frozen=True)
class Alert:
    """An alert about heads of one layer.

    Parameters
    ----------
    step : int
        The step at which it was measured first.
    kind : {"nan", "logits", "entropy", "dead", "sink"}
        What is wrong.
    layer : int
        The layer.
    heads : tuple of int
        The heads, the worst first.
    words : str
        Description.
    """

    step: int
    kind: str
    layer: int
    heads: tuple[int, ...]
    words: str


@dataclass(frozen=True)
class Alerts:
    """Thresholds of alerts; None switches one off. Attention that is not a number always alerts.

    Parameters
    ----------
    logit : float, optional
        Largest logit of a head. QK-clip, with which Kimi K2 was trained, acts at 100.
    entropy : float, optional
        Entropy of a head, of the largest possible one, below which it has collapsed, if it was
        twice as large at the first measurement.
    output : float, optional
        Norm of a head's output, over the mean of its layer, below which the head is dead.
    sink : float, optional
        Attention to the first key from which on a head sinks, if it was less at the first
        measurement.
    call : callable, optional
        Called with each `Alert` during a training; by default each is a warning.
    """

    logit: float | None = 100.0
    entropy: float | None = 0.05
    output: float | None = 0.1
    sink: float | None = 0.3
    call: Callable[[Alert], object] | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        for name in ("logit", "entropy", "output", "sink"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, int | float) and value > 0):
                raise InputError(f"alert: {name}: expected a number above 0 or None, got {value!r}")

    def found(self, dataset: xr.Dataset, first: xr.Dataset | None = None) -> Iterator[Alert]:
        """Yield the alerts of measurements over (step, layer, head).

        first: the first measurement of the training; by default that of the dataset.
        """
        first = dataset.isel(step=0) if first is None else first
        now, before = (
            {name: one[name].transpose(*dims, ...).values for name in NEEDED if name in one}
            for one, dims in ((dataset, ("step", *OF_HEADS)), (first, OF_HEADS))
        )
        yield from self.found_in(
            dataset["step"].values, now, before, dataset["layer"].values.tolist()
        )

    def found_in(
        self, steps: Any, now: Arrays, first: Arrays, layers: Sequence[int] | None = None
    ) -> Iterator[Alert]:
        """Yield the alerts of statistics as arrays: `found` without a dataset.

        steps: the measured steps. now: each statistic over (step, layer, head), by name. first: the
        same at the first measurement, over (layer, head). layers: their numbers, by default from 0.
        """
        entropy, seen = now["entropy"], now["visible_keys"]
        # where queries see too few keys, nothing was measured
        wrong = {
            "nan": (np.isfinite(seen) & np.isnan(entropy), entropy, "attention is not a number")
        }
        with np.errstate(invalid="ignore"):
            if self.logit is not None and "max_logit" in now:
                value = now["max_logit"]
                words = f"the largest logit is {{:.3g}}, above {self.logit:g}"
                wrong["logits"] = value > self.logit, value, words
            if self.entropy is not None:
                value, before = (one["relative_entropy"] for one in (now, first))
                collapsed = (value < self.entropy) & (before >= 2 * value)
                words = "entropy has collapsed to {:.2g} of the largest possible"
                wrong["entropy"] = collapsed, -value, words
            if self.output is not None and "output_norm" in now:
                value = now["output_norm"]
                words = "the head is dead, its output has {:.2g} of the mean norm of its layer"
                wrong["dead"] = value < self.output, -value, words
            if self.sink is not None and "sink_mass" in now:
                value, before = (one["sink_mass"][..., 0] for one in (now, first))
                words = "a sink has formed, with {:.2f} of the attention on the first key"
                wrong["sink"] = (value > self.sink) & (before <= self.sink), value, words
        for kind, (bad, badness, words) in wrong.items():
            for layer in np.flatnonzero(bad.any(axis=(0, 2))):
                at = int(bad[:, layer].any(axis=1).argmax())
                worst = np.argsort(-badness[at, layer], kind="stable")
                heads = tuple(int(head) for head in worst if bad[at, layer, head])
                more = f" and {len(heads) - 1} more" if len(heads) > 1 else ""
                number = int(layer if layers is None else layers[int(layer)])
                said = words.format(abs(badness[at, layer, heads[0]]))
                about = f"layer {number} head {heads[0]}{more}: {said}"
                yield Alert(int(steps[at]), kind, number, heads, about)

"""A moment of a model: the statistics of every layer's attention in one forward."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
import xarray as xr
from torch import nn

from attnlab.files.errors import InputError
from attnlab.observe.behind import Behind, Looking, looking
from attnlab.observe.probe import Probe
from attnlab.observe.seams import Sighting, Watch, watching
from attnlab.observe.statistics import MIN_KEYS, statistics
from attnlab.observe.undisturbed import undisturbed


@dataclass(frozen=True, eq=False)
class Moment:
    """What was found, by the names of the layers in the order in which they ran.

    layers: what `statistics` says of each, over (sequence, head), with a coord `kind`: "self", or
        "cross" where keys are of another sequence.
    unseen: attention modules that ran without being seen, and their classes.
    behind: what the weights and the MLP of each layer say.
    """

    layers: Mapping[str, xr.Dataset]
    unseen: Mapping[str, str] = field(default_factory=dict)
    behind: Behind = field(default_factory=Behind)


def moment_of(
    model: nn.Module, probe: Probe, *, rows: int | None = None, min_keys: int = MIN_KEYS
) -> Moment:
    """Run the probe through the model, beside whatever else it does, and measure each layer."""
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    there = probe.on(device)
    found: dict[str, xr.Dataset] = {}
    with undisturbed(model), looking(model) as look:
        see = measuring(lambda: there, found, look, rows=rows, min_keys=min_keys)
        with watching(model, see) as watch:
            there.run(model)
    return moment_seen(watch, found, look)


def measuring(
    batch: Callable[[], Probe], found: dict[str, xr.Dataset], look: Looking, *, rows: int | None,
    min_keys: int,
) -> Callable[[Sighting], None]:  # fmt: skip
    """A function that measures what it is shown, at once, so that no call is kept."""

    def see(sighting: Sighting) -> None:
        sighting.check()
        beside = batch().beside(sighting)
        found[sighting.layer] = statistics(sighting.call, rows=rows, min_keys=min_keys, **beside)
        look.at(sighting, beside["present"])

    return see


def moment_seen(watch: Watch, found: Mapping[str, xr.Dataset], look: Looking) -> Moment:
    """The moment, if anything was seen of it."""
    unseen = watch.unseen()
    if not found:
        kinds = ", ".join(sorted(set(unseen.values())))
        why = f"computes it in code of its own ({kinds})" if unseen else "has none, or hides it"
        raise InputError(
            f"model: no attention of {type(watch.model).__name__} was seen: it {why}; let it call "
            "torch.nn.functional.scaled_dot_product_attention, or inside it call "
            "attnlab.observe.record(query, key, value, mask=...) with what its softmax uses"
        )
    return Moment(found, unseen, look.result())

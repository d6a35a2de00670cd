"""Several processes that train one model together."""

from __future__ import annotations

import torch.distributed as dist
import xarray as xr

from attnlab.observing.moment import Moment


def first() -> bool:
    """Whether this process is the first, or alone."""
    return not _several() or dist.get_rank() == 0


def together(moment: Moment) -> Moment:
    """What all processes have seen, as more sequences of each layer; every one has to call it."""
    if not _several():
        return moment
    # maps stay: each process has its own tokens, and perhaps as many keys
    of_heads = {name: one.drop_dims(["row", "key"]) for name, one in moment.layers.items()}
    parts: list[dict[str, xr.Dataset]] = [{}] * dist.get_world_size()
    dist.all_gather_object(parts, of_heads)
    names = list(dict.fromkeys(name for part in parts for name in part))
    layers = {
        name: xr.concat([part[name] for part in parts if name in part], "sequence")
        for name in names
    }
    return Moment.of(layers, moment.unseen, moment.behind)


def _several() -> bool:
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1

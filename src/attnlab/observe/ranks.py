"""Several processes that train one model together."""

from __future__ import annotations

from collections.abc import Mapping

import torch.distributed as dist
import xarray as xr


def first() -> bool:
    """Whether this process is the first, or alone."""
    return not _several() or dist.get_rank() == 0


def together(found: Mapping[str, xr.Dataset]) -> Mapping[str, xr.Dataset]:
    """What all processes have seen, as more sequences of each layer; every one has to call it."""
    if not _several():
        return found
    # maps stay: each process has its own tokens, and perhaps as many keys
    of_heads = {name: one.drop_dims(["row", "key"]) for name, one in found.items()}
    parts: list[dict[str, xr.Dataset]] = [{}] * dist.get_world_size()
    dist.all_gather_object(parts, of_heads)
    names = list(dict.fromkeys(name for part in parts for name in part))
    return {
        name: xr.concat([part[name] for part in parts if name in part], "sequence")
        for name in names
    }


def _several() -> bool:
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1

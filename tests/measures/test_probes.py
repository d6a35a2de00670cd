"""Entropy, speed and snap of heads on fixed sequences."""

from math import lgamma

import numpy as np
import pytest
import xarray as xr

from attnlab.measures.motion import map_speed, probe_entropy, snap_step


def maps_of(rng, *shape):
    """Return random causal attention weights (..., query, key)."""
    length = shape[-1]
    weights = rng.gamma(0.5, size=shape) * np.tril(np.ones((length, length)))
    return weights / weights.sum(-1, keepdims=True)


def test_the_entropy_of_one_window_has_its_ceiling():
    even = np.tril(np.ones((35, 35))) / np.arange(1, 36)[:, None]
    maps = np.stack([even, np.eye(35)])[:, None]
    found = probe_entropy(xr.Dataset({"attention": (("probe", "head", "query", "key"), maps)}))
    assert found.dims == ("probe", "head")
    assert float(found[0, 0]) == pytest.approx(lgamma(36) / 35)  # ln(35!)/35
    assert float(found[1, 0]) == 0


def test_a_head_snaps_when_its_maps_stop():
    rng = np.random.default_rng(0)
    start, end = maps_of(rng, 2, 1, 2, 4, 4), maps_of(rng, 2, 1, 2, 4, 4)  # layer head probe q k
    steps = np.arange(0, 110, 10)
    reached = np.clip(steps / 40, 0, 1)[:, None, None, None, None, None]
    moving = (1 - reached) * start + reached * end
    moving[:, 1] = (start + (end - start) * (steps / 100)[:, None, None, None, None, None])[:, 1]
    result = xr.Dataset(
        {"attention": (("step", "layer", "head", "probe", "query", "key"), moving)},
        coords={"step": steps},
    )
    speed = map_speed(result)
    by_hand = np.abs(end - start)[0].sum(-1).mean() / 40  # rows of the first layer's head
    np.testing.assert_allclose(speed.isel(layer=0, head=0)[:4], by_hand)
    assert speed.sizes["step"] == len(steps)
    assert np.isnan(speed.isel(step=-1)).all()
    snap = snap_step(result).isel(head=0)
    assert snap.sel(layer=0).item() == 40
    assert np.isnan(snap.sel(layer=1).item())  # still moving at the end

"""What is measured: statistics of heads, speed and snap of the probes' maps."""

from math import lgamma

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr
from quickly import quickly

from attnlab.text.measure import (
    TOP,
    map_speed,
    probe_entropy,
    snap_step,
    weight_statistics,
)
from attnlab.text.measure import head_statistics as eager_statistics
from attnlab.text.model import TransformerSpec, init

head_statistics = quickly(eager_statistics)


def maps_of(rng, *shape):
    """Random causal maps (..., query, key)."""
    length = shape[-1]
    weights = rng.gamma(0.5, size=shape) * np.tril(np.ones((length, length)))
    return weights / weights.sum(-1, keepdims=True)


def test_statistics_are_means_over_queries():
    maps = maps_of(np.random.default_rng(0), 2, 3, 2, 7, 7)  # layer, sequence, head, query, key
    found = {name: np.asarray(value) for name, value in head_statistics(jnp.asarray(maps)).items()}
    for layer in range(2):
        for head in range(2):
            rows = [maps[layer, b, head, t, : t + 1] for b in range(3) for t in range(7)]
            entropies = np.array([-(row[row > 0] * np.log(row[row > 0])).sum() for row in rows])
            seen = np.array([len(row) for row in rows])
            several = seen > 1
            assert found["entropy"][layer, head] == pytest.approx(entropies.mean(), rel=1e-5)
            relative = (entropies[several] / np.log(seen[several])).mean()
            assert found["relative_entropy"][layer, head] == pytest.approx(relative, rel=1e-5)
            tokens = np.exp(entropies).mean()
            assert found["effective_tokens"][layer, head] == pytest.approx(tokens, rel=1e-5)
            for i, k in enumerate(TOP):
                mass = np.mean([np.sort(row)[::-1][:k].sum() for row in rows])
                assert found["top_mass"][layer, head, i] == pytest.approx(mass, rel=1e-5)


def test_certainty_and_indifference():
    certain = jnp.eye(6)[None, None, None]
    even = jnp.asarray(np.tril(np.ones((6, 6))) / np.arange(1, 7)[:, None])[None, None, None]
    assert float(head_statistics(certain)["entropy"].item()) == 0
    assert float(head_statistics(certain)["top_mass"][0, 0, 0]) == 1
    assert float(head_statistics(even)["relative_entropy"].item()) == pytest.approx(1)
    assert float(head_statistics(even)["effective_tokens"].item()) == pytest.approx(3.5)


def test_stable_ranks_of_a_model_are_of_its_matrices_head_by_head():
    spec = TransformerSpec(layers=2, heads=2, dim=8, feed_forward=6)
    layers = init(spec, 5, jax.random.key(0))["layers"]
    found = quickly(weight_statistics, static_argnums=0)(spec, layers)
    assert found["mlp_stable_rank"].shape == (2,)
    assert found["qk_stable_rank"].shape == (2, 2)

    def rank(matrix):
        return (matrix**2).sum() / np.linalg.norm(matrix, 2) ** 2

    for layer in range(2):
        up, qkv = (np.asarray(layers[name][layer], np.float64) for name in ("up", "qkv"))
        assert float(found["mlp_stable_rank"][layer]) == pytest.approx(rank(up), rel=1e-4)
        for head in range(2):
            own = slice(4 * head, 4 * head + 4)
            q, k = qkv[:, :8][:, own], qkv[:, 8:16][:, own]
            assert float(found["qk_stable_rank"][layer, head]) == pytest.approx(
                rank(q @ k.T), rel=1e-4
            )


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

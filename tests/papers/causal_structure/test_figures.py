"""Judgements of the figures on made-up data; `attnlab check-paper` makes each from its recipe."""

import numpy as np
import xarray as xr

from attnlab.experiments import Standing, published
from attnlab.papers.causal_structure.figures import graphs, layers, stages


def series(*values, seeds=3):
    noise = 1e-6 * np.arange(seeds)[:, None]
    return (("seed", "step"), np.tile(values, (seeds, 1)) + noise)


def test_layers_need_the_tree_and_the_loss():
    found = xr.Dataset(
        {
            "excess": series(0.1, 0.05, 0.005),
            "parent_attention": series(0.2, 0.3, 0.6),
            "recovery": (("seed", "step"), np.tile([0.1, 1.0, 1.0], (3, 1))),
            "released_gap": series(0.01, 0.01, 0.01),
        },
        {"step": [0, 1, 2]},
    )
    judged = layers.judge(found)
    assert judged.standing is Standing.PARTLY
    assert judged.numbers["recovered_at"] == 1
    assert abs(judged.numbers["released_gap"] - 0.01) < 1e-5
    there = found.assign(excess=series(0.1, 0.0, 1e-4))
    assert layers.judge(there).standing is Standing.HOLDS
    lost = found.assign(recovery=0 * found["recovery"])
    assert layers.judge(lost).standing is Standing.FAILS


def test_stages_need_recovery_and_uniform_roots():
    dims = ("graph", "seed", "step")
    found = xr.Dataset(
        {
            "missing": (dims, np.tile([0.8, 0.4, 0.01], (1, 3, 1))),
            "recovery": (dims, np.tile([0.1, 1.0, 1.0], (1, 3, 1))),
            "root_entropy": (dims, np.tile([1.0, 0.99, 0.95], (1, 3, 1))),
            "predicted": (("level", "step"), np.tile([0.8, 0.4, 0.02], (2, 1))),
        },
        {"level": list(stages.LEVELS), "step": [0, 1, 300]},
    )
    judged = stages.judge(found)
    assert judged.standing is Standing.HOLDS
    assert abs(judged.numbers["error_causal-gradient"] - 0.01) < 1e-9
    spread = found.assign(root_entropy=found["root_entropy"] / 2)
    assert stages.judge(spread).standing is Standing.PARTLY
    assert stages.judge(found.assign(recovery=0 * found["recovery"])).standing is Standing.FAILS


def test_graphs_stand_beside_the_published():
    values = 1 - np.array([row["missing"] for row in published(graphs.__file__, "graphs")])
    assert values.size == 20 and abs(values.mean() - 0.837) < 1e-3
    assert abs(values.std(ddof=0) - 0.054) < 2e-3
    found = xr.Dataset(
        {
            "attention": (("model", "graph", "position"), np.full((2, 3, 4), 0.8)),
            "recovery": (("model", "graph"), [[1.0] * 3, [1.0, 0.5, 1.0]]),
            "published": ("published_graph", values),
            "filed": ("filed_graph", values),
        },
        {"model": ["reduced", "full"]},
    )
    assert graphs.judge(found).standing is Standing.PARTLY
    assert graphs.judge(found.assign(recovery=found["recovery"] * 0)).standing is Standing.FAILS

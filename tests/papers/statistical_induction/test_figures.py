"""Judgements of the figures on made-up data; `attnlab check-paper` makes each from its recipe."""

import numpy as np
import xarray as xr

from attnlab.experiments import Standing, published
from attnlab.papers.statistical_induction.figures import lags, minimal, priors, stages


def test_stages_have_to_come_in_order():
    paths = {
        "uniform": [0.0, 0.1, 0.2, 0.3],
        "unigram": [0.1, 0.0, 0.1, 0.2],
        "bigram": [0.2, 0.2, 0.1, 0.0],
        "kl": [0.3, 0.2, 0.2, 0.1],
        "score": [1.0, 1.2, 1.5, 2.5],
        "previous": [0.07, 0.07, 0.2, 0.6],
    }
    found = xr.Dataset(
        {
            name: (("model", "seed", "step"), np.tile(path, (2, 3, 1)))
            for name, path in paths.items()
        },
        {"model": list(stages.MODELS), "step": [0, 10, 20, 30]},
    )
    judged = stages.judge(found)
    assert judged.standing is Standing.HOLDS
    assert judged.numbers["layer_2_ahead"] == 10
    late = found.assign(unigram=found["unigram"] + [[[0]], [[1]]])  # of the transformer
    assert stages.judge(late).standing is Standing.PARTLY


def test_lag_one_has_to_win():
    released = [row["weight"] for row in published(lags.__file__, "position_weights")]
    signal = np.array([0.0, 1.0, -0.3, 0.2, -0.2, 0.1, -0.1])
    found = xr.Dataset(
        {
            "exact": (("prior", "symbols", "lag"), np.tile(signal, (2, 2, 1))),
            "leading": (("prior", "symbols", "lag"), np.tile(signal, (2, 2, 1))),
            "trained": (("symbols", "seed", "lag"), np.tile(signal, (2, 1, 1))),
            "published": ("lag", released),
        },
        {"prior": ["dirichlet", "doubly"], "symbols": [2, 3], "lag": np.arange(7)},
    )
    assert lags.judge(found).standing is Standing.HOLDS
    assert lags.judge(found.assign(trained=abs(found["trained"]))).standing is Standing.PARTLY
    assert lags.judge(found.assign(exact=-found["exact"])).standing is Standing.FAILS


def test_mean_descent_has_to_be_near():
    path = xr.DataArray(
        np.tile([0.02, 0.3, 0.8], (3, 2, 1)),
        {"quantity": list(minimal.SHOWN), "step": [0, 40, 80]},
        ("quantity", "seed", "step"),
    )
    found = xr.Dataset(
        {"trained": path, "predicted": path.isel(seed=0), "released_mask": 0.9 * path}
    )
    assert minimal.judge(found).standing is Standing.HOLDS
    still = found.assign(predicted=0 * path.isel(seed=0) + 0.02)
    assert minimal.judge(still).standing is Standing.FAILS


def test_all_seeds_have_to_get_through():
    dims = ("shown", "run", "transformer_step")
    previous = np.tile([0.07, 0.07, 0.6], (2, 4, 1))
    previous[1, :, 1] = 0.5
    kl = np.tile([0.28, 0.17, 0.07], (2, 4, 1))
    found = xr.Dataset(
        {
            "previous": (dims, previous),
            "kl": (dims, kl),
            "minimal": (("prior", "seed", "step"), np.full((3, 2, 2), 0.5)),
        },
        {
            "shown": ["dirichlet", "doubly"],
            "prior": ["dirichlet", "doubly", "unigram"],
            "transformer_step": [0, 30, 60],
        },
    )
    assert priors.judge(found).standing is Standing.HOLDS
    kl[1, 0, 2] = 0.12
    assert priors.judge(found).standing is Standing.PARTLY
    assert priors.judge(found.assign(previous=(dims, previous[::-1]))).standing is Standing.FAILS

"""Predictions of stage 1 against training."""

import numpy as np

from attnlab import predict, simulate
from attnlab.papers.causal_structure import runs
from attnlab.papers.causal_structure.task import Forest


def test_levels_come_closer_to_training():
    run = runs.stage_one(Forest(length=6), steps=10, seeds=1, batch=2048)
    trained = simulate(run, progress=False)
    errors = {}
    for level in ("causal-kernel", "causal-gradient"):
        said = predict(run, theory=level)
        assert said["first_attention"].dims == trained["first_attention"].dims
        errors[level] = float(abs(said["first_attention"] - trained["first_attention"]).max())
    moved = trained["first_attention"]
    still = float(abs(moved - moved.isel(step=0)).max())
    assert errors["causal-gradient"] < 0.1 * still
    assert errors["causal-gradient"] < errors["causal-kernel"] < still
    np.testing.assert_allclose(said["parameters.first"].isel(step=0), 0)

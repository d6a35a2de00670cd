"""Section 3: LayerNorm."""

import numpy as np
import pytest

from attnlab.formulas import Setting
from attnlab.papers.scan_and_snap.theory import (
    attention_velocity,
    centred_attention,
    centred_velocity,
    decoder_weights,
    gamma,
    h,
)


def test_layer_norm_velocity_is_the_gradient():
    P, M = np.array([[0.3, 0.5, 0.2, 0.0], [0.4, 0.0, 0.0, 0.6]]), 30
    z = np.array([[0.1, -0.3, 0.2, 0.05]])
    growth = h(12.0, M=M, eta_y=0.8)
    Y = decoder_weights(centred_attention(Setting(P, M=M), z), growth, M=M)

    def objective(logits):
        total = 0.0
        for n, f in enumerate(centred_attention(Setting(P, M=M), logits)):
            scores = f @ Y
            total += (scores[n] - np.log(np.exp(scores).sum())) / 2
        return total

    step = 1e-6
    slope = [
        (objective(z + step * unit) - objective(z - step * unit)) / (2 * step) for unit in np.eye(4)
    ]
    speed = gamma(24.0, K=2, M=M, eta_y=0.8)
    np.testing.assert_allclose(centred_velocity(Setting(P, M=M), z)[0] * speed, slope, atol=1e-9)
    f = centred_attention(Setting(P, M=M), z)
    np.testing.assert_allclose(f.sum(1), 0.0, atol=1e-14)
    np.testing.assert_allclose(np.linalg.norm(f, axis=1), 1.0)


def test_layer_norm_is_near_l2_for_a_large_vocabulary():
    P, z = np.array([[0.3, 0.7, 0.0], [0.3, 0.0, 0.7]]), np.zeros((1, 3))
    for M in (10**3, 10**4):
        ratio = centred_velocity(Setting(P, M=M), z) / attention_velocity(Setting(P, M=M), z)
        np.testing.assert_allclose(ratio, 1.0, atol=20 / M)
    with pytest.raises(ValueError, match="M must be at least the number of tokens"):
        centred_attention(Setting(P, M=2))

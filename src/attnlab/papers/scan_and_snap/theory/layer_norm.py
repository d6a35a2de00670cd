"""Section 3: LayerNorm with the mean subtracted, as the analysis is extended to it."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from attnlab.files.errors import InputError
from attnlab.formulas.checks import FloatArray
from attnlab.formulas.setting import Setting, SettingLike
from attnlab.formulas.tokens import attention_weights, by_query
from attnlab.papers.scan_and_snap.theory.coefficients import beta
from attnlab.papers.scan_and_snap.theory.correlations import gram


def centred_attention(setting: SettingLike, z: ArrayLike | None = None) -> FloatArray:
    """f_n = (c_n - 1/M)/|c_n - 1/M| over all M tokens, of which P has the first.

    What standard LayerNorm makes of attention, up to the constant sqrt(M) (Section 3). Returns f,
    (..., K, M).

    >>> centred_attention(Setting([[0.5, 0.5]], M=4))
    array([[ 0.5,  0.5, -0.5, -0.5]])
    """
    s = Setting.of(setting)
    M, c = s.vocab_size, attention_weights(s, z)
    spare = int(M) - c.shape[-1]
    if spare < 0:
        raise InputError(f"M must be at least the number of tokens in P, {c.shape[-1]}; got {M}")
    padded = np.concatenate([c, np.zeros((*c.shape[:-1], spare))], axis=-1) - 1.0 / M
    return np.asarray(padded / np.linalg.norm(padded, axis=-1, keepdims=True))


def centred_velocity(setting: SettingLike, z: ArrayLike) -> FloatArray:
    """dz/dtau under standard LayerNorm: Eq. 10 with `centred_attention`.

    diag(c_n)/|c_n - 1/M| stands in the place of diag(f_n). (The softmax's own -c c^T vanishes as it
    does in Lemma 1, because what it meets has zero sum.)

    >>> centred_velocity(Setting([[0.5, 0.5, 0], [0.5, 0, 0.5]], M=100), [0, 0, 0]).round(3)
    array([[-0.169,  0.085,  0.085]])
    """
    s = Setting.of(setting)
    z = np.atleast_2d(np.asarray(z, dtype=np.float64))
    f, c = centred_attention(s, z), attention_weights(s, z)
    E = gram(f)
    b = beta(E, M=s.vocab_size)
    size = np.sqrt((c**2).sum(-1, keepdims=True) - 1.0 / s.vocab_size)
    seen = f[..., : s.L]
    terms = c / size * ((b * E).sum(-1)[..., None] * seen - b @ seen)
    return by_query(s.share[:, None] * terms, s.rows, z.shape[-2])

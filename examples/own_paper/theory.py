"""Formulas of the paper: numpy alone, never the simulator, so that agreement is evidence."""

import numpy as np

from attnlab.formulas import logit_gradient, unit_attention


def early_push(P, prior, psi, next_token, M):
    """Return z / (eta_Y eta_Z t^2/2) while all outputs are near 1/M, (query, token).

    Y grows as eta_Y t sum_n P(n) f_n (e_n - 1/M)^T; this is the gradient of z with such a Y.
    """
    push = np.zeros((psi.max() + 1, P.shape[1]))
    f = unit_attention(P, push, psi=psi)  # (class, token)
    decoder = (prior * ((next_token[:, None] == next_token) - 1.0 / M)) @ f
    np.add.at(push, psi, prior[:, None] * logit_gradient(f, decoder))
    return push

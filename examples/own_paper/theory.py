"""Formulas of the paper: numpy alone, never the simulator, so that agreement is evidence."""

from attnlab.formulas import Setting, logit_gradient, unit_attention


def early_push(setting):
    """Return z / (eta_Y eta_Z t^2/2) while all outputs are near 1/M, (query, token).

    Y grows as eta_Y t sum_n P(n) f_n (e_n - 1/M)^T; this is the gradient of z with such a Y.
    """
    s = Setting.of(setting)
    f = unit_attention(s)  # (class, token)
    same_next = s.wanted @ s.wanted.T  # (class, class)
    decoder = (s.share * (same_next - 1.0 / s.vocab_size)) @ f
    return s.owner.T @ logit_gradient(f, decoder)

"""Statistical induction heads as functions of numpy arrays."""

from .chains import (
    PRIORS,
    dirichlet,
    divergence,
    doubly,
    last_rules,
    rules,
    sample,
    stationary,
    uniform_divergence,
    unigram,
)

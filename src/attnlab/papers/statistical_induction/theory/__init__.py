"""Statistical induction heads as functions of numpy arrays.

Read `chains` (priors, sequences and the rules of counting), then `gradient` (the minimal model at
its start), then `minimal` (its gradient anywhere, mean descent, and its end).
`attnlab.papers.statistical_induction.theory` never imports the simulator: agreement is evidence.

pi is the stationary law of a chain, and G_d the lag kernel: what lag d of the first layer is worth
at the start.

Symbols
-------
k, T
    Symbols and positions.
P
    Transition matrices, one for each chain.
W
    Second layer of the minimal model, (k, k); c in all entries at the start, plus w I.
v
    First layer: a logit for each lag d.
x, y
    Sequences, and the next symbol at each position.
"""

from .chains import (
    PRIORS,
    dirichlet,
    divergence,
    doubly,
    last_rules,
    mixture,
    rules,
    sample,
    stationary,
    uniform_divergence,
    unigram,
)
from .gradient import first_signal, first_step, lag_kernel, leading_signal, leading_step, powers
from .minimal import Gradient, descend, end_weight, gradient, lag_one, lag_weights, logits

__all__ = [
    "PRIORS",
    "Gradient",
    "descend",
    "dirichlet",
    "divergence",
    "doubly",
    "end_weight",
    "first_signal",
    "first_step",
    "gradient",
    "lag_kernel",
    "lag_one",
    "lag_weights",
    "last_rules",
    "leading_signal",
    "leading_step",
    "logits",
    "mixture",
    "powers",
    "rules",
    "sample",
    "stationary",
    "uniform_divergence",
    "unigram",
]

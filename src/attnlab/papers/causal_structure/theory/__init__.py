"""Formulas of causal structure, as functions of numpy arrays.

Read `kernel` (what the first gradient measures, for one chain and a tree), then `gradient` (the
reduced model on sequences: its exact gradient, its ideal end, and predictions from counts).
`attnlab.papers.causal_structure.theory` never imports the simulator, so that agreement is evidence.

Symbols
-------
S, T
    Symbols; positions, the last of which is the test token.
pi, mu
    Transition matrix of a sequence, pi(b|a) in row a, and its stationary law.
p(i)
    Parent of position i, counted from 0; -1 is a root.
g
    Kernel of the first gradient for a pair of positions (query i, key j).
A1, S_ij
    Logits and attention weights of layer 1.
a
    Attention weights of layer 2 at the last position.
beta0
    Scale of A2 = beta0 I.
eps
    Added to the outputs f within the logarithm.
"""

from .gradient import (
    Sample,
    count_predictor,
    cross_entropy,
    descend,
    first_gradient,
    ideal_outputs,
    outputs,
    sample_sequences,
    second_weights,
    softmax_gradient,
    softmax_rows,
)
from .kernel import (
    KINSHIPS,
    ROOT,
    chi_squared,
    chi_squared_from_spectrum,
    distances,
    even_weights,
    expected_kernel,
    joint_law,
    kernel,
    kinship_kernel,
    leading_gradient,
    sample_chains,
    stationary,
    through_softmax,
)

__all__ = [
    "KINSHIPS",
    "ROOT",
    "Sample",
    "chi_squared",
    "chi_squared_from_spectrum",
    "count_predictor",
    "cross_entropy",
    "descend",
    "distances",
    "even_weights",
    "expected_kernel",
    "first_gradient",
    "ideal_outputs",
    "joint_law",
    "kernel",
    "kinship_kernel",
    "leading_gradient",
    "outputs",
    "sample_chains",
    "sample_sequences",
    "second_weights",
    "softmax_gradient",
    "softmax_rows",
    "stationary",
    "through_softmax",
]

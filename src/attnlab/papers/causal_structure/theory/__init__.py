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

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

"""Statistical induction heads as functions of numpy arrays.

Read `chains` (priors, sequences and the rules of counting), then `start` (the minimal model at
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

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

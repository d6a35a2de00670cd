"""In-context regression with linear attention: formulas of numpy arrays.

Equations are those of Zhang, Singh, Latham and Saxe (ICML 2025). Each docstring says how we know
it: "printed text" is theirs, "ours" is derived or added here.

Read `population` (loss, flow, fixed points, plateaus), then `clocks` (when each drop comes).

Symbols
-------
regression
    A `Regression`: the spectrum lambda_1 >= ... >= lambda_D > 0 of the inputs and N examples.
A
    What attention does: y_hat = beta^T A x_q, (..., D, D), in the eigenbasis of the inputs.
start
    Weights at time 0: `Merged` (v, U) or `Separate` (v, k, q), for H heads of rank R.
at
    Weights at one time, or along a path.
norm
    w_init, the size of the weights at the start.
component
    Number of an eigenvector, 0 for the largest eigenvalue.
components
    m, number of eigenvectors that are learned, in order of their eigenvalues.
v0
    v at the start of a head that is aligned and balanced, v = |k| = |q|.
t
    Flow time of dW/dt = -1/2 dL/dW, in any order and shape; `released_clock` converts steps.
rtol, atol
    Tolerances of the solver.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

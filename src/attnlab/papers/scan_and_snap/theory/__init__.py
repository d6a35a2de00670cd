"""The lemmas and theorems of "Scan and Snap" as functions of numpy arrays.

Read in this order: `growth` (the decoder's clock and the phase transition), `decoder` (what it
learns and sends back), `attention` (what attention does with that), `concentration` and
`extensions`. Symbols that are not here are those of `attnlab.formulas`.

Symbols
-------
K
    Number of classes, drawn uniformly; a class by itself has K = 1/P(n).
M
    Size of the vocabulary.
eta_y
    eta_Y, the learning rate of the decoder.
eta_z
    eta_Z, the learning rate of attention.
t
    Batch-1 optimiser steps, of which each class gets 1/K.
N
    The same, as a number of samples.
steps
    Visits of one class: whole numbers >= 0, in any order.
growth
    h of each class: h(t/K) on average, h_star(N_n) for exactly N_n visits of class n.
form
    "corrected", with our corrections, or "printed", the paper as printed.
weight
    The class weight of Eq. 10. As printed it is 1; but of t batch-1 steps class n gets only the
    share P(n), so that Eq. 10 needs this factor when t counts steps, and that is the default.
f
    Attention of each class with norm 1, (..., K, L) (`unit_attention`).
E
    Correlations between the classes, (..., K, K), with 0 on the diagonal (`correlation`).
rho
    The overlap f_n . f_n' of any two classes.
theta, sigma
    How far h and 1/(M - 1 + exp(M h)) of each class are from the average (`visit_deviations`); 0 by
    default, where every class was seen equally often.
length
    T: a sequence has T - 1 contextual tokens.
C0
    C_0 of Section 6, > 0; rho0^4/K as printed (`common_token_path`).
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

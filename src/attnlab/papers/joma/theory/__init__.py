"""JoMA's joint dynamics of MLP and attention as functions of numpy arrays, as we know them.

Read in this order: `gradient` (the model, and what is assumed of it), `invariants` (what ties
attention to the MLP, and the dynamics of the MLP alone), `stationary`, `salient`, `tree`.
Symbols that are not here are those of `attnlab.formulas`; the MLP learns at the eta_y of a setting.

Symbols
-------
t
    Flow time, in any order.
v
    Lower weights of the MLP, (..., H, L): a row v_k for each of H hidden units.
v0
    The same at the start.
z0
    Logits at the start, (L,), or (Q, L) where there are several queries.
r
    Weights of the queries, (..., H, Q), zero by default.
upper
    Upper layer V, (..., H, J), if there is one.
eta_w
    The learning rate of the MLP.
eta_z
    The learning rate of attention.
temperature
    T, by which attention logits are divided.
attention
    "softmax", "exp" or "linear": what becomes of the logits.
activation
    "linear", "relu" or "gelu", of the hidden units.
mean_attention
    b-bar of one query, (L,) or (time, L).
incoming
    g, (K, H), where it does not follow the outputs.
Delta
    What first moves the MLP (`delta`): (L,) or, with several hidden units, (H, L).
mu, other
    Centres to which tokens are pulled, (L,).
sharpness
    c; 1/2 in the paper, 0 without attention.
normalised
    Take softmax(c v^2) for attention instead of exp(c v^2): all tokens then share one clock.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

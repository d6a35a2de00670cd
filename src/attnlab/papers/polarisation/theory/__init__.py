"""Polarisation, and focus and dilution, as functions of numpy arrays.

Read `values` (attention weights times a trained value matrix; the path in one direction and what
follows from it), then `focus` (a chain whose embedding, attention and decoder are trained).
`attnlab.papers.polarisation.theory` never imports the simulator, so that agreement is evidence.

Symbols
-------
V, v_i
    Values, (d, n): a column for each token.
a
    Attention logits, (n,).
sigma, alpha
    softmax(a); weights of any other kind.
u
    Scores beta . v_i, (n,), along the one direction beta that the loss pulls in.
rho
    Learning rate of the logits over that of the values.
tau
    Time of the path in one direction; a clock relates it to the flow time t.
pi, stickiness
    Token frequencies and lambda of the chain P = lambda I + (1 - lambda) 1 pi^T.

`__init__.pyi` lists the public names, which are loaded when they are first used.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

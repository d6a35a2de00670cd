"""Attention as a support vector machine, as functions of numpy arrays.

Read in this order: `margin` (which direction the weights take) and `training` (the gradient, and
how the weights get there). "Item" is a prediction's number: 1 the programme, 2 local optimality,
3 the regularisation path, 4 local and 5 global convergence, 6 rank, 7 several tokens, 8 rates,
9 one-hot tokens. T23, T24 and V24 are the papers: Ataee Tarzanagh et al. 2023 (arXiv 2306.13596)
and 2024 (2308.16898), and Vasudeva, Deora and Thrampoulidis 2024 (2402.05738). We have not read
their printed text: a formula is marked "released code" or "as we know it", or "ours" where it is
derived here.

Global convergence (item 5, as we know it) has no formula of its own: where all tokens of a sequence
but one have the same score, every start leads to `max_margin` of the tokens of highest score. From
W = 0 it does; `stays_selected` finds starts from which it does not.

Symbols
-------
x
    Tokens, (n, T, d): n sequences of T vectors.
z
    Query vectors, (n, k); k = d in the papers, and z = 1, (n, 1), for T23's single vector p.
scores
    gamma = y v^T x, (n, T): what a token would contribute to the margin of its sequence.
selected
    alpha, (n,): the token that each sequence selects.
W
    Attention weights before the softmax, (d, k): s = softmax(X W z).

`__init__.pyi` lists the public names, which are loaded when they are first used.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

"""Active and dormant heads, as functions of numpy arrays.

Read `chain` (Bigram-Backcopy, the process to be learned), then `sink` (a reparametrised head whose
attention to the first token and whose value there drive each other). "Item" is a prediction's
number: 1 loss and gradient, 2 the sink alone, 3 the drain alone, 4 stationary points, 5 both
together with one context, 6 with contexts that differ. We have not read the paper's printed text
(Guo, Pai, Bai, Jiao, Jordan and Mei, arXiv 2410.13835): a formula is marked "as we know it", or
"ours" where it is derived here.

Symbols
-------
P
    Transition probabilities of the ordinary tokens, (V, V); the row p_v follows token v.
pi
    Weights of the query tokens v in the loss, (V,).
alpha
    Sink logits, (V,): the attention logit of query token v on the first token <s>.
beta
    Value of <s>, (V,): what it adds to the output logits.
W
    Sum of the values of the N other visible tokens, (V,), or (M, V) for M contexts.
s
    Sink mass e^alpha / (e^alpha + N).
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

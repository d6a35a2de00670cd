"""Formulas of sequence classes that several papers share; numpy and scipy only.

Nothing here or in a paper's `theory` imports the simulator, so that agreement is evidence. Symbols
are explained once, here and in a paper's `theory`; a formula explains only what is its own.
Examples take `Setting`, `np` and the names of their folder as imported.

Symbols
-------
setting
    Classes and learning rates: a `Setting`, or a case that has one. `SequenceClasses` will do where
    no learning rates are needed, and P(l|n) as an array, (K, L), where nothing else is.
z
    Attention logits, a row for each query, (..., Q, L), zero by default; leading axes (times,
    heads) stay in the results.
z0
    Logits at the start, (Q, L), zero by default.
t
    Batch-1 optimiser steps: a number or an array, in any order.
momentum
    mu of heavy-ball steps, m <- mu m + gradient, in [0, 1).
rtol, atol
    Tolerances of the solver.
"""

from attnlab.formulas.setting import Setting
from attnlab.formulas.sgd import SgdFlow, momentum_steps, momentum_time, sgd_flow
from attnlab.formulas.solving import Unsolved, solve
from attnlab.formulas.tokens import (
    Roles,
    SampleGradient,
    attention_weights,
    logit_gradient,
    sample_gradient,
    token_roles,
    unit_attention,
)

__all__ = [
    "Roles",
    "SampleGradient",
    "Setting",
    "SgdFlow",
    "Unsolved",
    "attention_weights",
    "logit_gradient",
    "momentum_steps",
    "momentum_time",
    "sample_gradient",
    "sgd_flow",
    "solve",
    "token_roles",
    "unit_attention",
]

"""Formulas of sequence classes that several papers share; numpy and scipy only.

Nothing here or in a paper's `theory` imports the simulator, so that agreement is evidence.
"""

from attnlab.formulas.backprop import SampleGradient, logit_gradient, sample_gradient
from attnlab.formulas.momentum import momentum_steps, momentum_time
from attnlab.formulas.setting import Setting
from attnlab.formulas.sgd import SgdFlow, sgd_flow
from attnlab.formulas.solving import Unsolved, solve
from attnlab.formulas.tokens import Roles, attention_weights, token_roles, unit_attention

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

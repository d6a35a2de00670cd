"""The lemmas and theorems of "Scan and Snap" as functions of numpy arrays.

Read in this order: `growth` (the decoder's clock), `correlations` (what the decoder sends back),
`decoder`, then `attention`, `fates` and `transition` (what attention does with it), `concentration`
and `extensions`. Symbols that are not here are those of `attnlab.formulas`.

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

from .attention import AttentionFlow, attention_flow, attention_path, attention_velocity
from .concentration import (
    Deviations,
    Interval,
    decoder_deviations,
    expected_squared_norm,
    frequency_interval,
    losing_length,
    visit_deviations,
    visits_radius,
)
from .correlations import (
    Assumption2,
    Part,
    SpectrumBounds,
    assumption_2,
    back_gradient,
    beta,
    correlation,
    e_prime,
    gradient_coefficients,
    gram,
    iota,
    spectrum_bounds,
    xi,
)
from .decoder import (
    ClassLogits,
    PlainCoefficients,
    class_logits,
    decoder_error,
    decoder_weights,
    plain_coefficients,
    plain_decoder,
    steps_to_error,
)
from .extensions import (
    LocalRoles,
    centred_attention,
    centred_velocity,
    dominant_tokens,
    head_flows,
    local_roles,
    logit_prior,
    position_prior,
    residual_beta,
    residual_correlation,
    residual_velocity,
)
from .fates import (
    Corollary2,
    GrowthBounds,
    common_token_margin,
    corollary_2,
    distinct_growth,
    gain_invariant,
    growth_bounds,
    growth_factor,
    relative_gain,
    sign_fates,
    token_fates,
)
from .growth import (
    GammaStages,
    Peak,
    TransitionTimes,
    gamma,
    gamma_peak,
    gamma_stages,
    h,
    h_gap_bound,
    h_inverse,
    h_lead,
    h_star,
    omega_0,
    omega_1,
    reduced_time,
    transition_times,
)
from .transition import (
    CommonTokenPath,
    Snapping,
    common_token_path,
    density_threshold,
    growth_bound,
    snapping,
)

__all__ = [
    "Assumption2",
    "AttentionFlow",
    "ClassLogits",
    "CommonTokenPath",
    "Corollary2",
    "Deviations",
    "GammaStages",
    "GrowthBounds",
    "Interval",
    "LocalRoles",
    "Part",
    "Peak",
    "PlainCoefficients",
    "Snapping",
    "SpectrumBounds",
    "TransitionTimes",
    "assumption_2",
    "attention_flow",
    "attention_path",
    "attention_velocity",
    "back_gradient",
    "beta",
    "centred_attention",
    "centred_velocity",
    "class_logits",
    "common_token_margin",
    "common_token_path",
    "corollary_2",
    "correlation",
    "decoder_deviations",
    "decoder_error",
    "decoder_weights",
    "density_threshold",
    "distinct_growth",
    "dominant_tokens",
    "e_prime",
    "expected_squared_norm",
    "frequency_interval",
    "gain_invariant",
    "gamma",
    "gamma_peak",
    "gamma_stages",
    "gradient_coefficients",
    "gram",
    "growth_bound",
    "growth_bounds",
    "growth_factor",
    "h",
    "h_gap_bound",
    "h_inverse",
    "h_lead",
    "h_star",
    "head_flows",
    "iota",
    "local_roles",
    "logit_prior",
    "losing_length",
    "omega_0",
    "omega_1",
    "plain_coefficients",
    "plain_decoder",
    "position_prior",
    "reduced_time",
    "relative_gain",
    "residual_beta",
    "residual_correlation",
    "residual_velocity",
    "sign_fates",
    "snapping",
    "spectrum_bounds",
    "steps_to_error",
    "token_fates",
    "transition_times",
    "visit_deviations",
    "visits_radius",
    "xi",
]

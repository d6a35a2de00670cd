"""What is predicted: the lemmas and theorems of "Scan and Snap" and of JoMA as functions.

Of `scan_and_snap`, read in this order: `growth` and `speed` (the decoder's clock), `tokens`,
`correlations` and `coefficients` (what the decoder sends back), `decoder` and `backprop`, then
`attention`, `gain`, `fates` and `transition` (what attention does with it), `sgd` (the same with
the decoder that SGD trains), `concentration`, `layer_norm`, `residual` and `priors`. Of `joma`:
`gradient` (the model written out), `delta`, `invariants` (what ties attention to the MLP),
`assumptions`, `stationary` and `reduced` (what follows), then `salient`, `rank` and `tree`.

Nothing here imports the simulator, so that agreement between the two is evidence.
"""

from attnlab.theory.joma.assumptions import JointAssumptions, joint_assumptions
from attnlab.theory.joma.delta import delta, discriminancy, start_gradient
from attnlab.theory.joma.gradient import (
    JointGradient,
    Mixture,
    attend,
    joint_gradient,
    mean_attention,
    mixture,
)
from attnlab.theory.joma.invariants import (
    exp_invariant,
    linear_invariant,
    moving_invariant,
    shared_invariant,
    softmax_invariant,
)
from attnlab.theory.joma.rank import stable_rank
from attnlab.theory.joma.reduced import ReducedJoint, reduced_joint_flow
from attnlab.theory.joma.salient import (
    EntropyDip,
    SalientFlow,
    entropy_dip,
    salient_entropy,
    salient_flow,
    salient_lag,
    salient_ratio,
)
from attnlab.theory.joma.stationary import (
    StationaryLaw,
    blow_up_time,
    cosh_law,
    erf_law,
    frozen_weights,
)
from attnlab.theory.joma.tree import tree_co_occurrence
from attnlab.theory.scan_and_snap.attention import (
    AttentionFlow,
    attention_flow,
    attention_path,
    attention_velocity,
)
from attnlab.theory.scan_and_snap.backprop import SampleGradient, logit_gradient, sample_gradient
from attnlab.theory.scan_and_snap.coefficients import (
    back_gradient,
    beta,
    gradient_coefficients,
    iota,
    xi,
)
from attnlab.theory.scan_and_snap.concentration import (
    Deviations,
    Interval,
    decoder_deviations,
    expected_squared_norm,
    frequency_interval,
    losing_length,
    visit_deviations,
    visits_radius,
)
from attnlab.theory.scan_and_snap.correlations import (
    Assumption2,
    Part,
    SpectrumBounds,
    assumption_2,
    correlation,
    e_prime,
    gram,
    spectrum_bounds,
)
from attnlab.theory.scan_and_snap.decoder import (
    ClassLogits,
    PlainCoefficients,
    class_logits,
    decoder_error,
    decoder_weights,
    plain_coefficients,
    plain_decoder,
    steps_to_error,
)
from attnlab.theory.scan_and_snap.fates import (
    Corollary2,
    common_token_margin,
    corollary_2,
    sign_fates,
    token_fates,
)
from attnlab.theory.scan_and_snap.gain import (
    GrowthBounds,
    distinct_growth,
    gain_invariant,
    growth_bounds,
    growth_factor,
    relative_gain,
)
from attnlab.theory.scan_and_snap.growth import h, h_gap_bound, h_inverse, h_lead, h_star
from attnlab.theory.scan_and_snap.layer_norm import centred_attention, centred_velocity
from attnlab.theory.scan_and_snap.priors import (
    dominant_tokens,
    head_flows,
    logit_prior,
    position_prior,
)
from attnlab.theory.scan_and_snap.residual import (
    LocalRoles,
    local_roles,
    residual_beta,
    residual_correlation,
    residual_velocity,
)
from attnlab.theory.scan_and_snap.sgd import SgdFlow, sgd_flow
from attnlab.theory.scan_and_snap.speed import (
    GammaStages,
    Peak,
    TransitionTimes,
    gamma,
    gamma_peak,
    gamma_stages,
    momentum_steps,
    momentum_time,
    omega_0,
    omega_1,
    reduced_time,
    transition_times,
)
from attnlab.theory.scan_and_snap.tokens import (
    Roles,
    attention_weights,
    token_roles,
    unit_attention,
)
from attnlab.theory.scan_and_snap.transition import (
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
    "EntropyDip",
    "GammaStages",
    "GrowthBounds",
    "Interval",
    "JointAssumptions",
    "JointGradient",
    "LocalRoles",
    "Mixture",
    "Part",
    "Peak",
    "PlainCoefficients",
    "ReducedJoint",
    "Roles",
    "SalientFlow",
    "SampleGradient",
    "SgdFlow",
    "Snapping",
    "SpectrumBounds",
    "StationaryLaw",
    "TransitionTimes",
    "assumption_2",
    "attend",
    "attention_flow",
    "attention_path",
    "attention_velocity",
    "attention_weights",
    "back_gradient",
    "beta",
    "blow_up_time",
    "centred_attention",
    "centred_velocity",
    "class_logits",
    "common_token_margin",
    "common_token_path",
    "corollary_2",
    "correlation",
    "cosh_law",
    "decoder_deviations",
    "decoder_error",
    "decoder_weights",
    "delta",
    "density_threshold",
    "discriminancy",
    "distinct_growth",
    "dominant_tokens",
    "e_prime",
    "entropy_dip",
    "erf_law",
    "exp_invariant",
    "expected_squared_norm",
    "frequency_interval",
    "frozen_weights",
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
    "joint_assumptions",
    "joint_gradient",
    "linear_invariant",
    "local_roles",
    "logit_gradient",
    "logit_prior",
    "losing_length",
    "mean_attention",
    "mixture",
    "momentum_steps",
    "momentum_time",
    "moving_invariant",
    "omega_0",
    "omega_1",
    "plain_coefficients",
    "plain_decoder",
    "position_prior",
    "reduced_joint_flow",
    "reduced_time",
    "relative_gain",
    "residual_beta",
    "residual_correlation",
    "residual_velocity",
    "salient_entropy",
    "salient_flow",
    "salient_lag",
    "salient_ratio",
    "sample_gradient",
    "sgd_flow",
    "shared_invariant",
    "sign_fates",
    "snapping",
    "softmax_invariant",
    "spectrum_bounds",
    "stable_rank",
    "start_gradient",
    "steps_to_error",
    "token_fates",
    "token_roles",
    "transition_times",
    "tree_co_occurrence",
    "unit_attention",
    "visit_deviations",
    "visits_radius",
    "xi",
]

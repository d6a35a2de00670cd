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
"""

from .focus import (
    StageOne,
    condensation_rate,
    focus_rate,
    focused_attention,
    group_loss,
    rank_loss,
    stage_one,
    stage_one_end,
    start_gradient,
    transition_matrix,
)
from .values import (
    Path,
    attend,
    conserved,
    cross_entropy_clock,
    cross_entropy_norm,
    cross_entropy_ratio,
    drawdown,
    even_stage,
    frozen_logits,
    gap_velocities,
    linear_stage,
    linear_winner,
    logistic_clock,
    logits_from_values,
    one_direction,
    output_kernel,
    predicted_winner,
    pull_back,
    remainder,
    square_clock,
    tail,
    two_token_invariant,
    two_token_tau,
    velocity,
)

__all__ = [
    "Path",
    "StageOne",
    "attend",
    "condensation_rate",
    "conserved",
    "cross_entropy_clock",
    "cross_entropy_norm",
    "cross_entropy_ratio",
    "drawdown",
    "even_stage",
    "focus_rate",
    "focused_attention",
    "frozen_logits",
    "gap_velocities",
    "group_loss",
    "linear_stage",
    "linear_winner",
    "logistic_clock",
    "logits_from_values",
    "one_direction",
    "output_kernel",
    "predicted_winner",
    "pull_back",
    "rank_loss",
    "remainder",
    "square_clock",
    "stage_one",
    "stage_one_end",
    "start_gradient",
    "tail",
    "transition_matrix",
    "two_token_invariant",
    "two_token_tau",
    "velocity",
]

"""The cases on which the claims of "Scan and Snap" are tested."""

from __future__ import annotations

from typing import Any

import xarray as xr

from attnlab.auditing.runs import TRAINED_RATIOS, ratios, trained
from attnlab.tasks.classes import SequenceClasses, single_common, symmetric
from attnlab.theory import Case

from . import theory
from .classes import syn_small


def two_by_hand(rows: list[list[float]], vocab_size: int) -> SequenceClasses:
    """Two classes of one query, by their probabilities of the first few tokens."""
    tokens = len(rows[0])
    return SequenceClasses(
        [{token: p for token, p in enumerate(row) if p > 0} for row in rows],
        query=[tokens, tokens],
        next_token=[tokens + 1, tokens + 2],
        vocab_size=vocab_size,
        origin=f"P = {rows}, M = {vocab_size}",
    )


# eta_Y < 1, as Theorem 1 has it, and eta_Y/eta_Z = FAST.
RATES = (0.9, 0.03)
# Assumption 2 holds, with one common token and three distinct ones for each of two classes.
WEAK = Case(
    single_common(num_classes=2, distinct=3, common_prob=0.3, vocab_size=1000), *RATES, 1e10
)
# One distinct token for each of two unequal classes.
UNEVEN = Case(two_by_hand([[0.6, 0.4, 0.0], [0.3, 0.0, 0.7]], 1000), *RATES, 1e10)
# Another such pair, in which attention to the rarer distinct token falls in the end, Assumption 2
# being met until then: about the earliest that a search over such pairs has found.
LATE = Case(two_by_hand([[0.37, 0.63, 0.0], [0.77, 0.0, 0.23]], 1000), *RATES, 1e20)
# Three common tokens: by the criterion for two classes token 1 first gains; later it loses.
TURNING = Case(
    two_by_hand([[0.33, 0.28, 0.07, 0.32, 0.0], [0.19, 0.04, 0.29, 0.0, 0.48]], 1000), *RATES, 1e7
)
# Overlap below 1/M.
FAINT = Case(
    two_by_hand([[0.015, 0.4925, 0.4925, 0, 0], [0.015, 0, 0, 0.4925, 0.4925]], 1000), *RATES, 1e6
)
# The hypotheses of Corollary 2 and Assumption 2.
SYMMETRIC = Case(
    symmetric(num_classes=2, common=2, distinct=1, common_mass=0.4, vocab_size=1000), *RATES, 1e7
)
# K and M of Fig. 3, in the case that Section 6 speaks of.
FIG3 = Case(
    single_common(num_classes=10, distinct=10, common_prob=0.1, vocab_size=1000), *RATES, 1e6
)
# 30 contextual tokens as in print, and with us a query and a next token for each class: M = 34.
SYN_SMALL = Case(syn_small(), *RATES, 1e6)


def clock(case: Case) -> dict[str, Any]:
    """Return K, M and eta_Y, on which the decoder's clock depends (`theory.gamma` and others)."""
    return {"K": case.K, "M": case.M, "eta_y": case.eta_y}


def transition_time(case: Case) -> float:
    """Return the predicted transition time t_0 (Lemma 9), in steps."""
    return float(theory.transition_times(**clock(case)).t0)


def climbed(case: Case) -> xr.Dataset:
    """The joint flow at every ratio of the ladder, which labels dim `ratio`.

    t_0 and 10 t_0 are among the records.
    """
    rates = ratios(*TRAINED_RATIOS, eta_y=case.eta_y)
    run = trained(
        case.classes, rates, case.steps, exactly=(transition_time(case), 10 * transition_time(case))
    )
    return run.swap_dims(run="ratio").assign_coords(ratio=list(TRAINED_RATIOS))

"""Fates: which tokens the theorems say will gain attention, and which will lose it."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnlab import theory
from attnlab.prediction.case import Case
from attnlab.prediction.hypotheses import COROLLARY_2


def seen_roles(case: Case) -> NDArray[np.int64]:
    """1 where a distinct token is seen by the query, 2 for a common one, 0 where it is not seen."""
    common = theory.token_roles(case.P).common
    roles = np.zeros((case.classes.queries.size, case.P.shape[1]), dtype=np.int64)
    for n, row in enumerate(case.psi):
        seen = case.P[n] > 0
        roles[row, seen] = np.where(common[seen], 2, 1)
    return roles


def claimed_fates(case: Case) -> NDArray[np.int64]:
    """Theorem 2's fates, and Corollary 2's for several common tokens where it applies."""
    fates = theory.token_fates(case.P, psi=case.psi)
    if all(part.holds for hypothesis in COROLLARY_2 for part in hypothesis(case)):
        fates[seen_roles(case) == 2] = -1
    return fates


def agreement(claimed: ArrayLike, simulated: ArrayLike) -> NDArray[np.int64]:
    """1 where training does what is claimed, -1 where it does the opposite.

    0 where that cannot be told: nothing is claimed, or z has not moved (or is no number).
    """
    return np.nan_to_num(np.sign(claimed) * np.sign(simulated)).astype(np.int64)

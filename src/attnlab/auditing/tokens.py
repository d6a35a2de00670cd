"""Tokens of an audited run: their roles, and whether training agrees with a claimed sign."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnlab import formulas
from attnlab.theory.facts import Case


def seen_roles(case: Case) -> NDArray[np.int64]:
    """Return 1 where the query sees a distinct token, 2 for a common one, 0 for an unseen one."""
    common = formulas.token_roles(case).common
    roles = np.zeros((case.classes.queries.size, case.P.shape[1]), dtype=np.int64)
    for n, row in enumerate(case.psi):
        seen = case.P[n] > 0
        roles[row, seen] = np.where(common[seen], 2, 1)
    return roles


def agreement(claimed: ArrayLike, simulated: ArrayLike) -> NDArray[np.int64]:
    """Return 1 where training does what is claimed, -1 where it does the opposite.

    0 where that cannot be told: nothing is claimed, or z has not moved (or is not a number).
    """
    return np.nan_to_num(np.sign(claimed) * np.sign(simulated)).astype(np.int64)

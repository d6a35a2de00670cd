"""The audit of your own classes and rates: assumptions, fates and snap, predicted and simulated.

Time: prediction counts batch-1 steps, the joint flow expected-gradient steps; they agree in
expectation (see `attnlab.audit.cases`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from attnlab import measures, theory
from attnlab.audit.cases import joint_flow
from attnlab.audit.document import hypothesis_document, number
from attnlab.audit.readings import as_dataset, logits, reduced
from attnlab.data import SequenceClasses
from attnlab.defaults import ETA_Y, ETA_Z
from attnlab.files.errors import InputError
from attnlab.prediction.case import Case
from attnlab.prediction.hypotheses import ASKED, COROLLARY_2
from attnlab.prediction.hypothesis import Hypothesis

# Attention of every class at every record, in float64: about 100 MB.
LARGEST = 10**5
HORIZON = 100.0  # in units of t_0: far enough for attention to have slowed down for good


@dataclass(frozen=True)
class OwnAudit:
    """What the theory says about given classes and rates, and what training does.

    assumptions: what the paper asks for, each with its value. fates: a Dataset over (query, token)
    with `role` (1 distinct, 2 common), `claimed` (+1 gains, -1 loses, 0 no theorem speaks), and the
    logits at the end, `predicted` by Eq. 10 and `simulated`. snap: a Dataset over sequence_class
    with the snap time `predicted` by Eq. 10 and `simulated`; nan where attention never moved or
    is not quiet by the end. t0_prime, t0: Theorem 4's times.
    """

    case: Case
    assumptions: tuple[Hypothesis, ...]
    fates: xr.Dataset
    snap: xr.Dataset
    t0_prime: float
    t0: float
    note: str

    def document(self) -> dict[str, Any]:
        """All of it as plain data."""
        classes = self.case.classes
        return {
            "classes": classes.origin,
            "eta_y": self.case.eta_y,
            "eta_z": self.case.eta_z,
            "time": self.case.steps,
            "assumptions": [hypothesis_document(assumption) for assumption in self.assumptions],
            "fates": [{**row, "predicted": number(row["predicted"])} for row in self.rows()],
            "t0_prime": number(self.t0_prime),
            "t0": number(self.t0),
            "snap": [
                {
                    "sequence_class": n,
                    "next": classes.token_name(int(classes.next_token[n])),
                    "predicted": number(float(self.snap["predicted"][n])),
                    "simulated": number(float(self.snap["simulated"][n])),
                }
                for n in range(len(classes))
            ],
            "note": self.note,
        }

    def rows(self) -> list[dict[str, Any]]:
        """One entry per query and token that the query can see, largest movement first."""
        classes = self.case.classes
        rows = []
        for q, query in enumerate(self.fates["query"].values):
            for j, token in enumerate(self.fates["token"].values):
                cell = self.fates.isel(query=q, token=j)
                if int(cell["role"]) == 0:
                    continue
                claimed, simulated = int(cell["claimed"]), float(cell["simulated"])
                rows.append(
                    {
                        "query": classes.token_name(int(query)),
                        "token": classes.token_name(int(token)),
                        "role": "common" if int(cell["role"]) == 2 else "distinct",
                        "claimed": {1: "gains", -1: "loses", 0: "no claim"}[claimed],
                        "predicted": float(cell["predicted"]),
                        "simulated": simulated,
                        "as_claimed": None if claimed == 0 else bool(claimed * simulated > 0),
                    }
                )
        return sorted(rows, key=lambda row: -abs(row["simulated"]))


def case_of(
    classes: SequenceClasses,
    *,
    eta_y: float = ETA_Y,
    eta_z: float = ETA_Z,
    steps: float | None = None,
) -> Case:
    """Classes and rates as a case; trained for 100 t_0 unless `steps` (flow time) is given."""
    for name, rate in (("eta-y", eta_y), ("eta-z", eta_z)):
        if not (np.isfinite(rate) and rate > 0):
            raise InputError(f"{name}: expected a finite number above 0, got {rate}")
    if len(classes) < 2:
        raise InputError("classes: the theory compares classes; give at least 2")
    if len(classes) * classes.vocab_size > LARGEST:
        raise InputError(
            f"classes: {len(classes)} classes x {classes.vocab_size} tokens is more than an audit "
            f"holds ({LARGEST:,}); take fewer, or use attnlab simulate"
        )
    times = theory.transition_times(K=len(classes), M=classes.vocab_size, eta_y=eta_y)
    horizon = HORIZON * float(times.t0) if steps is None else float(steps)
    if not (np.isfinite(horizon) and horizon > 1e-2):
        if steps is None:
            raise InputError(f"eta-y: 100 t_0 is {horizon:g} at {eta_y:g}; give a time with steps")
        raise InputError(f"steps: expected a finite time above 0.01, got {steps}")
    return Case(classes, float(eta_y), float(eta_z), horizon)


def audit_classes(case: Case) -> OwnAudit:
    """Check the assumptions, predict with Eq. 10, train, and put the two side by side."""
    s = case
    run = joint_flow(s.classes, [(s.eta_y, s.eta_z)], s.steps).isel(run=0)
    times, simulated = run["time"].values, logits(s, run)
    note = ""
    try:
        path = reduced(s, times).logits
    except (InputError, RuntimeError) as problem:
        note, path = f"Eq. 10 has no solution here: {problem}", np.full(simulated.shape, np.nan)
    predicted_run = as_dataset(s, times, path)
    where = ("query", "token")
    fates = xr.Dataset(
        {
            "role": (where, seen_roles(s)),
            "claimed": (where, claimed_fates(s)),
            "predicted": (where, path[-1]),
            "simulated": (where, simulated[-1]),
        },
        {"query": s.classes.queries, "token": s.classes.in_play},
    )
    snap = xr.Dataset(
        {
            "predicted": ("sequence_class", measures.snap_time(predicted_run).values),
            "simulated": ("sequence_class", measures.snap_time(run).values),
        },
        {"sequence_class": np.arange(s.K)},
    )
    t0_prime, t0 = theory.transition_times(K=s.K, M=s.M, eta_y=s.eta_y)
    assumptions = tuple(part for assumption in ASKED for part in assumption(s))
    return OwnAudit(s, assumptions, fates, snap, float(t0_prime), float(t0), note)


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

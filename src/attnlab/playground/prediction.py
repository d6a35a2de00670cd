"""Prediction: what the theory says of a run, to be laid over it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from attnlab import theory
from attnlab.audit.fates import claimed_fates
from attnlab.audit.readings import as_dataset, reduced
from attnlab.files.errors import InputError
from attnlab.playground.run import KEPT, run
from attnlab.playground.setting import Setting

MOST_SOLVED = 3000  # logits: Eq. 10 then takes a second or two, but a minute for 7,500


@dataclass(frozen=True, eq=False)
class Prediction:
    """The path of attention by Eq. 10, and Theorem 4's times, in the run's own clock.

    path: in the schema of a run, with dim `time`; None where the theory does not speak, and then
    `note` says why. t0_prime, t0: where scanning ends and snapping begins (Lemma 9).
    """

    path: xr.Dataset | None
    t0_prime: float
    t0: float
    note: str


@lru_cache(maxsize=KEPT)
def predict(setting: Setting) -> Prediction:
    """Eq. 10 (corrected) at the moments of a run, from z = 0, with the decoder of Theorem 1.

    A step with momentum counts for as many plain ones as `theory.momentum_time` says.
    """
    data = setting.sequence_classes
    silence = _silence(setting)
    if not silence and data.queries.size * data.in_play.size > MOST_SOLVED:
        silence = (
            f"The theory's curves are not solved for here: more than {MOST_SOLVED:,} logits "
            "(queries times tokens)."
        )
    if silence:
        return Prediction(None, np.nan, np.nan, silence)
    done = run(setting)
    s = done.in_theory()
    try:
        plain = theory.momentum_time(done.moments, momentum=setting.momentum)
        path = as_dataset(s, done.moments, reduced(s, plain).logits)
        t0_prime, t0 = theory.momentum_steps(
            theory.transition_times(K=s.K, M=s.M, eta_y=s.eta_y), momentum=setting.momentum
        )
    except (InputError, RuntimeError) as problem:
        return Prediction(None, np.nan, np.nan, f"Eq. 10 has no solution here: {problem}")
    return Prediction(path, float(t0_prime), float(t0), "")


def fates(setting: Setting) -> NDArray[np.int64]:
    """What Theorem 2 and Corollary 2 claim, (query, contextual token): +1 gains, -1 loses, 0."""
    if _silence(setting):
        data = setting.sequence_classes
        return np.zeros((data.queries.size, data.in_play.size), dtype=np.int64)
    return claimed_fates(run(setting).in_theory())


def _silence(setting: Setting) -> str:
    """Why the theory does not speak of a setting; nothing where it does."""
    classes = setting.sequence_classes
    if setting.optimizer != "sgd":
        return "The theory is about gradient descent, not about Adam."
    if setting.residual or setting.heads > 1:
        return "The theory's curves are for one head without a residual connection."
    if len(classes) < 2:
        return "The theory compares classes; here is only one."
    if not classes.has_psi:
        return "The theory needs each next token to belong to one class (m = psi(n))."
    if np.ptp(classes.prior) > 1e-9:
        return "The theory's clock is for classes that are drawn equally often."
    if setting.eta_y <= 0:
        return "The theory needs a decoder that learns (eta_Y above 0)."
    return ""

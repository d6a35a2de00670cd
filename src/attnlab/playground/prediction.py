"""Prediction: what the theory says of a run, to be laid over it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from attnlab import prediction
from attnlab.audit.fates import claimed_fates
from attnlab.files.errors import InputError
from attnlab.playground.run import KEPT, run
from attnlab.playground.setting import Setting

MOST_SOLVED = 3000  # logits: the theory then takes a second or two, but a minute for 7,500
RUNGS = {"printed": "as printed", "corrected": "corrected", "sgd": "with SGD's decoder"}


@dataclass(frozen=True, eq=False)
class Prediction:
    """The path of attention by Eq. 10, and Theorem 4's times, in the run's own clock.

    path: in the schema of a run; None where the theory does not speak, and then `note` says why;
    else it says how far each rung of the ladder is from training. t0_prime, t0: where scanning ends
    and snapping begins (Lemma 9).
    """

    path: xr.Dataset | None
    t0_prime: float
    t0: float
    note: str


@lru_cache(maxsize=KEPT)
def predict(setting: Setting) -> Prediction:
    """Eq. 10 (corrected) at the moments of a run, and the errors of the whole ladder."""
    silence = _silence(setting)
    if silence:
        return Prediction(None, np.nan, np.nan, silence)
    trained = run(setting).result["attention"]
    try:
        said = {
            rung: prediction.predict(setting.simulation, theory=rung).isel(seed=0, drop=True)
            for rung in RUNGS
        }
    except (InputError, RuntimeError) as problem:
        return Prediction(None, np.nan, np.nan, f"Eq. 10 has no solution here: {problem}")
    errors = {rung: float(abs(of["attention"] - trained).max()) for rung, of in said.items()}
    words = ", ".join(f"{errors[rung]:.2g} {words}" for rung, words in RUNGS.items())
    path = said["corrected"]
    t0_prime, t0 = (float(path[name].max()) for name in ("t0_prime", "t0"))
    return Prediction(path, t0_prime, t0, f"Attention is off by at most {words}.")


def fates(setting: Setting) -> NDArray[np.int64]:
    """What Theorem 2 and Corollary 2 claim, (query, contextual token): +1 gains, -1 loses, 0."""
    if _unspoken(setting):
        data = setting.sequence_classes
        return np.zeros((data.queries.size, data.in_play.size), dtype=np.int64)
    return claimed_fates(run(setting).in_theory())


def _silence(setting: Setting) -> str:
    """Why there is no prediction; nothing where there is one."""
    data = setting.sequence_classes
    if words := _unspoken(setting):
        return words
    if data.queries.size * data.in_play.size > MOST_SOLVED:
        return (
            f"The theory's curves are not solved for here: more than {MOST_SOLVED:,} logits "
            "(queries times tokens)."
        )
    return ""


def _unspoken(setting: Setting) -> str:
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

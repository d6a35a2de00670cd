"""Disagreements of the two papers, on the same classes: one-hot or not, freeze or dilution.

JoMA's side is as we know it. Both claims are made from one map: models, with and without residual,
activation, width and weight decay, over eta_z/eta_y. `./lab audit --claim one-hot-or-not --claim
freeze-or-dilution` prints it.
"""

from dataclasses import replace
from functools import cache

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from attnlab import measures
from attnlab.auditing import Measurement, claim
from attnlab.auditing.fit import listed
from attnlab.models import Extended, SequenceModel
from attnlab.theory import Case, Check
from attnlab.theory.relation import ABOVE, BELOW

from ..model import Joint
from .runs import PAIRS, in_training, trained_long

RATIOS = (0.3, 1.0, 3.0)  # eta_z over eta_y
ONE_HOT, QUIET = 0.9, 0.1
DECAY = 1e-3


MODELS: dict[str, SequenceModel] = {
    "Scan and Snap": Extended(),
    "Scan and Snap, not normalised": Extended(normalization="none"),
    "Joint": Joint(),
    "Joint, no residual": Joint(residual=False),
    "Joint, 16 linear": Joint(hidden=16),
    "Joint, 16 GELU": Joint(hidden=16, activation="gelu"),
    "Joint, 16 ReLU": Joint(hidden=16, activation="relu"),
    "Joint, 16 ReLU, no residual": Joint(hidden=16, activation="relu", residual=False),
    "Joint, 64 ReLU": Joint(hidden=64, activation="relu"),
}
DECAYED = {
    f"{name}, weight decay": MODELS[name] for name in ("Joint", "Joint, 16 ReLU", "Joint, 16 GELU")
}
NORMALISED, *UNNORMALISED = MODELS
WIDE = [name for name in UNNORMALISED if getattr(MODELS[name], "hidden", None)]
NARROW = [name for name in UNNORMALISED if name not in WIDE]


@cache
def disagreement_map() -> xr.Dataset:
    """Over (model, ratio): `top`, the mean share of each class's winner at t = 10^4; `rise`, how
    far entropy is then above its lowest; `late`, how much attention moves in the last tenth of a
    decade, over the most that it ever does."""
    found: dict[str, list[NDArray[np.float64]]] = {"top": [], "rise": [], "late": []}
    for name, model in (MODELS | DECAYED).items():
        decay = DECAY if name in DECAYED else 0.0
        run = trained_long(replace(PAIRS, model=model), tuple((1.0, r) for r in RATIOS), decay)
        A = run["attention"].transpose("run", "time", "sequence_class", "token")
        H = measures.entropy(run).mean("sequence_class").transpose("run", "time").values
        moved = np.abs(np.diff(A.values, axis=1)).sum(-1).mean(-1)
        found["top"].append(A.values[:, -1].max(-1).mean(-1))
        found["rise"].append(H[:, -1] - H.min(1))
        found["late"].append(moved[:, -1] / moved.max(1))
    return xr.Dataset(
        {name: (("model", "ratio"), values) for name, values in found.items()},
        {"model": [*MODELS, *DECAYED], "ratio": list(RATIOS)},
    )


def _per_model(of: xr.DataArray) -> str:
    """A map's values for each model, over the ratios."""
    return "; ".join(f"{row['model'].item()} {listed(row.values, '.2f')}" for row in of)


@claim(ABOVE, "Scan and Snap (no winner takes all) against JoMA (claim 2)", PAIRS, ours=True)
def one_hot_or_not(s: Case) -> Measurement:
    r"""No decay: not one-hot if normalised; else above $0.9$ with no hidden layer or $\eta_z = 3
    \eta_y$.

    Check that winners stay below 0.9 with l2 normalisation, have more without, and are above 0.9 as
    stated: twelve models over three ratios of rates, flow to t = 10^4 (ReLU: steps of 0.1). One-hot
    is read as a share of 0.9, at t = 10^4.
    """
    top = disagreement_map()["top"]
    narrow, wide = top.sel(model=NARROW).values, top.sel(model=WIDE).values
    normal = top.sel(model=NORMALISED).values
    others = np.concatenate([narrow, wide])
    winners = (
        ("Scan and Snap's winners", ONE_HOT, normal, BELOW),
        ("winners without normalisation, against those", normal.max(), others, ABOVE),
        ("without hidden layer, against 0.9", ONE_HOT, narrow, ABOVE),
        ("with hidden layer, eta_z <= eta_y, against 0.9", ONE_HOT, wide[:, :-1], BELOW),
        ("with hidden layer, eta_z = 3 eta_y, against 0.9", ONE_HOT, wide[:, -1], ABOVE),
    )
    return Measurement(
        *(Check(what, than, top, sign, training=True) for what, than, top, sign in winners),
        training_number=float(normal.max()),
        note="mean share of the winners at eta_z/eta_y = 0.3, 1, 3: " + _per_model(top),
    )


@claim(BELOW, "Scan and Snap (Section 6) against JoMA (claim 4)", PAIRS, ours=True)
def freeze_or_dilution(s: Case) -> Measurement:
    r"""One layer: attention settles if $\eta_z \ge \eta_y$; entropy rises only with decay.

    Check that attention settles and entropy does not rise for any residual, activation and width,
    and that with decay and eta_z > eta_y it rises: twelve models over three ratios of rates, flow
    to t = 10^4 (ReLU: steps of 0.1). Settled means a tenth of the peak speed in ln t, by t = 10^4;
    a rise is above 0.001.
    """
    found = disagreement_map()
    free = found.sel(model=list(MODELS))
    rise, late = free["rise"].values, free["late"].values
    diluted = found["rise"].sel(model=list(DECAYED), ratio=RATIOS[-1]).values
    slow = "attention moves less than a tenth as fast in the end, eta_z >= eta_y"
    fastest = "the fastest in the end, eta_z = 0.3 eta_y"
    restless = int((late[:, 0] >= QUIET).sum())
    return Measurement(
        Check(slow, QUIET, late[:, 1:], BELOW, training=True),
        Check(fastest, QUIET, late[:, 0].max(), ABOVE, training=True),
        in_training("entropy does not rise from its lowest", 1e-3, rise, BELOW),
        in_training("with weight decay it does, eta_z = 3 eta_y", 0.05, diluted, ABOVE),
        training_number=float(restless),
        note=f"late motion over its peak at eta_z/eta_y = 0.3, 1, 3: {_per_model(found['late'])}; "
        f"at eta_z = 0.3 eta_y {restless} of {len(MODELS)} models without weight decay are above "
        f"{QUIET:g}; with weight decay {DECAY:g} and eta_z = 3 eta_y entropy rises from its lowest "
        f"by {listed(diluted, '.2f')}: here entropy rises only where weights tend to a mu "
        "(joma-dip), by decay, and attention outruns them",
    )

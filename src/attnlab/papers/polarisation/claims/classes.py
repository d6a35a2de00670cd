"""Sequence classes: where "Scan and Snap" says that attention freezes, and polarisation does not.

One class of one query without a norm is the flow in one direction, with a = z + ln P and rho =
(eta_Z/eta_Y) M/(M - 1); with the l2 norm of "Scan and Snap" a class alone never moves attention.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import xarray as xr

from attnlab.auditing import Measurement, claim
from attnlab.auditing.fit import listed
from attnlab.theory import Check, Trained
from attnlab.theory.relation import ABOVE, BELOW, EQUAL, LEADING, within

from .. import runs, theory

Found = dict[str, xr.Dataset]
TIMES = (1e2, 1e6, 1e10)
RATES = (1.0, 10.0)  # of the decoder, eta_y; eta_z is 1
STARTS = (0.1, 0.01, 0.001)
FREE = {"none": partial(runs.classes, "none", RATES)}


def shares(result: xr.Dataset, eta_y: float = 1.0) -> xr.DataArray:
    """Return the attention of the first class at `TIMES`, (token, time)."""
    of = result["attention"].isel(seed=0, sequence_class=0, token=slice(4)).sel(eta_y=eta_y)
    return of.sel(time=list(TIMES), method="nearest").transpose("token", "time").drop_vars("time")


@claim(
    ABOVE,
    id="pol-against-snap",
    sources="ours, on Polarisation and Scan and Snap",
    ours=True,
    runs={**FREE, "l2": partial(runs.classes, "l2", RATES)},
)
def against_snap(found: Found) -> Measurement:
    """From $Y = 0$ and $z = 0$ (cross entropy, population flow) the winner takes all without a
    norm; with the l2 norm distinct tokens nearly keep their ratio, and a class alone never moves.

    Check the share of the 0.4-token at t = 10^10 above 0.99 without a norm and below 0.6 with it,
    and the ratio of the distinct tokens within 1.15 of its start: two classes of one query, tokens
    0.2, 0.2 common and 0.4, 0.2 distinct. Alone, with the norm, the path does not move.
    """
    free, normalised = shares(found["none"]), shares(found["l2"])
    ratio = normalised[2] / normalised[3]
    a0 = np.log([0.2, 0.2, 0.4, 0.2])
    alone = theory.one_direction(np.zeros(4), a0, 1e4, weighting="l2").logits - a0
    return Measurement(
        Check("z of a class alone, l2", 0.0, alone, EQUAL, tolerance=1e-9),
        Trained("winner, no norm", 0.99, free[2, -1]),
        Trained("the same token, l2", 0.6, normalised[2, -1], BELOW),
        Trained("ratio of distinct tokens, l2", 2.0, ratio, within(1.15)),
        number=float(np.exp((a0 + alone)[2] - (a0 + alone)[3])),
        training_number=float(free[2, -1]),
        note="share of the 0.4-token at t = 1e2, 1e6, 1e10: no norm "
        f"{listed(free[2].values, '.3f')}; l2 {listed(normalised[2].values, '.3f')}, ratio of "
        f"distinct tokens {listed(ratio.values, '.2f')}",
    )


@claim(
    LEADING,
    id="pol-rate-ratio",
    sources="ours, on Polarisation",
    tolerance=0.05,
    ours=True,
    runs=FREE,
)
def rate_ratio(found: Found) -> Measurement:
    r"""A fast decoder hides polarisation: as $t \to \infty$, $1 - \max \sigma \sim 2(n-1)/(n \rho
    \ln^2 t)$ with $\rho = \eta_a/\eta_V$ (one direction, a loss without an end).

    Compare the tail with its law at rho = 0.1 (n = 4, tau = 10^5), and in training the winner at
    eta_Y = 10 eta_Z with that at eta_Y = eta_Z, at three times. The output at which two tokens are
    at 0.9 is by quadrature, from three starts D_0; for the logistic loss ln t is about that.
    """
    tau, rho = 1e5, 0.1
    left = theory.remainder(
        theory.one_direction([0.1, 0.05, 0, -0.05], 4 * [0], tau, rho=rho).logits
    )
    outputs = []
    for D0 in STARTS:
        reached, D = theory.two_token_tau(np.log(9.0), D0=D0, rho=rho)
        outputs.append((reached + 0.8 * D) / 2.0)
    even, fast = (shares(found["none"], eta_y)[2].values for eta_y in RATES)
    return Measurement(
        Check("what is left, tau = 10^5", theory.tail(tau, 4, rho=rho), left),
        Trained("winner at eta_Y = eta_Z, over eta_Y = 10 eta_Z", fast, even, ABOVE, tolerance=0.0),
        number=outputs[0],
        training_number=float(fast[-1]),
        note=f"winner at t = 1e2, 1e6, 1e10: eta_Y = 10 eta_Z {listed(fast, '.3f')}, eta_Y = eta_Z "
        f"{listed(even, '.3f')}; two tokens reach 0.9 at u-bar = {listed(outputs, '.1f')} from D_0 "
        f"= {listed(STARTS, 'g')}",
    )

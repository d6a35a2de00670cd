"""Stationary gradients and a linear activation: closed forms (JoMA, claim 2).

While the gradient that arrives stays what it is, exp attention with z(0) = 0 has

    v_k' = eta_w Delta_k * exp(z/T),      z = (eta_z/(2 eta_w T)) sum_k v_k^2.

With one hidden unit this is the paper's v' = Delta * exp(v^2/2), and v = sqrt 2 erfinv(sqrt(2/pi)
Delta t) (re-derived). With several, token l's weights keep the direction of Delta_l over the hidden
units, and |v_l| follows the same law with |Delta_l| (ours; exact). In the units u = |v_l| sqrt(r)
with r = eta_z/(eta_w T^2) the law is erf(u/sqrt 2) = sqrt(2/pi) sqrt(r) eta_w |Delta_l| t, so that
erf over Delta is one line for all tokens. It ends at

    t* = T sqrt(pi/(2 eta_w eta_z)) / max |Delta|,

where the largest |Delta| is infinite, and all others stand where erf is |Delta_l|/max |Delta|:
winner takes all. That is the end of the assumption as well: an error that stays the same while its
logit goes to infinity.

Linear attention, b = (z/T) * x, has z = z(0) cosh(omega t) and |v| = sqrt(eta_w/eta_z) z(0)
sinh(omega t), omega = sqrt(eta_w eta_z) |Delta|/T (ours): all grow for ever, at different rates.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import ArrayLike

from attnlab.formulas.checks import FloatArray, at_least


@dataclass(frozen=True)
class StationaryLaw:
    """Weights and logits at the times asked for, whose shape leads; nan from the blow-up on.

    weights: v, (..., H, L).
    logits: z, (..., L).
    """

    weights: FloatArray
    logits: FloatArray


def _lengths(Delta: ArrayLike, z0: ArrayLike, temperature: float) -> tuple[FloatArray, FloatArray]:
    """Delta as (H, L), and |Delta_l| times what attention gives to token l at the start."""
    D = np.atleast_2d(np.asarray(Delta, dtype=np.float64))
    lift = np.exp(np.asarray(z0, dtype=np.float64) / temperature)
    return D, np.linalg.norm(D, axis=0) * lift


def _unit(D: FloatArray) -> FloatArray:
    length = np.linalg.norm(D, axis=0)
    return np.asarray(D / np.where(length > 0, length, 1.0))


def blow_up_time(
    Delta: ArrayLike,
    *,
    eta_w: float = 1.0,
    eta_z: float = 1.0,
    temperature: float = 1.0,
    z0: ArrayLike = 0.0,
) -> float:
    """t* = T sqrt(pi/(2 eta_w eta_z)) / max over tokens of |Delta_l|.

    Infinite if nothing moves.

    >>> round(blow_up_time([0.5, 0.25]), 4)
    2.5066
    """
    rates = at_least("eta_w", eta_w, 0.0) * at_least("eta_z", eta_z, 0.0)
    most = float(_lengths(Delta, z0, temperature)[1].max()) * float(np.sqrt(rates))
    return float(temperature * np.sqrt(np.pi / 2.0) / most) if most > 0 else float("inf")


def erf_law(
    Delta: ArrayLike,
    t: ArrayLike,
    *,
    eta_w: float = 1.0,
    eta_z: float = 1.0,
    temperature: float = 1.0,
    z0: ArrayLike = 0.0,
) -> StationaryLaw:
    """v and z of exp attention at times t, from v(0) = 0 and z(0) = z0.

    >>> erf_law([0.5, 0.25], [1.0, 2.0]).logits.round(4)
    array([[0.1367, 0.0319],
           [0.8135, 0.1367]])
    """
    w = float(at_least("eta_w", eta_w, 0.0, strict=True))
    T = float(at_least("temperature", temperature, 0.0, strict=True))
    r = float(at_least("eta_z", eta_z, 0.0, strict=True)) / (w * T**2)
    D, length = _lengths(Delta, z0, T)
    times = at_least("t", t, 0.0)
    share = np.sqrt(2.0 / np.pi) * np.sqrt(r) * w * length * times[..., None]
    over = share.max(-1) >= 1.0
    u = np.sqrt(2.0) * scipy.special.erfinv(np.where(over[..., None], np.nan, share))
    z = np.asarray(z0, dtype=np.float64) + T * u**2 / 2.0
    return StationaryLaw(_unit(D) * (u / np.sqrt(r))[..., None, :], np.asarray(z))


def frozen_weights(Delta: ArrayLike) -> FloatArray:
    """|v_l| at t*: sqrt 2 erfinv(|Delta_l|/max |Delta|), at rates and a temperature of 1.

    Infinite for the winner.

    >>> frozen_weights([0.5, 0.25]).round(4)
    array([   inf, 0.6745])
    """
    length = _lengths(Delta, 0.0, 1.0)[1]
    return np.asarray(np.sqrt(2.0) * scipy.special.erfinv(length / length.max()))


def cosh_law(
    Delta: ArrayLike,
    t: ArrayLike,
    *,
    eta_w: float = 1.0,
    eta_z: float = 1.0,
    temperature: float = 1.0,
    z0: ArrayLike = 1.0,
) -> StationaryLaw:
    """v and z of linear attention at times t, from v(0) = 0 and z(0) = z0.

    >>> cosh_law([0.5, 0.25], 2.0).logits.round(4)
    array([1.5431, 1.1276])
    """
    w, rate = (
        float(at_least(n, x, 0.0, strict=True)) for n, x in (("eta_w", eta_w), ("eta_z", eta_z))
    )
    T = float(at_least("temperature", temperature, 0.0, strict=True))
    D, start = np.atleast_2d(np.asarray(Delta, dtype=np.float64)), np.asarray(z0, dtype=np.float64)
    turn = np.sqrt(w * rate) * np.linalg.norm(D, axis=0) / T * at_least("t", t, 0.0)[..., None]
    length = np.sqrt(w / rate) * start * np.sinh(turn)
    return StationaryLaw(_unit(D) * length[..., None, :], np.asarray(start * np.cosh(turn)))

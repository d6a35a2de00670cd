"""Correlations between classes: E, E' and what Assumption 2 asks of them (Appendix D.1, D.5).

There is no time here: each function takes the attention as it is at one instant, or at many with
leading axes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from attnlab.files.errors import InputError
from attnlab.formulas.checks import FloatArray, at_least, is_printed
from attnlab.formulas.setting import SettingLike
from attnlab.formulas.tokens import unit_attention


class Part(NamedTuple):
    """One part of an assumption: it holds when its margin is positive.

    name: what is looked at.
    value: what it is here.
    bound: what it is compared with.
    margin: by how much it is on the right side.
    """

    name: str
    value: float
    bound: float
    margin: float

    @property
    def holds(self) -> bool:
        """Whether the inequality is true."""
        return self.margin > 0


class Assumption2(NamedTuple):
    """The parts of Assumption 2, and whether any E at all could satisfy the two eigenvalue parts.

    vocabulary: M over K^2 (printed: much larger than 1; here the margin only says larger).
    largest: |lambda_1| against 1/K.
    smallest: min |lambda_i| against 6/sqrt(M).
    feasible: M against 36 K^2, without which `largest` and `smallest` exclude each other.
    """

    vocabulary: Part
    largest: Part
    smallest: Part
    feasible: Part

    @property
    def holds(self) -> bool:
        """Whether all parts hold."""
        return all(part.holds for part in self)


class SpectrumBounds(NamedTuple):
    """Right-hand sides of Lemmas 13, 15 and 17.

    entry: on max |E|.
    e_prime_radius: on max |lambda(E')|.
    e_prime_gap: on max |E' - E|.
    """

    entry: FloatArray
    e_prime_radius: FloatArray
    e_prime_gap: FloatArray


def gram(f: ArrayLike) -> FloatArray:
    """E = F^T F - I from the rows f_n (Assumption 2), with its diagonal exactly 0.

    >>> gram([[0.6, 0.8, 0], [0.6, 0, 0.8]]).round(2)
    array([[0.  , 0.36],
           [0.36, 0.  ]])
    """
    f = np.asarray(f, dtype=np.float64)
    E = f @ np.swapaxes(f, -1, -2)
    diagonal = np.arange(E.shape[-1])
    E[..., diagonal, diagonal] = 0.0
    return np.asarray(E)


def correlation(setting: SettingLike, z: ArrayLike | None = None) -> FloatArray:
    """E_{nn'} = f_n . f_n' for n != n', 0 on the diagonal (Assumption 2).

    P may list only the contextual tokens in play: the others add nothing.

    >>> correlation([[0.5, 0.5, 0], [0.5, 0, 0.5]]).round(2)
    array([[0. , 0.5],
           [0.5, 0. ]])
    """
    return gram(unit_attention(setting, z))


def e_prime(E: ArrayLike, *, form: str = "corrected") -> FloatArray:
    """E' = I - (I + E)^-1, as Lemma 14 and Eqs. 26 to 30 need it.

    Printed (Appendix D.1; the minus is inferred, since our machine reading lost the operator): (I +
    E)^-1 - I, the opposite sign; with it Eq. 26 does not give Eq. 8 and Theorem 5, and Lemmas 16
    and 17 fail.

    >>> e_prime([[0.0, 0.1], [0.1, 0.0]]).round(4)
    array([[-0.0101,  0.101 ],
           [ 0.101 , -0.0101]])
    """
    sign = -1.0 if is_printed(form) else 1.0
    E = np.asarray(E, dtype=np.float64)
    try:
        return np.asarray(sign * np.linalg.solve(np.eye(E.shape[-1]) + E, E))
    except np.linalg.LinAlgError:
        raise InputError("E must leave I + E invertible: the f_n are linearly dependent") from None


def spectrum_bounds(E: ArrayLike) -> SpectrumBounds:
    """The bounds of Lemmas 13, 15 and 17 for this E: |l|, |l|/(1-|l|) and |l|^2/(1-|l|).

    l is the eigenvalue of largest modulus. Lemma 17 prints l < 1; it needs |l| < 1, as Lemmas 14
    and 15 do, and where that fails the last two bounds are infinite.

    >>> [float(bound.round(4)) for bound in spectrum_bounds([[0.0, 0.1], [0.1, 0.0]])]
    [0.1, 0.1111, 0.0111]
    """
    radius = np.abs(np.linalg.eigvalsh(np.asarray(E, dtype=np.float64))).max(-1)
    room = np.where(radius < 1.0, 1.0 - radius, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return SpectrumBounds(radius, radius / room, radius**2 / room)


def assumption_2(E: ArrayLike, *, M: float) -> Assumption2:
    """Assumption 2 for one E: each part with its value, its bound and its margin.

    For equal off-diagonals rho the eigenvalue parts read 6/sqrt(M) <= rho < 1/(K (K - 1)), which is
    empty unless M > 36 K^2 (K - 1)^2. The factor 6 is more than the proof uses: its last line needs
    min lambda^2 > 6/M, and with the corrected `beta` no lower bound is needed at all.

    >>> found = assumption_2([[0.0, 0.1], [0.1, 0.0]], M=10_000)
    >>> found.holds, found.smallest.bound
    (True, 0.06)
    """
    E = np.asarray(E, dtype=np.float64)
    at_least("M", M, 2.0)
    K = E.shape[-1]
    size = np.abs(np.linalg.eigvalsh(E))
    large, small, floor = float(size.max()), float(size.min()), float(6.0 / np.sqrt(M))
    return Assumption2(
        Part("M / K^2", M / K**2, 1.0, M / K**2 - 1.0),
        Part("max |eigenvalue of E|", large, 1.0 / K, 1.0 / K - large),
        Part("min |eigenvalue of E|", small, floor, small - floor),
        Part("M", float(M), 36.0 * K**2, M - 36.0 * K**2),
    )

"""Section 7: a residual connection, and the roles of tokens within each query."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnlab.formulas.checks import FloatArray, is_printed
from attnlab.formulas.setting import Setting, SettingLike
from attnlab.formulas.tokens import by_query, unit_attention
from attnlab.papers.scan_and_snap.theory.attention import class_velocity
from attnlab.papers.scan_and_snap.theory.coefficients import beta
from attnlab.papers.scan_and_snap.theory.correlations import correlation


class LocalRoles(NamedTuple):
    """Roles within each query, as in Section 7.

    common: for each query m and token l, (Q, L).
    distinct: for each class n and token l, (K, L).
    """

    common: NDArray[np.bool_]
    distinct: NDArray[np.bool_]


def local_roles(setting: SettingLike) -> LocalRoles:
    """Distinct and common tokens within psi^-1(m), the classes that share query m (Section 7).

    >>> local_roles(Setting([[0.5, 0.5, 0], [0.5, 0, 0.5]], psi=[0, 1])).common  # two queries
    array([[False, False, False],
           [False, False, False]])
    """
    s = Setting.of(setting)
    present = s.P > 0
    count = by_query(present.astype(np.float64), s.rows, s.Q)
    return LocalRoles(count > 1, present & (count[s.rows] == 1))


def residual_correlation(setting: SettingLike, z: ArrayLike | None = None) -> FloatArray:
    """E of the decoder's input when the query is added: f-bar_n = (f_n + e_psi(n)) / sqrt 2.

    Off the diagonal it is (E_nn' + 1[psi(n) = psi(n')]) / 2, for query tokens that do not occur as
    context. Classes of one query are thus at least 1/2 correlated: Assumption 2 fails as soon as
    two classes share a query. Returns E-bar, (..., K, K).

    >>> residual_correlation([[0.6, 0.8, 0], [0.6, 0, 0.8]]).round(2)
    array([[0.  , 0.68],
           [0.68, 0.  ]])
    """
    s = Setting.of(setting)
    return np.asarray((correlation(s, z) + _sharing(s)) / 2.0)


def residual_beta(
    setting: SettingLike, z: ArrayLike | None = None, *, form: str = "corrected"
) -> FloatArray:
    """The beta_nn' that takes Eq. 10's place when there is a residual connection (Section 7).

    Printed: f_n.f_n' + 1 for classes of one query and 0 otherwise (the "much larger" terms kept,
    the others dropped, as in Section 7's g). Corrected: half of Eq. 88 at `residual_correlation`.
    The half comes from the two normalisations, and Eq. 10 holds with this beta exactly under the
    modified update of the decoder. Across queries it is neither 0 nor always positive, because
    E-bar is not small; so roles within a query do not decide a token's fate by themselves.

    >>> residual_beta(Setting([[0.6, 0.8, 0], [0.6, 0, 0.8]], M=1000)).round(3)
    array([[0.   , 0.634],
           [0.634, 0.   ]])
    """
    s = Setting.of(setting)
    if is_printed(form):
        return np.asarray(_sharing(s) * (correlation(s, z) + 1.0))
    return np.asarray(beta(residual_correlation(s, z), M=s.vocab_size) / 2.0)


def _sharing(s: Setting) -> FloatArray:
    """1[psi(n) = psi(n')] off the diagonal, (K, K)."""
    shared = (s.rows[:, None] == s.rows).astype(np.float64)
    np.fill_diagonal(shared, 0.0)
    return shared


def residual_velocity(setting: SettingLike, z: ArrayLike, *, form: str = "corrected") -> FloatArray:
    """dz/dtau with a residual connection: `attention_velocity` with `residual_beta`.

    >>> residual_velocity(Setting([[0.5, 0.5, 0], [0.5, 0, 0.5]], M=100), [0, 0, 0]).round(3)
    array([[-0.219,  0.11 ,  0.11 ]])
    """
    s = Setting.of(setting)
    z = np.atleast_2d(np.asarray(z, dtype=np.float64))
    terms = class_velocity(unit_attention(s, z), residual_beta(s, z, form=form))
    return by_query(s.share[:, None] * terms, s.rows, z.shape[-2])

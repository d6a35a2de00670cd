"""Attention under the decoder that SGD trains at the starting attention (ours).

Theorem 1 is about a modified update (Eq. 26). Here the decoder follows SGD itself (Eq. 7), with
attention held at its start, which is what eta_Y >> eta_Z asks for; then z follows Lemma 1 with that
decoder and its own, moving f. From Y(0) = 0 the columns of Y stay in the span of the f_n(0):
Y(t) = F(0) A(t), so that the decoder is K numbers for each output,

    dA_n/dt = eta_Y P(n) (e_n - softmax(A^T F(0)^T f_n(0))),

and outputs that no class predicts are one column, M - K times. With c_kn = A_n . (e_k - alpha_k),
alpha_k the outputs at the current f_k,

    dz_m/dt = eta_Z sum over classes k of m of P(k) diag(f_k) (I - f_k f_k^T) sum_n c_kn f_n(0).

The first equation knows nothing of the second: it is a prediction, not training. What it leaves out
is that the decoder notices that attention has moved: an error of order eta_Z/eta_Y.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy
from numpy.typing import ArrayLike

from attnlab.files.errors import InputError
from attnlab.formulas.checks import FloatArray, IntArray, at_least, between, unwrap
from attnlab.formulas.setting import Setting, SettingLike
from attnlab.formulas.solving import solve
from attnlab.formulas.tokens import by_query, logit_gradient, unit_rows


@dataclass(frozen=True)
class SgdFlow:
    """Attention under SGD's decoder at the times asked for, whose shape leads every array.

    logits: z, (..., Q, L).
    outputs: the output logits of each class at its next token, at those of the other targets and at
        any other token, (..., K, targets + 1), with the attention of the start.
    error: |x_{T+1} - alpha_n|_2 of each class there, (..., K).
    """

    logits: FloatArray
    outputs: FloatArray
    error: FloatArray


def sgd_flow(
    setting: SettingLike,
    t: ArrayLike,
    *,
    z0: ArrayLike | None = None,
    momentum: float = 0.0,
    rtol: float = 1e-9,
    atol: float = 1e-12,
) -> SgdFlow:
    """Attention under the decoder that SGD trains, from Y(0) = 0: both equations solved at times t.

    The decoder follows SGD with attention held at its start, and attention follows Lemma 1 with
    that decoder (papers/studies/page.md). One unit of t is one expected-gradient step.

    Parameters
    ----------
    momentum : float, optional
        mu of heavy-ball steps, m <- mu m + gradient, whose memory decoder and attention each have:
        in continuous time m' = -ln(mu) (gradient/(1 - mu) - m), which forgets as fast and adds up
        to the same; t counts its steps.

    Examples
    --------
    >>> from attnlab.papers.scan_and_snap.classes import syn_small
    >>> flow = sgd_flow(Setting(syn_small(), eta_y=1.0, eta_z=0.1), [10.0, 1000.0])
    >>> flow.error.round(2)
    array([[0.54, 0.54],
           [0.01, 0.01]])
    """
    s = Setting.of(setting)
    eta_y, eta_z = s.rates
    outputs = int(s.target.max()) + 1
    # how many outputs the last column is
    outside = at_least("M", s.vocab_size, float(outputs)) - outputs
    start = s.start(z0)
    moves = Motion(
        log_p=s.log_p,
        rows=s.rows,
        start=start,
        f0=unit_rows(s.log_p + start[s.rows]),
        share=s.share,
        wanted=np.eye(outputs + 1)[s.target],
        count=np.append(np.ones(outputs), outside),
        eta_y=eta_y,
        eta_z=eta_z,
    )
    times = at_least("t", t, 0.0)
    initial = np.concatenate([np.zeros(moves.wanted.size), start.ravel()])
    half = initial.size
    mu = between("momentum", momentum, -1e-300, 1.0)[()]
    if mu > 0.0:
        kappa = -np.log(mu)

        def velocity(_: float, state: FloatArray) -> FloatArray:
            m = state[..., half:]
            pushed = moves.push(state[..., :half]) / (1.0 - mu)
            return np.concatenate([m, kappa * (pushed - m)], axis=-1)

        # as far behind in the end as heavy-ball steps are, whose first has its whole gradient
        begun = 1.0 / (1.0 - mu) - kappa * mu / (1.0 - mu) ** 2
        initial = np.concatenate([initial, begun * moves.push(initial)])
    else:

        def velocity(_: float, state: FloatArray) -> FloatArray:
            return moves.push(state)

    ordered = solve(velocity, initial, times, rtol=rtol, atol=atol, batched=True)
    A, logits = moves.apart(ordered[..., :half])
    w = np.asarray(moves.E0 @ A)
    return SgdFlow(logits, w, np.sqrt(moves.errors(w) ** 2 @ moves.count))


@dataclass(frozen=True)
class Motion:
    """The two equations, of a state that is A and z in a row."""

    log_p: FloatArray  # (K, L)
    rows: IntArray  # psi, (K,)
    start: FloatArray  # z(0), (Q, L)
    f0: FloatArray  # (K, L)
    share: FloatArray  # P(n), (K,)
    wanted: FloatArray  # e_n, (K, targets + 1)
    count: FloatArray  # how many outputs each column is, (targets + 1,)
    eta_y: float
    eta_z: float

    @cached_property
    def E0(self) -> FloatArray:
        return np.asarray(self.f0 @ self.f0.T)

    def apart(self, state: FloatArray) -> tuple[FloatArray, FloatArray]:
        """A, (..., K, targets + 1), and z, (..., Q, L)."""
        lead, size = state.shape[:-1], self.wanted.size
        A, z = state[..., :size], state[..., size:]
        return A.reshape(*lead, *self.wanted.shape), z.reshape(*lead, *self.start.shape)

    def errors(self, W: FloatArray) -> FloatArray:
        """e_n - alpha_n for output logits (K, targets + 1); the last is that of a single output."""
        odds = np.exp(W - W.max(-1, keepdims=True))
        return np.asarray(self.wanted - odds / (odds @ self.count)[..., None])

    def push(self, state: FloatArray) -> FloatArray:
        """Return the change of A and z by plain steps, per unit of time, of states (..., state)."""
        A, z = self.apart(state)
        share, f0 = self.share[:, None], self.f0
        Adot = self.eta_y * share * self.errors(self.E0 @ A)
        f = unit_rows(self.log_p + z[..., self.rows, :])
        sent_back = (self.errors(f @ f0.T @ A) * self.count) @ A.swapaxes(-1, -2) @ f0
        terms = share * logit_gradient(f, sent_back)
        zdot = self.eta_z * by_query(terms, self.rows, z.shape[-2])
        lead = state.shape[:-1]
        return np.concatenate([Adot.reshape(*lead, -1), zdot.reshape(*lead, -1)], axis=-1)


# -- momentum --------------------------------------------------------------------------------------


def momentum_time(t: ArrayLike, *, momentum: float) -> FloatArray:
    """The plain steps that t steps of SGD with momentum amount to, at the same learning rate.

    For a gradient that stays the same: m <- momentum m + g adds up to sum_s (1 - mu^s)/(1 - mu) =
    (t - mu (1 - mu^t)/(1 - mu))/(1 - mu) of it, that is t^2/2 at first (mu near 1) and 1/(1 - mu) a
    step later on. Not in the paper, whose theory is of plain steps while its experiments have
    momentum 0.9.

    >>> momentum_time([1, 10, 100], momentum=0.9).round(1)
    array([  1. ,  41.4, 910. ])
    """
    mu = _momentum(momentum)
    t = at_least("t", t, 0.0)
    return unwrap((t - mu * (1.0 - mu**t) / (1.0 - mu)) / (1.0 - mu))


def momentum_steps(t: ArrayLike, *, momentum: float) -> FloatArray:
    """The inverse of `momentum_time`: the steps with momentum that amount to t plain ones.

    >>> float(momentum_steps(momentum_time(25, momentum=0.9), momentum=0.9).round(6))
    25.0
    """
    mu = _momentum(momentum)
    t = at_least("t", t, 0.0)
    if mu == 0.0:
        return unwrap(t)
    # s + a mu^s = c, solved by Lambert's W on the branch of s = 0 at t = 0
    a, log_mu = mu / (1.0 - mu), np.log(mu)
    c = t * (1.0 - mu) + a
    steps = c - scipy.special.lambertw(a * log_mu * mu**c).real / log_mu
    return unwrap(np.maximum(steps, 0.0))  # which rounding may miss at t = 0


def _momentum(momentum: float) -> float:
    if not 0.0 <= momentum < 1.0:
        raise InputError(f"momentum must lie in [0, 1); got {momentum!r}")
    return float(momentum)

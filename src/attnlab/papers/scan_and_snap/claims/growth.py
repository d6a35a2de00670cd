"""Appendices D.2, D.3: how the decoder grows, h* and h, and its speed gamma (Lemmas 5 to 9)."""

from typing import Any

import numpy as np
import scipy

from attnlab.auditing import Measurement, claim
from attnlab.auditing.fit import listed, slope
from attnlab.formulas.checks import FloatArray, IntArray
from attnlab.tasks.classes import SequenceClasses
from attnlab.theory import Case, Check
from attnlab.theory.relation import (
    ABOVE,
    AT_LEAST,
    AT_MOST,
    BELOW,
    EQUAL,
    SETTLES,
    Trained,
    much_greater,
    up_to,
    within,
)

from .. import cases, theory
from ..cases import FIG3
from ..hypotheses import LEARNING, MUCH, large_vocabulary


@claim(EQUAL, "Lemma 5, Eqs. 31-33", FIG3, tolerance=1e-11)
def lemma_5(case: Case) -> Measurement:
    r"""If class $n$ is visited at each of $s$ steps, $w_n(s) = (M-1) h^*(s) \zeta_n$ with $h^*(0) =
    0$ and $h^*(s) = h^*(s-1) + \frac{\eta_Y}{(M-1) + \exp(M h^*(s-1))}$.

    Compare all M logits of one class, and the loss of two classes without overlap, with the update
    iterated on all logits and with the simulator's steps. The tolerance is rounding, over 1,000
    steps.
    """
    M, eta_y, steps = 50, 0.7, np.array([1, 10, 100, 1000])
    w, seen = np.zeros(M), {}
    for s in range(1, steps[-1] + 1):
        w = w + eta_y * (np.eye(M)[0] - scipy.special.softmax(w))
        seen[s] = w
    predicted = [theory.class_logits(theory.h_star(s, M=M, eta_y=eta_y), M=M)[0] for s in steps]

    # Training: classes without overlap have orthogonal f_n, so that each row of W learns alone
    # and attention does not move. An expected-gradient step is a visit at the rate eta_Y / K.
    apart = SequenceClasses([{0: 1.0}, {1: 1.0}], [2, 2], [3, 4], vocab_size=M)
    visited = Case(apart, eta_y, 1.0, steps[-1])
    settings: dict[str, Any] = {"gradient": "population", "what": "loss", "at": steps.tolist()}
    loss = cases.train_steps(visited, int(steps[-1]), **settings)["loss"].isel(seed=0).values
    x = M * theory.h_star(steps, M=M, eta_y=eta_y / 2)
    return Measurement(
        Check("w_n after s steps", predicted, [seen[s] for s in steps]),
        Trained("loss after s steps", np.log1p((M - 1) * np.exp(-x)), loss),
    )


def integrate_h(t: FloatArray, *, M: float, eta_y: float) -> FloatArray:
    """h(t) by a stiff solver of Eq. 44, in x = M h."""
    solution = scipy.integrate.solve_ivp(
        lambda _, x: M * eta_y / (M - 1.0 + np.exp(x)),
        (0.0, t[-1]),
        [0.0],
        method="LSODA",
        t_eval=t,
        rtol=1e-12,
        atol=1e-14,
    )
    return np.asarray(solution.y[0] / M)


@claim(EQUAL, "Lemma 6, Eqs. 44, 45", FIG3, tolerance=1e-9)
def lemma_6(s: Case) -> Measurement:
    r"""The solution of $\frac{dh}{dt} = \frac{\eta_Y}{(M-1) + \exp(Mh)}$ with $h(0) = 0$ has
    $\exp(M h(t)) + (M-1) M h(t) = M \eta_Y t + 1$.

    Compare h(t) in closed form, by the Wright omega function, with a stiff solver of Eq. 44 at
    relative tolerance 1e-12. The tolerance is what the solver accumulates over nine decades of t.
    """
    t, sizes = np.geomspace(1e-2, 1e7, 40), np.array([3.0, 30.0, 1e3, 1e6])
    closed = [theory.h(t, M=M, eta_y=0.5) for M in sizes]
    solved = [integrate_h(t, M=M, eta_y=0.5) for M in sizes]
    return Measurement(Check("h(t)", closed, solved))


def _gap(steps: IntArray, *, M: float, eta_y: float) -> FloatArray:
    """h* - h after each number of visits."""
    return np.asarray(theory.h_star(steps, M=M, eta_y=eta_y) - theory.h(steps, M=M, eta_y=eta_y))


@claim(AT_MOST, "Lemma 7", FIG3, tolerance=1e-15)
def lemma_7(s: Case) -> Measurement:
    r"""$0 \le h^*(s) - h(s) \le \frac{2 \eta_Y}{M}$; some $c = \Theta(1)$ gives $h(s+c) \ge h^*(s)
    \ge h(s)$ for $s \le \ln(M)/\eta_Y$; $h^*(s) - h(s) \to 0$ as $s \to +\infty$.

    Compare the bounds, and a gap below 1 % of its peak by s = 10^5, with the recursion of Eq. 33
    less the closed form of h. The tolerance is the rounding of h, which is about 1e-3.
    """
    sizes, rates = np.array([4.0, 100.0, 1000.0]), np.array([0.1, 0.99])
    steps = np.unique(np.geomspace(1, 1e5, 200).astype(int))
    gap = np.array([[_gap(steps, M=M, eta_y=y) for y in rates] for M in sizes])
    M, y = sizes[:, None, None], rates[:, None]
    unit, printed = (theory.h_gap_bound(M=M, eta_y=y, form=of) for of in ("corrected", "printed"))
    early = np.array([theory.h_lead(int(np.log(M) / 0.1), M=M, eta_y=0.1) for M in sizes])
    return Measurement(
        Check("h* >= h", 0.0, gap, AT_LEAST),
        Check("h* - h <= 2 eta_Y/M", printed + 0 * gap, gap, AT_MOST),
        Check("lead in visits at ln M/eta_Y", 1.0, early, up_to(2.0)),
        Check("h* - h at s = 10^5, over its peak", 0.01, gap[..., -1] / gap.max(-1), AT_MOST),
        number=float((gap / unit).max()),
    )


@claim(AT_MOST, "Lemma 7(b), proof", FIG3)
def lemma_7_proof(s: Case) -> Measurement:
    r"""From some $s$ on $h(s+1) - h(s) \le \epsilon + \frac{\ln(1/2)}{M}$ (so that $h^* - h \to
    0$).

    Check whether a small step of h lies below epsilon - ln 2/M, with the largest epsilon that the
    gap allows; the corrected form is the result itself, h* - h -> 0.
    """
    M, eta_y = 1000.0, 0.9
    steps = np.unique(np.geomspace(1, 1e5, 60).astype(int))
    gap = _gap(steps, M=M, eta_y=eta_y)
    ahead = theory.h(steps + 1.0, M=M, eta_y=eta_y) - theory.h(steps, M=M, eta_y=eta_y)
    # The proof supposes h* - h >= epsilon for all s, so that epsilon is at most the gap.
    right, left = float(gap.max()) + np.log(0.5) / M, float(gap[-1] / gap.max())
    return Measurement(
        Check("h(s+1) - h(s) against epsilon + ln(1/2)/M", right, ahead),
        Check("h* - h at s = 10^5, over its peak", 0.01, left, form="corrected"),
        number=M * right,
        note=f"M = 1000, eta_Y = 0.9: the gap is at most {M * gap.max():.3f}/M, so that the right "
        f"side is at most {M * right:.3f}/M, and h rises; that h* - h -> 0 is true",
    )


@claim(SETTLES, "Remark 2", FIG3, tolerance=0.01)
def remark_2(s: Case) -> Measurement:
    r"""If $\eta_Y = O(1)$, a constant $c = O(\ln M)$ gives $h(s) \le h^*(s) \le h(s+c)$ for all $s
    > s_1$.

    Check that the lead c(s) of h* over h, found by inverting h, does not grow with s. An exponent
    of 0.01 would add 2 % in a decade; it is 0.08.
    """
    M, eta_y, steps = 1000.0, 0.99, np.array([10**4, 10**5, 10**6])
    lead = theory.h_lead(steps, M=M, eta_y=eta_y)
    return Measurement(
        Check("exponent of c(s) in s", 0.0, slope(steps[1:], lead[1:]), relative=False),
        number=float(lead[-1]),
        note=f"M = 1000, eta_Y = 0.99: h(s + c) = h*(s) needs c = {lead[0]:.2f}, {lead[1]:.2f}, "
        f"{lead[2]:.2f} at s = 10^4, 10^5, 10^6 (ln M = {np.log(M):.2f}); c grows like (1/2) ln s",
    )


VOCABULARIES = np.array([1e3, 1e5, 1e7, 1e9])


@claim(AT_MOST, "Lemma 8, Eqs. 50, 51", FIG3, (large_vocabulary,), tolerance=1e-9)
def lemma_8(s: Case) -> Measurement:
    r"""$\exp(Mh) \le (M-1) M h$ exactly for $\frac{1}{M^{2-\omega_0}} \le h \le \frac{(1+\omega_1)
    \ln M}{M}$, with $\omega_1 = \Theta\left(\frac{\ln \ln M}{\ln M}\right)$ and, if $M \gg 100$,
    $\omega_0 \lesssim \frac{1}{M^{0.99} \ln M} \ll 0.01$.

    Compare the sign on both sides of both zeros with that on 150 points for each M from 10^3 to
    10^9, and omega_0 and omega_1 with the stated orders. The tolerance is the rounding of ln((M-1)
    M h) - M h near a zero.
    """
    M = VOCABULARIES[:, None]
    low, high = M ** (theory.omega_0(M) - 2.0), (1.0 + theory.omega_1(M)) * np.log(M) / M
    inside = low * (high / low) ** np.linspace(1e-6, 1 - 1e-6, 50)
    below, above = low * np.geomspace(1e-6, 1 - 1e-6, 50), high * np.geomspace(1 + 1e-6, 1e3, 50)

    def room(h: FloatArray) -> FloatArray:
        return np.asarray(np.log((M - 1.0) * M * h) - M * h)

    small = theory.omega_0(VOCABULARIES) * VOCABULARIES**0.99 * np.log(VOCABULARIES)
    order = theory.omega_1(VOCABULARIES) * np.log(VOCABULARIES) / np.log(np.log(VOCABULARIES))
    return Measurement(
        Check("exp(Mh) <= (M-1) M h inside", 0.0, room(inside), AT_LEAST),
        Check("exp(Mh) > (M-1) M h below", 0.0, room(below), BELOW),
        Check("exp(Mh) > (M-1) M h above", 0.0, room(above), BELOW),
        Check("omega_0 over 1/(M^0.99 ln M)", 1.0, small, up_to(3.0)),
        Check("omega_1 over ln ln M/ln M", 1.0, order, within(2.0)),
        number=float(theory.omega_1(1000.0)),
    )


@claim(much_greater(MUCH), "Remark 3", FIG3, LEARNING)
def remark_3(s: Case) -> Measurement:
    r"""For $M \gg 100$ and $1 > \eta_Y \gg M^{-0.99}$: $h(1) \gtrsim \frac{\eta_Y}{M} \gg
    \frac{1}{M^{2-\omega_0}}$, so that only the larger zero of Lemma 8 matters from $t = 1$.

    Compare the smaller zero with h(1), for M from 10^3 to 10^9 and eta_Y from 0.1 to 0.99.
    """
    rates = np.array([0.1, 0.3, 0.99])
    floor = VOCABULARIES ** (theory.omega_0(VOCABULARIES) - 2.0)
    first = np.array([theory.h(1.0, M=VOCABULARIES, eta_y=y) for y in rates])
    return Measurement(
        Check("h(1) over M^-(2-omega_0)", floor + 0 * first, first),
        number=float((first / floor).min()),
    )


@claim(up_to(2.0), "Lemma 9, Eqs. 53-57", FIG3, LEARNING, tolerance=1e-12)
def lemma_9(s: Case) -> Measurement:
    r"""$\gamma(t) = O(\eta_Y t/K)$ for $t \le t_0' = \frac{K \ln M}{\eta_Y}$, and $\gamma(t) =
    O\left(\frac{K \ln(M \eta_Y t/K)}{\eta_Y t}\right)$ for $t \ge t_0 = \frac{2(1+\omega_1) K \ln
    M}{\eta_Y}$.

    Compare both rates, with one constant for every M, and both conditions on exp(M h) with gamma
    for M from 10^3 to 10^9, from t = K on. The tolerance is rounding.
    """
    K, y = s.K, s.eta_y
    place, M = np.linspace(0.0, 1.0, 60), VOCABULARIES[:, None]
    t0_prime, t0 = theory.transition_times(K=K, M=M, eta_y=y)
    early, late = K * (t0_prime / K) ** place, t0 * 10 ** (6 * place)
    g_early, g_late = (theory.gamma(t, K=K, M=M, eta_y=y) for t in (early, late))
    rate_early = theory.gamma_stages(early, K=K, M=M, eta_y=y).early
    rate_late = theory.gamma_stages(late, K=K, M=M, eta_y=y).late

    def x(t: FloatArray) -> FloatArray:
        return np.asarray(M * theory.h(t / K, M=M, eta_y=y))

    def logs(t: FloatArray) -> tuple[FloatArray, FloatArray]:
        return np.log(M - 1.0) + 0 * t, np.log((M - 1.0) * x(t))

    vast = np.array([1e30, 1e150])
    t = theory.transition_times(K=K, M=vast, eta_y=y).t0
    limit = (
        theory.gamma(t, K=K, M=vast, eta_y=y) / theory.gamma_stages(t, K=K, M=vast, eta_y=y).late
    )
    return Measurement(
        Check("gamma over eta_Y t/K, first stage", rate_early, g_early),
        Check("gamma over K ln(M eta_Y t/K)/(eta_Y t), second stage", rate_late, g_late),
        Check("exp(Mh) <= min(..), first stage", np.minimum(*logs(early)), x(early), AT_MOST),
        Check("the same at t_0, M = 10^30 and 10^150", 1.0, limit),
        Check("exp(Mh) >= max(..), second stage", np.maximum(*logs(late)), x(late), AT_LEAST),
        number=float((g_late / rate_late).max()),
        note="the constant of the second stage is largest at t_0, where it tends to 2 as M grows: "
        f"{listed((*(g_late / rate_late)[:, 0], *limit), '.3f')} for M = 10^3, 10^5, 10^7, 10^9, "
        "10^30, 10^150",
    )


@claim(ABOVE, "Eq. 52, proof of Lemma 9", FIG3, (large_vocabulary,))
def eq_52(s: Case) -> Measurement:
    r"""$\frac{M - 2 + (M-1) \ln(M-1)}{M \eta_Y} > \frac{\ln M}{\eta_Y}$.

    Compare both sides for M from above 100 to 1000. The inequality is strict.
    """
    M = np.arange(2.0, 1001.0)
    room = (M - 2.0 + (M - 1.0) * np.log(M - 1.0)) / M - np.log(M)
    asked = M > 100.0
    return Measurement(
        Check("left minus right", 0.0, room[asked]),
        number=float(room[asked].min()),
        note=f"it is false for M <= {M[room <= 0].max():.0f} only (by {room[M == 4].item():.2g} at "
        "M = 4); M >> 100 is assumed just before it, in Remark 3",
    )

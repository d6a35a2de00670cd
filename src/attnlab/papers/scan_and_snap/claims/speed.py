"""Appendix D.3: the speed gamma and its two stages (Lemmas 8 and 9, Remark 3)."""

import numpy as np

from attnlab.auditing import Measurement, claim
from attnlab.auditing.fit import listed
from attnlab.formulas.checks import FloatArray
from attnlab.theory import Case, Check
from attnlab.theory.relation import ABOVE, AT_LEAST, AT_MOST, BELOW, much_greater, up_to, within

from .. import theory
from ..cases import FIG3
from ..hypotheses import LEARNING, MUCH, large_vocabulary

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

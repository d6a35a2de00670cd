"""Appendix D.4: how far the visits of a class stray, and what that does to the decoder."""

from itertools import product
from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from attnlab.auditing import Measurement, claim
from attnlab.formulas.checks import FloatArray
from attnlab.theory import Case, Check, Hypothesis
from attnlab.theory.relation import ABOVE, AT_LEAST, AT_MOST, BELOW, much_smaller, up_to

from .. import theory
from ..cases import WEAK
from ..hypotheses import MUCH, large_vocabulary, many_steps, uniform_classes
from . import by_form

STEPS = np.array([1e3, 1e4, 1e5])
CLASSES = np.array([2.0, 5.0, 10.0])
DELTA = np.array([0.01, 0.1, 0.5])
GRID = (STEPS, CLASSES, DELTA)


def coverage(N: FloatArray, K: FloatArray, radius: FloatArray) -> FloatArray:
    """P(|N_n - ceil(N/K)| <= radius) exactly, for N_n binomial with N draws of probability 1/K."""
    centre = np.ceil(N / K)
    visits = scipy.stats.binom(N, 1.0 / K)
    return np.asarray(
        visits.cdf(np.floor(centre + radius)) - visits.cdf(np.ceil(centre - radius) - 1)
    )


@claim(AT_MOST, "Lemma 10, Eqs. 58, 59", WEAK, (uniform_classes,), tolerance=1e-9)
def lemma_10(s: Case) -> Measurement:
    r"""$\lvert N_n - \lceil N \mathbb{P}(n) \rceil \rvert \le \sqrt{\frac{N}{2} \ln
    \frac{2}{\delta}} + 1$ with probability at least $1 - \delta$.

    Compare the stated probability, at least 1 - delta, with the radius's exact coverage, from the
    binomial distribution. The tolerance is the rounding of the binomial distribution function.
    """
    N, K, delta = np.meshgrid(*GRID, indexing="ij")
    inside = coverage(N, K, theory.visits_radius(N, delta=delta))
    return Measurement(
        Check("coverage", 1.0 - delta, inside, AT_LEAST),
        number=float((inside - (1.0 - delta)).min()),
    )


@claim(BELOW, "Eq. 58, last inequality", WEAK, (many_steps,))
def eq_58(s: Case) -> Measurement:
    r"""$\sqrt{\frac{N}{2} \ln \frac{2}{\delta}} + 1 < \sqrt{N \ln \frac{2}{\delta}}$.

    Compare both sides for N from 10 K^2 = 40 on (N >> K^2, as in Appendix D.1). The inequality is
    strict.
    """
    N, delta = MUCH * s.K**2 * np.array([1.0, 4.0, 16.0]), np.array([0.01, 0.5, 0.99])
    n, d = np.meshgrid(N, delta, indexing="ij")
    right, middle = by_form(theory.visits_radius, n, delta=d).values()
    few = by_form(theory.visits_radius, 8, delta=0.5)
    return Measurement(
        Check("middle < right", right, middle),
        number=float((right - middle).min()),
        note="it needs N ln(2/delta) > 11.66, which N >> K^2 gives; N = 8, delta = 0.5: the "
        f"middle is {few['corrected']:.4f}, the right-hand side {few['printed']:.4f}",
    )


@claim(up_to(1.0), "Remark 4, Eq. 60", WEAK, (uniform_classes, many_steps), tolerance=1e-9)
def remark_4(s: Case) -> Measurement:
    r"""$\lvert N_n - \bar N \rvert \lesssim \Delta \ll \bar N$ with probability at least $1 -
    \delta$, where $\bar N = \lceil N/K \rceil$ and $\Delta = \left\lceil \sqrt{N \ln(1/\delta)}
    \right\rceil$.

    Compare the stated probability with the exact coverage of Delta (with ln(1/delta), where Lemma
    10 has ln(2/delta)), from the binomial distribution. The tolerance is the rounding of the
    binomial distribution function.
    """
    N, K, delta = np.meshgrid(*GRID, indexing="ij")
    radius = np.ceil(np.sqrt(N * np.log(1.0 / delta)))
    inside = coverage(N, K, radius)
    return Measurement(
        Check("coverage of Delta", 1.0 - delta, inside, AT_LEAST),
        Check("Delta over N/K falls with N", (radius * K / N)[:-1], (radius * K / N)[1:], BELOW),
        number=float((inside - (1.0 - delta)).min()),
    )


# Delta << N/K (Remark 4, Appendix D.1), read as a tenth at most.
STRAY = 1.0 / MUCH


def concentrated_visits(s: Case) -> tuple[Hypothesis, ...]:
    """Delta << N/K, in the grid on which Lemma 11 is tested."""
    says = "Delta << N/K: the largest Delta/(N/K)"
    return (Hypothesis("Remark 4, Eq. 60", says, STRAY, much_smaller(MUCH), 1),)


class Strayed(NamedTuple):
    """A class seen `stray` N/K visits less than the average N/K: what Lemma 11 speaks of, over M
    (from 10^3 to 10^9) and N/K (from 5 to 500). Above the average both deviations are smaller."""

    theta: FloatArray
    sigma: FloatArray
    radius: FloatArray
    bound: theory.Deviations
    late: NDArray[np.bool_]


VOCABULARIES, MEANS = np.array([1e3, 1e5, 1e7, 1e9]), np.geomspace(5.0, 500.0, 60)
ETA_Y = 0.9


def strayed(stray: float) -> Strayed:
    """Return the deviations themselves, and the printed bounds on them."""
    M, mean = np.meshgrid(VOCABULARIES, MEANS, indexing="ij")
    radius = stray * mean
    low, centre = (M * theory.h(v, M=M, eta_y=ETA_Y) for v in (mean - radius, mean))
    return Strayed(
        theta=1.0 - low / centre,
        sigma=(np.exp(centre) - np.exp(low)) / (M - 1.0 + np.exp(low)),
        radius=radius,
        bound=theory.decoder_deviations(mean, radius=radius, K=1, M=M, eta_y=ETA_Y, form="printed"),
        late=mean >= theory.transition_times(K=1, M=M, eta_y=ETA_Y).t0,
    )


@claim(
    up_to(3.0),
    "Lemma 11, Eqs. 61-65",
    WEAK,
    (uniform_classes, concentrated_visits),
    tolerance=1e-12,
)
def lemma_11(s: Case) -> Measurement:
    r"""With probability at least $1 - \delta$: $\lvert h(N_n) - h(\bar N) \rvert \lesssim h(\bar N)
    \frac{\Delta}{\bar N}$, and $\left\lvert \frac{1}{M-1+\exp(M h(N_n))} - \frac{1}{M-1+\exp(M
    h(\bar N))} \right\rvert \lesssim \frac{\sigma'}{M-1+\exp(M h(\bar N))}$ with $\sigma' \le
    \frac{1}{3} \eta_Y \Delta$.

    Compare the bounds on theta and sigma', for every N_n within Delta of the mean, with both at N_n
    = N/K - Delta, M from 10^3 to 10^9, N/K from 5 to 500. The tolerance is rounding.
    """
    found, far = strayed(STRAY), strayed(3 * STRAY)
    third = ETA_Y * far.radius / 3.0
    bound, sigma, late = found.bound.sigma, found.sigma, found.late
    return Measurement(
        Check("theta over Delta/(N/K) (Eq. 61)", found.bound.theta, found.theta),
        Check("sigma' below eta_Y Delta/3, N < t_0", bound[~late], sigma[~late], AT_MOST),
        Check("sigma' over Delta/(N/K), N >= t_0", bound[late], sigma[late]),
        number=float((sigma / bound)[~late].max()),
        note="Eq. 65 is proved for N_n above the mean; below it, for any Delta, 1/3 becomes 1 "
        f"(sigma' <= eta_Y Delta by Eq. 45): at Delta = 0.3 N/K sigma' reaches "
        f"{(far.sigma / third).max():.2f} times eta_Y Delta/3",
    )


@claim(
    much_smaller(MUCH),
    "Lemma 11 (after Eq. 62), Theorem 1's sigma",
    WEAK,
    (uniform_classes, concentrated_visits),
)
def eq_62(s: Case) -> Measurement:
    r"""$\sigma' \ll \ln M$.

    Compare ln M with sigma' at N_n = N/K - Delta, M from 10^3 to 10^9, N/K from 5 to 500. It is a
    bound.
    """
    sigma = strayed(STRAY).sigma
    log = np.log(VOCABULARIES)[:, None] + 0 * sigma
    return Measurement(Check("sigma' against ln M", log, sigma), number=float((sigma / log).max()))


@claim(up_to(1.0), "Lemma 12, Eqs. 66-69", WEAK, (uniform_classes, many_steps))
def lemma_12(s: Case) -> Measurement:
    r"""$w_n(N) = (1 + \theta_n) \bar w_n(N)$, where with probability at least $1 - \delta$ $\lvert
    \theta_n \rvert \lesssim \frac{K}{\sqrt N} \sqrt{\ln \frac{K}{\delta}}$ for all $n$.

    Compare the bound, with constant 1 and probability 1 - delta for all K deviations, with 4,000
    draws of the visits at each N, K = 5, delta = 0.05. The probability has much room above 0.95.
    """
    rng = np.random.default_rng(10)
    K, M, eta_y, delta = 5, 1000.0, 0.5, 0.05
    steps = np.array([100, 1000, 10000]) * K**2
    inside = []
    for N in steps:
        visits = rng.multinomial(N, np.full(K, 1.0 / K), size=4000)
        theta = theory.h(visits, M=M, eta_y=eta_y) / theory.h(N / K, M=M, eta_y=eta_y) - 1.0
        radius = K / np.sqrt(N) * np.sqrt(np.log(K / delta))
        inside.append((np.abs(theta) <= radius).all(axis=1).mean())
    return Measurement(
        Check("all K classes within the bound", 1 - delta, inside, AT_LEAST),
        number=float(min(inside)),
    )


@claim(
    up_to(1.0),
    "Corollary 1, after Eq. 71",
    WEAK,
    (uniform_classes, large_vocabulary),
    tolerance=1e-9,
)
def corollary_1_sigma(s: Case) -> Measurement:
    r"""$\sigma > -1$, and with probability at least $1 - \delta$ $\lvert \sigma \rvert \lesssim
    \eta_Y \sqrt{N \ln \frac{1}{\delta}}$, and $\lvert \sigma \rvert \lesssim \frac{K}{\sqrt N}
    \sqrt{\ln \frac{1}{\delta}}$ when $N \gg K \left(\sqrt{N \ln \frac{1}{\delta}} +
    \frac{2(1+\omega_1) \ln M}{\eta_Y}\right)$.

    Compare both bounds, with constant 1 and probability at least 1 - delta, with their exact
    coverage, from the binomial distribution of N_n, N from 10^3 to 10^6. The tolerance is the
    rounding of the binomial distribution function.
    """
    M, y, N = float(s.M), ETA_Y, np.array([1e3, 1e4, 1e5, 1e6])
    t0 = theory.transition_times(K=1, M=M, eta_y=y).t0
    early, late, lowest = [], [], []
    for n, K, delta in product(N, CLASSES, DELTA):
        mean, wide = np.ceil(n / K), np.ceil(12.0 * np.sqrt(n))
        visits = np.arange(max(mean - wide, 0.0), min(mean + wide, n) + 1.0)
        weight = scipy.stats.binom(n, 1.0 / K).pmf(visits)
        x, centre = (M * theory.h(v, M=M, eta_y=y) for v in (visits, mean))
        sigma = (np.exp(centre) - np.exp(x)) / (M - 1.0 + np.exp(x))
        stray = np.sqrt(n * np.log(1.0 / delta))
        early.append(weight[np.abs(sigma) <= y * stray].sum() - (1.0 - delta))
        lowest.append(sigma.min())
        if n >= MUCH * K * (stray + t0):
            late.append((delta, weight[np.abs(sigma) <= K * stray / n].sum()))
    allowed, covered = np.array(late).T
    return Measurement(
        Check("sigma above -1", -1.0, lowest, ABOVE),
        Check("coverage of eta_Y sqrt(N ln(1/delta)), above 1 - delta", 0.0, early, AT_LEAST),
        Check("coverage of (K/sqrt N) sqrt(ln(1/delta))", 1.0 - allowed, covered, AT_LEAST),
        number=float(covered[allowed == DELTA[0]].min()),
        note=f"with constant 1, {len(early)} cases for the first and {len(late)} for the second "
        "bound, where N is at least 10 K (sqrt(N ln(1/delta)) + 2 (1 + omega_1) ln M/eta_Y)",
    )

"""Section 4, Appendix D.5: what the decoder sends back (Theorem 1), on paper and in training."""

import numpy as np
import scipy

from attnlab import formulas
from attnlab.auditing import Measurement, claim
from attnlab.auditing.fit import listed, slope
from attnlab.auditing.runs import TRAINED_RATIOS
from attnlab.formulas.checks import FloatArray
from attnlab.theory import Case, Check
from attnlab.theory.relation import ABOVE, AT_LEAST, BELOW, EQUAL, LEADING, SETTLES, Form, within

from .. import cases, theory
from ..cases import FIG3, WEAK
from ..hypotheses import DECODER, MUCH, THEOREM_1, large_vocabulary
from . import FORMS, by_form, in_both_forms
from .correlation import brute_gradient, random_correlations

SLOWEST = 1000.0  # eta_Y/eta_Z where attention all but stands still while the decoder learns


@claim(EQUAL, "Theorem 1, Eq. 9", WEAK, THEOREM_1, tolerance=1e-12)
def theorem_1(s: Case) -> Measurement:
    r"""Given $x_{T+1} = n$, $g_n := Y (x_{T+1} - \alpha) = \gamma \left(\iota_n f_n - \sum_{n' \ne
    n} \beta_{nn'} f_{n'}\right)$ for the modified update of Lemma 3 (in training: our question).

    Compare g_n with Y (e_n - alpha_n) by brute force, and z with the joint flow at eta_Y/eta_Z =
    1000; the corrected form has Eq. 88's beta, in training SGD's own beta. The tolerance is the
    rounding of matrix products.
    """
    f, t = formulas.unit_attention(s), cases.transition_time(s)
    growth = np.full(s.K, theory.h(t / s.K, M=s.M, eta_y=s.eta_y))
    g = brute_gradient(f, growth, s.M) / theory.gamma(t, **cases.clock(s))
    said = by_form(theory.back_gradient, f, M=s.M)
    on_paper = in_both_forms("g_n / gamma (Eq. 9)", said, g, relative=False)
    slow = s.at(eta_z=s.eta_y / SLOWEST)
    times, trained_z = trained_growth(slow)
    _, high, _ = cases.most_and_least_frequent(s)
    theorem = cases.eq_10(slow, times).logits[:, 0, high]
    plain = plain_growth(slow, times, high)
    paths = {"printed": theorem, "corrected": plain}
    dominant = "z of the dominant token at eta_Y/eta_Z = 1000"
    at = times.tolist().index(t)
    z = cases.logits(s, cases.at_ratios(s).sel(time=t))
    slower = (s.at(eta_z=s.eta_y / ratio) for ratio in TRAINED_RATIOS)
    eq_10 = np.array([cases.eq_10(of, np.array([t])).logits[0] for of in slower])
    size_ahead = np.linalg.norm(eq_10, axis=(1, 2)) / np.linalg.norm(z, axis=(1, 2))
    return Measurement(
        *on_paper,
        *in_both_forms(dominant, paths, trained_z, LEADING, tolerance=0.05, training=True),
        number=on_paper[0].error,
        training_number=float(theorem[at] / trained_z[at]),
        note=f"two classes, f_1.f_2 = {theory.correlation(s)[0, 1]:.3f}, M = {s.M}: at t_0 "
        f"training has moved z by {trained_z[at]:.2e}, Theorem 1's decoder gives "
        f"{theorem[at]:.2e}, SGD's {plain[at]:.2e}. At t_0 Eq. 10 over training is "
        f"{listed((eq_10 / z)[:, 0, high], '.0f')} in z of the dominant token and "
        f"{listed(size_ahead, '.0f')} in the norm of z, at eta_Y/eta_Z = "
        f"{listed(TRAINED_RATIOS, 'g')}",
    )


def trained_growth(s: Case) -> tuple[FloatArray, FloatArray]:
    """Times from t_0/10 to 100 t_0, and z of class 0's dominant token, at ratio 1000."""
    t0 = cases.transition_time(s)
    result = cases.at_ratios(s).sel(ratio=SLOWEST, time=slice(t0 / 10, 1e2 * t0))
    return result["time"].values, cases.logits(s, result)[:, 0, cases.most_and_least_frequent(s)[1]]


def plain_growth(s: Case, times: FloatArray, token: int) -> FloatArray:
    """z of a distinct token of class 0 by Eq. 98 with SGD's own beta, attention held at its start.

    Two classes: dz/dt = (eta_Z/K) f_l^2 gamma beta f_1.f_2.
    """
    rho = float(theory.correlation(s)[0, 1])
    share = float(formulas.unit_attention(s)[0, token] ** 2)
    grid = np.concatenate([np.geomspace(times[0] * 1e-4, times[0], 400)[:-1], times])
    fine = np.unique(np.concatenate([grid, np.geomspace(times[0], times[-1], 4000)]))
    beta = theory.plain_coefficients(fine, **cases.clock(s), rho=rho).beta
    speed = s.eta_z / s.K * share * rho * theory.gamma(fine, **cases.clock(s)) * beta
    return np.interp(times, fine, scipy.integrate.cumulative_simpson(speed, x=fine, initial=0.0))


@claim(EQUAL, "Eq. 86", WEAK, tolerance=1e-11)
def eq_86(s: Case) -> Measurement:
    r"""$\iota_n = (1+\sigma) \left[q_1 (1+\theta_n) (1 - E'_{nn}) - q_0 \sum_{k \ne n} (1+\theta_k)
    E'_{kn}\right]$.

    Compare the coefficient of f_n in g_n / gamma with that of Y (e_n - alpha_n) by brute force, its
    coordinate along f_n among the f's, for three random classes visited 30, 45 and 25 times. The
    tolerance is the rounding of 60 x 9 matrix products and of a least-squares solution.
    """
    M, eta_y, visits = 60, 0.5, np.array([30.0, 45.0, 25.0])
    f = formulas.unit_attention(np.random.default_rng(18).dirichlet(np.ones(9), size=3))
    theta, sigma = theory.visit_deviations(visits, M=M, eta_y=eta_y)
    speed = theory.gamma(visits.sum(), K=3, M=M, eta_y=eta_y)
    g = brute_gradient(f, theory.h(visits, M=M, eta_y=eta_y), M) / speed
    along = np.linalg.lstsq(f.T, g.T, rcond=None)[0]
    predicted = theory.iota(theory.gram(f), M=M, theta=theta, sigma=sigma)
    return Measurement(Check("iota_n", predicted, np.diagonal(along)))


# |delta_1| << 1 in Eqs. 87 and 89, read as a tenth at most.
STRAY, LARGE = 1.0 / MUCH, 1000.0


def remainders(form: Form) -> tuple[FloatArray, FloatArray]:
    """Return M |delta_2| of Eq. 87 and M |delta_3| of Eq. 89, the largest of each of 200 sets."""
    rng = np.random.default_rng(19)
    found = []
    for E in random_correlations():
        Ep, other = theory.e_prime(E), ~np.eye(len(E), dtype=bool)
        theta = rng.uniform(-STRAY, STRAY, len(E))
        one = (1.0 + 1.0 / (LARGE - 1.0)) * (1.0 + theta)  # 1 + delta_1 = q_1 (1 + theta_n)
        second = theory.iota(E, M=LARGE, theta=theta) - (1.0 - np.diagonal(Ep)) * one
        third = theory.beta(E, M=LARGE, theta=theta, form=form) - Ep * one[:, None]
        found.append((np.abs(second).max(), np.abs(third[other]).max()))
    second, third = LARGE * np.array(found).T
    return second, third


@claim(BELOW, "Eq. 87 and the line after Eq. 89", WEAK, (*DECODER, large_vocabulary))
def eq_87(s: Case) -> Measurement:
    r"""$\iota_n = (1+\sigma) [(1 - E'_{nn}) (1+\delta_1) + \delta_2]$ with $\lvert \delta_2 \rvert
    < \frac{3}{M}$.

    Compare 3/M with the remainder for 200 random sets of 2 to 6 classes, M = 1000, where |theta_n|
    is at most 0.1 (|delta_1| << 1). The inequality is strict.
    """
    second, _ = remainders("corrected")
    return Measurement(Check("M |delta_2|", 3.0, second), number=float(second.max()))


@claim(BELOW, "Eq. 89 and the line after Eq. 89", WEAK, (*DECODER, large_vocabulary))
def eq_89(s: Case) -> Measurement:
    r"""$\beta_{nn'} = (1+\sigma) [E'_{nn'} (1+\delta_1) + \delta_3]$ with $\lvert \delta_3 \rvert <
    \frac{3}{M}$.

    Compare 3/M with the remainder for 200 random sets of 2 to 6 classes, M = 1000, where |theta_n|
    is at most 0.1 (|delta_1| << 1). The inequality is strict.
    """
    sizes = {form: remainders(form)[1] for form in FORMS}
    return Measurement(
        *(Check(f"M |delta_3|, beta {form}", 3.0, size, form=form) for form, size in sizes.items()),
        number=float(sizes["printed"].max()),
        note=f"with Eq. 88 corrected {sizes['corrected'].max():.3g}: its sign does not matter here",
    )


def overlapping() -> list[tuple[FloatArray, FloatArray]]:
    """E and its |eigenvalues| of the random sets in which none is near 0, where bounds say much."""
    sets = [(E, np.abs(np.linalg.eigvalsh(E))) for E in random_correlations()]
    return [(E, size) for E, size in sets if size.min() > 0.01]


@claim(ABOVE, "Theorem 1(a), Eqs. 91-93", WEAK, THEOREM_1)
def theorem_1a(s: Case) -> Measurement:
    r"""$\xi_n(t) := \gamma(t) \sum_{n' \ne n} \beta_{nn'}(t) f_n^\top(t) f_{n'}(t) > 0$ for every
    class $n$ and all $t$.

    Check that xi_n is positive under Assumption 2 along Eq. 10, and for random classes with M just
    large enough (the corrected beta needs no lower bound). The inequality is strict.
    """
    # A vocabulary just large enough for Assumption 2, where it bites most.
    sets = [(E, size.min() ** 2, 36.0 * 1.01 / size.min() ** 2) for E, size in overlapping()]
    least = {
        form: np.array([(theory.xi(E, M=M, form=form) / floor).min() for E, floor, M in sets])
        for form in FORMS
    }
    E = theory.correlation(s, cases.eq_10(s, np.geomspace(1, 1e6, 20)).logits)
    return Measurement(
        Check("xi_n / gamma > 0 along Eq. 10", 0.0, theory.xi(E, M=s.M, form="printed"), ABOVE),
        *in_both_forms("xi_n / gamma > 0, random classes", 0.0, least, ABOVE),
        number=float(least["printed"].min()),
    )


@claim(AT_LEAST, "Eq. 93, first inequality (proof of Theorem 1a)", WEAK, tolerance=1e-12)
def eq_93(s: Case) -> Measurement:
    r"""$\sum_k \frac{\lambda_k^2}{1 + \lambda_k} u_{nk}^2 \ge \frac{\min_i \lvert \lambda_i(E)
    \rvert^2}{1 - \lvert \lambda_1 \rvert}$.

    Compare the lower bound with -E'_nn for 200 random sets of 2 to 6 classes; the corrected form
    has 1 + |lambda_1| in the denominator. The tolerance is the rounding of 6 x 6 linear algebra.
    """
    left = np.array([-np.diagonal(theory.e_prime(E)).max() for E, _ in overlapping()])
    floor, radius = np.array([(size.min() ** 2, size.max()) for _, size in overlapping()]).T
    rho = float(theory.correlation(s)[0, 1])
    printed, right = floor / (1 - radius), floor / (1 + radius)
    return Measurement(
        Check("above min lambda^2/(1 - |lambda_1|)", printed, left, AT_LEAST),
        Check("above min lambda^2/(1 + |lambda_1|)", right, left, AT_LEAST, form="corrected"),
        number=rho**2 / (1 - rho) - rho**2 / (1 - rho**2),
        note=f"two classes, f_1.f_2 = {rho:.3f}: the sum is {rho**2 / (1 - rho**2):.4f}, the "
        f"printed lower bound {rho**2 / (1 - rho):.4f}; the next line, with 1/2, is right",
    )


@claim(SETTLES, "Theorem 1(b), Theorem 4", FIG3)
def theorem_1b(s: Case) -> Measurement:
    r"""$\gamma(t) = O\left(\frac{K \ln(\eta_Y t/K)}{\eta_Y t}\right)$ for $t \ge \frac{2(1+\delta')
    K \ln M}{\eta_Y}$ with $\delta' = \Theta\left(\frac{\ln \ln M}{\ln M}\right)$.

    Check that gamma over the rate does not grow between 10^5 and 10^6 t_0, for M from 10^3 to 10^9.
    It is judged by an exponent.
    """
    K, y, M = s.K, s.eta_y, np.array([1e3, 1e6, 1e9])
    t0 = theory.transition_times(K=K, M=M, eta_y=y).t0

    def constant(t: FloatArray, form: str) -> FloatArray:
        rate = theory.gamma_stages(t, K=K, M=M, eta_y=y, form=form).late
        return np.asarray(theory.gamma(t, K=K, M=M, eta_y=y) / rate)

    late = t0 * np.array([1e5, 1e6])[:, None]
    growing = [slope(t, c) for t, c in zip(late.T, constant(late, "printed").T, strict=True)]
    at_t0 = by_form(constant, t0)
    return Measurement(
        Check("exponent in t of gamma over the rate", 0.0, growing, relative=False),
        number=float(at_t0["printed"][-1]),
        note="an O(.) in t for each M. Its constant grows with M, as Lemma 9's ln(M eta_Y t/K) has "
        f"lost its M: gamma over the printed rate at t_0 is {listed(at_t0['printed'], '.2f')} for "
        f"M = 10^3, 10^6, 10^9; with the M {listed(at_t0['corrected'], '.2f')}",
    )


@claim(LEADING, "after Theorem 1 (Section 4), Remark 1", WEAK, THEOREM_1, tolerance=0.1)
def theorem_1_plain(s: Case) -> Measurement:
    r"""Under Eq. 7 with equal overlaps, $f_n^\top f_{n'} = \rho$ for $n \ne n'$, Theorem 1 still
    holds, with the smaller learning rate $\eta_Y' := (1-\rho) \eta_Y$.

    Compare the form of g_n, (a), (b) and the appendix's beta with g_n of Eq. 7's decoder, from
    t_0/10 to 100 t_0; the corrected form has SGD's own beta. The tolerance is what M >> 100 and t
    >> K^2 let it neglect.
    """
    E, t0 = theory.correlation(s), cases.transition_time(s)
    rho, t = float(E[0, 1]), np.geomspace(t0 / 10, 100 * t0, 13)
    plain = theory.plain_coefficients(t, **cases.clock(s), rho=rho)
    w = theory.plain_decoder(t, **cases.clock(s), rho=rho)
    W = np.repeat(np.asarray(w.outside)[:, None, None], s.K, axis=1).repeat(s.M, axis=2)
    W[:, :, : s.K] = np.where(np.eye(s.K) > 0, w.own[:, None, None], w.other[:, None, None])
    speed = theory.gamma(t, **cases.clock(s))
    g = np.array([theory.gradient_coefficients(at, E)[0] for at in W]) / speed[:, None]
    theorem = float(theory.beta(E, M=s.M)[0, 1])
    middle = int(np.abs(t - t0).argmin())
    checks = []
    for form in FORMS:
        beta = theorem if form == "printed" else plain.beta
        checks += [
            Check("(a) xi_n > 0: beta of training", 0.0, -g[:, 1], ABOVE, tolerance=0.0, form=form),
            Check("(b) g_n is gamma f_n: iota of training", 1.0, g[:, 0], within(2.0), form=form),
            Check("beta of the appendix", beta, -g[:, 1], form=form),
        ]
    return Measurement(
        *checks,
        number=float(theorem / plain.beta[middle]),
        note=f"two classes, f_1.f_2 = {rho:.3f}, M = {s.M}: beta starts near 1/M, grows as "
        "exp(rho eta_Y t/K)/M well before t_0 and about as (M eta_Y t/K)^rho / M from t_0 to 100 "
        f"t_0; it is {plain.beta[middle]:.4f} at t_0, {plain.beta[-1]:.4f} at 100 t_0, and passes "
        f"Theorem 1's, {theorem:.4f}, at {_overtakes(s, rho, theorem):.1e} t_0. beta/iota tends to "
        f"2 rho/(1 + rho^2) = {2 * rho / (1 + rho**2):.3f}. No learning rate enters Theorem 1's",
    )


def _overtakes(s: Case, rho: float, theorem: float) -> float:
    """Return the time, in units of t_0, at which SGD's beta passes Theorem 1's."""

    def ahead(decades: float) -> float:
        t = cases.transition_time(s) * 10.0**decades
        return float(theory.plain_coefficients(t, **cases.clock(s), rho=rho).beta) - theorem

    return float(10.0 ** scipy.optimize.brentq(ahead, 0.0, 40.0))

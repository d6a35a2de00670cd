"""Appendix D.5: correlations between classes, E' and the coefficients of the back gradient."""

from collections.abc import Iterable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlab import formulas
from attnlab.auditing import Measurement, claim
from attnlab.formulas.checks import FloatArray
from attnlab.theory import Case, Check
from attnlab.theory.relation import ABOVE, AT_LEAST, AT_MOST, BELOW, EQUAL

from .. import cases, theory
from ..cases import FAINT, FIG3, SYN_SMALL, WEAK
from ..hypotheses import fast_decoder, weak_correlations
from . import by_form, in_both_forms, on_both_paths

SAMPLES = 200


@cache
def random_attention() -> tuple[FloatArray, ...]:
    """F for 200 random sets of 2 to 6 classes, rows f_n, with |lambda_1(E)| below 1/K."""
    rng = np.random.default_rng(5)
    found: list[FloatArray] = []
    while len(found) < SAMPLES:
        K = int(rng.integers(2, 7))
        shared = rng.uniform(0, 1, (K, 4)) * (rng.random((K, 4)) < 0.6) * rng.uniform(0.02, 0.5)
        f = formulas.unit_attention(np.hstack([shared, np.diag(rng.uniform(0.5, 1.0, K))]))
        if radius(theory.gram(f)) < 1.0 / K:
            found.append(f)
    return tuple(found)


@cache
def random_correlations() -> tuple[FloatArray, ...]:
    """E of each set of `random_attention`."""
    return tuple(theory.gram(f) for f in random_attention())


def radius(E: FloatArray) -> float:
    """Return the largest |eigenvalue|."""
    return float(np.abs(np.linalg.eigvalsh(E)).max())


def tightest(predicted: Iterable[float], measured: Iterable[float]) -> float:
    """Return the largest measurement over its bound, where that is above 0."""
    return float(max(m / p for p, m in zip(predicted, measured, strict=True) if p > 0))


def _below(about: str, bound: list[float], size: list[float]) -> Measurement:
    """Compare each set with its bound, and say how near the nearest comes."""
    return Measurement(Check(about, bound, size, AT_MOST), number=tightest(bound, size))


@claim(ABOVE, "Assumption 2", FIG3, (weak_correlations,), ours=True)
def assumption_2(s: Case) -> Measurement:
    r"""$M \gg K^2$ and $F^\top F = I + E$ with $\lvert \lambda_1(E) \rvert < \frac{1}{K}$ and
    $\lvert \lambda_i(E) \rvert \ge \frac{6}{\sqrt M}$ for all $i$, in the paper's own Fig. 3.

    Check whether the paper's own settings (Fig. 3: K = 10, M = 1000; Syn-Small) meet each part, by
    its margin. The inequalities are strict.
    """
    parts = theory.assumption_2(theory.correlation(s), M=s.M)
    small = theory.assumption_2(theory.correlation(SYN_SMALL.P), M=SYN_SMALL.M)
    return Measurement(
        Check("margins in Fig. 3", 0.0, [part.margin for part in parts], ABOVE),
        Check("margins in Syn-Small", 0.0, [part.margin for part in small], ABOVE),
        number=s.M / (36.0 * s.K**2),
        note=f"K = {s.K}, M = {s.M}: the eigenvalue bounds 6/sqrt(M) = "
        f"{6 / np.sqrt(s.M):.3f} and 1/K = {1 / s.K:.3f} exclude each other for any E "
        f"(they need M > 36 K^2 = {36 * s.K**2}); Syn-Small needs {36 * SYN_SMALL.K**2}, "
        f"has {SYN_SMALL.M}",
    )


@claim(ABOVE, "Section 4, after Assumption 2", WEAK, (weak_correlations,))
def full_rank(s: Case) -> Measurement:
    r"""By Assumption 2 $F^\top F$ is invertible and $F$ has full column rank.

    Check that the smallest singular value of F is above 0, for 200 random sets of 2 to 6 classes
    with |lambda_1| < 1/K. The inequality is strict; 1e-12 is left for rounding.
    """
    least = [float(np.linalg.svd(f, compute_uv=False).min()) for f in random_attention()]
    floor = [float(np.sqrt(1.0 - radius(E))) for E in random_correlations()]
    smallest = "smallest singular value of F"
    return Measurement(
        Check(smallest, 0.0, least, ABOVE, tolerance=0.0),
        Check(f"{smallest} above sqrt(1 - |lambda_1|)", floor, least, AT_LEAST, tolerance=1e-12),
        number=min(least),
        note="|lambda_1| < 1/K alone gives it: the eigenvalues of F^T F = I + E are at least "
        "1 - 1/K; neither M >> K^2 nor the floor 6/sqrt(M) is needed",
    )


@claim(AT_LEAST, "Assumption 2, Theorem 1(a)", WEAK, (weak_correlations, fast_decoder), ours=True)
def assumption_2_floor(s: Case) -> Measurement:
    r"""Assumption 2's floor, $\lvert \lambda_i(E) \rvert \ge \frac{6}{\sqrt M}$ for all $i$, stays
    met while attention learns ($\xi_n(t) > 0$ at any $t$).

    Compare the floor with the smallest |eigenvalue| of E along Eq. 10 to t = 10^6 and in the joint
    flow to 10^10, where common tokens lose attention.
    """
    t = np.geomspace(1.0, 1e6, 61)
    result = cases.at_ratios(s).sel(ratio=s.eta_y / s.eta_z, method="nearest")
    paths = {"Eq. 10": cases.eq_10(s, t).logits, "training": cases.logits(s, result)}
    least = {
        name: np.abs(np.linalg.eigvalsh(theory.correlation(s, z))).min(-1)
        for name, z in paths.items()
    }
    floor = 6.0 / np.sqrt(s.M)
    passed = float(np.interp(-floor, -least["Eq. 10"], t))
    return Measurement(
        *on_both_paths("min |lambda_i(E)|", floor, least),
        number=passed,
        training_number=float(least["training"][-1] / floor),
        note=f"two classes, M = {s.M}: min |lambda_i| goes from {least['Eq. 10'][0]:.3f} to "
        f"{least['Eq. 10'][-1]:.3f} by t = 10^6 under Eq. 10, and to 0 as t grows; the floor is "
        f"{floor:.3f}. With Eq. 88 corrected no floor is needed",
    )


@claim(EQUAL, "Appendix D.1 against Lemma 14", WEAK, (weak_correlations,), tolerance=1e-13)
def e_prime(s: Case) -> Measurement:
    r"""With $E' := (I + E)^{-1} - I$ Eq. 26 moves only row $n$ of $W$: $F^\top (f_n - F E' e_n) =
    e_n$ (Eqs. 27-30; the minus is inferred: in our machine reading the operator is lost).

    Compare F^T (F - F E') with I for two classes; the corrected form has E' = I - (I + E)^-1. The
    tolerance is rounding.
    """
    f, E, eye = formulas.unit_attention(s), theory.correlation(s), np.eye(s.K)

    def moved(Ep: NDArray[Any]) -> FloatArray:
        return np.asarray(f @ (f.T - f.T @ Ep))

    identity = {form: moved(Ep) for form, Ep in by_form(theory.e_prime, E).items()}
    checks = in_both_forms("F^T (F - F E') = I", eye, identity, relative=False)
    missed, inverse, rho = checks[0].error, np.linalg.inv(eye + E), E.max()
    # In our text of D.1 the operator is lost: the other two that it could be are tried as well.
    others = {"plus": inverse + eye, "nothing": inverse}
    off = {name: np.abs(moved(Ep) - eye).max() for name, Ep in others.items()}
    return Measurement(
        *checks,
        number=missed,
        note="our text is a machine reading, in which D.1 has no operator: E' := (I + E)^-1 I. The "
        "minus is inferred (the same list has M 1 for M - 1). Two classes, f_1.f_2 = "
        f"{rho:.3f}: with it F^T(F - F E') misses I by {missed:.3f} = 2 f_1.f_2, with a plus by "
        f"{off['plus']:.3g}, with nothing by {off['nothing']:.3g}, with Lemma 14's E' by rounding",
    )


@claim(AT_MOST, "Lemma 13", WEAK, tolerance=1e-13)
def lemma_13(s: Case) -> Measurement:
    r"""$\max_{i,j} \lvert E_{ij} \rvert \le \lvert \lambda_1 \rvert$.

    Compare both sides for 200 random sets of 2 to 6 classes with |lambda_1| < 1/K. The tolerance is
    the rounding of 6 x 6 linear algebra.
    """
    bound = [float(theory.spectrum_bounds(E).entry) for E in random_correlations()]
    return _below("max |E_ij|", bound, [float(np.abs(E).max()) for E in random_correlations()])


@claim(EQUAL, "Lemma 14, Eqs. 75-77", WEAK, tolerance=1e-13)
def lemma_14(s: Case) -> Measurement:
    r"""If $\lvert \lambda_1 \rvert < 1$: $(I + E)^{-1} = I - E'$, where $E'$ has the eigenvalues
    $\lambda_i' = \frac{\lambda_i}{1 + \lambda_i}$.

    Compare both sides for 200 random sets of 2 to 6 classes with |lambda_1| < 1/K. The tolerance is
    the rounding of 6 x 6 linear algebra.
    """
    gap, roots = [], []
    for E in random_correlations():
        eye, Ep, values = np.eye(len(E)), theory.e_prime(E), np.linalg.eigvalsh(E)
        gap.append(float(np.abs(np.linalg.inv(eye + E) - (eye - Ep)).max()))
        roots.append(float(np.abs(np.linalg.eigvalsh(Ep) - np.sort(values / (1 + values))).max()))
    return Measurement(
        Check("(I+E)^-1 - (I-E')", 0.0, gap, EQUAL), Check("eigenvalues", 0.0, roots, EQUAL)
    )


@claim(AT_MOST, "Lemma 15, Eq. 78", WEAK, tolerance=1e-13)
def lemma_15(s: Case) -> Measurement:
    r"""If $\lvert \lambda_1 \rvert < 1$: $\max_i \lvert \lambda_i(E') \rvert \le \frac{\lvert
    \lambda_1 \rvert}{1 - \lvert \lambda_1 \rvert}$.

    Compare both sides for 200 random sets of 2 to 6 classes with |lambda_1| < 1/K. The tolerance is
    the rounding of 6 x 6 linear algebra.
    """
    bound = [float(theory.spectrum_bounds(E).e_prime_radius) for E in random_correlations()]
    return _below("radius of E'", bound, [radius(theory.e_prime(E)) for E in random_correlations()])


@claim(AT_MOST, "Lemma 16, Eq. 79", WEAK, tolerance=1e-13)
def lemma_16(s: Case) -> Measurement:
    r"""$E'_{ii} \le 0$, and $E'_{ii} < 0$ if $E_{ki} > 0$ for some $k \ne i$.

    Compare both sides for 200 random sets of 2 to 6 classes with |lambda_1| < 1/K. The tolerance is
    the rounding of 6 x 6 linear algebra.
    """
    diagonals = [np.diagonal(theory.e_prime(E)) for E in random_correlations()]
    overlapping = max(
        float(np.where(E.max(0) > 0, diagonal, -1.0).max())
        for E, diagonal in zip(random_correlations(), diagonals, strict=True)
    )
    return Measurement(
        Check("E'_ii <= 0", 0.0, [float(diagonal.max()) for diagonal in diagonals], AT_MOST),
        Check("E'_ii < 0 where class i overlaps", 0.0, overlapping, BELOW, tolerance=0.0),
        number=overlapping,
    )


@claim(AT_MOST, "Lemma 17, Eq. 80", WEAK, tolerance=1e-13)
def lemma_17(s: Case) -> Measurement:
    r"""If $\lambda_1 < 1$: $\lvert E'_{nn'} - E_{nn'} \rvert \le \frac{\lvert \lambda_1 \rvert^2}{1
    - \lvert \lambda_1 \rvert}$.

    Compare both sides for 200 random sets of 2 to 6 classes with |lambda_1| < 1/K. The tolerance is
    the rounding of 6 x 6 linear algebra.
    """
    bound = [float(theory.spectrum_bounds(E).e_prime_gap) for E in random_correlations()]
    gap = [float(np.abs(theory.e_prime(E) - E).max()) for E in random_correlations()]
    return _below("max |E' - E|", bound, gap)


def brute_gradient(f: FloatArray, growth: FloatArray, M: int) -> FloatArray:
    """g_n = Y (e_n - alpha_n) for Theorem 5's Y, one row per class, with no coefficient in it."""
    Y = theory.decoder_weights(f, growth, M=M)
    logits = f @ Y
    alpha = np.exp(logits - logits.max(-1, keepdims=True))
    error = np.eye(len(f), M) - alpha / alpha.sum(-1, keepdims=True)
    return np.asarray(error @ Y.T)


@claim(AT_MOST, "Eq. 90 (proof of Theorem 1)", WEAK, (weak_correlations,), tolerance=1e-13)
def eq_90(s: Case) -> Measurement:
    r"""$\lvert E'_{kn} \rvert \le \max_i \lvert \lambda_i(E') \rvert \le \frac{1}{1 - 1/K} \lvert
    \lambda_1 \rvert \le \frac{1}{K-1}$.

    Compare all four terms of the three inequalities for 200 random sets of 2 to 6 classes with
    |lambda_1| < 1/K. The tolerance is the rounding of 6 x 6 linear algebra.
    """
    sets = [(len(E), E, theory.e_prime(E)) for E in random_correlations()]
    entry = [float(np.abs(Ep).max()) for _, _, Ep in sets]
    largest = [radius(Ep) for _, _, Ep in sets]
    printed = [radius(E) / (1.0 - 1.0 / K) for K, E, _ in sets]
    last = [1.0 / (K - 1.0) for K, _, _ in sets]
    return Measurement(
        Check("|E'_kn| below max |lambda_i(E')|", largest, entry),
        Check("max |lambda_i(E')| below |lambda_1|/(1 - 1/K)", printed, largest),
        Check("|lambda_1|/(1 - 1/K) below 1/(K-1)", last, printed),
        number=tightest(last, entry),
    )


@claim(EQUAL, "Eq. 88", WEAK, tolerance=1e-12)
def eq_88(s: Case) -> Measurement:
    r"""$\beta_{nn'} = (1+\sigma) [q_1 (1+\theta_n) E'_{nn'}$ $+ q_0 ((1+\theta_{n'}) + \sum_{k \ne
    n} (1+\theta_k) E'_{kn'})]$.

    Compare the coefficients of g_n with Y (e_n - alpha_n) by brute force, for three random classes
    visited 30, 45 and 25 times; the corrected form has - q0[.. - sum ..] for + q0[.. + sum ..]. The
    tolerance is the rounding of 60 x 9 matrix products.
    """
    rng = np.random.default_rng(6)
    M, eta_y = 60, 0.5
    f = formulas.unit_attention(rng.dirichlet(np.ones(9), size=3))
    visits = np.array([30.0, 45.0, 25.0])
    theta, sigma = theory.visit_deviations(visits, M=M, eta_y=eta_y)
    speed = theory.gamma(visits.sum(), K=3, M=M, eta_y=eta_y)
    g = brute_gradient(f, theory.h(visits, M=M, eta_y=eta_y), M) / speed
    predicted = by_form(theory.back_gradient, f, M=M, theta=theta, sigma=sigma)
    overlap = theory.correlation(FAINT.P)
    faint = by_form(theory.xi, overlap, M=FAINT.M)
    pair = np.array([[0.0, 0.3], [0.3, 0.0]])
    wrong, right = (beta[0, 1] for beta in by_form(theory.beta, pair, M=30).values())
    return Measurement(
        *in_both_forms("g_n / gamma", predicted, g, relative=False),
        number=float(wrong),
        note=f"K = 2, M = 30, f_1.f_2 = 0.3: beta = {right:.5f}, printed {wrong:.5f}; "
        f"f_1.f_2 = {overlap[0, 1]:.2e}, M = {FAINT.M} (below Assumption 2's floor): xi/gamma = "
        f"{faint['corrected'][0]:.2e}, printed {faint['printed'][0]:.2e}",
    )

"""Section 3 and Appendices C, H: the gradient, and what long sequences and a fast decoder buy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from attnlab import formulas
from attnlab.auditing.claim import Measurement, claim
from attnlab.auditing.fit import slope
from attnlab.auditing.runs import TRAINED_RATIOS
from attnlab.dynamics import Limit, Sampled, Save, simulate
from attnlab.papers.scan_and_snap import theory
from attnlab.papers.scan_and_snap.cases import SYN_SMALL, WEAK, climbed, transition_time
from attnlab.papers.scan_and_snap.hypotheses import (
    fast_decoder,
    long_sequences,
    query_from_next,
    weak_correlations,
)
from attnlab.papers.scan_and_snap.readings import gain_error, logits
from attnlab.theory.case import Case
from attnlab.theory.comparison import Check
from attnlab.theory.relation import ABOVE, AT_LEAST, AT_MOST, EQUAL, LEADING


def log_likelihood(q: NDArray[Any], z: NDArray[Any], Y: NDArray[Any], target: int) -> complex:
    """Eq. 15 for one sequence, written with nothing but what a complex step can pass through."""
    c = q * np.exp(z)
    f = c / np.sqrt((c**2).sum())
    scores = Y.T @ f
    return complex(scores[target] - np.log(np.exp(scores).sum()))


def complex_slope(
    function: Callable[[NDArray[np.complex128]], complex], x: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The gradient of a real-analytic function to rounding, by steps along the imaginary axis."""
    gradient = np.empty(x.shape)
    for i in np.ndindex(x.shape):
        moved = x.astype(complex)
        moved[i] += 1e-30j
        gradient[i] = function(moved).imag / 1e-30
    return gradient


@claim(
    "lemma-1", source="Lemma 1, Eqs. 3, 4",
    statement=r"The gradients of the 1-layer transformer: $\dot Y = \eta_Y "
    r"\operatorname{LN}(X^\top b_T) (x_{T+1} - \alpha)^\top$ and $\dot Z = \eta_Z x_T (x_{T+1} - "
    r"\alpha)^\top Y^\top \frac{P^\perp_{X^\top b_T}}{\lVert X^\top b_T \rVert_2} X^\top "
    r"\operatorname{diag}(b_T) X$",
    relation=EQUAL, case=WEAK, hypotheses=(query_from_next,), tolerance=1e-12,
    code=("sample_gradient", "logit_gradient"),
    test="tests/formulas/test_backprop.py::test_lemma_1_at_finite_length",
)  # fmt: skip
def lemma_1(case: Case) -> Measurement:
    """Compare the gradient of one sequence in Y and in z_m, and 40 steps made of it, with
    complex-step derivatives of Eq. 15 at T = 12 and with the simulator's own 40 steps. The
    tolerance is the rounding of sums of a few hundred terms.
    """
    rng = np.random.default_rng(1)
    q = np.array([3, 2, 0, 5, 1]) / 11.0  # a sequence of 11 contextual tokens
    z, Y = rng.normal(size=5), rng.normal(size=(5, 6))
    predicted = formulas.sample_gradient(q, z, Y, target=4)
    by_z = complex_slope(lambda v: log_likelihood(q, v, Y, 4), z)
    by_y = complex_slope(lambda v: log_likelihood(q, z, v, 4), Y)

    # Training: the simulator's expected-gradient steps against Lemma 1 applied class by class.
    s, steps = case, 40
    result = simulate(
        s.classes, Limit(), eta_y=s.eta_y, eta_z=s.eta_z, steps=steps,
        momentum=0.0, save=Save("logits", at=[0, steps]), dtype="float64", progress=False,
    )  # fmt: skip
    simulated = logits(s, result.isel(seed=0, step=-1))
    by_hand, decoder = np.zeros(simulated.shape), np.zeros((s.P.shape[1], s.M))
    for _ in range(steps):
        terms = [
            formulas.sample_gradient(s.P[n], by_hand[s.psi[n]], decoder, target=n)
            for n in range(s.K)
        ]
        for n, term in enumerate(terms):
            decoder = decoder + s.eta_y * s.classes.prior[n] * term.decoder
            by_hand[s.psi[n]] += s.eta_z * s.classes.prior[n] * term.logits
    return Measurement(
        (
            Check("dJ/dz", predicted.logits, by_z),
            Check("dJ/dY", predicted.decoder, by_y),
            Check("logits after 40 steps", by_hand, simulated, relative=False, training=True),
            Check(
                "rows of Z keep a zero sum", 0.0, simulated.sum(-1), relative=False, training=True
            ),
        )
    )


@claim(
    "assumption-1", source="Assumption 1",
    statement=r"No positions, $T \to +\infty$, $\eta_Y \gg \eta_Z$: what is lost at finite $T$ "
    r"and $\eta_Y/\eta_Z$",
    relation=LEADING, case=SYN_SMALL, tolerance=0.05, ours=True,
    code=("expected_squared_norm", "relative_gain"),
    test="test_concentration.py::test_squared_norm_is_biased_at_finite_length",
    number="100 even tokens at T = 129: E|q|^2 is {:.3g} |p|^2, so T must be long against 1/|p|^2",
    training_number="Eq. 11's error goes as (eta_Y/eta_Z)^{:.2f}",
)  # fmt: skip
def assumption_1(case: Case) -> Measurement:
    """Compare (b) the bias of |q|^2 at length T with 20,000 sampled sequences at each T, and (c)
    the error of Eq. 11, expected to go as eta_Z/eta_Y, with the joint flow at ratios 10 to 1000.
    The tolerance is the sampling error of 20,000 draws at the longest T.
    """
    rng = np.random.default_rng(2)
    p = np.full(100, 0.01)
    lengths = np.array([33, 129, 513, 2049])
    biases = [
        ((rng.multinomial(T - 1, p, 20000) / (T - 1)) ** 2).sum(-1).mean() / (p @ p) - 1.0
        for T in lengths
    ]
    expected = [theory.expected_squared_norm(p, length=T) / (p @ p) - 1.0 for T in lengths]
    late = climbed(case).sel(time=10 * transition_time(case))
    in_ratio = slope(TRAINED_RATIOS[2:], gain_error(case, logits(case, late))[2:])
    return Measurement(
        (
            Check("E|q|^2 / |p|^2 - 1", expected, biases),
            Check(
                "exponent of Eq. 11's error in eta_Y / eta_Z",
                -1.0,
                in_ratio,
                tolerance=0.1,
                training=True,
            ),
        ),
        number=float(expected[1] + 1.0),
        training_number=in_ratio,
    )


@claim(
    "finite-length", source="Assumption 1(b), Section 8",
    statement=r"What holds for $T \to +\infty$ holds at the length of the experiments, $T = 128$",
    relation=AT_MOST, case=replace(WEAK, length=128.0),
    hypotheses=(query_from_next, long_sequences, fast_decoder, weak_correlations), ours=True,
    figure="fig4",
    code=("expected_squared_norm", "token_fates", "losing_length"),
    test="test_concentration.py::test_losing_length_balances_sampled_drift",
    number="T is finite; the norm of f_n is hardly touched: {:.2g} of |p|^2",
    training_number="{:.2g} of the tokens move against their fate: rare distinct ones lose",
)  # fmt: skip
def finite_length(case: Case) -> Measurement:
    """Compare P and the fates of Theorem 2 with the bias of |q|^2 and with the mean logits of 16
    seeds of sampled training at T = 128. A bias of 5 % of |p|^2 counts as small; of the logits only
    the sign counts (the worst is many standard errors off).
    """
    s, length = case, int(case.length)
    squared = (s.P**2).sum(-1)
    bias = theory.expected_squared_norm(s.P, length=length) / squared - 1.0
    steps = round(10 * transition_time(s))
    run = simulate(
        s.classes, Sampled(length, 64), eta_y=s.eta_y, eta_z=s.eta_z, steps=steps, seeds=16,
        momentum=0.0, save=Save("logits", at=[steps]), dtype="float64", progress=False,
    )  # fmt: skip
    z = logits(s, run.isel(step=0))
    fates = theory.token_fates(s)
    claimed = fates != 0
    along = (z * fates).mean(0)[claimed]
    error = (z * fates).std(0, ddof=1)[claimed] / np.sqrt(len(z))
    worst = int((along / error).argmin())
    up_to = np.nanmax(
        theory.losing_length(
            s.P[0], steps, K=s.K, M=s.M, rho=theory.correlation(s)[0, 1], eta_y=s.eta_y
        )
    )
    return Measurement(
        (
            Check("E|q|^2 / |p|^2 - 1 at T = 128", 0.05, bias, AT_MOST),
            Check("mean z along its fate, T = 128", 0.0, along, ABOVE, training=True),
        ),
        number=float(bias.max()),
        training_number=float((along < 0).mean()),
        note=f"two classes, batches of 64 sequences of T = 128, {steps} steps, 16 seeds: "
        f"a distinct token ends at z = {along[worst]:.5f} +- {error[worst]:.5f}. The drift goes as "
        f"1/T and competes with an interaction of order M^(f_1.f_2 - 1) near t_0. The rarest token "
        f"loses up to T = {up_to:.0f} (theory.losing_length, ours), which grows as M^(1 - f_1.f_2) "
        "up to powers of ln M (./lab reproduce studies/length)",
    )


@claim(
    "lemma-2", source="Lemma 2, Eq. 6",
    statement=r"Given $x_T = m$ and $x_{T+1} = n$: $X^\top b_T \to c_{m,n}$ and $X^\top "
    r"\operatorname{diag}(b_T) X \to \operatorname{diag}(c_{m,n})$ as $T \to +\infty$",
    relation=LEADING, case=WEAK, tolerance=0.03,
    code=("attention_weights",),
    test="tests/formulas/test_tokens.py::test_attention_is_eq_5_with_queries_and_leading_axes",
    number="the error goes as T^{:.2f}",
)  # fmt: skip
def lemma_2(case: Case) -> Measurement:
    """Compare an error that vanishes as T^-1/2 for independent tokens (Lemma 18) with 1,000 sampled
    sequences at each T from 10^2 to 10^6; diag is exact at any T. The tolerance is the sampling
    error of a slope fitted to five means of 1,000 draws.
    """
    rng = np.random.default_rng(3)
    p, z = rng.dirichlet(np.ones(12)), rng.normal(size=12)
    c = formulas.attention_weights(p[None], z)[0]
    lengths = np.array([10**2, 10**3, 10**4, 10**5, 10**6]) + 1
    errors = []
    for T in lengths:
        counts = rng.multinomial(T - 1, p, size=1000)
        b = counts * np.exp(z)
        errors.append(np.linalg.norm(b / b.sum(-1, keepdims=True) - c, axis=-1).mean())
    rate = slope(lengths - 1, errors)
    return Measurement(
        (
            Check("exponent of |X^T b - c| in T - 1", -0.5, rate),
            Check("|X^T b - c| at T = 10^6 + 1", 0.0, errors[-1], relative=False, tolerance=2e-3),
        ),
        number=rate,
    )


@claim(
    "lemma-18", source="Lemma 18, Eqs. 134-136",
    statement=r"With probability at least $1 - \delta$ a token's frequency has $\max\left(0, "
    r"\mathbb{P}(l \mid m,n) - \sqrt{\frac{\ln(2/\delta)}{2(T-1)}}\right) \le q_{l \mid m,n} \le "
    r"\mathbb{P}(l \mid m,n) + \sqrt{\frac{\ln(2/\delta)}{2(T-1)}}$",
    relation=AT_MOST, case=WEAK, tolerance=1e-12,
    code=("frequency_interval",), test="test_concentration.py::test_lemma_18_covers",
    number="the least room above 1 - delta is {:.2g}",
)  # fmt: skip
def lemma_18(case: Case) -> Measurement:
    """Compare the stated probability, at least 1 - delta, with the interval's exact coverage, from
    the binomial distribution of (T - 1) q_l. The tolerance is the rounding of the binomial
    distribution function.
    """
    probability = np.array([0.001, 0.01, 0.1, 0.5])
    tokens = np.array([10, 100, 1000, 10000])
    delta = np.array([0.01, 0.1, 0.5])
    p, N, d = np.meshgrid(probability, tokens, delta, indexing="ij")
    low, high = theory.frequency_interval(p, length=N + 1, delta=d)
    inside = scipy.stats.binom.cdf(np.floor(N * high + 1e-9), N, p) - scipy.stats.binom.cdf(
        np.ceil(N * low - 1e-9) - 1, N, p
    )
    rng = np.random.default_rng(4)
    sequence, weight = rng.integers(0, 5, 40), rng.normal(size=5)
    X = np.eye(5)[sequence]
    q = np.bincount(sequence, minlength=5) / 40
    return Measurement(
        (
            Check("coverage", 1.0 - d, inside, AT_LEAST),
            Check("Eq. 134", q * weight, X.T @ weight[sequence] / 40, EQUAL, relative=False),
        ),
        number=float((inside - 1.0 + d).min()),
    )

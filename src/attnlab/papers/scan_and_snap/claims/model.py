"""Section 3 and Appendices C, H: the gradient, long sequences, a fast decoder, what is left out."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from attnlab import formulas
from attnlab.auditing import Measurement, claim
from attnlab.auditing.fit import slope
from attnlab.auditing.runs import TRAINED_RATIOS, trained
from attnlab.formulas.checks import FloatArray
from attnlab.models import Extended
from attnlab.theory import Case, Check
from attnlab.theory.relation import ABOVE, AT_LEAST, AT_MOST, EQUAL, LEADING, Trained

from .. import cases, theory
from ..cases import SHORT, SYN_SMALL, WEAK
from ..hypotheses import (
    ASSUMPTION_1,
    EQ_10,
    long_sequences,
    query_from_next,
    single_common_token,
    weak_correlations,
)


def unit(c: NDArray[Any]) -> NDArray[Any]:
    """c over its norm, by what a complex step can pass through."""
    return np.asarray(c / np.sqrt((c**2).sum()))


def log_likelihood(f: NDArray[Any], Y: NDArray[Any], target: int) -> complex:
    """Eq. 15 for one sequence whose attention is f, by what a complex step can pass through."""
    scores = Y.T @ f
    return complex(scores[target] - np.log(np.exp(scores).sum()))


def mean_likelihood(attended: Sequence[NDArray[Any]], Y: NDArray[Any]) -> complex:
    """Return the same on average over classes, of which class n predicts token n."""
    return sum(log_likelihood(f, Y, n) / len(attended) for n, f in enumerate(attended))


def complex_slope(
    function: Callable[[NDArray[np.complex128]], complex], x: FloatArray
) -> FloatArray:
    """Return the gradient of a real-analytic function, to rounding, by imaginary steps."""
    gradient = np.empty(x.shape)
    for i in np.ndindex(x.shape):
        moved = x.astype(complex)
        moved[i] += 1e-30j
        gradient[i] = function(moved).imag / 1e-30
    return gradient


@claim(EQUAL, "Lemma 1, Eqs. 3, 4", WEAK, (query_from_next,), tolerance=1e-12)
def lemma_1(s: Case) -> Measurement:
    r"""The gradients of the 1-layer transformer: $\dot Y = \eta_Y \operatorname{LN}(X^\top b_T)
    (x_{T+1} - \alpha)^\top$ and $\dot Z = \eta_Z x_T (x_{T+1} - \alpha)^\top Y^\top
    \frac{P^\perp_{X^\top b_T}}{\lVert X^\top b_T \rVert_2} X^\top \operatorname{diag}(b_T) X$.

    Compare the gradient of one sequence in Y and in z_m, and 40 steps made of it, with complex-step
    derivatives of Eq. 15 at T = 12 and with the simulator's own 40 steps. The tolerance is the
    rounding of sums of a few hundred terms.
    """
    rng = np.random.default_rng(1)
    q = np.array([3, 2, 0, 5, 1]) / 11.0  # a sequence of 11 contextual tokens
    z, Y = rng.normal(size=5), rng.normal(size=(5, 6))
    predicted = formulas.sample_gradient(q, z, Y, target=4)
    by_z = complex_slope(lambda v: log_likelihood(unit(q * np.exp(v)), Y, 4), z)
    by_y = complex_slope(lambda v: log_likelihood(unit(q * np.exp(z)), v, 4), Y)

    # Training: the simulator's expected-gradient steps against Lemma 1 applied class by class.
    steps = 40
    result = cases.train_steps(s, steps, gradient="population")
    simulated = cases.logits(s, result.isel(seed=0, step=-1))
    by_hand, decoder = np.zeros(simulated.shape), np.zeros((s.P.shape[1], s.M))
    for _ in range(steps):
        pairs = zip(s.P, by_hand[s.psi], strict=True)
        terms = [
            formulas.sample_gradient(p, z, decoder, target=n) for n, (p, z) in enumerate(pairs)
        ]
        for n, term in enumerate(terms):
            decoder = decoder + s.eta_y * s.classes.prior[n] * term.decoder
            by_hand[s.psi[n]] += s.eta_z * s.classes.prior[n] * term.logits
    return Measurement(
        Check("dJ/dz", predicted.logits, by_z),
        Check("dJ/dY", predicted.decoder, by_y),
        Trained("logits after 40 steps", by_hand, simulated, relative=False),
        Trained("rows of Z keep a zero sum", 0.0, simulated.sum(-1), relative=False),
    )


@claim(LEADING, "Assumption 1", SYN_SMALL, tolerance=0.05, ours=True)
def assumption_1(s: Case) -> Measurement:
    r"""Assumption 1 (no positions, $T \to +\infty$, $\eta_Y \gg \eta_Z$) neglects terms of the
    order of $\frac{1}{T \lVert p \rVert_2^2}$ and of $\eta_Z/\eta_Y$.

    Compare (b) the bias of |q|^2 at length T with 20,000 sampled sequences at each T, and (c) the
    error of Eq. 11, expected to go as eta_Z/eta_Y, with the joint flow at ratios 10 to 1000. The
    tolerance is the sampling error of 20,000 draws at the longest T.
    """
    rng = np.random.default_rng(2)
    p = np.full(100, 0.01)
    lengths = np.array([33, 129, 513, 2049])
    biases = [
        ((rng.multinomial(T - 1, p, 20000) / (T - 1)) ** 2).sum(-1).mean() / (p @ p) - 1.0
        for T in lengths
    ]
    expected = [theory.expected_squared_norm(p, length=T) / (p @ p) - 1.0 for T in lengths]
    late = cases.at_ratios(s).sel(time=10 * cases.transition_time(s))
    in_ratio = slope(TRAINED_RATIOS[2:], cases.gain_error(s, cases.logits(s, late))[2:])
    return Measurement(
        Check("E|q|^2 / |p|^2 - 1", expected, biases),
        Trained("exponent of Eq. 11's error in eta_Y / eta_Z", -1.0, in_ratio, tolerance=0.1),
        number=float(expected[1] + 1.0),
        training_number=in_ratio,
    )


@claim(
    AT_MOST,
    "Assumption 1(b), Section 8",
    SHORT,
    (query_from_next, *ASSUMPTION_1, weak_correlations),
    ours=True,
)
def finite_length(s: Case) -> Measurement:
    r"""What holds for $T \to +\infty$ holds at the length of the experiments, $T = 128$.

    Compare P and the fates of Theorem 2 with the bias of |q|^2 and with the mean logits of 16 seeds
    of sampled training at T = 128. A bias of 5 % of |p|^2 counts as small; of the logits only the
    sign counts (the worst is many standard errors off).
    """
    length = int(s.length)
    squared = (s.P**2).sum(-1)
    bias = theory.expected_squared_norm(s.P, length=length) / squared - 1.0
    steps = round(10 * cases.transition_time(s))
    run = cases.train_steps(s, steps, length=length, batch_size=64, seeds=16)
    z = cases.logits(s, run.isel(step=-1))
    fates = theory.token_fates(s)
    claimed = fates != 0
    along = (z * fates).mean(0)[claimed]
    error = (z * fates).std(0, ddof=1)[claimed] / np.sqrt(len(z))
    worst = int((along / error).argmin())
    rho = theory.correlation(s)[0, 1]
    up_to = np.nanmax(theory.losing_length(s.P[0], steps, **cases.clock(s), rho=rho))
    return Measurement(
        Check("E|q|^2 / |p|^2 - 1 at T = 128", 0.05, bias, AT_MOST),
        Trained("mean z along its fate, T = 128", 0.0, along, ABOVE),
        number=float(bias.max()),
        training_number=float((along < 0).mean()),
        note=f"two classes, batches of 64 sequences of T = 128, {steps} steps, 16 seeds: "
        f"a distinct token ends at z = {along[worst]:.5f} +- {error[worst]:.5f}. The drift goes as "
        f"1/T and competes with an interaction of order M^(f_1.f_2 - 1) near t_0. The rarest token "
        f"loses up to T = {up_to:.0f} (theory.losing_length, ours), which grows as M^(1 - f_1.f_2) "
        "up to powers of ln M (./lab reproduce studies/length)",
    )


@claim(LEADING, "Lemma 2, Eq. 6", WEAK, tolerance=0.03)
def lemma_2(s: Case) -> Measurement:
    r"""Given $x_T = m$ and $x_{T+1} = n$: $X^\top b_T \to c_{m,n}$ and $X^\top
    \operatorname{diag}(b_T) X \to \operatorname{diag}(c_{m,n})$ as $T \to +\infty$.

    Compare an error that vanishes as T^-1/2 for independent tokens (Lemma 18) with 1,000 sampled
    sequences at each T from 10^2 to 10^6; diag is exact at any T. The tolerance is the sampling
    error of a slope fitted to five means of 1,000 draws.
    """
    rng = np.random.default_rng(3)
    p, z = rng.dirichlet(np.ones(12)), rng.normal(size=12)
    c = formulas.attention_weights(p[None], z)[0]
    lengths = np.array([10**2, 10**3, 10**4, 10**5, 10**6]) + 1
    weights = (rng.multinomial(T - 1, p, size=1000) * np.exp(z) for T in lengths)
    attended = (b / b.sum(-1, keepdims=True) for b in weights)
    errors = [np.linalg.norm(b - c, axis=-1).mean() for b in attended]
    rate = slope(lengths - 1, errors)
    return Measurement(
        Check("exponent of |X^T b - c| in T - 1", -0.5, rate),
        Check("|X^T b - c| at T = 10^6 + 1", 0.0, errors[-1], relative=False, tolerance=2e-3),
        number=rate,
    )


@claim(AT_MOST, "Lemma 18, Eqs. 134-136", WEAK, tolerance=1e-12)
def lemma_18(s: Case) -> Measurement:
    r"""With probability at least $1 - \delta$ a token's frequency has $\max\left(0, \mathbb{P}(l
    \mid m,n) - \sqrt{\frac{\ln(2/\delta)}{2(T-1)}}\right) \le q_{l \mid m,n} \le \mathbb{P}(l \mid
    m,n) + \sqrt{\frac{\ln(2/\delta)}{2(T-1)}}$.

    Compare the stated probability, at least 1 - delta, with the interval's exact coverage, from the
    binomial distribution of (T - 1) q_l. The tolerance is the rounding of the binomial distribution
    function.
    """
    probability, tokens, delta = [0.001, 0.01, 0.1, 0.5], [10, 100, 1000, 10000], [0.01, 0.1, 0.5]
    p, N, d = np.meshgrid(probability, tokens, delta, indexing="ij")
    low, high = theory.frequency_interval(p, length=N + 1, delta=d)
    drawn = scipy.stats.binom(N, p)
    inside = drawn.cdf(np.floor(N * high + 1e-9)) - drawn.cdf(np.ceil(N * low - 1e-9) - 1)
    rng = np.random.default_rng(4)
    sequence, weight = rng.integers(0, 5, 40), rng.normal(size=5)
    X = np.eye(5)[sequence]
    q = np.bincount(sequence, minlength=5) / 40
    return Measurement(
        Check("coverage", 1.0 - d, inside, AT_LEAST),
        Check("Eq. 134", q * weight, X.T @ weight[sequence] / 40, EQUAL, relative=False),
        number=float((inside - 1.0 + d).min()),
    )


@claim(EQUAL, "Section 3.1, after Lemma 1", WEAK, tolerance=1e-9)
def row_sums(s: Case) -> Measurement:
    r"""The rows of $Y(t)$ and $Z(t)$ keep a zero sum: $\sum_j Y_{ij}(t) = \sum_j Z_{ij}(t) = 0$.

    Check that the sums of rows stay 0 over 200 batch-1 steps by Lemma 1, and in the joint flow to t
    = 10^10. The tolerance is rounding, over the steps of the solver.
    """
    z, Y = np.zeros((s.classes.queries.size, s.P.shape[1])), np.zeros((s.P.shape[1], s.M))
    for step in range(200):
        n = step % s.K
        term = formulas.sample_gradient(s.P[n], z[s.psi[n]], Y, target=n)
        z[s.psi[n]] += s.eta_z * term.logits
        Y = Y + s.eta_y * term.decoder
    sums = cases.training_path(s)[1].sum(-1)
    return Measurement(
        Check("rows of Y", 0.0, Y.sum(1), relative=False),
        Check("rows of Z", 0.0, z.sum(1), relative=False),
        Trained("rows of Z, training", 0.0, sums, relative=False),
        note=f"columns do not: the largest column sum of Y is {np.abs(Y.sum(0)).max():.2g}",
    )


@claim(LEADING, "Section 3, l2-normalization", WEAK, tolerance=0.1)
def embedding_norm(s: Case) -> Measurement:
    r"""$\lVert U^\top x \rVert_2 \approx \lVert x \rVert_2$ when token embeddings are nearly
    orthogonal.

    Compare an error that goes as d^-1/2 for random unit embeddings in d dimensions with 500
    attention vectors over 400 tokens, d from 64 to 1024. The tolerance is the sampling error of a
    slope of three means.
    """
    rng, M = np.random.default_rng(16), 400
    x = rng.dirichlet(np.full(M, 0.1), size=500)
    dims = np.array([64, 256, 1024])
    errors = []
    for d in dims:
        U = rng.normal(size=(M, d))
        U /= np.linalg.norm(U, axis=1, keepdims=True)
        ratio = np.linalg.norm(x @ U, axis=1) / np.linalg.norm(x, axis=1)
        errors.append(float(np.abs(ratio - 1.0).mean()))
    rate = slope(dims, errors)
    return Measurement(
        Check("exponent of the error in d", -0.5, rate),
        Check("error at d = 1024", 0.0, errors[-1], relative=False, tolerance=0.03),
        number=rate,
    )


@claim(
    LEADING,
    "Section 3, l2-normalization",
    WEAK,
    (long_sequences, *EQ_10, single_common_token),
    tolerance=0.05,
)
def layer_norm(s: Case) -> Measurement:
    """The analysis can be extended to standard LayerNorm, which also subtracts the mean.

    Compare Eq. 10 with f_n = (c_n - 1/M)/|c_n - 1/M|, which is near the l2 one for a large M, with
    complex-step derivatives, with the l2 velocity, and with the joint flow under LayerNorm. The
    mean is 1/M, which sets the tolerance; for rounding it is 1e-12.
    """
    M = 40
    z = np.random.default_rng(17).normal(scale=0.2, size=(1, s.P.shape[1]))
    growth = theory.h(20.0, M=M, eta_y=1.0)
    speed = (M - 1.0) ** 2 * growth / (M - 1.0 + np.exp(M * growth))  # gamma at 20 visits
    f = theory.centred_attention(formulas.Setting.of(s, M=M), z)
    Y = theory.decoder_weights(f, growth, M=M)

    def objective(moved: NDArray[Any]) -> complex:
        c = np.zeros((s.K, M), dtype=complex)
        c[:, : s.P.shape[1]] = s.P * np.exp(moved[s.psi])
        return mean_likelihood([unit(of / of.sum() - 1.0 / M) for of in c], Y)

    predicted = theory.centred_velocity(formulas.Setting.of(s, M=M), z)
    by_slope = complex_slope(objective, z) / speed
    to_rounding: Any = {"relation": EQUAL, "relative": False, "tolerance": 1e-12}
    rest = np.zeros((1, s.P.shape[1]))
    centred = theory.centred_velocity(s, rest)
    plain = theory.attention_velocity(s, rest)
    # LayerNorm makes f_n sqrt(M) long, which multiplies the rate of the decoder by M.
    rates = ((s.eta_y / s.M, s.eta_z),)
    run = trained(s.classes, rates, 1e6, model=Extended(normalization="layer"))
    fates, end = theory.token_fates(s), cases.logits(s, run.isel(run=0, time=-1))
    return Measurement(
        Check("dz/dt over eta_Z gamma, LayerNorm", predicted, by_slope, **to_rounding),
        Check("the velocity of l2-normalization, M = 1000", plain, centred),
        Trained("fates with LayerNorm, training", fates, np.sign(end), EQUAL),
        number=float(np.abs(centred / plain - 1.0).max()),
        training_number=float(np.abs(end).max()),
    )

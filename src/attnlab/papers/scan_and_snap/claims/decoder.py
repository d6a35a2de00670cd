"""Appendix D: what the decoder learns (Lemma 3, Theorem 5, Corollary 1, Remark 1)."""

import numpy as np
import scipy

from attnlab import formulas
from attnlab.auditing import Measurement, claim
from attnlab.auditing.fit import slope
from attnlab.auditing.runs import trained
from attnlab.formulas.checks import FloatArray, IntArray
from attnlab.theory import Case, Check
from attnlab.theory.relation import ABOVE, AT_MOST, BELOW, EQUAL, LEADING, Trained, up_to, within

from .. import cases, theory
from ..cases import WEAK
from ..hypotheses import DECODER, FAST, LEARNING, uniform_classes, weak_correlations
from . import by_form, in_both_forms
from .correlation import radius, random_attention, tightest


def modified_update(f: FloatArray, visits: IntArray, *, M: int, eta_y: float) -> FloatArray:
    """Y (L, M) after batch-1 steps of Eq. 26 on the classes listed in `visits`, from 0."""
    K = len(f)
    Y = np.zeros((f.shape[1], M))
    directions = f.T - f.T @ theory.e_prime(theory.gram(f))
    for n in visits:
        Y += eta_y * np.outer(directions[:, n], np.eye(K, M)[n] - scipy.special.softmax(f[n] @ Y))
    return Y


@claim(EQUAL, "Lemma 3, Eqs. 8, 26-30", WEAK, (weak_correlations,), tolerance=1e-13)
def lemma_3(s: Case) -> Measurement:
    r"""Given $x_{T+1} = n$, the modified update $\dot Y = \eta_Y (f_n - F E' e_n) (e_n -
    \alpha_n)^\top$ (Eq. 26) moves only row $n$ of $W = F^\top Y$: $\dot w_j = \eta_Y \mathbb{I}(j =
    n) (e_n - \alpha_n)$.

    Compare dW/dt, zero outside row n, with F^T of one update of Eq. 26 at a random Y, with Lemma
    14's E'. The tolerance is rounding.
    """
    f, K, M = formulas.unit_attention(s), s.K, 50
    Y = np.random.default_rng(7).normal(size=(f.shape[1], M))
    error = np.eye(K, M)[0] - scipy.special.softmax(f[0] @ Y)
    direction = (f.T - f.T @ theory.e_prime(theory.correlation(s)))[:, 0]
    moved = f @ np.outer(direction, error)
    expected = np.zeros((K, M))
    expected[0] = error
    plain = float((f @ f[0])[1])
    return Measurement(Check("dW/dt given class 0", expected, moved, relative=False), number=plain)


@claim(up_to(2.0), "Lemma 3, after Eq. 8", WEAK, (weak_correlations,))
def small_modification(s: Case) -> Measurement:
    r"""If $\lambda_1$ is small, the modification $-F E' e_n$ of the update is small as well.

    Compare |F E' e_n| with |lambda_1| (|f_n| is 1) for 200 random sets of 2 to 6 classes, and for
    two classes with f_1.f_2 near 1/2. It is a bound up to a constant.
    """
    # Of all E within Assumption 2 two classes with f_1.f_2 near 1/2 change the update most.
    cosine = 0.5 - 1e-6
    extreme = np.array([[1.0, 0.0], [cosine, np.sqrt(1.0 - cosine**2)]])
    sets = [(f, theory.gram(f)) for f in (*random_attention(), extreme)]
    size = [float(np.linalg.norm(f.T @ theory.e_prime(E), axis=0).max()) for f, E in sets]
    largest = np.array([radius(E) for _, E in sets])
    bound = largest / np.sqrt(1.0 - largest**2)
    sharper = "|F E' e_n| below |lambda_1|/sqrt(1 - lambda_1^2)"
    rho = float(theory.correlation(s)[0, 1])
    of_sgd = theory.plain_coefficients(cases.transition_time(s), **cases.clock(s), rho=rho).beta
    effect = theory.beta(theory.correlation(s), M=s.M)[0, 1] / of_sgd
    return Measurement(
        Check("|F E' e_n| over |lambda_1|", largest, size),
        Check(sharper, bound, size, AT_MOST, tolerance=1e-12),
        number=tightest(largest, size),
        note="|F E' e_n|^2 is a mean of lambda^2/(1 + lambda) with mean lambda 0, hence at most "
        "lambda_1^2/(1 - lambda_1^2); with |lambda_1| < 1/K this is below K^2/(K^2 - 1) "
        "lambda_1^2, 4/3 lambda_1^2 for two classes. The change of the update is small; that of "
        f"beta is not: at f_1.f_2 = {rho:.3f}, t_0, the modified update's is "
        f"{effect:.3g} times SGD's (theorem-1)",
    )


@claim(BELOW, "after Eq. 30 (proof of Lemma 3)", WEAK)
def after_eq_30(s: Case) -> Measurement:
    """The additional term $-F E' e_n$ effectively reduces the learning rate.

    Compare the rate with the term to that without it: the rates that explain the own logit under
    Eqs. 26 and 7, K = M = 20, rho = 0.1; the corrected form is 1/(1 - rho) times larger. The
    inequality is strict; 1e-6 is left for the ODE solver.
    """
    # Equal overlaps and K = M, where Remark 1's argument is right: w_n = (M-1) h(t/K; rate) zeta_n.
    K, rho, eta_y, t = 20, 0.1, 0.5, np.geomspace(1.0, 1e4, 12)

    def rate(own: FloatArray) -> FloatArray:
        """Return the learning rate with which the modified update would have got so far."""
        return np.asarray(K * theory.h_inverse(own / (K - 1.0), M=K, eta_y=1.0) / t)

    with_term = rate((K - 1.0) * theory.h(t / K, M=K, eta_y=eta_y))
    without = rate(np.asarray(theory.plain_decoder(t, K=K, M=K, rho=rho, eta_y=eta_y).own))
    about, right = "rate with the term against without it", without / (1.0 - rho)
    return Measurement(
        Check(about, without, with_term),
        Check(f"{about}, over 1 - rho", right, with_term, EQUAL, tolerance=1e-6, form="corrected"),
        number=float((with_term / without)[-1]),
        note="the plain update has the effective rate (1 - rho) eta_Y, as Remark 1 says; with "
        "-F E' e_n it is eta_Y",
    )


def plain_flow(E: FloatArray, t: FloatArray, *, M: int, eta_y: float) -> FloatArray:
    """W (time, K, M) of Eq. 7 in the flow, all K x M logits integrated; t in batch-1 steps."""
    K = len(E)

    def velocity(_: float, w: FloatArray) -> FloatArray:
        error = np.eye(K, M) - scipy.special.softmax(w.reshape(K, M), axis=-1)
        return np.asarray((eta_y / K * (np.eye(K) + E) @ error).ravel())

    solution = scipy.integrate.solve_ivp(
        velocity, (0.0, t[-1]), np.zeros(K * M), method="LSODA", t_eval=t, rtol=1e-10, atol=1e-12
    )
    return np.asarray(solution.y.T.reshape(-1, K, M))


@claim(ABOVE, "Section 4, before Lemma 3", WEAK, (uniform_classes,))
def y_star(s: Case) -> Measurement:
    r"""The critical point $Y^*$, at which $\alpha = e_n$ for every $n$, has infinite entries and is
    not reached in finite steps.

    Compare logits that grow like ln t for ever, and a loss above 0, with M h(t/K) to t = 10^12
    (Lemma 6) and with the loss of the joint flow to t = 10^10. For the exponent of a logarithm 1 %
    is allowed.
    """
    t = np.geomspace(1e3, 1e12, 10)
    own = np.array([s.M * theory.h(at / s.K, M=s.M, eta_y=s.eta_y) for at in t])
    per_fold = float((np.diff(own) / np.diff(np.log(t)))[-1])
    loss = cases.at_ratios(s).sel(ratio=FAST)["loss"].values
    late = "growth of the own logit per e-fold of t, late"
    return Measurement(
        Check(late, 1.0, per_fold, LEADING, tolerance=0.01),
        Trained("loss above 0 at every t, training", 0.0, loss, ABOVE, tolerance=0.0),
        number=float(own[-1]),
        training_number=float(loss[-1]),
    )


@claim(EQUAL, "Theorem 5, Eq. 70", WEAK, DECODER, tolerance=1e-12)
def theorem_5(s: Case) -> Measurement:
    r"""$Y = F (I - E') (I + \Theta) \bar W(N)$ with $\Theta = \operatorname{diag}(\theta_1, \ldots,
    \theta_K)$ solves the modified update (Eq. 26).

    Compare Y after any sequence of visits, with 1 + theta_n = h*(N_n)/h(N/K), with Eq. 26 iterated
    on all of Y. The tolerance is rounding, over 300 steps.
    """
    rng, M, eta_y = np.random.default_rng(8), 30, 0.6
    f = random_attention()[0]
    visits = rng.integers(0, len(f), 300)
    counts = np.bincount(visits, minlength=len(f))
    predicted = theory.decoder_weights(f, theory.h_star(counts, M=M, eta_y=eta_y), M=M)
    updated = modified_update(f, visits, M=M, eta_y=eta_y)
    return Measurement(Check("Y after 300 random visits", predicted, updated, relative=False))


@claim(up_to(1.0), "Corollary 1, Eqs. 71-73", WEAK, (*DECODER, *LEARNING), tolerance=1e-8)
def corollary_1(s: Case) -> Measurement:
    r"""$x_{T+1} - \alpha_n = \frac{M-1}{(M-1) + \exp(M h(N_n))} \zeta_n$ (Eq. 71);
    $O\left(\frac{K}{\epsilon \eta_Y} \ln \frac{M}{\epsilon}\right)$ steps make $\lVert x_{T+1} -
    \alpha_n \rVert_2 \le \epsilon$.

    Compare Eq. 71 with the softmax of Lemma 5's logits, the printed number of steps, with constant
    1, with the exact inverse, and the rate with the loss of the joint flow. The tolerance is the
    cancellation in 1 - alpha_n where alpha_n is near 1.
    """
    K, M, y = s.K, s.M, s.eta_y
    t = np.geomspace(1, 1e6, 20)
    W = np.array([theory.class_logits(theory.h(step / K, M=M, eta_y=y), M=M)[0] for step in t])
    miss = np.linalg.norm(np.eye(1, M) - scipy.special.softmax(W, axis=-1), axis=-1)
    error = theory.decoder_error(t, **cases.clock(s))
    epsilon = np.geomspace(1e-6, 0.1, 11)
    printed, exact = by_form(theory.steps_to_error, epsilon, **cases.clock(s)).values()
    late = cases.at_ratios(s).sel(ratio=100.0, time=slice(1e3 * cases.transition_time(s), None))
    rate = slope(late["time"], late["loss"])
    return Measurement(
        Check("|e_n - alpha_n| (Eq. 71)", error, miss, EQUAL),
        Check("steps to reach epsilon", printed, exact),
        Trained("exponent of the loss in t", -1.0, rate, LEADING, tolerance=0.05),
        number=float((printed / exact)[2]),
        training_number=rate,
    )


@claim(EQUAL, "Remark 1, Eqs. 40-43", WEAK, DECODER, tolerance=1e-6)
def remark_1(s: Case) -> Measurement:
    r"""Under SGD (Eq. 7) with equal overlaps, $f_n^\top f_{n'} = \rho$ for $n \ne n'$: $w_n(N) =
    (1-\rho) (M-1) h^*(N/K) \zeta_n$.

    Compare the logits with Eq. 7 integrated on all K M logits, and the loss with that of the
    simulator at eta_Z = 0; the corrected form is two coupled equations (sum zeta_n = 0 for K = M
    only). The tolerance is that of the two solvers.
    """
    rho, eta_y, t = 0.1, 0.5, np.geomspace(1, 1e4, 12)
    sizes = {"K = 4 < M = 20": (4, 20), "K = M = 20": (20, 20)}
    checks: list[Check] = []
    own_logit: dict[str, float] = {}
    for name, (K, M) in sizes.items():
        W = plain_flow(rho * (1.0 - np.eye(K)), t, M=M, eta_y=eta_y)
        found = by_form(theory.plain_decoder, t, K=K, M=M, rho=rho, eta_y=eta_y)
        said = {form: (of.own, of.other) for form, of in found.items()}
        checks += in_both_forms(f"w_n, {name}", said, [W[:, 0, 0], W[:, 0, 1]], relative=False)
        own_logit |= {form: float(own[-1]) for form, (own, _) in said.items()}  # of the last case
    run = trained(s.classes, ((s.eta_y, 0.0),), s.steps, exactly=(cases.transition_time(s),))
    result = run.isel(run=0, time=slice(1, None))
    times, loss = result["time"].values, result["loss"].values
    overlap = float(theory.correlation(s)[0, 1])
    predicted = {}
    for form, w in by_form(theory.plain_decoder, times, **cases.clock(s), rho=overlap).items():
        odds = (s.K - 1) * np.exp(w.other - w.own) + (s.M - s.K) * np.exp(w.outside - w.own)
        predicted[form] = np.log1p(odds)
    checks += in_both_forms("loss with Z fixed", predicted, loss, training=True)
    # What the remark concludes: Theorem 1's decoder at the learning rate (1 - rho) eta_Y.
    own = s.M * theory.h(times / s.K, M=s.M, eta_y=(1.0 - overlap) * s.eta_y)
    effective = np.log1p((s.M - 1.0) * np.exp(-own)) / loss
    late = times >= cases.transition_time(s)
    too_large = predicted["printed"] / loss
    concluded = "loss at the effective rate (1 - rho) eta_Y over it, from t_0 on"
    return Measurement(
        *checks,
        Trained(concluded, 1.0, effective[late], within(2.0), tolerance=0.0),
        number=own_logit["printed"] / own_logit["corrected"],
        training_number=float(too_large[-1]),
        note=f"K = M = 20, rho = 0.1, eta_Y = 0.5, t = 10^4: own logit "
        f"{own_logit['corrected']:.4f}, Eq. 43 gives {own_logit['printed']:.4f} (it "
        f"scales h, not the rate inside h). Loss with Z fixed, f_1.f_2 = {overlap:.3f}, M = {s.M}: "
        f"by Eq. 43 {too_large[late][0]:.2g} times the real one at t_0 and "
        f"{too_large[-1]:.0f} times at t = {times[-1]:.0e}; at the effective "
        f"rate (1 - rho) eta_Y, which the remark concludes, {effective[late][0]:.2f} and "
        f"{effective[-1]:.2f} times (at most {effective.max():.2f}, before t_0)",
    )

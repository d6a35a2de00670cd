"""The poster and the slides, where they say something that the paper does not."""

import numpy as np
import scipy

from attnlab import formulas
from attnlab.auditing import Measurement, claim
from attnlab.auditing.fit import listed
from attnlab.theory import Case, Check
from attnlab.theory.relation import ABOVE, AT_LEAST, AT_MOST, BELOW, EQUAL, Trained, within

from .. import cases, theory
from ..cases import FIG3, WEAK
from ..hypotheses import SECTION_6, WEAKLY_CORRELATED, rate_window, weak_correlations
from . import by_path, falling, in_both_forms, on_both_paths
from .attention import TIMES
from .snapping import constant, growth_setting, integrate_theorem_4


@claim(within(10.0), "poster and slides, Theorem 4", FIG3, SECTION_6)
def poster_quarter(s: Case) -> Measurement:
    r"""$B_n(t) \sim \ln\left(C_0 + 2K \frac{\eta_Z}{\eta_Y} \ln^2\left(\frac{M \eta_Y
    t}{K}\right)\right)$ as $t \to +\infty$.

    Compare B_n up to a constant (Theorem 4 itself has the factor 1/4) with the corrected Eq. 129 at
    t from 10^12 to 10^96. It is read as ~, for a quantity that is 1/4 of it in the limit.
    """
    C0 = constant(s)
    t = 10.0 ** np.array([12, 24, 48, 96])
    growth = 2.0 * s.K * s.eta_z / s.eta_y * np.log(s.M * s.eta_y * t / s.K) ** 2
    poster = np.log(C0 + growth)
    B = theory.growth_bound(t, **growth_setting(s))
    grown = (poster[-1] - poster[0]) / (B[-1] - B[0])
    return Measurement(Check("B_n(t)", poster, B), number=float(grown))


@claim(EQUAL, "poster and slides, Theorem 3", FIG3, tolerance=1e-12)
def poster_start(s: Case) -> Measurement:
    r"""$B_n(0) = 0$, where Eq. 14 has $\frac{1}{4} \ln C_0$.

    Compare 0 with Eqs. 118, 119 integrated, and with the corrected Eq. 129, at t = 0. The tolerance
    is rounding.
    """
    t = np.array([0.0, 1e-6])
    B = integrate_theorem_4(s, t, constant(s))
    predicted = theory.growth_bound(0.0, **growth_setting(s))
    return Measurement(
        Check("B_n(0)", 0.0, float(B[0]), relative=False),
        Check("B_n(0), corrected Eq. 129", 0.0, float(predicted), relative=False),
    )


@claim(ABOVE, "poster and slides, (c)", WEAK, WEAKLY_CORRELATED)
def poster_faster(s: Case) -> Measurement:
    r"""$z_{ml}(t)$ grows faster with larger $\mathbb{P}(l \mid m,n)$, for distinct tokens.

    Compare the order of P(l|n) with that of the velocities along Eq. 10 (they go as f_nl^2) and of
    the logits in the joint flow. Only the order counts.
    """
    n, _, _ = cases.most_and_least_frequent(s)
    tokens = cases.by_frequency(s, n)
    faster = theory.attention_velocity(s, cases.eq_10(s, TIMES).logits)[:, s.psi[n], tokens]
    _, z = cases.training_path(s)
    further = z[1:, s.psi[n], tokens]
    return Measurement(
        Check("dz/dt of a more frequent token, Eq. 10", faster[:, :-1], faster[:, 1:]),
        Trained("z of a more frequent token, training", further[:, :-1], further[:, 1:]),
        number=float(faster[0, -1] / faster[0, 0]),
        training_number=float(further[-1, -1] / further[-1, 0]),
    )


@claim(
    BELOW,
    "poster and slides, (2)",
    WEAK.at(eta_y=0.225, eta_z=0.001),
    (rate_window, weak_correlations),
)
def poster_slightly(s: Case) -> Measurement:
    r"""Fixing $\eta_Z$, a large $\eta_Y$ leads to "slightly" smaller $B_n(t)$.

    Check that B_n at four times eta_Y is more than half of B_n, under Eq. 10 from 10 to 10^6 t_0;
    the corrected form is smaller, by at most (1/4) ln 4. The source gives no number: a loss of half
    or more is not "slightly".
    """
    times = 4.0
    t = np.array([10.0, 1e3, 1e6]) * cases.transition_time(s)
    B = np.array([cases.eq_10(at, t).growth_bound[:, 0] for at in (s, s.at(eta_y=times * s.eta_y))])
    return Measurement(
        Check('"slightly": B_n at 4 eta_Y over half of it at eta_Y', B[0] / 2.0, B[1], ABOVE),
        Check("smaller: B_n at 4 eta_Y", B[0], B[1], BELOW, form="corrected"),
        Check("by at most (1/4) ln 4", np.log(times) / 4.0, B[0] - B[1], AT_MOST, form="corrected"),
        number=float(B[1, -1] / B[0, -1]),
        note=f"two classes, eta_Y/eta_Z = {s.eta_y / s.eta_z:.3g} and four times that: B_n is "
        f"{listed(B[0], '.3f')} and {listed(B[1], '.3f')} at 10, 10^3, 10^6 t_0. Where 4 Gamma is "
        "small against C_0, B_n goes as 1/eta_Y; only where it is large (a slow decoder, or t "
        "beyond any training) is the change slight",
    )


@claim(EQUAL, "poster and slides, reparameterization", WEAK, tolerance=1e-12)
def poster_z(s: Case) -> Measurement:
    r"""$Z = U W_Q W_K^\top U^\top$, without the $1/\sqrt d$ of Section 3.1.

    Compare the attention of a sequence (Eq. 5 with its frequencies) with Eq. 1 itself for random U,
    W_Q, W_K with d = 16 and 30 tokens; the corrected form has Z over sqrt(d). The tolerance is
    rounding.
    """
    rng, d, M = np.random.default_rng(14), 16, 8
    U, W_Q, W_K = rng.normal(size=(M, d)) / 4, rng.normal(size=(d, d)), rng.normal(size=(d, d))
    sequence, query = rng.integers(0, M, 30), 3
    b = scipy.special.softmax((U @ W_K)[sequence] @ (U @ W_Q)[query] / np.sqrt(d))  # Eq. 1
    attended = np.eye(M)[sequence].T @ b
    q = np.bincount(sequence, minlength=M) / 30
    poster = U @ W_Q @ W_K.T @ U.T
    predicted = {
        form: formulas.attention_weights(q[None], Z[query])[0]
        for form, Z in (("printed", poster), ("corrected", poster / np.sqrt(d)))
    }
    checks = in_both_forms("X^T b", predicted, attended, relative=False)
    return Measurement(*checks, number=checks[0].error)


@claim(BELOW, "slides, take-home message", WEAK, WEAKLY_CORRELATED)
def slides_suppressed(s: Case) -> Measurement:
    """Key tokens that do not co-occur a lot with the query token are suppressed.

    Check that attention to the rarest distinct token falls against that to the dominant one, along
    Eq. 10 and in the joint flow. Only the sign counts.
    """
    n, high, low = cases.most_and_least_frequent(s)
    paths, share = cases.both_paths(s), {}
    for name, path in paths.items():
        c = formulas.attention_weights(s, path)[:, n]
        share[name] = c[:, low] / c[:, high]
    kept = {name: float(of[-1] / of[0]) for name, of in share.items()}
    return Measurement(
        *falling("attention to the rarest over that to the dominant", share),
        **by_path(kept),
        note=f"against the dominant token; the logit of the rarest distinct token itself rises, to "
        f"z = {paths['training'][-1, s.psi[n], low]:+.4f} in training",
    )


@claim(AT_LEAST, "slides, winners-emergence", WEAK, WEAKLY_CORRELATED)
def slides_tf_idf(s: Case) -> Measurement:
    """Attention is a learnable TF-IDF: frequent in the class, rare across classes.

    Measure the rank correlation of P(l|n) ln(K / number of classes with l) with z at the end, by
    Eq. 10 and in the joint flow. Only the order of four tokens counts.
    """
    tokens = np.flatnonzero(s.P[0])
    weight = (s.P[0] * np.log(s.K / (s.P > 0).sum(0)))[tokens]
    times, z = cases.training_path(s)
    ends = {"Eq. 10": cases.eq_10(s, times[[-1]]).logits[0], "training": z[-1]}
    rank = {
        name: float(scipy.stats.spearmanr(weight, end[s.psi[0], tokens]).statistic)
        for name, end in ends.items()
    }
    ranks = on_both_paths("rank correlation of TF-IDF and z", 0.99, rank)
    return Measurement(*ranks, **by_path(rank))

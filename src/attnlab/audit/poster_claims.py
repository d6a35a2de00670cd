"""The poster and the slides, where they say something that the paper does not."""

from __future__ import annotations

import numpy as np
import scipy.special
import scipy.stats

from attnlab import theory
from attnlab.audit.attention_claims import TIMES, run_at
from attnlab.audit.claim import Claim, Outcome, Recorded
from attnlab.audit.comparison import Check, labelled
from attnlab.audit.hypotheses import fast_decoder, weak_correlations
from attnlab.audit.readings import reduced, spotlight
from attnlab.audit.settings import FIG3, LOPSIDED, WEAK, Setting
from attnlab.audit.snapping_claims import constant, integrate_theorem_4
from attnlab.audit.verdict import Verdict


def _poster_quarter(setting: Setting) -> Outcome:
    s, C0 = setting, constant(setting)
    t = np.geomspace(s.t0, 1e6, 12)
    B = integrate_theorem_4(s, t, C0)
    growth = 2.0 * s.K * s.eta_z / s.eta_y * np.log(s.M * s.eta_y * t / s.K) ** 2
    poster = np.log(C0 + growth)
    right = theory.snapping(t, K=s.K, M=s.M, eta_y=s.eta_y, eta_z=s.eta_z, C0=C0).snapping
    grown = np.log(growth[-1] / growth[0]) / (B[-1] - B[0])
    return Outcome(
        (
            Check("B_n(t)", labelled(poster, t=t), labelled(B, t=t), relative=False),
            Check("B_n(t)", labelled(right, t=t), labelled(B, t=t), relative=False,
                  form="corrected"),
        ),
        number=float(grown),
    )  # fmt: skip


poster_quarter = Claim(
    id="poster-quarter",
    statement="B_n(t) ~ ln(C_0 + 2 K (eta_Z/eta_Y) ln^2(M eta_Y t/K)), without the factor 1/4",
    source="poster and slides, Theorem 4",
    setting=FIG3,
    predicts="B_n from t_0 on; corrected: (1/4) ln(1 + ../C_0)",
    measures="Eqs. 118, 119 integrated",
    tolerance=0.045,
    because="what Eq. 14 neglects of h",
    code=("snapping",),
    test="tests/theory/test_transition.py::test_regimes_of_eq_14",
    number="from t_0 to 10^6 the poster's B_n grows {:.2g} times as much as the integral",
    recorded=Recorded(Verdict.CORRECTED, 3.575),
    measure=_poster_quarter,
)


def _poster_start(setting: Setting) -> Outcome:
    s = setting
    t = np.array([0.0, 1e-6])
    B = integrate_theorem_4(s, t, constant(s))
    predicted = theory.growth_bound(0.0, K=s.K, M=s.M, eta_y=s.eta_y, eta_z=s.eta_z, C0=constant(s))
    return Outcome(
        (
            Check("B_n(0)", labelled(0.0), labelled(float(B[0])), relative=False),
            Check("B_n(0), corrected Eq. 129", labelled(0.0), labelled(float(predicted)),
                  relative=False),
        )
    )  # fmt: skip


poster_start = Claim(
    id="poster-start",
    statement="B_n(0) = 0 (the poster and the slides say so; Eq. 14 says (1/4) ln C_0)",
    source="poster and slides, Theorem 3",
    setting=FIG3,
    predicts="0",
    measures="Eqs. 118, 119 integrated, and the corrected Eq. 129, at t = 0",
    tolerance=1e-12,
    because="rounding",
    code=("growth_bound",),
    test="tests/theory/test_transition.py::test_b_n_starts_at_zero_only_when_corrected",
    recorded=Recorded(Verdict.EXACT),
    measure=_poster_start,
)


def _poster_common(setting: Setting) -> Outcome:
    s = setting
    margin = theory.common_token_margin(s.P)
    common = np.flatnonzero(theory.token_roles(s.P).common)
    velocity = theory.attention_velocity(s.P, np.zeros((1, s.P.shape[1])), psi=s.psi, M=s.M)
    moving = velocity[0, common]
    # Corrected: with two classes a common token loses where the criterion's margin is negative.
    return Outcome(
        (
            Check("dz/dt < 0 for common tokens", labelled(0 * moving, token=common),
                  labelled(moving, token=common), "<"),
            Check("sign of dz/dt by the criterion", labelled(np.sign(margin[common]), token=common),
                  labelled(np.sign(moving), token=common), form="corrected"),
        ),
        number=float(margin[common].max()),
    )  # fmt: skip


poster_common = Claim(
    id="poster-common",
    statement="dz_ml/dt < 0 for (any) common token l, without the condition |G_CT| = 1",
    source="poster and slides, (a)",
    setting=LOPSIDED,
    hypotheses=(weak_correlations,),
    predicts="falling logits; corrected (K = 2): iff f_1.f_2 < 2 f_1l f_2l/(f_1l^2 + f_2l^2)",
    measures="the velocity under Eq. 10 of two common tokens, one lopsided",
    tolerance=0.0,
    because="a strict sign",
    code=("common_token_margin",),
    test="tests/theory/test_fates.py::test_criterion_for_two_classes_decides_every_common_token",
    figure="fig2",
    number="the lopsided token is {:.3g} above the criterion, and grows",
    recorded=Recorded(Verdict.CORRECTED, 0.1682),
    measure=_poster_common,
)


def _poster_z(setting: Setting) -> Outcome:
    rng, d, M = np.random.default_rng(14), 16, 8
    U, W_Q, W_K = rng.normal(size=(M, d)) / 4, rng.normal(size=(d, d)), rng.normal(size=(d, d))
    sequence, query = rng.integers(0, M, 30), 3
    b = scipy.special.softmax((U @ W_K)[sequence] @ (U @ W_Q)[query] / np.sqrt(d))  # Eq. 1
    attended = np.eye(M)[sequence].T @ b
    q = np.bincount(sequence, minlength=M) / 30
    poster = U @ W_Q @ W_K.T @ U.T
    token = dict(token=np.arange(M))
    checks = tuple(
        Check("X^T b", labelled(theory.attention_weights(q[None], Z[query])[0], **token),
              labelled(attended, **token), relative=False, form=form)  # type: ignore[arg-type]
        for form, Z in (("printed", poster), ("corrected", poster / np.sqrt(d)))
    )  # fmt: skip
    return Outcome(checks, number=checks[0].error)


poster_z = Claim(
    id="poster-z",
    statement="Z = U W_Q W_K^T U^T, without the 1/sqrt(d) of Section 3.1",
    source="poster and slides, reparameterization",
    setting=WEAK,
    predicts="the attention of a sequence (Eq. 5 with its frequencies); corrected: Z over sqrt(d)",
    measures="Eq. 1 itself for random U, W_Q, W_K with d = 16 and 30 tokens",
    tolerance=1e-12,
    because="rounding",
    code=("attention_weights",),
    test="tests/theory/test_tokens.py::test_attention_is_eq_5_with_queries_and_leading_axes",
    number="with the poster's Z an attention weight is off by {:.2g} (d = 16)",
    recorded=Recorded(Verdict.CORRECTED, 0.2299),
    measure=_poster_z,
)


def _slides_suppressed(setting: Setting) -> Outcome:
    s = setting
    n, _, low = spotlight(s)
    velocity = theory.attention_velocity(s.P, reduced(s, TIMES).logits, psi=s.psi, M=s.M)
    rare = velocity[:, s.psi[n], low]
    _, z = run_at(s)
    common = int(np.flatnonzero(theory.token_roles(s.P).common)[0])
    end = z[-1, s.psi[n]]
    share = theory.attention_weights(s.P, z, psi=s.psi)[:, n, low]
    return Outcome(
        (
            Check("velocity of the rarest distinct token, Eq. 10", labelled(0 * rare, time=TIMES),
                  labelled(rare, time=TIMES), "<"),
            Check("z of the rarest distinct token at the end, training", labelled(0.0),
                  labelled(float(end[low])), "<", training=True),
        ),
        number=float(rare[0]),
        training_number=float(end[low]),
        note=f"the rarest distinct token ends at z = {end[low]:+.4f}, the common token at "
        f"{end[common]:+.4f}: rare tokens lose only against the dominant one (attention to the "
        f"rarest: {share[0]:.4f} at the start, {share[-1]:.4f} at the end)",
    )  # fmt: skip


slides_suppressed = Claim(
    id="slides-suppressed",
    statement="Key tokens that do not co-occur a lot with the query token are suppressed",
    source="slides, take-home message",
    setting=WEAK,
    hypotheses=(weak_correlations, fast_decoder),
    predicts="a falling logit of the rarest distinct token",
    measures="its velocity under Eq. 10 and its logit in the joint flow",
    tolerance=0.0,
    because="a strict sign",
    code=("attention_velocity", "token_fates"),
    test="tests/theory/test_gain.py::test_speed_of_a_distinct_token_is_its_squared_weight",
    number="the rarest distinct token gains: {:.2g} (times eta_Z gamma) at the start",
    training_number="in training it ends at z = {:+.2g}; what is suppressed is the common token",
    recorded=Recorded(Verdict.FAILS, 0.0002269, Verdict.FAILS, 0.001238),
    measure=_slides_suppressed,
)


def _slides_tf_idf(setting: Setting) -> Outcome:
    s = setting
    tokens = np.flatnonzero(s.P[0])
    spread = np.log(s.K / (s.P > 0).sum(0))[tokens]
    weight = s.P[0, tokens] * spread
    times, z = run_at(s)
    ends = {"Eq. 10": reduced(s, times[[-1]]).logits[0], "training": z[-1]}
    rank = {
        name: float(scipy.stats.spearmanr(weight, end[s.psi[0], tokens]).statistic)
        for name, end in ends.items()
    }
    return Outcome(
        tuple(
            Check(f"rank correlation of TF-IDF and z, {name}", labelled(0.99), labelled(value),
                  ">=", training=name == "training")
            for name, value in rank.items()
        ),
        number=rank["Eq. 10"],
        training_number=rank["training"],
    )  # fmt: skip


slides_tf_idf = Claim(
    id="slides-tf-idf",
    statement="Attention is a learnable TF-IDF: frequent in the class, rare across classes",
    source="slides, winners-emergence",
    setting=WEAK,
    hypotheses=(weak_correlations, fast_decoder),
    predicts="logits in the order of P(l|n) ln(K / number of classes with l)",
    measures="the rank correlation with z at the end, Eq. 10 and the joint flow",
    tolerance=0.0,
    because="an order of four tokens",
    code=("attention_flow",),
    test="tests/theory/test_fates.py::test_theorem_2a_distinct_tokens_gain",
    number="rank correlation {:.2f}",
    training_number="rank correlation {:.2f} in training",
    recorded=Recorded(Verdict.HOLDS, 1.0, Verdict.HOLDS, 1.0),
    measure=_slides_tf_idf,
)

CLAIMS = (
    poster_quarter,
    poster_start,
    poster_common,
    poster_z,
    slides_suppressed,
    slides_tf_idf,
)

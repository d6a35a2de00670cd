"""Section 5 and Appendix E: what attention does with the gradient (Lemma 4, Theorems 2 and 3)."""

from dataclasses import replace
from typing import Any

import numpy as np

from attnlab import formulas
from attnlab.auditing import Measurement, claim
from attnlab.auditing.fit import listed, slope
from attnlab.auditing.runs import TRAINED_RATIOS, holds_from
from attnlab.files.errors import InputError
from attnlab.formulas.checks import FloatArray, IntArray
from attnlab.theory import Case, Check
from attnlab.theory.relation import ABOVE, AT_LEAST, AT_MOST, BELOW, EQUAL, LEADING, Trained

from .. import cases, theory
from ..cases import SYMMETRIC, UNEVEN, WEAK
from ..hypotheses import ALONG_EQ_10, ASSUMPTION_1, COROLLARY_2, EQ_10
from . import in_both_forms

TIMES = np.geomspace(1.0, 1e7, 60)
# How near Eq. 10 must be to training to count as a description of it, a premise of what follows.
PREMISE: Any = {"relation": LEADING, "tolerance": 0.25, "form": "premise"}


def eq_10_in_training(s: Case) -> tuple[Check, float]:
    """The premise that attention moves by Eq. 10, held against the joint flow: the size of z from
    t_0 on, and how many times too large Eq. 10 makes it by t_0."""
    times, path = cases.training_path(s)
    t0 = cases.transition_time(s)
    late = times >= t0
    if not late.any():
        raise InputError(f"steps: train beyond t_0 = {t0:.4g} to compare the two from there on")
    by_eq_10, trained_size = (
        np.linalg.norm(z, axis=(1, 2)) for z in (cases.eq_10(s, times[late]).logits, path[late])
    )
    check = Trained("size of z from t_0 on, Eq. 10", by_eq_10, trained_size, **PREMISE)
    return check, float((by_eq_10 / trained_size)[0])


@claim(EQUAL, "Lemma 4, Eqs. 10, 94-96", WEAK, ALONG_EQ_10, tolerance=1e-13, general=True)
def lemma_4(s: Case) -> Measurement:
    r"""Given Theorem 1's gradient, $\dot z_m = \eta_Z \gamma \sum_{n \in \psi^{-1}(m)}
    \operatorname{diag}(f_n) \sum_{n' \ne n} \beta_{nn'} (f_n f_n^\top - I) f_{n'}$ (Eq. 10).

    Compare dz/dt per step with Lemma 1 averaged over classes at Theorem 5's Y, and Eq. 10 with the
    joint flow at eta_Y/eta_Z = 30; the corrected form has the share P(n) = 1/K of the steps that
    class n gets. The tolerance is rounding; in training 25 % count as a description.
    """
    t = cases.transition_time(s)
    rng = np.random.default_rng(9)
    z = rng.normal(scale=0.3, size=(s.classes.queries.size, s.P.shape[1]))
    f = formulas.unit_attention(s, z)
    Y = theory.decoder_weights(f, theory.h(t / s.K, M=s.M, eta_y=s.eta_y), M=s.M)
    mean = np.zeros(z.shape)
    for n in range(s.K):
        step = formulas.sample_gradient(s.P[n], z[s.psi[n]], Y, target=n).logits
        mean[s.psi[n]] += s.classes.prior[n] * step
    speed = theory.gamma(t, **cases.clock(s))
    predicted = {
        form: speed * theory.attention_velocity(s, z, weight=weight)
        for form, weight in (("printed", 1.0), ("corrected", None))
    }
    premise, factor = eq_10_in_training(s)
    return Measurement(
        *in_both_forms("dz/dt over eta_Z, per step", predicted, mean, relative=False),
        premise,
        replace(premise, form="printed"),
        number=float(np.linalg.norm(predicted["printed"]) / np.linalg.norm(mean)),
        training_number=factor,
        note="Eq. 10 is what the decoder of Eq. 26 does to attention; SGD trains another decoder "
        "(see theorem-1)",
    )


def without_memory(s: Case, times: FloatArray, path: FloatArray) -> FloatArray:
    """Return dz/dt along a path of z, (time, Q, L), with SGD's decoder trained at each z anew.

    Trained by Eq. 7 at the attention of that time alone, Y lies in the span of the current f_n, so
    that g_n has the form of Eq. 9. The decoder of the joint flow also keeps what it learnt from
    earlier attention.
    """
    velocity = np.zeros(path.shape)
    for i, (t, z) in enumerate(zip(times, path, strict=True)):
        f = formulas.unit_attention(s, z)
        w = formulas.sgd_flow(formulas.Setting.of(s, eta_z=0.0), t, z0=z).outputs
        outputs = np.hstack([w[:, :-1], np.repeat(w[:, -1:], s.M + 1 - w.shape[1], axis=1)])
        target = np.unique(s.classes.next_token, return_inverse=True)[1]
        g = theory.gradient_coefficients(outputs, theory.gram(f), next_token=target) @ f
        each = s.prior[:, None] * f * (g - (f * g).sum(axis=1, keepdims=True) * f)
        np.add.at(velocity[i], s.psi, s.eta_z * each)
    return velocity


@claim(ABOVE, "Theorem 2, Eqs. 97-100", UNEVEN, ALONG_EQ_10, general=True)
def theorem_2(s: Case) -> Measurement:
    r"""Under Eq. 10: (a) $\dot z_{ml} > 0$ for distinct tokens $l \in G_{DT}(n)$, $m = \psi(n)$;
    (b) $\dot z_{ml} < 0$ for a single common token, $\lvert G_{CT} \rvert = 1$, if some class of
    $m$ has a distinct one.

    Compare the sign of dz/dt of each token at every time with the velocity along Eq. 10, and with
    the slope of z in the joint flow at eta_Y/eta_Z = 30. Only the sign counts; 25 % to say that a
    decoder without memory describes training.
    """
    fates = theory.token_fates(s)
    claimed = fates != 0
    if not claimed.any():
        raise InputError("classes: Theorem 2 says nothing of these; give classes that overlap")
    path = cases.eq_10(s, TIMES).logits
    velocity = theory.attention_velocity(s, path)
    along = (velocity * fates)[:, claimed]
    times, z = cases.training_path(s)
    trained_along = (cases.slopes(times, z) * fates)[:, claimed]
    start = (theory.attention_velocity(s, 0 * path[0]) * fates)[claimed]
    last = times.size - 2  # of the intervals between records
    first = min(int(np.searchsorted(times, cases.transition_time(s))), last)
    late = np.unique(np.geomspace(first, last, 6).astype(int))
    between = np.sqrt(times[late] * times[late + 1])
    anew = without_memory(s, between, (z[late] + z[late + 1]) / 2.0)
    anew_along = (anew * fates)[:, claimed]
    memoryless = "velocity with a decoder that has no memory, from t_0 on"
    turns = [_first_against(times, run, fates) for run in cases.logits(s, cases.at_ratios(s))]
    when = ", ".join(f"{turn:.2g}" if np.isfinite(turn) else "never" for turn in turns)
    row, column = (index[int(trained_along.min(axis=0).argmin())] for index in np.nonzero(claimed))
    return Measurement(
        Check("velocity along its fate, Eq. 10", 0.0, along),
        Check("velocity along its fate, SGD's decoder trained anew", 0.0, anew_along),
        Trained("velocity along its fate, training", 0.0, trained_along),
        Trained(memoryless, trained_along[late], anew_along, **PREMISE),
        number=float(start.min()),
        training_number=_first_against(times, z, fates),
        note=f"{s.classes.origin}, in training: the first logit turns against its fate at t = "
        f"{when}, for eta_Y/eta_Z = {listed(TRAINED_RATIOS, 'g')} (to t = {times[-1]:.0e}); at "
        f"{s.eta_y / s.eta_z:.3g} token {s.classes.in_play[column]} rises to z = "
        f"{z[:, row, column].max():+.4f} and ends at {z[-1, row, column]:+.4f}. The form of Eq. 9 "
        "and xi_n > 0, from which the signs follow, hold for a decoder that SGD trains at the "
        "attention of the time alone; the decoder of the joint flow remembers earlier attention. "
        "What attention does: see distinct-attention",
        holds_from=holds_from([not np.isfinite(turn) for turn in turns]),
    )


def _first_against(times: FloatArray, path: FloatArray, fates: IntArray) -> float:
    """Return when the first logit turns against its fate; infinity where none does."""
    return min(cases.first_turn(times, z) for z in (path * fates)[:, fates != 0].T)


@claim(
    BELOW,
    ["Corollary 2", "poster and slides, (a)"],
    SYMMETRIC,
    (*ASSUMPTION_1, *COROLLARY_2),
    general=True,
)
def corollary_2(s: Case) -> Measurement:
    r"""In the symmetric case every common token loses attention: $\dot z_{m_0 l} < 0$ for any $l
    \in G_{CT}$.

    Check that dz/dt of each common token is negative at every time, along Eq. 10 and in the joint
    flow at eta_Y/eta_Z = 30. Only the sign counts.
    """
    common = np.flatnonzero(formulas.token_roles(s).common)
    velocity = theory.attention_velocity(s, cases.eq_10(s, TIMES).logits)
    falling = velocity[:, 0, common]
    times, z = cases.training_path(s)
    slope_of_common = cases.slopes(times, z)[:, 0, common]
    return Measurement(
        Check("velocity of common tokens, Eq. 10", 0.0, falling),
        Trained("velocity of common tokens, training", 0.0, slope_of_common),
        number=float(falling[0].max()),
        training_number=float(z[-1, 0, common].max()),
    )


@claim(EQUAL, "Theorem 3, Eqs. 11, 108-111", WEAK, ALONG_EQ_10, tolerance=1e-8, general=True)
def theorem_3(s: Case) -> Measurement:
    r"""$r_{l/l' \mid n}(t) = r_{l/l' \mid n}(0) e^{2(z_{ml}(t) - z_{ml}(0))}$ for distinct tokens
    $l$, $l'$ of class $n$, where $r_{l/l' \mid n}(t) := f_{nl}^2(t)/f_{nl'}^2(t) - 1$.

    Compare the relative gain of each distinct token from its own logit with Eq. 10 solved
    numerically, and with the joint flow at eta_Y/eta_Z from 1 to 1000. The tolerance is that of the
    ODE solver; in training 1 % of r/r_0 - 1, and an error that goes as eta_Z/eta_Y.
    """
    n, _, low = cases.most_and_least_frequent(s)
    tokens = np.flatnonzero(formulas.token_roles(s).distinct[n])
    z = cases.eq_10(s, TIMES).logits
    gain = theory.relative_gain(s, z, reference=low)[:, n, tokens]
    start = theory.relative_gain(s, reference=low)[n, tokens]
    predicted = start * theory.growth_factor(z[:, s.psi[n], tokens])
    late = cases.at_ratios(s).sel(time=10 * cases.transition_time(s))
    errors = cases.gain_error(s, cases.logits(s, late))
    rate = slope(TRAINED_RATIOS[2:], errors[2:])
    small, error = 0.01, "Eq. 11's error"
    return Measurement(
        Check("relative gain r_{l/l'} (Eq. 11)", predicted, gain),
        Trained(f"exponent of {error} in eta_Y/eta_Z", -1.0, rate, LEADING, tolerance=0.1),
        Trained(f"{error} at eta_Y/eta_Z = 30", small, errors[3], AT_MOST, tolerance=0.0),
        training_number=rate,
        note="relative error of r/r_0 - 1 by Eq. 11, in training at 10 t_0: "
        f"{listed(errors, '.1%')} at eta_Y/eta_Z = {listed(TRAINED_RATIOS, 'g')}",
        holds_from=holds_from((errors <= small).tolist()),
    )


@claim(AT_MOST, "Theorem 3, Eq. 12", WEAK, EQ_10, tolerance=1e-9)
def eq_12(s: Case) -> Measurement:
    r"""$e^{2 f_{nl_0}^2(0) B_n(t)} \le \chi_{l_0}(t) \le e^{2 B_n(t)}$ with $B_n(t) := \eta_Z
    \int_0^t \xi_n(t') dt'$, and $f_{nl_0}(t)$ increases.

    Compare the two bounds, with B_n = eta_Z int P(n) xi_n dt (the class weight is needed), with Eq.
    10 solved numerically. The tolerance is that of the ODE solver near t = 0, where both bounds
    meet.
    """
    n, high, _ = cases.most_and_least_frequent(s)
    flow = cases.eq_10(s, TIMES)
    B = flow.growth_bound[:, n]
    chi = theory.growth_factor(flow.logits[:, s.psi[n], high])
    f = formulas.unit_attention(s, flow.logits)[:, n, high]
    lower, upper = theory.growth_bounds(B, formulas.unit_attention(s)[n, high] ** 2)
    return Measurement(
        Check("chi_l0 above exp(2 f^2 B_n)", lower, chi, AT_LEAST),
        Check("chi_l0 below exp(2 B_n)", upper, chi),
        Check("f_l0 increases", f[:-1], f[1:], AT_LEAST),
        number=float(np.log(chi[-1]) / (2.0 * B[-1])),
    )

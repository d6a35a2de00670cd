"""Sections 1, 5 and 6 in words: which tokens attention favours, and that it slows down."""

from __future__ import annotations

import numpy as np

from attnlab import theory
from attnlab.audit.attention_claims import TIMES, run_at
from attnlab.audit.claim import Claim, Outcome, Recorded
from attnlab.audit.comparison import Check, labelled
from attnlab.audit.hypotheses import (
    fast_decoder,
    single_common_token,
    single_query,
    weak_correlations,
)
from attnlab.audit.readings import as_dataset, logits, mean_entropy, reduced, spotlight
from attnlab.audit.settings import LOPSIDED, SYN_SMALL, WEAK, Setting, trained
from attnlab.audit.verdict import Verdict


def _frequency_bias(setting: Setting) -> Outcome:
    s = setting
    n, _, _ = spotlight(s)
    own = np.flatnonzero(theory.token_roles(s.P).distinct[n])
    own = own[np.argsort(s.P[n, own])]
    own = own[np.append(True, np.diff(s.P[n, own]) > 0)]  # an order needs unequal probabilities
    step = dict(rarer=np.arange(len(own) - 1))
    checks, share = [], {}
    times, z = run_at(s)
    for name, path in (("Eq. 10", reduced(s, times).logits), ("training", z)):
        rising = np.diff(path[-1, s.psi[n], own])
        c = theory.attention_weights(s.P, path, psi=s.psi)[:, n]
        share[name] = float(c[-1, own[0]] / c[-1, own[-1]] / (c[0, own[0]] / c[0, own[-1]]))
        checks.append(
            Check(f"z rises with P(l|n), {name}", labelled(0 * rising, **step),
                  labelled(rising, **step), ">", training=name == "training")
        )  # fmt: skip
    return Outcome(tuple(checks), number=share["Eq. 10"], training_number=share["training"])


frequency_bias = Claim(
    id="frequency-bias",
    statement="Attention favours the tokens that co-occur often, and drops the rare ones first",
    source="Sections 1, 5 (frequency bias, token scanning)",
    setting=SYN_SMALL,
    hypotheses=(fast_decoder,),
    predicts="logits of distinct tokens in the order of P(l|n)",
    measures="Eq. 10 and the joint flow on Syn-Small, eta_Y/eta_Z = 10",
    tolerance=0.0,
    because="an order",
    code=("attention_flow", "relative_gain"),
    test="tests/theory/test_gain.py::test_speed_of_a_distinct_token_is_its_squared_weight",
    figure="fig4",
    number="the rarest distinct token keeps {:.2g} of its share against the most frequent",
    training_number="in training it keeps {:.2g} of it",
    recorded=Recorded(Verdict.HOLDS, 0.35, Verdict.HOLDS, 0.5078),
    measure=_frequency_bias,
    general=True,
)


def _discriminative_bias(setting: Setting) -> Outcome:
    s = setting
    common = np.flatnonzero(theory.token_roles(s.P).common)
    start = theory.attention_velocity(s.P, np.zeros((1, s.P.shape[1])), psi=s.psi, M=s.M)[0, common]
    _, z = run_at(s)
    end = z[-1, 0, common]
    peak = float(reduced(s, TIMES).logits[:, 0, common].max())
    return Outcome(
        (
            Check("velocity of common tokens at the start, Eq. 10",
                  labelled(0 * start, token=common), labelled(start, token=common), "<"),
            Check("z of common tokens at the end, training", labelled(0 * end, token=common),
                  labelled(end, token=common), "<", training=True),
        ),
        number=float(start.max()),
        training_number=float(end.max()),
        note=f"{s.classes.origin}: common token 1 starts at {start.max():+.2e} (times eta_Z gamma) "
        f"and rises to z = {peak:+.4f} under Eq. 10; in training it ends at {end.max():+.4f}",
    )  # fmt: skip


discriminative_bias = Claim(
    id="discriminative-bias",
    statement="Attention loses interest in common tokens (any, not a single or symmetric one)",
    source="Abstract, Section 1, poster (a)",
    setting=LOPSIDED,
    hypotheses=(weak_correlations,),
    predicts="falling logits for every common token",
    measures="the velocity under Eq. 10 and z in the joint flow, two common tokens, one lopsided",
    tolerance=0.0,
    because="a strict sign",
    code=("common_token_margin", "attention_velocity"),
    test="tests/theory/test_fates.py::test_a_common_token_can_grow_though_assumption_2_holds",
    figure="fig2",
    number="a common token grows: {:.2g} (times eta_Z gamma) at the start",
    training_number="in training it ends at z = {:.2g}",
    recorded=Recorded(Verdict.FAILS, 0.0008037, Verdict.FAILS, 0.005462),
    measure=_discriminative_bias,
)


def _no_winner(setting: Setting) -> Outcome:
    s = setting
    times = np.geomspace(1.0, 1e12, 40)
    path = as_dataset(s, times, reduced(s, times).logits)
    run = trained(s.classes, ((s.eta_y, s.eta_z),), s.steps).isel(run=0)
    checks, left = [], {}
    for name, result in (("Eq. 10", path), ("training", run)):
        entropy = mean_entropy(result)
        left[name] = float(np.exp(entropy[-1]))
        # A power law would move more in each decade than in the one before.
        last = float(abs(entropy[-1] - entropy.interp(time=result["time"][-1] / 10.0)))
        before = float(
            abs(entropy.interp(time=result["time"][-1] / 10.0)
                - entropy.interp(time=result["time"][-1] / 100.0))
        )  # fmt: skip
        checks += [
            Check(f"effective distinct tokens at the end, {name}", labelled(2.0),
                  labelled(left[name]), ">", training=name == "training"),
            Check(f"entropy moved in the last decade, {name}", labelled(before), labelled(last),
                  "<", training=name == "training"),
        ]  # fmt: skip
    return Outcome(tuple(checks), number=left["Eq. 10"], training_number=left["training"])


no_winner = Claim(
    id="no-winner-takes-all",
    statement="Attention does not collapse onto one token: it slows down and looks frozen",
    source="Abstract, Sections 1, 6",
    setting=SYN_SMALL,
    hypotheses=(fast_decoder,),
    predicts="several distinct tokens still attended to, and each decade of t moving less",
    measures="the effective number of distinct tokens: Eq. 10 to 10^12, training to 10^6",
    tolerance=0.0,
    because="2 would be nearly one token; the measured values are far above",
    code=("attention_flow", "snapping"),
    test="tests/theory/test_transition.py::test_growth_is_ln_t_then_ln_ln_t",
    figure="fig4",
    number="{:.3g} of 10 distinct tokens are left at t = 10^12",
    training_number="{:.3g} of 10 are left at t = 10^6 in training",
    recorded=Recorded(Verdict.HOLDS, 5.575, Verdict.HOLDS, 7.71),
    measure=_no_winner,
)


def _growth_slows(setting: Setting) -> Outcome:
    s = setting
    t0_prime, t0 = theory.transition_times(K=s.K, M=s.M, eta_y=s.eta_y)
    run = trained(s.classes, ((s.eta_y, s.eta_z),), s.steps).isel(run=0)
    times = run["time"].values
    _, high, _ = spotlight(s)
    checks, quicker = [], {}
    for name, z in (
        ("Eq. 10", reduced(s, times).logits[:, 0, high]),
        ("training", logits(s, run)[:, 0, high]),
    ):
        chi = theory.growth_factor(z)
        early, late = (times > 0) & (times <= t0_prime), times >= t0
        power = np.diff(np.log(chi[early])) / np.diff(np.log(times[early]))
        per_fold = np.diff(chi[late]) / np.diff(np.log(times[late]))
        quicker[name] = float(per_fold.max() / per_fold[0])
        checks += [
            Check(f"exponent of chi in t up to t_0', {name}", labelled(1.0),
                  labelled(float(power.max())), "<=", training=name == "training"),
            Check(f"growth of chi per e-fold of t, largest from t_0 on over that at t_0, {name}",
                  labelled(1.0), labelled(quicker[name]), "<=", training=name == "training"),
        ]  # fmt: skip
    z = logits(s, run)[:, 0, high]
    done = float(np.interp(np.log(t0), np.log(times[1:]), z[1:]) / z[-1])
    return Outcome(
        tuple(checks),
        number=quicker["Eq. 10"],
        training_number=quicker["training"],
        note=f"two classes, eta_Y/eta_Z = {s.eta_y / s.eta_z:g}: by t_0 = {t0:.3g} training made "
        f"{done:.1%} of the movement of the dominant logit that it makes by t = {times[-1]:.0e}",
    )


growth_slows = Claim(
    id="scan-and-snap",
    statement="chi of the dominant token grows (sub-)linearly up to t_0', as O(ln t) from t_0 on",
    source="Theorem 4 (scanning, snapping)",
    setting=WEAK,
    hypotheses=(single_query, single_common_token),
    predicts="chi at most linear in t up to t_0'; from t_0 on no e-fold of t adds more than at t_0",
    measures="chi under Eq. 10 and in the joint flow",
    tolerance=0.0,
    because="inequalities between rates",
    code=("growth_factor", "attention_flow"),
    test="tests/theory/test_transition.py::test_growth_is_ln_t_then_ln_ln_t",
    figure="fig3",
    number="after t_0 an e-fold of t adds at most {:.2g} times as much as at t_0",
    training_number="in training up to {:.2g} times as much: t_0 is not where it freezes",
    recorded=Recorded(Verdict.HOLDS, 1.0, Verdict.FAILS, 2.126),
    measure=_growth_slows,
)

CLAIMS = (frequency_bias, discriminative_bias, no_winner, growth_slows)

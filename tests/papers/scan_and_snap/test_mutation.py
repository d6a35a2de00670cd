"""Every verdict could come out otherwise: with a wrong theory, claims notice.

Each mutation breaks one function of the paper's theory; the claims named must change their verdict.
Only `corollary-2`, `residual-local-roles` and `theorem-2` train; the rest are algebra.
"""

from dataclasses import replace

import numpy as np
import pytest

from attnlab.auditing import Measurement, Verdict, select
from attnlab.papers.scan_and_snap import theory
from attnlab.papers.scan_and_snap.cases import FIG3, UNEVEN, WEAK, slopes, training_path
from attnlab.papers.scan_and_snap.claims import attention as attention_claims
from attnlab.theory.relation import Check


def scaled(name, factor):
    original = getattr(theory, name)
    return name, lambda *args, **kwargs: original(*args, **kwargs) * factor


def fixed_form(name):
    """The printed form whatever is asked for."""
    original = getattr(theory, name)
    return name, lambda *args, **kwargs: original(*args, **{**kwargs, "form": "printed"})


def tuple_scaled(name, factor):
    original = getattr(theory, name)

    def wrong(*args, **kwargs):
        value = original(*args, **kwargs)
        return type(value)(*(part * factor for part in value))

    return name, wrong


def drifting(name):
    """Off by a power of its first argument."""
    original = getattr(theory, name)
    return name, lambda t, **kwargs: original(t, **kwargs) * np.asarray(t) ** 0.2


MUTATIONS = [
    ("lemma-6", *scaled("h", 1 + 1e-6), Verdict.FAILS),
    ("lemma-7", *scaled("h", 1.05), Verdict.FAILS),
    ("lemma-8", *scaled("omega_1", 1.1), Verdict.FAILS),
    ("lemma-9", *scaled("gamma", 2.0), Verdict.FAILS),
    ("lemma-10", *scaled("visits_radius", 0.3), Verdict.FAILS),
    ("lemma-11", *tuple_scaled("decoder_deviations", 0.5), Verdict.FAILS),
    ("lemma-7-proof", *scaled("h", 0.5), Verdict.HOLDS),
    ("small-modification", *scaled("e_prime", 3.0), Verdict.FAILS),
    ("after-eq-30", *scaled("h", 0.5), Verdict.HOLDS),
    ("eq-132-condition", *scaled("reduced_time", 1e9), Verdict.HOLDS),
    ("eq-132", *scaled("growth_bound", 1.5), Verdict.FAILS),
    ("eq-133", *scaled("growth_bound", 3.0), Verdict.FAILS),
    ("lemma-13", *tuple_scaled("spectrum_bounds", 0.9), Verdict.FAILS),
    ("lemma-14", *fixed_form("e_prime"), Verdict.FAILS),
    ("lemma-15", *tuple_scaled("spectrum_bounds", 0.9), Verdict.FAILS),
    ("lemma-16", *fixed_form("e_prime"), Verdict.FAILS),
    ("lemma-17", *fixed_form("e_prime"), Verdict.FAILS),
    ("lemma-18", *tuple_scaled("frequency_interval", 0.9), Verdict.FAILS),
    ("lemma-3", *fixed_form("e_prime"), Verdict.FAILS),
    ("theorem-5", *scaled("decoder_weights", 1.001), Verdict.FAILS),
    ("e-prime", *fixed_form("e_prime"), Verdict.FAILS),
    ("eq-88", *fixed_form("back_gradient"), Verdict.FAILS),
    ("theorem-1a", *scaled("xi", -1.0), Verdict.FAILS),
    ("theorem-1b", *drifting("gamma"), Verdict.FAILS),
    ("eq-124", *fixed_form("growth_bound"), Verdict.FAILS),
    ("eq-128", *scaled("reduced_time", 1 + 1e-8), Verdict.FAILS),
    ("poster-start", *fixed_form("growth_bound"), Verdict.FAILS),
    ("corollary-2", *scaled("attention_velocity", -1.0), Verdict.FAILS),
    ("residual-exact", *fixed_form("residual_velocity"), Verdict.FAILS),
    ("remark-2", "h_lead", lambda steps, **_: np.full(len(steps), 3.0), Verdict.HOLDS),
    ("eq-62", *scaled("h", 3.0), Verdict.FAILS),
    ("eq-58", *fixed_form("visits_radius"), Verdict.FAILS),
    ("poster-quarter", *scaled("growth_bound", 0.1), Verdict.FAILS),
]


@pytest.mark.parametrize(
    ("claim", "name", "wrong", "verdict"),
    MUTATIONS,
    ids=[f"{claim} without {name}" for claim, name, *_ in MUTATIONS],
)
def test_a_wrong_theory_changes_the_verdict(monkeypatch, claim, name, wrong, verdict):
    (claim,) = select([claim])
    monkeypatch.setattr(theory, name, wrong)
    assert claim.recorded.verdict is not verdict
    assert claim.examine().verdict is verdict


def test_other_classes_can_bring_a_claim_within_its_assumptions():
    """Assumption 2 is outside in Fig. 3's case because of that case, not by decree."""
    (claim,) = select(["assumption-2"])
    assert claim.examine().verdict is Verdict.OUTSIDE
    within = claim.examine(WEAK)
    assert within.verdict is not Verdict.OUTSIDE
    assert all(hypothesis.holds for hypothesis in within.hypotheses)


@pytest.mark.parametrize(
    "outside",
    [WEAK.at(eta_z=0.1), WEAK.at(eta_y=1.5), replace(WEAK, length=128.0), FIG3],
    ids=["slow decoder", "large rate", "short sequences", "strong correlations"],
)
def test_a_setting_outside_the_assumptions_never_fails(outside):
    (claim,) = select(["theorem-1"])
    wrong = replace(claim, measure=lambda _: Measurement(Check("x", 1.0, 2.0)))
    assert wrong.examine(WEAK).verdict is Verdict.FAILS
    assert wrong.examine(outside).verdict is Verdict.OUTSIDE


@pytest.mark.slow
def test_the_residual_is_outside_whatever_its_velocity_says(monkeypatch):
    """No classes can be inside; without that hypothesis the velocity decides."""
    (claim,) = select(["residual-local-roles"])
    assert claim.examine().verdict is Verdict.OUTSIDE
    anywhere = replace(claim, hypotheses=())
    assert anywhere.examine().verdict is Verdict.FAILS
    monkeypatch.setattr(theory, *fixed_form("residual_velocity"))
    assert anywhere.examine().verdict is Verdict.HOLDS


def test_a_premise_that_held_would_change_the_verdict_in_training(monkeypatch):
    """Theorem 2 rests on Eq. 9's form: had training's decoder no memory, it would be refuted."""
    (claim,) = select(["theorem-2"])
    assert claim.examine().training is Verdict.PREMISE

    def as_trained(case, times, path):
        recorded, z = training_path(case)
        return slopes(recorded, z)[np.searchsorted(recorded, times) - 1]

    monkeypatch.setattr(attention_claims, "without_memory", as_trained)
    assert claim.examine().training is Verdict.FAILS


def test_theorem_2_is_judged_by_its_signs_and_not_by_the_size_of_z():
    """Eq. 10 makes z far too large by t_0; the signs are right until memory turns a logit."""
    (claim,) = select(["theorem-2"])
    before = replace(UNEVEN, steps=1e6)
    assert attention_claims.eq_10_in_training(before)[1] > 10
    assert claim.examine(before).training is Verdict.HOLDS
    assert claim.examine().measurement.training_number == pytest.approx(1.45e6, rel=0.02)
